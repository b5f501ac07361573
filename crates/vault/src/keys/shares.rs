//! The record of keys that a vault keeps: its maker's wrapped keys, and the epochs' secrets for each member.
//!
//! ```text
//!   secret of the newest epoch ── sealed for each member: X25519 of a fresh key and the member's own
//!        └─ seals the secrets of the epochs before
//! ```
//!
//! A member's signing key is its agreement key, too (Ed25519 as X25519). The owner signs the record, which counts with the members of the
//! same number alone: so neither a server nor a writer can bring an old one back, or plant keys. Layout: `docs/formats/vault-blocks.md`.

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Key, Nonce};
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::montgomery::MontgomeryPoint;
use ring::digest::{SHA512, digest};
use thiserror::Error;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};
use towpath_vault_format::canonical::{list, write_list};
use towpath_vault_format::members::MAX_MEMBERS;
use towpath_vault_format::{Members, VaultId};
use zeroize::Zeroizing;

use super::wrapped::MAX_WRAPPED;
use super::{KeySecret, MAX_EPOCHS, SigningKey, VaultKeyError, VaultKeys, WrappedKeys};

const MAGIC: &[u8] = b"tow-vault-shares\n";
const SIGNED: &[u8] = b"tow-vault/1 keys\n";
/// Sealed bytes of a secret.
const SEALED: usize = 32 + 16;
/// Each key seals one thing, so nonces need not differ.
const NONCE: [u8; 12] = [0; 12];
/// Where the private half begins in a signing key's PKCS#8, and what stands before it.
const SEED: usize = 16;
const SEED_TAG: [u8; 4] = *b"\x04\x22\x04\x20";

/// Reason why a record of keys gives this member none, or can't be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShareError {
    /// This member has no part in it.
    #[error("the vault's keys are not shared with this member")]
    NotShared,
    /// The owner did not sign it, or with other members.
    #[error("the record of keys is not the owner's for these members")]
    NotTheOwners,
    /// What is sealed in it can't be opened, or is of another vault.
    #[error("the record of keys can't be opened")]
    Sealed,
    /// It goes back behind what was known, or has other secrets for the same epochs.
    #[error("the record of keys has other epochs than were known")]
    OtherEpochs,
    /// A member's id is no public key.
    #[error("{0} is no public key of a member")]
    NoKey(NodeId),
    /// No more epochs.
    #[error("the keys were changed {MAX_EPOCHS} times, which is as often as they can be")]
    LastEpoch,
    /// The record can't be read.
    #[error("the record of keys: {0}")]
    Decode(#[from] DecodeError),
    /// There are no random bytes.
    #[error(transparent)]
    Key(#[from] VaultKeyError),
}

/// The newest secret for one member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeySlot {
    node: NodeId,
    ephemeral: [u8; 32],
    sealed: [u8; SEALED],
}

/// The secrets for all members.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SharedSecrets {
    vault: VaultId,
    /// Of the members that it goes with.
    number: u64,
    epochs: u32,
    /// Secrets of all epochs but the newest, sealed with that.
    earlier: Vec<u8>,
    slots: Vec<KeySlot>,
    signature: [u8; 64],
}

/// A record of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysRecord {
    /// The maker's keys, for who has the passphrase and nothing else.
    pub wrapped: WrappedKeys,
    /// None: the vault was never shared.
    shared: Option<SharedSecrets>,
}

impl KeysRecord {
    /// That of a vault which was never shared.
    pub const fn alone(wrapped: WrappedKeys) -> Self {
        Self { wrapped, shared: None }
    }

    /// The members that it has secrets for.
    pub fn sharers(&self) -> Vec<NodeId> {
        self.shared.iter().flat_map(|shared| &shared.slots).map(|slot| slot.node).collect()
    }

    /// The record that goes with `members`, with the secrets of `keys` for `sharers`. `owner` signs it.
    pub fn share(
        &self,
        keys: &VaultKeys,
        members: &Members,
        sharers: &[NodeId],
        owner: &SigningKey,
    ) -> Result<Self, ShareError> {
        let (newest, earlier) = keys.epochs.split_last().ok_or(ShareError::NotShared)?;
        let (vault, epochs) = (keys.vault, keys.epochs.len() as u32);
        let slots: Result<_, _> =
            sharers.iter().map(|node| KeySlot::seal(*node, newest, vault, epochs)).collect();
        let mut shared = SharedSecrets {
            vault,
            number: members.number,
            epochs,
            earlier: seal_earlier(newest, earlier, vault, epochs)?,
            slots: slots?,
            signature: [0; 64],
        };
        shared.signature = owner.identity().sign(&shared.message());
        Ok(Self { wrapped: self.wrapped.clone(), shared: Some(shared) })
    }

    /// Brings `keys` up to the epochs of this record, which must be the owner's for `members`.
    pub fn follow(&self, keys: &mut VaultKeys, members: &Members) -> Result<(), ShareError> {
        let Some(shared) = &self.shared else {
            return match members.number {
                _ if keys.epochs.is_empty() => Err(ShareError::NotShared),
                0 => Ok(()),
                _ => Err(ShareError::NotTheOwners),
            };
        };
        let epochs = shared.secrets_for(keys.writer.as_ref().ok_or(ShareError::NotShared)?, members)?;
        let is_known = |(known, found): (&KeySecret, &KeySecret)| known.0 == found.0;
        if keys.epochs.len() > epochs.len() || !keys.epochs.iter().zip(&epochs).all(is_known) {
            return Err(ShareError::OtherEpochs);
        }
        keys.epochs = epochs;
        Ok(())
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Some(shared) = &self.shared else { return self.wrapped.to_bytes() };
        let mut out = Writer::new();
        out.raw(MAGIC).u8(1).bytes(&self.wrapped.to_bytes());
        shared.write(&mut out);
        out.raw(&shared.signature);
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        if !bytes.starts_with(MAGIC) {
            return WrappedKeys::from_bytes(bytes).map(Self::alone);
        }
        let mut reader = Reader::new(bytes);
        reader.take("record of keys", MAGIC.len())?;
        if reader.u8("record of keys")? != 1 {
            return Err(invalid("record of keys", "is of another version"));
        }
        let wrapped = WrappedKeys::from_bytes(reader.bytes("wrapped keys", MAX_WRAPPED + 128)?)?;
        let shared = SharedSecrets::read(&mut reader)?;
        reader.finish().map(|()| Self { wrapped, shared: Some(shared) })
    }
}

impl SharedSecrets {
    fn message(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.raw(SIGNED);
        self.write(&mut out);
        out.into_bytes()
    }

    /// All but the signature.
    fn write(&self, out: &mut Writer) {
        out.raw(&self.vault.0).varint(self.number).varint(self.epochs.into()).bytes(&self.earlier);
        write_list(out, &self.slots, |slot, out| {
            out.raw(&slot.node.0).raw(&slot.ephemeral).raw(&slot.sealed);
        });
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (vault, number) = (VaultId(reader.array("vault id")?), reader.varint("number of members")?);
        let epochs = reader.bounded("epochs", MAX_EPOCHS as u64)? as u32;
        let earlier = reader.bytes("earlier epochs", 32 * MAX_EPOCHS)?.to_vec();
        let slots = list(reader, "shares", 2 * MAX_MEMBERS + 1, |reader| {
            let (node, ephemeral) = (NodeId(reader.array("member")?), reader.array("ephemeral key")?);
            Ok(KeySlot { node, ephemeral, sealed: reader.array("sealed secret")? })
        })?;
        match earlier.len() + 32 == 32 * epochs as usize + 16 {
            true => Ok(Self { vault, number, epochs, earlier, slots, signature: reader.array("signature")? }),
            false => Err(invalid("earlier epochs", "are not as many as there are")),
        }
    }

    /// The secrets of all epochs for one member, if the owner made the record for `members`.
    fn secrets_for(&self, own: &SigningKey, members: &Members) -> Result<Vec<KeySecret>, ShareError> {
        let is_theirs = self.vault == members.vault && self.number == members.number;
        if !is_theirs || !members.owner.verify(&self.message(), &self.signature) {
            return Err(ShareError::NotTheOwners);
        }
        let node = own.identity().node_id();
        let slot = self.slots.iter().find(|slot| slot.node == node).ok_or(ShareError::NotShared)?;
        self.open(&slot.open(own, self)?)
    }

    /// The secrets of all epochs, by the newest one.
    fn open(&self, newest: &KeySecret) -> Result<Vec<KeySecret>, ShareError> {
        let payload = Payload { msg: &self.earlier, aad: &bound(self.vault, self.epochs) };
        let plain = earlier_cipher(newest, self.vault).decrypt(&Nonce::from(NONCE), payload);
        let plain = Zeroizing::new(plain.map_err(|_| ShareError::Sealed)?);
        let earlier = plain.as_chunks::<32>().0.iter().map(|secret| KeySecret(*secret));
        Ok(earlier.chain([newest.clone()]).collect())
    }
}

impl KeySlot {
    fn seal(node: NodeId, newest: &KeySecret, vault: VaultId, epochs: u32) -> Result<Self, ShareError> {
        Self::seal_with(&KeySecret::random()?, node, newest, vault, epochs)
    }

    fn seal_with(
        fresh: &KeySecret,
        node: NodeId,
        newest: &KeySecret,
        vault: VaultId,
        epochs: u32,
    ) -> Result<Self, ShareError> {
        let theirs = CompressedEdwardsY(node.0).decompress().ok_or(ShareError::NoKey(node))?.to_montgomery();
        let ephemeral = MontgomeryPoint::mul_base_clamped(fresh.0).0;
        let agreed = agreed(theirs, fresh).ok_or(ShareError::NoKey(node))?;
        let payload = Payload { msg: &newest.0, aad: &bound(vault, epochs) };
        let cipher = slot_cipher(&agreed, &ephemeral, &node, vault);
        let bytes = cipher.encrypt(&Nonce::from(NONCE), payload).map_err(|_| ShareError::Sealed)?;
        let sealed = bytes.try_into().map_err(|_| ShareError::Sealed)?;
        Ok(Self { node, ephemeral, sealed })
    }

    fn open(&self, own: &SigningKey, shared: &SharedSecrets) -> Result<KeySecret, ShareError> {
        let secret = agreement_key(own).ok_or(ShareError::NoKey(self.node))?;
        let agreed = agreed(MontgomeryPoint(self.ephemeral), &secret).ok_or(ShareError::Sealed)?;
        let payload = Payload { msg: &self.sealed, aad: &bound(shared.vault, shared.epochs) };
        let cipher = slot_cipher(&agreed, &self.ephemeral, &self.node, shared.vault);
        let plain = cipher.decrypt(&Nonce::from(NONCE), payload).map_err(|_| ShareError::Sealed)?;
        let plain = Zeroizing::new(plain);
        plain.as_slice().try_into().map(KeySecret).map_err(|_| ShareError::Sealed)
    }
}

/// What both ends of an agreement know; `None`: the other's key leads to nothing secret.
fn agreed(theirs: MontgomeryPoint, own: &KeySecret) -> Option<KeySecret> {
    let agreed = KeySecret(theirs.mul_clamped(own.0).0);
    (agreed.0 != [0; 32]).then_some(agreed)
}

/// The private agreement key that belongs to a signing key: half of the hash of its seed (RFC 8032, RFC 7748).
fn agreement_key(own: &SigningKey) -> Option<KeySecret> {
    let seed = own.pkcs8.get(SEED..SEED + 32)?;
    if own.pkcs8.get(SEED - SEED_TAG.len()..SEED)? != SEED_TAG {
        return None;
    }
    let hash = digest(&SHA512, seed);
    hash.as_ref().first_chunk::<32>().map(|half| KeySecret(*half))
}

fn slot_cipher(agreed: &KeySecret, ephemeral: &[u8; 32], node: &NodeId, vault: VaultId) -> Aes256GcmSiv {
    cipher(&agreed.derive("towpath vault 1 share", &[ephemeral, &node.0, &vault.0]))
}

/// The secrets of all epochs but the newest, sealed with that.
fn seal_earlier(
    newest: &KeySecret,
    earlier: &[KeySecret],
    vault: VaultId,
    epochs: u32,
) -> Result<Vec<u8>, ShareError> {
    let earlier = Zeroizing::new(earlier.iter().flat_map(|secret| secret.0).collect::<Vec<u8>>());
    let payload = Payload { msg: &earlier, aad: &bound(vault, epochs) };
    let sealed = earlier_cipher(newest, vault).encrypt(&Nonce::from(NONCE), payload);
    sealed.map_err(|_| ShareError::Sealed)
}

fn earlier_cipher(newest: &KeySecret, vault: VaultId) -> Aes256GcmSiv {
    cipher(&newest.derive("towpath vault 1 earlier epochs", &[&vault.0]))
}

fn cipher(key: &KeySecret) -> Aes256GcmSiv {
    Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(key.0))
}

/// What is authenticated with a secret: whose it is, and of how many epochs.
fn bound(vault: VaultId, epochs: u32) -> Vec<u8> {
    [&vault.0[..], &epochs.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{PassphraseCost, Unlock};
    use proptest::prelude::*;

    /// A vault's owner with its first record, and a member that has nothing but its own key.
    fn owner() -> (VaultKeys, KeysRecord, Members) {
        let keys = VaultKeys::generate().unwrap();
        let unlock = Unlock::KeyFile(Zeroizing::new(vec![1; 32]));
        let record = KeysRecord::alone(WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default()).unwrap());
        let members = Members {
            vault: keys.vault,
            number: 1,
            owner: keys.owner,
            deleter: None,
            writers: Vec::new(),
            readers: Vec::new(),
        };
        (keys, record, members)
    }

    fn member(owner: &VaultKeys) -> VaultKeys {
        VaultKeys::of_member(owner.vault, owner.owner).unwrap()
    }

    fn node(keys: &VaultKeys) -> NodeId {
        keys.writer.as_ref().unwrap().identity().node_id()
    }

    fn shared(keys: &VaultKeys, record: &KeysRecord, members: &Members, with: &[&VaultKeys]) -> KeysRecord {
        let sharers: Vec<_> = with.iter().map(|keys| node(keys)).collect();
        let made = record.share(keys, members, &sharers, keys.writer.as_ref().unwrap()).unwrap();
        let back = KeysRecord::from_bytes(&made.to_bytes()).unwrap();
        assert_eq!((&back, back.sharers()), (&made, sharers));
        back
    }

    fn secrets(keys: &VaultKeys) -> Vec<[u8; 32]> {
        keys.epochs.iter().map(|secret| secret.0).collect()
    }

    #[test]
    fn members_get_all_epochs_and_who_left_no_new_one() {
        let (mut keys, record, members) = owner();
        let (mut stays, mut leaves) = (member(&keys), member(&keys));
        let first = shared(&keys, &record, &members, &[&keys, &stays, &leaves]);
        for member in [&mut stays, &mut leaves] {
            first.follow(member, &members).unwrap();
            assert_eq!(secrets(member), secrets(&keys));
        }
        keys.epochs.push(KeySecret::random().unwrap());
        let members = Members { number: 2, ..members };
        let second = shared(&keys, &first, &members, &[&keys, &stays]);
        assert_eq!(second.follow(&mut leaves, &members), Err(ShareError::NotShared));
        assert_eq!(leaves.epochs.len(), 1);
        second.follow(&mut stays, &members).unwrap();
        let mut late = member(&keys);
        let third = shared(&keys, &second, &Members { number: 3, ..members.clone() }, &[&keys, &late]);
        third.follow(&mut late, &Members { number: 3, ..members.clone() }).unwrap();
        assert_eq!((secrets(&stays), secrets(&late)), (secrets(&keys), secrets(&keys)));
        // An old record does not come back with newer members, nor the vault's first.
        for old in [&first, &record] {
            assert_eq!(old.follow(&mut stays, &members), Err(ShareError::NotTheOwners));
        }
        let before = Members { number: 1, ..members };
        assert_eq!(first.follow(&mut stays, &before), Err(ShareError::OtherEpochs));
    }

    #[test]
    fn nobody_but_the_owner_makes_a_record() {
        let (keys, record, members) = owner();
        let (one, mut two) = (member(&keys), member(&keys));
        let sharers = [node(&one), node(&two)];
        let forged = record.share(&keys, &members, &sharers, one.writer.as_ref().unwrap()).unwrap();
        assert_eq!(forged.follow(&mut two, &members), Err(ShareError::NotTheOwners));
        let mut bytes = shared(&keys, &record, &members, &[&one, &two]).to_bytes();
        let last = bytes.len() - 1;
        let first = last - 64 - 200;
        for at in first..=last {
            bytes[at] ^= 1;
            let read = KeysRecord::from_bytes(&bytes);
            assert!(read.is_err() || read.unwrap().follow(&mut two, &members).is_err(), "{at}");
            bytes[at] ^= 1;
        }
        assert!((0..bytes.len()).all(|end| KeysRecord::from_bytes(&bytes[..end]).is_err()));
    }

    #[test]
    fn a_slot_is_of_one_member_and_one_vault() {
        let (keys, record, members) = owner();
        let (one, mut two) = (member(&keys), member(&keys));
        let mut swapped = shared(&keys, &record, &members, &[&one]);
        let secrets = swapped.shared.as_mut().unwrap();
        secrets.slots[0].node = node(&two);
        secrets.signature = keys.writer.as_ref().unwrap().identity().sign(&secrets.message());
        assert_eq!(swapped.follow(&mut two, &members), Err(ShareError::Sealed));
        let no_point = NodeId([2; 32]);
        let refused = record.share(&keys, &members, &[no_point], keys.writer.as_ref().unwrap());
        assert_eq!(refused, Err(ShareError::NoKey(no_point)));
        // A point of small order would agree on nothing secret.
        let small = NodeId([0; 32]);
        let refused = record.share(&keys, &members, &[small], keys.writer.as_ref().unwrap());
        assert_eq!(refused, Err(ShareError::NoKey(small)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, is_one: bool) {
            let bytes = if is_one { [MAGIC, &[1], &bytes].concat() } else { bytes };
            if let Ok(record) = KeysRecord::from_bytes(&bytes) {
                prop_assert_eq!(record.to_bytes(), bytes);
            }
        }
    }

    /// The vector of `docs/formats/vault-blocks.md`.
    #[test]
    fn the_documented_share() {
        let seed = KeySecret(std::array::from_fn(|at| at as u8));
        let own = SigningKey::from_seed(&seed).unwrap();
        let (vault, newest) = (VaultId([0x11; 16]), KeySecret([0x55; 32]));
        let slot =
            KeySlot::seal_with(&KeySecret([0x66; 32]), own.identity().node_id(), &newest, vault, 1).unwrap();
        let hex = towpath_content::node_id::hex;
        assert_eq!(
            [hex(&slot.node.0), hex(&slot.ephemeral), hex(&slot.sealed)],
            [
                "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8",
                "219e4d800da968d2a5fcb009c784f4746c7138edb9ee4844b739e830b05cf424",
                "688cfecaca448666a9f2a93dfa94500c2247de601c90b063987be143f33f8d257685417dd3f967a15995c3c0c2ebbf95"
            ]
        );
    }
}
