//! Withdrawals: the signed word of a ticket's issuer that the ticket is over.
//!
//! Whoever holds the ticket can tell that it is meant, by its secret; to all others a withdrawal tells nothing of the secret.
//! So it can be handed on by anybody. Layout: `docs/formats/withdrawal.md`.

use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::ticket::BoundSecret;
use crate::{NodeId, Oid};

const DOMAIN: &[u8] = b"towpath ticket withdrawal v1\0";
const VERSION: u64 = 1;
/// The longest binary form, in bytes.
pub const MAX_WITHDRAWAL: usize = 96;

/// What the issuer signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawal {
    /// The object that the ticket names.
    pub root: Oid,
    /// Commitment to the ticket's secret and terms, which does not tell them.
    pub commitment: [u8; 32],
    /// When it was withdrawn, in seconds since 1970.
    pub time: u64,
}

impl Withdrawal {
    /// The withdrawal of the ticket for `root` with this secret.
    pub fn new(root: Oid, secret: &BoundSecret, time: u64) -> Self {
        Self { root, commitment: commitment(&root, secret), time }
    }

    /// True if it is the ticket for `root` with this secret that is withdrawn.
    pub fn is_of(&self, root: &Oid, secret: &BoundSecret) -> bool {
        self.root == *root && self.commitment == commitment(root, secret)
    }

    /// The binary form without signature.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.varint(VERSION);
        self.root.encode(&mut writer);
        writer.raw(&self.commitment).varint(self.time);
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_WITHDRAWAL {
            let (found, limit) = (bytes.len() as u64, MAX_WITHDRAWAL as u64);
            return Err(DecodeError::TooLarge { field: "withdrawal", found, limit });
        }
        let mut reader = Reader::new(bytes);
        let found = reader.varint("withdrawal")?;
        if found != VERSION {
            return Err(DecodeError::Version { field: "withdrawal", found, known: VERSION });
        }
        let root = Oid::decode(&mut reader)?;
        let commitment = reader.array("commitment")?;
        let time = reader.varint("time")?;
        reader.finish().map(|()| Self { root, commitment, time })
    }

    /// The bytes that are signed: a domain, so that no other signature of the node passes for this one, and the binary form.
    pub fn message(&self) -> Vec<u8> {
        [DOMAIN, &self.to_bytes()].concat()
    }

    /// Reads a withdrawal that `node` signed.
    pub fn verified(bytes: &[u8], signature: &[u8], node: &NodeId) -> Result<Self, DecodeError> {
        let withdrawal = Self::from_bytes(bytes)?;
        match node.verify(&withdrawal.message(), signature) {
            true => Ok(withdrawal),
            false => Err(invalid("withdrawal", "is not signed by the ticket's node")),
        }
    }
}

fn commitment(root: &Oid, secret: &BoundSecret) -> [u8; 32] {
    let told = [&root.to_bytes()[..], &secret.to_bytes()].concat();
    blake3::derive_key("towpath 2026-11 ticket withdrawal commitment v1", &told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::{Secret, Terms};

    #[test]
    fn it_is_of_one_ticket_and_tells_nothing_of_its_secret() {
        let (root, secret) = (Oid::of(b"x"), BoundSecret::from(Secret([7; 16])));
        let withdrawal = Withdrawal::new(root, &secret, 5);
        assert!(withdrawal.is_of(&root, &secret));
        assert!(!withdrawal.is_of(&Oid::of(b"y"), &secret), "another root");
        assert!(!withdrawal.is_of(&root, &Secret([8; 16]).into()), "another secret");
        let bound = BoundSecret { terms: Terms { expires: None, no_swarm: true }, ..secret };
        assert!(!withdrawal.is_of(&root, &bound), "other terms");
        assert!(!withdrawal.to_bytes().windows(16).any(|bytes| bytes == secret.secret.0));
        assert_ne!(withdrawal.commitment, Withdrawal::new(Oid::of(b"y"), &secret, 5).commitment);
    }

    #[test]
    fn what_is_no_withdrawal_is_refused() {
        let bytes = Withdrawal::new(Oid::of(b"x"), &Secret([7; 16]).into(), u64::MAX).to_bytes();
        assert_eq!(Withdrawal::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        assert!(bytes.len() <= MAX_WITHDRAWAL);
        for at in 0..bytes.len() {
            assert!(Withdrawal::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(Withdrawal::from_bytes(&[&bytes[..], &[0]].concat()).is_err(), "bytes left over");
        let later = [&[2], &bytes[1..]].concat();
        assert!(matches!(Withdrawal::from_bytes(&later), Err(DecodeError::Version { found: 2, .. })));
        assert!(Withdrawal::from_bytes(&[1; MAX_WITHDRAWAL + 1]).is_err());
    }
}
