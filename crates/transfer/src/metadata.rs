//! Metadata that a source gives of an object besides its bytes, for the sources and processors of the
//! receiving side (`papers/dot.txt` §7): keys and values, few and short. Whoever does not know a
//! key passes over it.

use std::collections::BTreeMap;

use thiserror::Error;

/// The most keys.
pub const MAX_KEYS: usize = 16;
/// The most bytes of a key.
pub const MAX_KEY: usize = 64;
/// The most bytes of a value.
pub const MAX_VALUE: usize = 1024;

/// Keys and values of one object, within the limits of this module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(BTreeMap<String, Vec<u8>>);

/// Error of a key and its value that can't be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// Over [`MAX_KEYS`].
    #[error("there are more than 16 metadata keys")]
    TooMany,
    /// A key is empty, over [`MAX_KEY`], or has other characters than `a`–`z`, `0`–`9`, `-`, `.`.
    #[error("a metadata key is not a name of up to 64 bytes")]
    Key,
    /// The same key a second time.
    #[error("a metadata key comes twice")]
    Twice,
    /// Over [`MAX_VALUE`].
    #[error("a metadata value has more than 1024 bytes")]
    Value,
}

impl Metadata {
    /// Adds a key.
    pub fn insert(&mut self, key: String, value: Vec<u8>) -> Result<(), MetadataError> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(is_name) {
            return Err(MetadataError::Key);
        }
        if value.len() > MAX_VALUE {
            return Err(MetadataError::Value);
        }
        if self.0.contains_key(&key) {
            return Err(MetadataError::Twice);
        }
        if self.0.len() == MAX_KEYS {
            return Err(MetadataError::TooMany);
        }
        self.0.insert(key, value);
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_a_limit_is_refused_and_changes_nothing() {
        let mut metadata = Metadata::default();
        for (key, len, why) in [
            (String::new(), 0, MetadataError::Key),
            ("k".repeat(MAX_KEY + 1), 0, MetadataError::Key),
            ("Upper".into(), 0, MetadataError::Key),
            ("new\nline".into(), 0, MetadataError::Key),
            ("long".into(), MAX_VALUE + 1, MetadataError::Value),
        ] {
            assert_eq!(metadata.insert(key, vec![0; len]), Err(why));
        }
        assert_eq!(metadata.iter().count(), 0);
        metadata.insert("k".repeat(MAX_KEY), vec![7; MAX_VALUE]).unwrap();
        assert_eq!(metadata.insert("k".repeat(MAX_KEY), Vec::new()), Err(MetadataError::Twice));
        for number in 1..MAX_KEYS {
            metadata.insert(format!("key-{number}"), Vec::new()).unwrap();
        }
        assert_eq!(metadata.insert("more".into(), Vec::new()), Err(MetadataError::TooMany));
        assert_eq!(metadata.get(&"k".repeat(MAX_KEY)), Some(&[7; MAX_VALUE][..]));
    }
}
