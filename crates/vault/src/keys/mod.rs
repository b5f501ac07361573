//! Keys of a vault: a random key for each epoch, from which all others are derived, and the signing keys of its members.
//!
//! ```text
//!   passphrase or key file ── wraps ── VaultKeys
//!                                        ├─ key of each epoch ── FileKey (vault, file, epoch) ── key and nonce of a block
//!                                        ├─ key of epoch 0 ── boundaries and plaintext hashes of a file
//!                                        └─ signing keys: the member's, the deleter's
//!   owner ── seals ── secrets of the epochs ── for each member's public key
//! ```
//!
//! Secrets are zeroed when they are dropped, but for signing keys, which their crate keeps. Layouts: `docs/formats/vault-blocks.md`.

mod shares;
mod wrapped;

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use thiserror::Error;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};
use towpath_link::Identity;
use towpath_vault_format::{Digest, FileId, VaultId};
use zeroize::{Zeroize, Zeroizing};

pub use shares::{KeysRecord, ShareError};
pub use wrapped::{PassphraseCost, Unlock, UnlockError, WrappedKeys};

/// The most epochs: keys are rotated when a member leaves.
pub const MAX_EPOCHS: usize = 1024;
/// What stands before the private and the public half of an Ed25519 key in PKCS#8, version 2.
const PKCS8_BEGIN: [u8; 16] = *b"\x30\x51\x02\x01\x01\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const PKCS8_MIDDLE: [u8; 3] = *b"\x81\x21\x00";
/// The most bytes of a signing key.
const MAX_SIGNING_KEY: usize = 256;

/// 32 bytes that are zeroed when they are dropped.
#[derive(Clone)]
pub struct KeySecret(pub(crate) [u8; 32]);

/// All keys of one member of a vault.
#[derive(Clone)]
pub struct VaultKeys {
    /// The vault.
    pub vault: VaultId,
    /// Whose word on members counts.
    pub owner: NodeId,
    /// Keys of the epochs 0, 1, ...; empty until the owner's record of keys was read ([`KeysRecord::follow`]).
    pub epochs: Vec<KeySecret>,
    /// By which this member is known, and signs versions if it may write; none: it may not even connect.
    pub writer: Option<SigningKey>,
    /// Signs that versions are dropped.
    pub deleter: Option<SigningKey>,
}

/// A signing key, and the bytes it is kept as.
#[derive(Clone)]
pub struct SigningKey {
    identity: Identity,
    pkcs8: Zeroizing<Vec<u8>>,
}

/// Reason why there are no keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VaultKeyError {
    /// The system gave no random bytes.
    #[error("the system gave no random bytes")]
    NoRandomness,
    /// A file is of an epoch whose key this member was not given.
    #[error("no key of epoch {epoch}: it was not shared with this member")]
    NoSuchEpoch {
        /// The epoch.
        epoch: u32,
    },
}

/// Keys of one file in one epoch.
pub struct FileKey {
    pub(crate) vault: VaultId,
    pub(crate) file: FileId,
    pub(crate) epoch: u32,
    pub(crate) key: KeySecret,
}

impl Drop for KeySecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The keys of a member, and their encoding again: a door for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn keys_again(bytes: &[u8]) -> Option<(VaultKeys, Vec<u8>)> {
    let keys = VaultKeys::from_bytes(bytes).ok()?;
    let again = keys.to_bytes().to_vec();
    Some((keys, again))
}

/// So many random bytes.
pub fn random<const N: usize>() -> Result<[u8; N], VaultKeyError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| VaultKeyError::NoRandomness)?;
    Ok(bytes)
}

impl KeySecret {
    /// A random one.
    pub fn random() -> Result<Self, VaultKeyError> {
        random().map(Self)
    }

    /// The key for `context` that is derived from this one and `parts`.
    fn derive(&self, context: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.0);
        for part in parts {
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }
}

impl SigningKey {
    /// A new one.
    pub fn generate() -> Result<Self, VaultKeyError> {
        let pkcs8 =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| VaultKeyError::NoRandomness)?;
        Self::read(pkcs8.as_ref()).map_err(|_| VaultKeyError::NoRandomness)
    }

    /// The one that follows from a secret.
    fn from_seed(seed: &KeySecret) -> Result<Self, DecodeError> {
        let refused = |_| invalid("signing key", "is none");
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed.0).map_err(refused)?;
        let mut pkcs8 = Zeroizing::new(Vec::with_capacity(96));
        pkcs8.extend_from_slice(&PKCS8_BEGIN);
        pkcs8.extend_from_slice(&seed.0);
        pkcs8.extend_from_slice(&PKCS8_MIDDLE);
        pkcs8.extend_from_slice(pair.public_key().as_ref());
        Self::read(&pkcs8)
    }

    fn read(pkcs8: &[u8]) -> Result<Self, DecodeError> {
        let identity = Identity::from_pkcs8(pkcs8).map_err(|_| invalid("signing key", "is none"))?;
        Ok(Self { identity, pkcs8: Zeroizing::new(pkcs8.to_vec()) })
    }

    /// The key pair.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl VaultKeys {
    /// Those of the owner of a new vault.
    pub fn generate() -> Result<Self, VaultKeyError> {
        let writer = SigningKey::generate()?;
        Ok(Self {
            vault: VaultId(random()?),
            owner: writer.identity().node_id(),
            epochs: vec![KeySecret::random()?],
            writer: Some(writer),
            deleter: Some(SigningKey::generate()?),
        })
    }

    /// Those of a member that the vault is to be shared with: a key of its own and nothing else.
    pub fn of_member(vault: VaultId, owner: NodeId) -> Result<Self, VaultKeyError> {
        Ok(Self { vault, owner, epochs: Vec::new(), writer: Some(SigningKey::generate()?), deleter: None })
    }

    /// By which this member is known.
    pub fn node(&self) -> Option<NodeId> {
        self.writer.as_ref().map(|key| key.identity().node_id())
    }

    /// The newest epoch, which new blocks are encrypted in.
    pub const fn epoch(&self) -> u32 {
        (self.epochs.len() as u32).saturating_sub(1)
    }

    /// The key of a file in an epoch.
    pub fn file(&self, file: FileId, epoch: u32) -> Result<FileKey, VaultKeyError> {
        let secret = self.epochs.get(epoch as usize).ok_or(VaultKeyError::NoSuchEpoch { epoch })?;
        let parts: [&[u8]; 3] = [&self.vault.0, &file.0, &epoch.to_le_bytes()];
        let key = secret.derive("towpath vault 1 file", &parts);
        Ok(FileKey { vault: self.vault, file, epoch, key })
    }

    /// The key by which a file's plaintext is cut. It is that of epoch 0 for ever: others would cut elsewhere, and all bytes
    /// would have to be sent again.
    pub fn boundaries(&self, file: FileId) -> KeySecret {
        self.epochs[0].derive("towpath vault 1 boundaries", &[&self.vault.0, &file.0])
    }

    /// The key of the hashes of a file's plaintext.
    pub fn plain_hashes(&self, file: FileId) -> KeySecret {
        self.epochs[0].derive("towpath vault 1 plaintext hashes", &[&self.vault.0, &file.0])
    }

    /// The key of the marks by which this machine knows files again whose bytes a content has.
    pub fn file_marks(&self, content: FileId) -> KeySecret {
        self.epochs[0].derive("towpath vault 1 file marks", &[&self.vault.0, &content.0])
    }

    /// What an entry's name is noted as on this machine, whose disk others may read.
    pub fn name_mark(&self, name: &[u8]) -> Digest {
        Digest(self.epochs[0].derive("towpath vault 1 names", &[&self.vault.0, name]).0)
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // Room for all, so that none of it stays where a vector grew.
        let mut out = Writer::with_capacity(64 + 32 * self.epochs.len() + 3 * MAX_SIGNING_KEY);
        out.u8(1).raw(&self.vault.0).raw(&self.owner.0).varint(self.epochs.len() as u64);
        for epoch in &self.epochs {
            out.raw(&epoch.0);
        }
        for key in [&self.writer, &self.deleter] {
            out.bytes(key.as_ref().map_or(&[], |key| &key.pkcs8[..]));
        }
        Zeroizing::new(out.into_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("vault keys")? != 1 {
            return Err(invalid("vault keys", "are of another version"));
        }
        let (vault, owner) = (VaultId(reader.array("vault id")?), NodeId(reader.array("owner")?));
        let count = reader.bounded("epochs", MAX_EPOCHS as u64)?;
        let epochs = (0..count).map(|_| reader.array("key").map(KeySecret)).collect::<Result<Vec<_>, _>>()?;
        let mut key = || match reader.bytes("signing key", MAX_SIGNING_KEY)? {
            [] => Ok(None),
            pkcs8 => SigningKey::read(pkcs8).map(Some),
        };
        let (writer, deleter) = (key()?, key()?);
        reader.finish().map(|()| Self { vault, owner, epochs, writer, deleter })
    }
}

impl fmt::Debug for VaultKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaultKeys({})", self.vault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_vault_file_epoch_and_use() {
        let mut keys = VaultKeys::generate().unwrap();
        keys.epochs.push(KeySecret::random().unwrap());
        let (a, b) = (FileId([1; 16]), FileId([2; 16]));
        let mut other = keys.clone();
        other.vault = VaultId([9; 16]);
        let all = [
            keys.file(a, 0).unwrap().key.0,
            keys.file(b, 0).unwrap().key.0,
            keys.file(a, 1).unwrap().key.0,
            other.file(a, 0).unwrap().key.0,
            keys.boundaries(a).0,
            keys.boundaries(b).0,
            keys.plain_hashes(a).0,
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(!all[..at].contains(key), "{at}");
        }
        assert_eq!(keys.file(a, 2).err(), Some(VaultKeyError::NoSuchEpoch { epoch: 2 }));
    }

    #[test]
    fn they_come_back_and_never_cut_short() {
        let keys = VaultKeys::generate().unwrap();
        let bytes = keys.to_bytes();
        let back = VaultKeys::from_bytes(&bytes).unwrap();
        assert_eq!(*back.to_bytes(), *bytes);
        assert!((0..bytes.len()).all(|end| VaultKeys::from_bytes(&bytes[..end]).is_err()));
        assert_eq!(format!("{keys:?}"), format!("VaultKeys({})", keys.vault));
    }

    /// The vectors of `docs/formats/vault-blocks.md`.
    #[test]
    fn the_documented_keys() {
        let keys = VaultKeys {
            vault: VaultId([0x11; 16]),
            owner: NodeId([0x22; 32]),
            epochs: vec![KeySecret(std::array::from_fn(|at| at as u8))],
            writer: None,
            deleter: None,
        };
        let file = FileId([0x33; 16]);
        let hex = |secret: &KeySecret| towpath_content::node_id::hex(&secret.0);
        assert_eq!(
            hex(&keys.file(file, 0).unwrap().key),
            "228511f42458248f094fb77cb85ead15f80db919b1a2464f4205b5890cfb6969"
        );
        assert_eq!(
            hex(&keys.boundaries(file)),
            "502d95fb427ca7000463a5a4fa7540a2cee15e14d1abef9a427bc4801fb4a05e"
        );
        assert_eq!(
            hex(&keys.plain_hashes(file)),
            "cd9ebcb0b23b2a1e8fa800629c43396fc207f5a699d96f4a57bff7e634210a1d"
        );
    }
}
