//! Names of what a byte store keeps, and the owner that a place is noted to have.

use std::fmt;

/// Name of some bytes: their BLAKE3 hash, which is also the hash in the OID of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteName(pub [u8; 32]);

/// Random number of the store that a place belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceOwner(pub [u8; 16]);

impl ByteName {
    /// Reads the form that is displayed: 64 digits, no capitals.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl PlaceOwner {
    /// Reads the form that is displayed: 32 digits, no capitals.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for ByteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for PlaceOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |c: &u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.as_bytes().iter().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_read_and_nothing_else() {
        let name = ByteName(std::array::from_fn(|at| (at * 9) as u8));
        let text = name.to_string();
        assert_eq!(ByteName::parse(&text), Some(name));
        let wrong =
            [text.to_uppercase(), text[1..].into(), format!("{text}0"), "+f".repeat(32), "é".repeat(32)];
        for text in wrong {
            assert_eq!(ByteName::parse(&text), None, "{text}");
        }
        let owner = PlaceOwner([7; 16]);
        assert_eq!(PlaceOwner::parse(&owner.to_string()), Some(owner));
    }
}
