//! The name of a Towpath service: its Ed25519 public key.

use std::fmt;
use std::str::FromStr;

use crate::codec::{DecodeError, invalid};

/// An Ed25519 public key (RFC 8032), 32 bytes; written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 32]);

impl NodeId {
    /// True if `signature` over `message` was made with this node's private key.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }

    /// The first eight digits, for messages to people.
    pub fn short(&self) -> String {
        hex(&self.0[..4])
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.short())
    }
}

impl FromStr for NodeId {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        unhex(text).map(Self).ok_or(invalid("node id", "not 64 hexadecimal digits"))
    }
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The 32 bytes that 64 lower-case hexadecimal digits stand for.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_comes_back_and_bad_text_is_refused() {
        let id = NodeId([0xa5; 32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "a5", &"g".repeat(64), &"A5".repeat(32), &"é".repeat(32)] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad}");
        }
    }
}
