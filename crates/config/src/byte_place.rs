//! Kinds of values that name a place for the daemon's own bytes, and the way there.

use std::path::PathBuf;

use toml::de::DeValue;
use towpath_byte_store::BucketPlace;

use super::value::{ConfigSetting, quoted, wrong};

/// The absolute path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath(pub PathBuf);

/// URL of a server, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl(pub String);

/// A place for bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BytePlace {
    /// A directory.
    Directory(PathBuf),
    /// A bucket in object storage.
    Bucket(BucketPlace),
}

impl BytePlace {
    /// Reads a place: the path of a directory, or `s3://BUCKET/PREFIX`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.starts_with("s3://").then(|| BucketPlace::parse(text)) {
            Some(Ok(bucket)) => Ok(Self::Bucket(bucket)),
            Some(Err(why)) => Err(why.to_string()),
            None => Ok(Self::Directory(text.into())),
        }
    }
}

const A_PLACE: &str = "the absolute path of a directory, nor s3://BUCKET/PREFIX";

impl ConfigSetting for Option<BytePlace> {
    const EXAMPLE: &'static str = "\"s3://my-bucket/towpath\"";

    fn kind() -> String {
        "an absolute path, or s3://BUCKET/PREFIX".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().unwrap_or_default();
        match BytePlace::parse(text) {
            Err(why) => wrong(value, &format!("{A_PLACE} ({why})")),
            Ok(BytePlace::Directory(path)) if !path.has_root() => wrong(value, A_PLACE),
            Ok(place) => Ok(Some(place)),
        }
    }

    fn show(&self) -> Option<String> {
        self.as_ref().map(|place| match place {
            BytePlace::Directory(path) => quoted(&path.to_string_lossy()),
            BytePlace::Bucket(bucket) => quoted(&bucket.to_string()),
        })
    }
}

impl ServerUrl {
    /// Reads a URL of a server, without a path.
    pub fn parse(text: &str) -> Option<Self> {
        // Scheme and host, of which it consists, are the same in capitals.
        let text = text.to_ascii_lowercase();
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
        let is_of_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        let is_host = !host.is_empty() && host.len() <= 255 && host.chars().all(is_of_host);
        is_host.then_some(Self(text))
    }
}

impl ConfigSetting for Option<ServerUrl> {
    const EXAMPLE: &'static str = "\"https://s3.example.org\"";

    fn kind() -> String {
        format!("a URL of a server, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let parsed = value.as_str().and_then(ServerUrl::parse);
        parsed.map_or_else(|| wrong(value, &Self::kind()), |endpoint| Ok(Some(endpoint)))
    }

    fn show(&self) -> Option<String> {
        self.as_ref().map(|endpoint| quoted(&endpoint.0))
    }
}

impl ConfigSetting for Option<FilePath> {
    const EXAMPLE: &'static str = "\"/home/ann/.config/towpath/keys\"";

    fn kind() -> String {
        format!("the absolute path of a file, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str().filter(|text| text.starts_with('/')) {
            Some(path) => Ok(Some(FilePath(path.into()))),
            None => wrong(value, &Self::kind()),
        }
    }

    fn show(&self) -> Option<String> {
        self.as_ref().map(|path| quoted(&path.0.to_string_lossy()))
    }
}
