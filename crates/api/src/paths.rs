//! Paths in JSON: text, or the list of its bytes for a path that is not UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for PathForm {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.into()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<PathForm> for PathBuf {
    fn from(form: PathForm) -> Self {
        match form {
            PathForm::Text(text) => text.into(),
            PathForm::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// Writes a path.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    PathForm::from(path).serialize(serializer)
}

/// Reads a path.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    PathForm::deserialize(deserializer).map(PathBuf::from)
}

/// The same for a path that may be absent.
pub mod option {
    use super::*;

    /// Writes a path, or null.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(PathForm::from).serialize(serializer)
    }

    /// Reads a path, or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Option::<PathForm>::deserialize(deserializer).map(|form| form.map(PathBuf::from))
    }
}

/// The same for a list of paths.
pub mod list {
    use super::*;

    /// Writes paths.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| PathForm::from(path.as_path())))
    }

    /// Reads paths.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        let forms = Vec::<PathForm>::deserialize(deserializer)?;
        Ok(forms.into_iter().map(PathBuf::from).collect())
    }
}

/// The same for a list of words that need not be text.
pub mod bytes {
    use super::*;

    /// Writes words.
    pub fn serialize<S: Serializer>(words: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(words.iter().map(|word| PathForm::from(Path::new(OsStr::from_bytes(word)))))
    }

    /// Reads words.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        let forms = Vec::<PathForm>::deserialize(deserializer)?;
        Ok(forms.into_iter().map(|form| PathBuf::from(form).into_os_string().into_vec()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GetRequest, PutRequest};

    #[test]
    fn a_path_that_is_not_text_comes_back_as_it_was() {
        for (bytes, json) in [(&b"/a"[..], r#"{"path":"/a"}"#), (b"/\xff", r#"{"path":[47,255]}"#)] {
            let request =
                PutRequest { path: OsString::from_vec(bytes.to_vec()).into(), ..PutRequest::default() };
            assert_eq!(serde_json::to_string(&request).unwrap(), json);
            assert_eq!(serde_json::from_str::<PutRequest>(json).unwrap(), request);
        }
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let request = GetRequest {
            search: vec![path(b"/a"), path(b"/\xff")],
            filters: vec![b"- a".to_vec(), b"- \xff".to_vec()],
            ..GetRequest::default()
        };
        let json = serde_json::to_string(&request).unwrap();
        assert!(json.contains(r#""search":["/a",[47,255]]"#), "{json}");
        assert!(json.contains(r#""filters":["- a",[45,32,255]]"#), "{json}");
        assert_eq!(serde_json::from_str::<GetRequest>(&json).unwrap(), request);
    }
}
