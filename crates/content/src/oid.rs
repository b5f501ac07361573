//! Object ids: what an object is called, whoever has it.
//!
//! A *content* OID is the BLAKE3 hash of all the object's bytes, so it is the end-to-end check
//! and does not depend on how the object was cut (`papers/dot.txt` §4). A *live* OID is random:
//! it names an object that is still being produced and is later bound to its content OID.
//! Layout: `docs/formats/oid.md`.

use std::fmt;
use std::str::FromStr;

use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::node_id::{hex, unhex};

const TAG_LIVE: u8 = 0;
const TAG_BLAKE3: u8 = 1;

/// The name of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Oid {
    /// Random name of an object that is still being produced.
    Live([u8; 32]),
    /// BLAKE3 hash of all bytes of the object.
    Blake3([u8; 32]),
}

impl Oid {
    /// Bytes of the binary form.
    pub const ENCODED_LEN: usize = 33;

    /// The OID of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::Blake3(*blake3::hash(bytes).as_bytes())
    }

    /// True for the random name of an object that is still being produced.
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// The 32 bytes after the tag.
    pub const fn digest(&self) -> &[u8; 32] {
        match self {
            Self::Live(bytes) | Self::Blake3(bytes) => bytes,
        }
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::Live(_) => TAG_LIVE,
            Self::Blake3(_) => TAG_BLAKE3,
        }
    }

    /// The binary form: a tag byte and 32 bytes.
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_LEN] {
        let mut out = [0; Self::ENCODED_LEN];
        out[0] = self.tag();
        out[1..].copy_from_slice(self.digest());
        out
    }

    /// Reads the binary form from exactly [`Self::ENCODED_LEN`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let oid = Self::decode(&mut reader)?;
        reader.finish().map(|()| oid)
    }

    /// Reads the binary form off the front of `reader`.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = reader.u8("OID")?;
        let digest = reader.array("OID")?;
        match tag {
            TAG_LIVE => Ok(Self::Live(digest)),
            TAG_BLAKE3 => Ok(Self::Blake3(digest)),
            _ => Err(invalid("OID", "unknown hash algorithm")),
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, writer: &mut Writer) {
        writer.raw(&self.to_bytes());
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_live() { "live" } else { "blake3" };
        write!(f, "{name}:{}", hex(self.digest()))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_live() { "live" } else { "blake3" };
        write!(f, "{name}:{}", hex(&self.digest()[..4]))
    }
}

impl FromStr for Oid {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        const WHY: &str = "must be 'blake3:' or 'live:' and 64 lower-case hexadecimal digits";
        let (name, digits) = text.split_once(':').ok_or(invalid("OID", WHY))?;
        let digest = unhex(digits).ok_or(invalid("OID", WHY))?;
        match name {
            "blake3" => Ok(Self::Blake3(digest)),
            "live" => Ok(Self::Live(digest)),
            _ => Err(invalid("OID", WHY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_what_b3sum_prints() {
        // The BLAKE3 hash of the empty input, from the BLAKE3 paper's test vectors.
        let empty = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Oid::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Oid::of(b"")));
    }

    #[test]
    fn both_forms_come_back() {
        for oid in [Oid::of(b"x"), Oid::Live([7; 32])] {
            assert_eq!(Oid::from_bytes(&oid.to_bytes()), Ok(oid));
            assert_eq!(oid.to_string().parse(), Ok(oid));
        }
    }

    #[test]
    fn unknown_algorithms_and_lengths_are_refused() {
        let mut bytes = Oid::of(b"x").to_bytes();
        bytes[0] = 9;
        assert!(Oid::from_bytes(&bytes).is_err());
        assert!(Oid::from_bytes(&bytes[..32]).is_err());
        assert!(Oid::from_bytes(&[1; 34]).is_err());
        assert!("sha1:00".parse::<Oid>().is_err());
    }
}
