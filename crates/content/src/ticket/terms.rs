//! Terms of a ticket, and the secret that is bound to them.
//!
//! What proves the right to fetch depends on the terms. So whoever changes them in a ticket has one that opens nothing, at its
//! issuer and at any holder that keeps the ticket as it was. No signature is needed for that, and tickets stay short.

use std::fmt;

use super::Secret;
use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::{NodeId, Oid};

const NO_SWARM: u8 = 1;
const EXPIRES: u8 = 2;

/// What a ticket allows, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Terms {
    /// Seconds since 1970 from which on it opens nothing; `None`: it has no end.
    pub expires: Option<u64>,
    /// Who fetched by it serves nobody else.
    pub no_swarm: bool,
}

impl Terms {
    /// True if there are none: anybody may serve, for good.
    pub const fn is_none(&self) -> bool {
        self.expires.is_none() && !self.no_swarm
    }

    /// True if the ticket opens nothing at `now`, in seconds since 1970.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|end| now >= end)
    }

    /// Appends the binary form.
    pub(super) fn encode(&self, writer: &mut Writer) {
        let expires = if self.expires.is_some() { EXPIRES } else { 0 };
        writer.u8(expires | if self.no_swarm { NO_SWARM } else { 0 });
        if let Some(end) = self.expires {
            writer.varint(end);
        }
    }

    /// Reads the binary form. Terms that this version does not know are refused: it could not keep them.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = reader.u8("terms")?;
        if flags == 0 || flags & !(NO_SWARM | EXPIRES) != 0 {
            return Err(invalid("terms", "are none, or others than this program knows"));
        }
        let expires = (flags & EXPIRES != 0).then(|| reader.varint("expiry")).transpose()?;
        Ok(Self { expires, no_swarm: flags & NO_SWARM != 0 })
    }
}

/// A ticket's secret, bound to the ticket's terms.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoundSecret {
    /// The secret alone.
    pub secret: Secret,
    /// The terms.
    pub terms: Terms,
}

impl From<Secret> for BoundSecret {
    fn from(secret: Secret) -> Self {
        Self { secret, terms: Terms::default() }
    }
}

impl fmt::Debug for BoundSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundSecret").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl BoundSecret {
    /// The proof that the holder of the ticket may fetch `oid`, bound to one connection.
    ///
    /// `binding` is unique to the connection and known to both ends (for TLS the exporter of
    /// RFC 9266), and `prover` is the node id of the end that proves, so a proof is of no use on
    /// another connection or to the other end.
    pub fn prove(&self, binding: &[u8; 32], prover: &NodeId, oid: &Oid) -> [u8; 32] {
        let context = match self.terms.is_none() {
            true => "towpath 2026-11 ticket secret proof v1",
            false => "towpath 2026-11 ticket secret and terms proof v1",
        };
        let key = blake3::derive_key(context, &self.to_bytes());
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(binding).update(&prover.0).update(&oid.to_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Checks a proof in constant time.
    pub fn check(&self, proof: &[u8; 32], binding: &[u8; 32], prover: &NodeId, oid: &Oid) -> bool {
        // `blake3::Hash` compares in constant time.
        blake3::Hash::from(*proof) == blake3::Hash::from(self.prove(binding, prover, oid))
    }

    /// A number by which records tell tickets of one object apart. It leads back to nothing.
    pub fn mark(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] =
            blake3::derive_key("towpath 2026-11 ticket mark v1", &self.to_bytes());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The 16 bytes of the secret, and behind them the terms, if there are any.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(&self.secret.0);
        if !self.terms.is_none() {
            self.terms.encode(&mut writer);
        }
        writer.into_bytes()
    }

    /// Reads what [`Self::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let secret = Secret(reader.array("secret")?);
        let terms = match reader.remaining() {
            0 => Terms::default(),
            _ => Terms::decode(&mut reader)?,
        };
        reader.finish()?;
        Ok(Self { secret, terms })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ticket;
    use super::*;

    const SECRET: Secret = Secret([4; 16]);

    fn terms() -> [Terms; 4] {
        let terms = |expires, no_swarm| Terms { expires, no_swarm };
        [terms(None, false), terms(None, true), terms(Some(1_800_000_000), false), terms(Some(0), true)]
    }

    fn ticket(terms: Terms) -> Ticket {
        let node = NodeId([3; 32]);
        Ticket { oid: Oid::of(b"x"), node, secret: SECRET, hints: Vec::new(), terms, enclosed: None }
    }

    #[test]
    fn terms_come_back_in_tickets_and_beside_secrets() {
        for terms in terms() {
            assert_eq!(ticket(terms).to_string().parse(), Ok(ticket(terms)));
            let bound = BoundSecret { secret: SECRET, terms };
            assert_eq!(BoundSecret::from_bytes(&bound.to_bytes()), Ok(bound));
        }
        assert!(ticket(terms()[0]).to_string().starts_with("tow:aq"), "without terms it is version 4");
    }

    #[test]
    fn whoever_changes_the_terms_proves_nothing() {
        let (binding, node, oid) = ([3; 32], NodeId([2; 32]), Oid::of(b"x"));
        for (proved, told) in terms().into_iter().flat_map(|one| terms().map(|other| (one, other))) {
            let [proved, told] = [proved, told].map(|terms| BoundSecret { secret: SECRET, terms });
            let proof = told.prove(&binding, &node, &oid);
            assert_eq!(
                proved.check(&proof, &binding, &node, &oid),
                proved == told,
                "{told:?} for {proved:?}"
            );
        }
    }

    #[test]
    fn unknown_terms_and_none_where_some_must_be_are_refused() {
        for bytes in [&[0][..], &[4], &[7], &[2], &[2, 0x80], &[1, 0]] {
            let told = [&SECRET.0[..], bytes].concat();
            assert!(BoundSecret::from_bytes(&told).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn it_ends_with_the_second_that_it_names() {
        let terms = Terms { expires: Some(100), no_swarm: false };
        assert_eq!([99, 100, 101].map(|now| terms.is_expired(now)), [false, true, true]);
        assert!(!Terms::default().is_expired(u64::MAX));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert!(!format!("{:?}", BoundSecret::from(SECRET)).contains('4'));
    }
}
