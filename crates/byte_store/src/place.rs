//! A place of bytes in object storage: a bucket and a prefix in it, written `s3://BUCKET/PREFIX`. Who reads a
//! configuration needs no more of object storage than this.

use std::fmt;

/// Scheme of these places.
const SCHEME: &str = "s3://";
/// Characters of a prefix, at most. A key has 1024 at most.
const MAX_PREFIX: usize = 512;

/// A bucket and a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPlace {
    /// The bucket.
    pub bucket: String,
    /// Begin of all keys, without a slash at its end; empty for the whole bucket.
    pub prefix: String,
}

impl BucketPlace {
    /// Reads `s3://BUCKET/PREFIX`. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix(SCHEME).ok_or("it does not begin with s3://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_of_bucket = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_of_bucket) {
            return Err("a bucket's name has 3 to 63 of a-z, 0-9, '-' and '.'");
        }
        let is_of_prefix = |c: char| c.is_ascii_alphanumeric() || "-_.=/".contains(c);
        let has_parts = prefix.is_empty() || prefix.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if prefix.len() > MAX_PREFIX || !prefix.chars().all(is_of_prefix) || !has_parts {
            return Err(
                "a prefix has letters, digits, '-', '_', '.' and '=', with single slashes between them",
            );
        }
        Ok(Self { bucket: bucket.into(), prefix: prefix.into() })
    }

    /// The key of what is called `name` here.
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.into() } else { format!("{}/{name}", self.prefix) }
    }
}

impl fmt::Display for BucketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        let cases = [
            ("s3://tow-bytes", "s3://tow-bytes", "owner"),
            ("s3://tow-bytes/", "s3://tow-bytes", "owner"),
            ("s3://tow.bytes/a/b_c/", "s3://tow.bytes/a/b_c", "a/b_c/owner"),
        ];
        for (text, shown, key) in cases {
            let place = BucketPlace::parse(text).unwrap();
            assert_eq!((place.to_string().as_str(), place.key("owner").as_str()), (shown, key));
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let wrong = [
            "",
            "s3:/bucket",
            "http://bucket",
            "s3://",
            "s3://ab",
            "s3://Bucket",
            "s3://buck et/x",
            "s3://key:secret@bucket",
            "s3://bucket/a//b",
            "s3://bucket/../b",
            "s3://bucket/a?b",
            "s3://bucket/é",
        ];
        for text in wrong {
            assert!(BucketPlace::parse(text).is_err(), "{text}");
        }
    }
}
