//! Hints: where an object may be had (`papers/dot.txt` §4.2.1).
//!
//! A hint's method is a URI whose scheme names a transfer plugin. Priority and weight have the
//! meaning of DNS SRV records (RFC 2782): the lowest priority is tried first, and among equals a
//! source is chosen with a probability proportional to its weight.

use std::fmt;
use std::str::FromStr;

use crate::NodeId;
use crate::codec::{DecodeError, Reader, invalid};

/// The longest method accepted, in bytes.
pub const MAX_METHOD: usize = 512;
/// The most hints accepted in one list.
pub const MAX_HINTS: usize = 64;
/// The scheme of hints that name a rendezvous server, `meet://NODE@HOST:PORT`: it tells addresses.
pub const RENDEZVOUS: &str = "meet";
/// The scheme of hints that name a relay, at which a service waits to be called: `relay://RELAY@HOST:PORT` for the ticket's issuer,
/// with `/NODE` behind it for another one.
pub const RELAY: &str = "relay";

/// One place to try.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hint {
    /// Tried in ascending order.
    pub priority: u16,
    /// Share among hints of one priority; 0 means "only if there is nothing else".
    pub weight: u16,
    /// `scheme:rest`; the scheme names a transfer plugin, the rest is the plugin's own.
    pub method: String,
}

impl Hint {
    /// A hint with checked method.
    pub fn new(method: impl Into<String>, priority: u16, weight: u16) -> Result<Self, DecodeError> {
        let method = method.into();
        check_method(&method)?;
        Ok(Self { priority, weight, method })
    }

    /// The plugin's name.
    pub fn scheme(&self) -> &str {
        self.method.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// The part behind `scheme:`, without leading slashes.
    pub fn rest(&self) -> &str {
        let rest = self.method.split_once(':').map_or("", |(_, rest)| rest);
        rest.trim_start_matches('/')
    }

    /// Reads the binary form that tickets of versions 1 to 3 have.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let priority = reader.bounded("hint priority", u16::MAX.into())? as u16;
        let weight = reader.bounded("hint weight", u16::MAX.into())? as u16;
        let method = reader.bytes("hint method", MAX_METHOD)?;
        let method = std::str::from_utf8(method).map_err(|_| invalid("hint method", "not UTF-8"))?;
        Self::new(method, priority, weight)
    }
}

/// What follows `tow://`: where a service listens, and which one it is if that is not the ticket's issuer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// The service; `None`: the one that issued the ticket.
    pub node: Option<NodeId>,
    /// `HOST:PORT`, not looked up or checked yet.
    pub address: String,
}

impl FromStr for PeerAddress {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let (node, address) = match text.split_once('@') {
            Some((node, address)) => (Some(node.parse()?), address),
            None => (None, text),
        };
        Ok(Self { node, address: address.to_owned() })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.map_or(Ok(()), |node| write!(f, "{node}@"))?;
        f.write_str(&self.address)
    }
}

fn check_method(method: &str) -> Result<(), DecodeError> {
    let limit = MAX_METHOD as u64;
    if method.len() > MAX_METHOD {
        return Err(DecodeError::TooLarge { field: "hint method", found: method.len() as u64, limit });
    }
    let scheme = method.split_once(':').map_or("", |(scheme, _)| scheme);
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '+';
    if scheme.is_empty() || !scheme.chars().all(plain) {
        return Err(invalid("hint method", "must begin with a lower-case scheme and a colon"));
    }
    if method.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid("hint method", "contains spaces or control characters"));
    }
    Ok(())
}

/// Orders hints as RFC 2782 says: by priority, then by weighted draws.
///
/// `draw(total)` must return a number in `0..=total`; it is the only source of chance, so a table
/// of numbers is a test.
pub fn order(mut hints: Vec<Hint>, mut draw: impl FnMut(u64) -> u64) -> Vec<Hint> {
    // Within one priority RFC 2782 wants weight 0 first, so that it is drawn only by a draw of 0.
    hints.sort_by_key(|hint| (hint.priority, hint.weight != 0));
    let mut ordered = Vec::with_capacity(hints.len());
    while let Some(first) = hints.first() {
        let same = hints.iter().take_while(|hint| hint.priority == first.priority).count();
        let total = hints[..same].iter().map(|hint| u64::from(hint.weight)).sum();
        let drawn = draw(total).min(total);
        let mut sum = 0;
        let chosen = hints[..same].iter().position(|hint| {
            sum += u64::from(hint.weight);
            sum >= drawn
        });
        ordered.push(hints.remove(chosen.unwrap_or(0)));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(method: &str, priority: u16, weight: u16) -> Hint {
        Hint::new(method, priority, weight).unwrap()
    }

    #[test]
    fn priority_comes_before_weight_and_weight_decides_among_equals() {
        let hints = vec![hint("tow://late:1", 5, 100), hint("tow://a:1", 0, 10), hint("tow://b:1", 0, 30)];
        let names = |draws: &[u64]| {
            let mut draws = draws.iter().copied();
            let ordered = order(hints.clone(), |_| draws.next().unwrap());
            ordered.iter().map(|hint| hint.rest().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[3, 0, 0]), ["a:1", "b:1", "late:1"]);
        assert_eq!(names(&[11, 0, 0]), ["b:1", "a:1", "late:1"]);
    }

    #[test]
    fn weight_zero_comes_last_unless_zero_is_drawn() {
        let hints = vec![hint("tow://heavy:1", 0, 1), hint("tow://zero:1", 0, 0)];
        assert_eq!(order(hints.clone(), |total| total)[0].rest(), "heavy:1");
        assert_eq!(order(hints, |_| 0)[0].rest(), "zero:1");
    }

    #[test]
    fn an_address_may_name_its_node() {
        let node = NodeId([0x2b; 32]);
        for named in [None, Some(node)] {
            let address = PeerAddress { node: named, address: "[::1]:7000".into() };
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        assert!("2b2b@host:1".parse::<PeerAddress>().is_err(), "a node has 64 digits");
    }

    #[test]
    fn methods_without_a_scheme_or_with_control_characters_are_refused() {
        for bad in ["", "host:", ":x", "Tow://x", "tow://a b", "tow://\u{1b}[2J"] {
            let refused = Hint::new(bad, 0, 0).is_err();
            assert_eq!(refused, bad != "host:", "{bad:?}");
        }
        assert!(Hint::new(format!("tow:{}", "x".repeat(MAX_METHOD)), 0, 0).is_err());
    }
}
