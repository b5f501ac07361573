//! Keys under a passphrase or a key file: what a folder of this machine and the vault itself keep of them.
//!
//! Whoever has the wrapped keys may try passphrases, which Argon2id makes dear: its parameters stand in the record, so that
//! they may rise. A key file is as good as random, and is only hashed.

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Key, Nonce};
use argon2::{Algorithm, Argon2, Params, Version};
use thiserror::Error;
use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::VaultId;
use zeroize::Zeroizing;

use super::{KeySecret, SigningKey, VaultKeyError, VaultKeys, random};

const MAGIC: &[u8] = b"tow-vault-keys\n";
/// The fewest bytes of a key file.
pub const MIN_KEY_FILE: usize = 32;
/// The most bytes of a wrapped record.
pub const MAX_WRAPPED: usize = 48 << 10;
/// Limits of what a record may ask of this machine: memory, and memory times passes.
const MAX_MEMORY_KIB: u32 = 1 << 20;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 8;

/// What guessing a passphrase costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassphraseCost {
    /// KiB of memory, 8 to 2^20. Default: 64 MiB.
    pub memory_kib: u32,
    /// Passes over it, 1 to 16. Default: 3.
    pub passes: u32,
    /// Lanes, 1 to 8. Default: 1.
    pub lanes: u32,
}

impl Default for PassphraseCost {
    fn default() -> Self {
        Self { memory_kib: 64 << 10, passes: 3, lanes: 1 }
    }
}

/// What opens wrapped keys.
pub enum Unlock {
    /// A person's passphrase.
    Passphrase(Zeroizing<Vec<u8>>),
    /// The bytes of a key file, at least 32.
    KeyFile(Zeroizing<Vec<u8>>),
}

/// Reason why wrapped keys can't be opened, or made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnlockError {
    /// It is not the one they were wrapped with, or the record was changed.
    #[error("wrong passphrase or key file, or the keys were changed")]
    Wrong,
    /// They want a key file and got a passphrase, or the other way round.
    #[error("these keys are under a {wanted}")]
    OtherKind {
        /// What they are under.
        wanted: &'static str,
    },
    /// An empty passphrase, or a key file with less than 32 bytes.
    #[error("{0}")]
    TooShort(&'static str),
    /// The record can't be read.
    #[error("the wrapped keys: {0}")]
    Decode(#[from] DecodeError),
    /// There are no random bytes.
    #[error(transparent)]
    Key(#[from] VaultKeyError),
}

/// Wrapped keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKeys {
    /// `None`: under a key file.
    cost: Option<PassphraseCost>,
    salt: [u8; 16],
    nonce: [u8; 12],
    sealed: Vec<u8>,
}

impl Unlock {
    /// The key by which a vault's wrapped keys are asked for from a machine that has nothing else. It follows from the
    /// passphrase or key file and the vault's id, and its node is a reader of the vault.
    pub fn recovery_key(&self, vault: &VaultId) -> Result<SigningKey, UnlockError> {
        let mut salt = [0; 16];
        salt.copy_from_slice(&blake3::derive_key("towpath vault 1 recovery", &vault.0)[..16]);
        let seed = match self {
            Self::Passphrase(passphrase) => of_passphrase(passphrase, &salt, PassphraseCost::default())?,
            Self::KeyFile(bytes) => of_key_file(bytes, &salt)?,
        };
        Ok(SigningKey::from_seed(&seed)?)
    }
}

impl WrappedKeys {
    /// Wraps keys. `cost` counts for a passphrase.
    pub fn wrap(keys: &VaultKeys, unlock: &Unlock, cost: PassphraseCost) -> Result<Self, UnlockError> {
        let cost = matches!(unlock, Unlock::Passphrase(_)).then_some(cost);
        let mut wrapped = Self { cost, salt: random()?, nonce: random()?, sealed: Vec::new() };
        let plain = keys.to_bytes();
        let payload = Payload { msg: &plain, aad: &wrapped.header() };
        let sealed = wrapped.cipher(unlock)?.encrypt(&Nonce::from(wrapped.nonce), payload);
        wrapped.sealed = sealed.map_err(|_| UnlockError::Wrong)?;
        Ok(wrapped)
    }

    /// The keys.
    pub fn open(&self, unlock: &Unlock) -> Result<VaultKeys, UnlockError> {
        let payload = Payload { msg: &self.sealed, aad: &self.header() };
        let plain = self.cipher(unlock)?.decrypt(&Nonce::from(self.nonce), payload);
        let plain = Zeroizing::new(plain.map_err(|_| UnlockError::Wrong)?);
        Ok(VaultKeys::from_bytes(&plain)?)
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.raw(&self.header()).bytes(&self.sealed);
        out.into_bytes()
    }

    /// Reads an encoding. What it asks of this machine is bounded.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.take("wrapped keys", MAGIC.len())? != MAGIC || reader.u8("wrapped keys")? != 1 {
            return Err(invalid("wrapped keys", "are none that this program knows"));
        }
        let cost = match reader.bounded("kind of lock", 1)? {
            0 => None,
            _ => Some(read_cost(&mut reader)?),
        };
        let (salt, nonce) = (reader.array("salt")?, reader.array("nonce")?);
        let sealed = reader.bytes("sealed keys", MAX_WRAPPED)?.to_vec();
        reader.finish().map(|()| Self { cost, salt, nonce, sealed })
    }

    fn header(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.raw(MAGIC).u8(1).u8(u8::from(self.cost.is_some()));
        if let Some(PassphraseCost { memory_kib, passes, lanes }) = self.cost {
            out.varint(memory_kib.into()).varint(passes.into()).varint(lanes.into());
        }
        out.raw(&self.salt).raw(&self.nonce);
        out.into_bytes()
    }

    fn cipher(&self, unlock: &Unlock) -> Result<Aes256GcmSiv, UnlockError> {
        let key = match (unlock, self.cost) {
            (Unlock::Passphrase(passphrase), Some(cost)) => of_passphrase(passphrase, &self.salt, cost)?,
            (Unlock::KeyFile(bytes), None) => of_key_file(bytes, &self.salt)?,
            (_, Some(_)) => return Err(UnlockError::OtherKind { wanted: "passphrase" }),
            (_, None) => return Err(UnlockError::OtherKind { wanted: "key file" }),
        };
        Ok(Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(key.0)))
    }
}

fn of_passphrase(passphrase: &[u8], salt: &[u8], cost: PassphraseCost) -> Result<KeySecret, UnlockError> {
    if passphrase.is_empty() {
        return Err(UnlockError::TooShort("an empty passphrase protects nothing"));
    }
    let refused = |_| UnlockError::Decode(invalid("cost of a passphrase", "is not allowed"));
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).map_err(refused)?;
    let mut key = KeySecret([0; 32]);
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(passphrase, salt, &mut key.0).map_err(refused)?;
    Ok(key)
}

fn of_key_file(bytes: &[u8], salt: &[u8]) -> Result<KeySecret, UnlockError> {
    if bytes.len() < MIN_KEY_FILE {
        return Err(UnlockError::TooShort("a key file has at least 32 random bytes"));
    }
    let mut hasher = blake3::Hasher::new_derive_key("towpath vault 1 key file");
    hasher.update(salt).update(bytes);
    Ok(KeySecret(*hasher.finalize().as_bytes()))
}

fn read_cost(reader: &mut Reader<'_>) -> Result<PassphraseCost, DecodeError> {
    let mut number = |field, limit: u32| reader.bounded(field, limit.into()).map(|number| number as u32);
    let memory_kib = number("memory of a passphrase", MAX_MEMORY_KIB)?;
    let passes = number("passes of a passphrase", MAX_PASSES)?;
    let lanes = number("lanes of a passphrase", MAX_LANES)?;
    match passes >= 1 && lanes >= 1 && memory_kib >= 8 * lanes {
        true => Ok(PassphraseCost { memory_kib, passes, lanes }),
        false => Err(invalid("cost of a passphrase", "is less than there can be")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

    fn passphrase(text: &str) -> Unlock {
        Unlock::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))
    }

    fn key_file(byte: u8, len: usize) -> Unlock {
        Unlock::KeyFile(Zeroizing::new(vec![byte; len]))
    }

    #[test]
    fn only_the_right_passphrase_or_file_opens_them() {
        let keys = VaultKeys::generate().unwrap();
        for (right, wrong, other, wanted) in [
            (passphrase("four words"), passphrase("for words"), key_file(1, 32), "passphrase"),
            (key_file(1, 32), key_file(2, 32), passphrase("four words"), "key file"),
        ] {
            let wrapped = WrappedKeys::wrap(&keys, &right, CHEAP).unwrap();
            let wrapped = WrappedKeys::from_bytes(&wrapped.to_bytes()).unwrap();
            assert_eq!(*wrapped.open(&right).unwrap().to_bytes(), *keys.to_bytes());
            assert_eq!(wrapped.open(&wrong).unwrap_err(), UnlockError::Wrong);
            assert_eq!(wrapped.open(&other).unwrap_err(), UnlockError::OtherKind { wanted });
        }
        for short in [passphrase(""), key_file(1, 31)] {
            let refused = WrappedKeys::wrap(&keys, &short, CHEAP);
            assert!(matches!(refused, Err(UnlockError::TooShort(_))));
        }
    }

    #[test]
    fn the_recovery_key_follows_from_passphrase_and_vault() {
        let node =
            |unlock: &Unlock, vault| unlock.recovery_key(&VaultId([vault; 16])).unwrap().identity().node_id();
        let one = node(&key_file(1, 32), 1);
        assert_eq!(one, node(&key_file(1, 32), 1));
        assert_ne!(one, node(&key_file(1, 32), 2), "another vault");
        assert_ne!(one, node(&key_file(2, 32), 1), "another file");
        let typed = passphrase("four words").recovery_key(&VaultId([1; 16])).unwrap();
        let again = passphrase("four words").recovery_key(&VaultId([1; 16])).unwrap();
        assert_eq!(typed.identity().node_id(), again.identity().node_id());
        let message = b"signed by a key that follows from a secret";
        assert!(typed.identity().node_id().verify(message, &again.identity().sign(message)));
    }

    #[test]
    fn every_changed_bit_is_found_out() {
        let right = passphrase("four words");
        let keys = VaultKeys::generate().unwrap();
        let bytes = WrappedKeys::wrap(&keys, &right, CHEAP).unwrap().to_bytes();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let opened = WrappedKeys::from_bytes(&changed).map_err(UnlockError::from);
            assert!(opened.and_then(|wrapped| wrapped.open(&right)).is_err(), "{at}");
            assert!(WrappedKeys::from_bytes(&bytes[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn a_record_asks_no_more_of_a_machine_than_is_allowed() {
        let keys = VaultKeys::generate().unwrap();
        let mut wrapped = WrappedKeys::wrap(&keys, &passphrase("four words"), CHEAP).unwrap();
        for cost in [
            PassphraseCost { memory_kib: MAX_MEMORY_KIB + 1, ..CHEAP },
            PassphraseCost { passes: MAX_PASSES + 1, ..CHEAP },
            PassphraseCost { lanes: MAX_LANES + 1, ..CHEAP },
            PassphraseCost { passes: 0, ..CHEAP },
            PassphraseCost { memory_kib: 8, lanes: 2, ..CHEAP },
        ] {
            wrapped.cost = Some(cost);
            assert!(WrappedKeys::from_bytes(&wrapped.to_bytes()).is_err(), "{cost:?}");
        }
    }
}
