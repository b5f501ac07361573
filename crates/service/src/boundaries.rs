//! Ends of chunks, given by the application that puts: checked before anything is put.

use std::sync::Arc;

use towpath_api::{ApiError, ErrorKind, MAX_BOUNDARIES};

/// Ends of chunks, ascending, without 0.
#[derive(Debug, Clone, Default)]
pub struct Boundaries(Arc<[u64]>);

impl Boundaries {
    /// Checks what an application gave.
    pub fn new(ends: &[u64]) -> Result<Self, ApiError> {
        if ends.len() > MAX_BOUNDARIES {
            let message = format!("{} boundaries are too many: {MAX_BOUNDARIES} can be given", ends.len());
            return Err(ApiError::new(ErrorKind::Usage, message).hint(
                "put the bytes in parts (POST /v1/puts), each of which can end a chunk with boundary=true",
            ));
        }
        let before = std::iter::once(0).chain(ends.iter().copied());
        if let Some((before, end)) = before.zip(ends).find(|(before, end)| before >= end) {
            let message = format!("boundaries ascend from above 0, but {end} comes after {before}");
            return Err(ApiError::new(ErrorKind::Usage, message).hint("each says how many bytes precede it"));
        }
        Ok(Self(ends.into()))
    }

    /// Checks that they lie within an object of `size` bytes.
    pub fn check_size(&self, size: u64) -> Result<(), ApiError> {
        match self.0.last() {
            Some(last) if *last > size => {
                let message =
                    format!("a boundary at {last} lies outside of the file, which has {size} bytes");
                Err(ApiError::new(ErrorKind::Usage, message))
            }
            _ => Ok(()),
        }
    }

    /// Checks that there are none, for what is no file.
    pub(crate) fn refuse(&self) -> Result<(), ApiError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => {
                Err(ApiError::new(ErrorKind::Usage, "a tree has no boundaries of chunks: only a file does"))
            }
        }
    }

    /// The ends.
    pub(crate) fn ends(&self) -> &[u64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_ascend_and_are_bounded() {
        let most: Vec<u64> = (1..=MAX_BOUNDARIES as u64).collect();
        for right in [&[][..], &[1], &[1, 2, 700], &most] {
            assert_eq!(Boundaries::new(right).unwrap().ends(), right);
        }
        let too_many: Vec<u64> = (1..=MAX_BOUNDARIES as u64 + 1).collect();
        for (wrong, why) in [
            (&[0][..], "0 comes after 0"),
            (&[3, 3], "3 comes after 3"),
            (&[3, 2], "2 comes after 3"),
            (&too_many, "too many"),
        ] {
            let error = Boundaries::new(wrong).unwrap_err();
            assert!(error.kind == ErrorKind::Usage && error.message.contains(why), "{error}");
        }
    }

    #[test]
    fn they_lie_within_the_file() {
        let given = Boundaries::new(&[5, 10]).unwrap();
        assert!(given.check_size(10).is_ok() && given.check_size(9).is_err());
        assert!(given.refuse().is_err() && Boundaries::default().refuse().is_ok());
    }
}
