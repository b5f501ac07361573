//! `tow publish`: the `.tow` of a file, written beside it.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use towpath_api::{ApiError, ErrorKind};
use towpath_content::hint::MAX_METHOD;
use towpath_content::published::{FRONT_LEN, MAX_PLACES, PublishedHead};
use towpath_content::tree::Time;
use towpath_mirror::{MirrorPlace, PublishedFile, WebUrl, publish, web_url};
use towpath_store::{About, ObjectKind};
use towpath_words as words;

/// What was written.
#[derive(Debug)]
pub struct PublishedTow {
    /// The `.tow`.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// What it says.
    pub head: PublishedHead,
}

/// Writes the `.tow` of the file at `path`, to `output` or beside it. `urls` are further places of the file. One that is there
/// already is replaced at once, when the new one is whole.
pub fn publish_file(path: &Path, output: Option<&Path>, urls: &[String]) -> Result<PublishedTow, ApiError> {
    check_urls(urls)?;
    let failed = |error: io::Error| words::io("read", path, &error);
    // Opening a pipe would wait for whoever writes.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ApiError::new(ErrorKind::Usage, format!("{} is no file", path.display()))
            .hint("only single files are published; 'tow share' serves trees"));
    }
    let file = File::open(path).map_err(failed)?;
    let destination = output.map_or_else(|| beside(path), Path::to_path_buf);
    let is_same = |there: Metadata| (there.dev(), there.ino()) == (metadata.dev(), metadata.ino());
    if std::fs::metadata(&destination).is_ok_and(is_same) {
        return Err(ApiError::new(
            ErrorKind::Usage,
            "the .tow would replace the very file that it describes",
        ));
    }
    check_replaced(&destination)?;
    let made =
        publish(&file, path, about(path, &metadata), urls.to_vec()).map_err(|error| words::store(&error))?;
    write(&destination, &made).map_err(|error| words::io("write", &destination, &error))?;
    Ok(PublishedTow { path: destination, bytes: made.bytes.len() as u64, head: made.head })
}

fn check_urls(urls: &[String]) -> Result<(), ApiError> {
    if urls.len() > MAX_PLACES {
        return Err(ApiError::new(ErrorKind::Usage, format!("a .tow names {MAX_PLACES} URLs at most")));
    }
    urls.iter().try_for_each(|url| check_url(url))
}

fn check_url(url: &str) -> Result<(), ApiError> {
    let refused =
        |why: String| Err(ApiError::new(ErrorKind::Usage, format!("'{}' {why}", web_url::shown(url))));
    if url.is_empty() || url.len() > MAX_METHOD || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refused(format!("is no URL of 1 to {MAX_METHOD} characters without blanks"));
    }
    match MirrorPlace::new(url) {
        Ok(MirrorPlace::File(_)) => Ok(()),
        Ok(_) => refused("is no URL of a single file".into()),
        // A reference from the .tow on.
        Err(web_url::WrongUrl::Malformed) if is_reference(url) => Ok(()),
        Err(why) => refused(why.to_string()),
    }
}

/// True for what a URL beside the `.tow` may be written as.
fn is_reference(url: &str) -> bool {
    let beside: Option<WebUrl> = "http://host/file.tow".parse().ok();
    !url.contains("://")
        && !url.contains(['{', '#'])
        && !url.ends_with('/')
        && beside.is_some_and(|tow| tow.join(url).is_ok())
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(web_url::TOW);
    PathBuf::from(name)
}

/// Only what is a `.tow` is replaced.
fn check_replaced(destination: &Path) -> Result<(), ApiError> {
    let mut front = Vec::new();
    match File::open(destination) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(words::io("replace", destination, &error)),
        Ok(file) => drop(file.take(FRONT_LEN as u64).read_to_end(&mut front)),
    }
    match PublishedHead::len_of(&front) {
        Ok(_) => Ok(()),
        Err(_) => Err(ApiError::new(
            ErrorKind::Exists,
            format!("{} is there already, and no .tow", destination.display()),
        )
        .hint("name another place with --output")),
    }
}

fn about(path: &Path, metadata: &Metadata) -> About {
    let name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    let modified = Time { seconds: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 };
    let mode = metadata.permissions().mode() & 0o777;
    About { kind: ObjectKind::Blob, name, mode: Some(mode), modified: Some(modified) }
}

fn write(destination: &Path, made: &PublishedFile) -> io::Result<()> {
    let directory = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut temporary = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    temporary.write_all(&made.bytes)?;
    // A web server must be able to read it.
    temporary.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    temporary.as_file().sync_all()?;
    temporary.persist(destination)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_an_older_tow_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.iso");
        std::fs::write(&path, b"hello").unwrap();
        let first = publish_file(&path, None, &[]).unwrap();
        assert_eq!(first.path, folder.path().join("x.iso.tow"));
        std::fs::write(&path, b"hello again").unwrap();
        let second = publish_file(&path, None, &[]).unwrap();
        assert_ne!(first.head.oid, second.head.oid);
        assert_eq!(std::fs::read(&second.path).unwrap().len() as u64, second.bytes);
        let other = folder.path().join("notes");
        std::fs::write(&other, b"keep me").unwrap();
        assert_eq!(publish_file(&path, Some(&other), &[]).unwrap_err().kind, ErrorKind::Exists);
        assert_eq!(std::fs::read(&other).unwrap(), b"keep me");
        assert!(publish_file(folder.path(), None, &[]).is_err(), "a directory");
        let tow = second.path;
        assert!(publish_file(&tow, Some(&tow), &[]).is_err(), "itself");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left over");
    }

    #[test]
    fn urls_are_those_of_a_file() {
        for (url, is_good) in [
            ("https://h/x.iso", true),
            ("pub/x.iso", true),
            ("/x.iso", true),
            ("https://h/pub/", false),
            ("https://h/{oid}", false),
            ("ftp://h/x", false),
            ("https://me@h/x", false),
            ("a b", false),
            ("", false),
            ("#", false),
            ("pub/{oid}", false),
            (&format!("https://h/{}", "x".repeat(600)), false),
        ] {
            assert_eq!(check_url(url).is_ok(), is_good, "{url}");
        }
    }
}
