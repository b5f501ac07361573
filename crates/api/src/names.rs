//! Names, paths and words in JSON: text, or the list of their bytes where they are not UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Written form of some bytes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Form> for Vec<u8> {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => text.into_bytes(),
            Form::Bytes(bytes) => bytes,
        }
    }
}

/// Bytes to be written.
struct Written<'a>(&'a [u8]);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => text.serialize(serializer),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

/// Module that writes a field, and reads it back.
macro_rules! field {
    ($(#[doc = $about:literal])+ $module:ident: &$given:ty => $type:ty, $value:ident => $written:expr, $form:ty: $read:expr) => {
        $(#[doc = $about])+
        pub mod $module {
            use super::*;

            pub fn serialize<S: Serializer>($value: &$given, serializer: S) -> Result<S::Ok, S::Error> {
                $written.serialize(serializer)
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                <$form>::deserialize(deserializer).map($read)
            }
        }
    };
}

fn list_of(names: &[Vec<u8>]) -> Vec<Written<'_>> {
    names.iter().map(|name| Written(name)).collect()
}

fn bytes_of(forms: Vec<Form>) -> Vec<Vec<u8>> {
    forms.into_iter().map(Into::into).collect()
}

fn words_of<W: AsRef<OsStr>>(words: &[W]) -> Vec<Written<'_>> {
    words.iter().map(|word| Written(word.as_ref().as_bytes())).collect()
}

fn word_of<W: From<OsString>>(form: Form) -> W {
    OsString::from_vec(form.into()).into()
}

field! {
    /// A name.
    name: &[u8] => Vec<u8>, name => Written(name), Form: Into::into
}
field! {
    /// A name that may be absent.
    option: &Option<Vec<u8>> => Option<Vec<u8>>, name => name.as_deref().map(Written),
    Option<Form>: |form| form.map(Into::into)
}
field! {
    /// A list of names.
    list: &[Vec<u8>] => Vec<Vec<u8>>, names => list_of(names), Vec<Form>: bytes_of
}
field! {
    /// A list of names that may be absent.
    list_option: &Option<Vec<Vec<u8>>> => Option<Vec<Vec<u8>>>, names => names.as_deref().map(list_of),
    Option<Vec<Form>>: |forms| forms.map(bytes_of)
}
field! {
    /// A word of a command line.
    word: &OsStr => OsString, word => Written(word.as_bytes()), Form: word_of
}
field! {
    /// A word that may be absent.
    word_option: &Option<OsString> => Option<OsString>, word => word.as_ref().map(|word| Written(word.as_bytes())),
    Option<Form>: |form| form.map(word_of)
}
field! {
    /// A list of words.
    words: &[OsString] => Vec<OsString>, words => words_of(words), Vec<Form>: |forms| forms.into_iter().map(word_of).collect()
}
field! {
    /// A path.
    path: &Path => PathBuf, path => Written(path.as_os_str().as_bytes()), Form: word_of
}
field! {
    /// A path that may be absent.
    path_option: &Option<PathBuf> => Option<PathBuf>, path => path.as_ref().map(|path| Written(path.as_os_str().as_bytes())),
    Option<Form>: |form| form.map(word_of)
}
field! {
    /// A list of paths.
    paths: &[PathBuf] => Vec<PathBuf>, paths => words_of(paths), Vec<Form>: |forms| forms.into_iter().map(word_of).collect()
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
