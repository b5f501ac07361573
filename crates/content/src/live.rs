//! Live objects: pieces that can be had before the whole is known (`papers/dot.txt` §7).
//!
//! While an object is being produced its OID is random, so nothing can be checked against it.
//! Until it is bound to a content OID, piece values count only when the ticket's node signed them,
//! and the binding is signed in the same way. Layout: `docs/formats/live.md`.

use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::pieces::{MAX_LIVE_SIZE, MIN_LOG2, VALUE_LEN, Value};
use crate::{NodeId, Oid};

/// The most values in one statement: 1 GiB worth of pieces.
pub const MAX_VALUES: usize = 4096;
/// Bytes of an Ed25519 signature.
pub const SIGNATURE_LEN: usize = 64;

const DOMAIN: &[u8] = b"towpath live statement v1\0";
const TAG_VALUES: u8 = 1;
const TAG_BOUND: u8 = 2;

/// Statement of the producer's node about a live object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// The values of consecutive pieces of [`crate::pieces::MIN_LOG2`] size.
    Values {
        /// The live OID.
        object: Oid,
        /// Number of this production of the object; a producer that starts over chooses another.
        generation: u64,
        /// Index of the first piece.
        first: u64,
        /// One value per piece.
        values: Vec<Value>,
    },
    /// The object is complete, and this is its content.
    Bound {
        /// The live OID.
        object: Oid,
        /// The content OID.
        content: Oid,
        /// Its bytes.
        size: u64,
    },
}

impl Statement {
    /// The live object spoken of.
    pub const fn object(&self) -> &Oid {
        match self {
            Self::Values { object, .. } | Self::Bound { object, .. } => object,
        }
    }

    /// The binary form without signature.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Self::Values { object, generation, first, values } => {
                writer.u8(TAG_VALUES);
                object.encode(&mut writer);
                writer.varint(*generation).varint(*first).varint(values.len() as u64);
                for value in values {
                    writer.raw(value);
                }
            }
            Self::Bound { object, content, size } => {
                writer.u8(TAG_BOUND);
                object.encode(&mut writer);
                content.encode(&mut writer);
                writer.varint(*size);
            }
        }
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let tag = reader.u8("statement")?;
        let object = Oid::decode(&mut reader)?;
        if !object.is_live() {
            return Err(invalid("statement", "speaks of an object that is not live"));
        }
        let statement = match tag {
            TAG_VALUES => decode_values(object, &mut reader)?,
            TAG_BOUND => decode_bound(object, &mut reader)?,
            _ => return Err(invalid("statement", "unknown kind")),
        };
        reader.finish().map(|()| statement)
    }

    /// The bytes that are signed: a domain, so that no other signature of the node passes for
    /// this one, and the binary form.
    pub fn message(&self) -> Vec<u8> {
        [DOMAIN, &self.to_bytes()].concat()
    }

    /// Reads a statement that `node` signed.
    pub fn verified(bytes: &[u8], signature: &[u8], node: &NodeId) -> Result<Self, DecodeError> {
        let statement = Self::from_bytes(bytes)?;
        if !node.verify(&statement.message(), signature) {
            return Err(invalid("statement", "is not signed by the ticket's node"));
        }
        Ok(statement)
    }
}

fn decode_values(object: Oid, reader: &mut Reader<'_>) -> Result<Statement, DecodeError> {
    let generation = reader.varint("generation")?;
    let first = reader.bounded("first piece", MAX_LIVE_SIZE >> MIN_LOG2)?;
    let count = reader.bounded("values", MAX_VALUES as u64)? as usize;
    let (values, _) = reader.take("values", count * VALUE_LEN)?.as_chunks();
    Ok(Statement::Values { object, generation, first, values: values.to_vec() })
}

fn decode_bound(object: Oid, reader: &mut Reader<'_>) -> Result<Statement, DecodeError> {
    let content = Oid::decode(reader)?;
    if content.is_live() {
        return Err(invalid("statement", "binds to another live object"));
    }
    Ok(Statement::Bound { object, content, size: reader.bounded("size", MAX_LIVE_SIZE)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    fn statements() -> [Statement; 2] {
        let object = Oid::Live([1; 32]);
        let values = vec![[2; 32], [3; 32]];
        [
            Statement::Values { object, generation: 9, first: 4, values },
            Statement::Bound { object, content: Oid::of(b"x"), size: 1 },
        ]
    }

    #[test]
    fn only_the_nodes_own_signature_counts() {
        let key = Ed25519KeyPair::from_seed_unchecked(&[5; 32]).unwrap();
        let node = NodeId(key.public_key().as_ref().try_into().unwrap());
        for statement in statements() {
            let signature = key.sign(&statement.message());
            let bytes = statement.to_bytes();
            assert_eq!(Statement::verified(&bytes, signature.as_ref(), &node), Ok(statement.clone()));
            let bare = key.sign(&bytes);
            assert!(Statement::verified(&bytes, bare.as_ref(), &node).is_err(), "without its domain");
            assert!(Statement::verified(&bytes, signature.as_ref(), &NodeId([0; 32])).is_err());
            assert!(Statement::verified(&bytes, &[], &node).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_canonical(bytes: Vec<u8>) {
            if let Ok(statement) = Statement::from_bytes(&bytes) {
                prop_assert_eq!(statement.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_count_beyond_the_limit_takes_no_memory() {
        let mut writer = Writer::new();
        writer.u8(TAG_VALUES).raw(&Oid::Live([1; 32]).to_bytes()).varint(0).varint(0).varint(u64::MAX);
        assert!(matches!(Statement::from_bytes(&writer.into_bytes()), Err(DecodeError::TooLarge { .. })));
    }
}
