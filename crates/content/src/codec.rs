//! The byte-level reader and writer that every binary format of this crate is built on.
//!
//! Integers are unsigned LEB128 varints in their shortest form (a longer form is refused, so an
//! encoding is canonical), byte strings carry their length first, and a length is compared with
//! both its limit and the bytes that are really there before anything is allocated.

use thiserror::Error;

/// Reason why a byte string is not a valid encoding. Facts only; callers add which input it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The input ended inside a field.
    #[error("ended early: {field} needs {needed} more bytes")]
    Truncated {
        /// The field being read.
        field: &'static str,
        /// Number of bytes that were missing.
        needed: u64,
    },
    /// A length or count is over its limit.
    #[error("{field} is {found}, over the limit of {limit}")]
    TooLarge {
        /// The field being read.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The largest allowed value.
        limit: u64,
    },
    /// A field has a value that the format does not allow.
    #[error("{field}: {why}")]
    Invalid {
        /// The field being read.
        field: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The format's version is not one this program knows.
    #[error("{field} has version {found}, this program knows {known}")]
    Version {
        /// The format's name.
        field: &'static str,
        /// The version found.
        found: u64,
        /// The newest version known here.
        known: u64,
    },
    /// Bytes are left over after the last field.
    #[error("{count} bytes too many")]
    Trailing {
        /// Number of bytes that are left.
        count: usize,
    },
}

/// Shorthand for [`DecodeError::Invalid`].
pub const fn invalid(field: &'static str, why: &'static str) -> DecodeError {
    DecodeError::Invalid { field, why }
}

/// Reads fields off the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes exactly `n` bytes.
    pub fn take(&mut self, field: &'static str, n: usize) -> Result<&'a [u8], DecodeError> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            let needed = (n - self.rest.len()) as u64;
            return Err(DecodeError::Truncated { field, needed });
        };
        self.rest = rest;
        Ok(head)
    }

    /// Takes an array of `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(field, N)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    /// Takes one byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Takes an unsigned varint in its shortest form.
    pub fn varint(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(invalid(field, "number over 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift != 0 {
                    return Err(invalid(field, "number not in its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(invalid(field, "number over 64 bits"))
    }

    /// Takes a varint of at most `limit`.
    pub fn bounded(&mut self, field: &'static str, limit: u64) -> Result<u64, DecodeError> {
        let found = self.varint(field)?;
        if found > limit {
            return Err(DecodeError::TooLarge { field, found, limit });
        }
        Ok(found)
    }

    /// Takes a signed number (zigzag in a varint).
    pub fn signed(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        let raw = self.varint(field)?;
        Ok(((raw >> 1) as i64) ^ -((raw & 1) as i64))
    }

    /// Takes a byte string of at most `limit` bytes, its length first.
    pub fn bytes(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.bounded(field, limit as u64)?;
        self.take(field, len as usize)
    }

    /// Checks that everything was read.
    pub const fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { count }),
        }
    }
}

/// Appends fields to a byte vector; the mirror of [`Reader`].
#[derive(Debug, Default, Clone)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// An empty output.
    pub const fn new() -> Self {
        Self { out: Vec::new() }
    }

    /// An empty output with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes) }
    }

    /// Appends raw bytes.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, byte: u8) -> &mut Self {
        self.out.push(byte);
        self
    }

    /// Appends an unsigned varint.
    pub fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8)
    }

    /// Appends a signed number (zigzag in a varint).
    pub fn signed(&mut self, value: i64) -> &mut Self {
        self.varint(((value << 1) ^ (value >> 63)) as u64)
    }

    /// Appends a byte string, its length first.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.varint(bytes.len() as u64).raw(bytes)
    }

    /// Bytes written so far.
    pub const fn len(&self) -> usize {
        self.out.len()
    }

    /// True while nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The finished encoding.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_strings_come_back(n: u64, s: i64, b: Vec<u8>) {
            let mut w = Writer::new();
            w.varint(n).signed(s).bytes(&b);
            let out = w.into_bytes();
            let mut r = Reader::new(&out);
            prop_assert_eq!(r.varint("n").unwrap(), n);
            prop_assert_eq!(r.signed("s").unwrap(), s);
            prop_assert_eq!(r.bytes("b", b.len()).unwrap(), &b[..]);
            r.finish().unwrap();
        }

        #[test]
        fn a_number_has_one_encoding(bytes: Vec<u8>) {
            let mut r = Reader::new(&bytes);
            if let Ok(n) = r.varint("n") {
                let used = bytes.len() - r.remaining();
                let mut w = Writer::new();
                w.varint(n);
                prop_assert_eq!(&w.into_bytes()[..], &bytes[..used]);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_input_takes_no_memory() {
        let mut w = Writer::new();
        w.varint(1 << 40);
        let out = w.into_bytes();
        let limit = Reader::new(&out).bytes("name", 255);
        assert_eq!(limit, Err(DecodeError::TooLarge { field: "name", found: 1 << 40, limit: 255 }));
        let short = Reader::new(&out).bytes("name", usize::MAX);
        assert!(matches!(short, Err(DecodeError::Truncated { .. })));
    }
}
