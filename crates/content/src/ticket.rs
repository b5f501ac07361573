//! Tickets: one line of text that is all a receiver needs.
//!
//! A ticket carries the OID, the issuer's node id, the secret that proves the right to fetch, and
//! hints where to ask. The text form is `tow:` and lower-case base32 (RFC 4648, no padding) of
//! the binary form with a checksum, so that a ticket that lost characters is distinguished from one
//! that is refused. Of a small object it may hold the bytes themselves: then it needs no service at
//! all. Layout: `docs/formats/ticket.md`.

mod enclosed;
mod short_hints;
mod terms;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

pub use self::enclosed::{Enclosed, MAX_ENCLOSED};
pub(crate) use self::enclosed::{decode_file_facts, encode_file_facts};
use self::short_hints::ShortHints;
pub use self::terms::{BoundSecret, Terms};
use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::hint::{Hint, MAX_HINTS};
use crate::{NodeId, Oid};

/// The version without content and terms.
const PLAIN: u64 = 4;
/// The version with content.
const WITH_CONTENT: u64 = 5;
/// The version with terms.
const WITH_TERMS: u64 = 6;
/// Versions before these, whose hints are longer, are as much lower. They are read.
const LONGER: u64 = 3;
/// Those that a later program may write.
const SOON: Range<u64> = 7..16;
/// The longest text accepted, in bytes; 64 of the longest hints would be refused by this.
pub const MAX_TEXT: usize = 8192;
const CHECKSUM_LEN: usize = 4;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The secret in a ticket: 16 random bytes, proved by challenge and never sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// [`BoundSecret::prove`] for a ticket without terms.
    pub fn prove(&self, binding: &[u8; 32], prover: &NodeId, oid: &Oid) -> [u8; 32] {
        BoundSecret::from(*self).prove(binding, prover, oid)
    }

    /// [`BoundSecret::check`] for a ticket without terms.
    pub fn check(&self, proof: &[u8; 32], binding: &[u8; 32], prover: &NodeId, oid: &Oid) -> bool {
        BoundSecret::from(*self).check(proof, binding, prover, oid)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The ticket that a receiver is handed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The object, content or live.
    pub oid: Oid,
    /// The service that issued the ticket.
    pub node: NodeId,
    /// Proves the right to fetch.
    pub secret: Secret,
    /// Addresses to ask, at most [`MAX_HINTS`].
    pub hints: Vec<Hint>,
    /// What it allows, and how long.
    pub terms: Terms,
    /// The object itself, if it is small. A ticket that has terms encloses nothing: nobody could keep them.
    pub enclosed: Option<Enclosed>,
}

impl Ticket {
    /// The secret, bound to the terms.
    pub const fn bound_secret(&self) -> BoundSecret {
        BoundSecret { secret: self.secret, terms: self.terms }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let enclosed = self.enclosed.as_ref().filter(|_| self.terms.is_none());
        writer.varint(match (self.terms.is_none(), enclosed) {
            (false, _) => WITH_TERMS,
            (true, Some(_)) => WITH_CONTENT,
            (true, None) => PLAIN,
        });
        self.oid.encode(&mut writer);
        writer.raw(&self.node.0).raw(&self.secret.0).varint(self.hints.len() as u64);
        let mut short = ShortHints::default();
        self.hints.iter().for_each(|hint| short.encode(hint, &mut writer));
        if !self.terms.is_none() {
            self.terms.encode(&mut writer);
        }
        if let Some(enclosed) = enclosed {
            enclosed.encode(&mut writer);
        }
        writer.into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let found = reader.varint("ticket")?;
        if !(PLAIN - LONGER..=WITH_TERMS).contains(&found) {
            return Err(DecodeError::Version { field: "ticket", found, known: WITH_TERMS });
        }
        let (is_short, found) = (found >= PLAIN, if found < PLAIN { found + LONGER } else { found });
        let oid = Oid::decode(&mut reader)?;
        let node = NodeId(reader.array("node id")?);
        let secret = Secret(reader.array("secret")?);
        let count = reader.bounded("hints", MAX_HINTS as u64)?;
        let mut short = is_short.then(ShortHints::default);
        let hints = (0..count).map(|_| match &mut short {
            Some(short) => short.decode(&mut reader),
            None => Hint::decode(&mut reader),
        });
        let hints = hints.collect::<Result<_, _>>()?;
        let terms =
            (found == WITH_TERMS).then(|| Terms::decode(&mut reader)).transpose()?.unwrap_or_default();
        let enclosed = (found == WITH_CONTENT).then(|| Enclosed::decode(&mut reader, &oid)).transpose()?;
        reader.finish()?;
        let ticket = Self { oid, node, secret, hints, terms, enclosed };
        match is_short && ticket.to_bytes() != bytes {
            true => Err(invalid("ticket", "is not in its shortest form")),
            false => Ok(ticket),
        }
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let hash = blake3::derive_key("towpath 2026-11 ticket checksum v1", bytes);
    [hash[0], hash[1], hash[2], hash[3]]
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.to_bytes();
        bytes.extend_from_slice(&checksum(&bytes));
        write!(f, "tow:{}", base32(&bytes))
    }
}

impl FromStr for Ticket {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        // Mail programs break lines where they like.
        let text: String = text.split_whitespace().collect();
        let digits = text.strip_prefix("tow:").ok_or(invalid("ticket", "must begin with 'tow:'"))?;
        if digits.len() > MAX_TEXT {
            let found = digits.len() as u64;
            return Err(DecodeError::TooLarge { field: "ticket", found, limit: MAX_TEXT as u64 });
        }
        if !digits.bytes().all(|digit| ALPHABET.contains(&digit)) {
            return Err(invalid("ticket", "holds a character that no ticket has"));
        }
        let damaged = invalid("ticket", "is damaged or cut short; copy it again, whole");
        let bytes = unbase32(digits).ok_or(damaged.clone())?;
        let at = bytes.len().checked_sub(CHECKSUM_LEN).ok_or(damaged.clone())?;
        let (body, sum) = bytes.split_at(at);
        // A newer version is reported as such even if it has another checksum; what begins with any number is none.
        if body.first().is_some_and(|&version| SOON.contains(&u64::from(version))) {
            return Self::from_bytes(body);
        }
        if sum != checksum(body) {
            return Err(damaged);
        }
        Self::from_bytes(body)
    }
}

fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut bits) = (0u32, 0);
    for &byte in bytes {
        buffer = buffer << 8 | u32::from(byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(ALPHABET[(buffer >> bits & 31) as usize] as char);
        }
    }
    if bits > 0 {
        text.push(ALPHABET[(buffer << (5 - bits) & 31) as usize] as char);
    }
    text
}

fn unbase32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut buffer, mut bits) = (0u32, 0);
    for digit in text.bytes() {
        let value = ALPHABET.iter().position(|&known| known == digit)? as u32;
        buffer = buffer << 5 | value;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
        }
    }
    // Left-over bits must be zero, so that a ticket has one text form.
    (bits < 5 && buffer & ((1 << bits) - 1) == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket() -> Ticket {
        let hints = vec![Hint::new("tow://192.0.2.1:7000", 0, 10).unwrap()];
        let (node, terms) = (NodeId([3; 32]), Terms::default());
        Ticket { oid: Oid::of(b"x"), node, secret: Secret([4; 16]), hints, terms, enclosed: None }
    }

    #[test]
    fn text_comes_back_also_as_mail_programs_break_it() {
        let text = ticket().to_string();
        assert_eq!(text.parse(), Ok(ticket()));
        assert_eq!(format!("{text}\n").parse(), Ok(ticket()));
        for (width, with) in
            [(1, " "), (3, "\n"), (40, "\r\n"), (72, "\n  "), (76, "\u{a0}\t"), (76, "\u{2028}")]
        {
            let lines: Vec<_> =
                text.as_bytes().chunks(width).map(|line| str::from_utf8(line).unwrap()).collect();
            let broken = format!(" {}{with}", lines.join(with));
            assert_eq!(broken.parse(), Ok(ticket()), "{broken:?}");
            let other = broken.replacen(with, "-", 1);
            assert!(other.parse::<Ticket>().is_err(), "{other:?}");
        }
    }

    #[test]
    fn any_lost_or_changed_character_is_noticed() {
        let text = ticket().to_string();
        for at in 4..text.len() {
            // Also where it leaves half a byte over.
            let cut = text[..at].parse::<Ticket>().unwrap_err().to_string();
            assert!(cut.contains("cut short"), "cut at {at}: {cut}");
            let other = if text.as_bytes()[at] == b'a' { "b" } else { "a" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert!(changed.parse::<Ticket>().is_err(), "changed at {at}");
        }
    }

    #[test]
    fn a_proof_holds_for_one_connection_prover_and_object_only() {
        let (secret, node, oid) = (Secret([1; 16]), NodeId([2; 32]), Oid::of(b"x"));
        let proof = secret.prove(&[3; 32], &node, &oid);
        assert!(secret.check(&proof, &[3; 32], &node, &oid));
        assert!(!secret.check(&proof, &[4; 32], &node, &oid));
        assert!(!secret.check(&proof, &[3; 32], &NodeId([9; 32]), &oid));
        assert!(!secret.check(&proof, &[3; 32], &node, &Oid::of(b"y")));
        assert!(!Secret([8; 16]).check(&proof, &[3; 32], &node, &oid));
    }

    #[test]
    fn a_later_version_is_told_from_nonsense() {
        let refused = |first: u8| {
            let text = format!("tow:{}", base32(&[first, 1, 2, 3, 4, 5, 6, 7, 8]));
            text.parse::<Ticket>().unwrap_err()
        };
        assert!(matches!(refused(7), DecodeError::Version { found: 7, .. }));
        assert!(matches!(refused(107), DecodeError::Invalid { .. }), "tow:nonsense begins so");
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert!(!format!("{:?}", ticket()).contains("[4, 4"));
    }

    fn with(methods: &[(&str, u16, u16)]) -> Ticket {
        let hints = methods.iter().map(|(method, rank, weight)| Hint::new(*method, *rank, *weight).unwrap());
        Ticket { hints: hints.collect(), ..ticket() }
    }

    #[test]
    fn hints_come_back_and_what_is_said_twice_costs_little() {
        let (one, other) = (NodeId([5; 32]), NodeId([6; 32]));
        let (meet, relay) = (format!("meet://{one}@m.example:4433"), format!("relay://{one}@m.example:4433"));
        let behind = format!("relay://{one}@m.example:4433/{other}");
        let holder = format!("tow://{other}@[2001:db8::1]:7000");
        let rows: [(&str, u16, u16, usize); 12] = [
            ("tow://192.0.2.1:7000", 0, 1, 7),
            ("tow://[2001:db8::1]:7000", 1, 1, 17),
            (&meet, 2, 1, 1 + 33 + 10 + 2),
            (&relay, 3, 1, 2),
            (&behind, 4, 9, 1 + 2 + 1 + 33),
            (&holder, 0, 1, 1 + 2 + 1 + 16 + 2),
            ("tow://[2001:DB8::1]:7000", 1, 1, 1 + 14),
            ("tow://192.0.2.1:07000", 2, 1, 2 + 21),
            ("https://web.example/x", 65535, 1, 1 + 4 + 22),
            ("x:", 0, 1, 2 + 2),
            ("tow://192.0.2.1:0", 1, 0, 1 + 2 + 4 + 2),
            ("tow://:1", 2, 1, 1 + 1 + 2),
        ];
        let mut told = Vec::new();
        for (method, rank, weight, len) in rows {
            let before = with(&told).to_bytes().len();
            told.push((method, rank, weight));
            let ticket = with(&told);
            assert_eq!(ticket.to_bytes().len() - before, len, "{method}");
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }
    }

    #[test]
    fn hints_that_are_longer_than_they_need_be_are_refused() {
        let front = with(&[]).to_bytes();
        let refused = |hints: &[u8]| {
            let mut bytes = front.clone();
            *bytes.last_mut().unwrap() = 2;
            bytes.extend_from_slice(&[1, 192, 0, 2, 1, 0, 7]);
            bytes[front.len()] |= V4_KIND;
            bytes.extend_from_slice(hints);
            Ticket::from_bytes(&bytes).unwrap_err()
        };
        // The same address again, a port again, a rank that is the usual one, an address as text, a node that was not named.
        refused(&[1 | V4_KIND | 32, 192, 0, 2, 1]);
        refused(&[1 | V4_KIND, 192, 0, 2, 2, 0, 7]);
        refused(&[1 | 24 | 32 | 64, 1, 1]);
        refused(&[&[0, 13], &b"tow://[::1]:7"[..]].concat());
        refused(&[2 | 24 | 32, 1]);
        refused(&[7]);
        refused(&[128]);
    }

    /// The bit of an IPv4 address.
    const V4_KIND: u8 = 8;

    proptest! {
        #[test]
        fn any_hints_come_back(hints in proptest::collection::vec(
            ("(tow|meet|relay|x)://([0-9a-f]{64}@)?([a-c]|1\\.1\\.1\\.[12]|\\[::[12]\\])(:[0-9]{1,5})?(/[0-9a-f]{64})?", 0u16..3, 0u16..3),
            0..6,
        )) {
            let hints: Vec<_> = hints.iter().map(|(method, rank, weight)| (method.as_str(), *rank, *weight)).collect();
            let ticket = with(&hints);
            prop_assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }

        #[test]
        fn any_bytes_are_a_ticket_in_one_form_or_none(hints: Vec<u8>, count in 0u8..4) {
            let mut bytes = with(&[]).to_bytes();
            *bytes.last_mut().unwrap() = count;
            bytes.extend(hints);
            if let Ok(ticket) = Ticket::from_bytes(&bytes) {
                prop_assert_eq!(ticket.to_bytes(), bytes);
            }
        }

        #[test]
        fn base32_comes_back_and_has_one_form(bytes: Vec<u8>, text in "[a-z2-7]{0,40}") {
            prop_assert_eq!(unbase32(&base32(&bytes)), Some(bytes));
            if let Some(bytes) = unbase32(&text) {
                prop_assert_eq!(base32(&bytes), text);
            }
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text: String) {
            let _ = text.parse::<Ticket>();
            let _ = format!("tow:{text}").parse::<Ticket>();
        }
    }
}
