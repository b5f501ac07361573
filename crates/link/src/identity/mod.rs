//! The key pair behind a node id.
//!
//! An [`Identity`] is cheap to clone and never prints its private half. The bytes of the key
//! file are PKCS#8; what the file must look like is `key_file`'s story.

mod key_file;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use thiserror::Error;
use towpath_content::NodeId;

pub use key_file::KeyFileError;

/// An Ed25519 key pair: what makes a service itself.
#[derive(Clone)]
pub struct Identity {
    inner: Arc<Inner>,
}

struct Inner {
    pair: Ed25519KeyPair,
    pkcs8: Vec<u8>,
    node_id: NodeId,
}

/// Reason why bytes are no Ed25519 key pair, or none could be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The system gave no random bytes.
    #[error("the system gave no random bytes")]
    NoRandomness,
    /// The bytes are not an Ed25519 key pair in PKCS#8.
    #[error("not an Ed25519 key pair in PKCS#8: {why}")]
    Invalid {
        /// The reason.
        why: String,
    },
}

impl Identity {
    /// A new key pair.
    pub fn generate() -> Result<Self, KeyError> {
        let pkcs8 =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::NoRandomness)?;
        Self::from_pkcs8(pkcs8.as_ref())
    }

    /// The key pair in `pkcs8` (version 2, so that the public half is checked against the private).
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8)
            .map_err(|error| KeyError::Invalid { why: error.to_string() })?;
        let mut node_id = NodeId([0; 32]);
        node_id.0.copy_from_slice(pair.public_key().as_ref());
        Ok(Self { inner: Arc::new(Inner { pair, pkcs8: pkcs8.to_vec(), node_id }) })
    }

    /// The key pair in the file at `path`, which is made first if there is none.
    ///
    /// The folder must exist. Processes that race here all return the same key.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        key_file::load_or_create(path)
    }

    /// The public half.
    pub fn node_id(&self) -> NodeId {
        self.inner.node_id
    }

    /// Signs `message`; [`NodeId::verify`] checks it.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        // An Ed25519 signature is always 64 bytes.
        signature.copy_from_slice(self.inner.pair.sign(message).as_ref());
        signature
    }

    /// The private half, for the TLS library and the key file only.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.inner.pkcs8
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.node_id().short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_this_key_and_message_only() {
        let (one, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let signature = one.sign(b"message");
        assert!(one.node_id().verify(b"message", &signature));
        assert!(!one.node_id().verify(b"massage", &signature));
        assert!(!other.node_id().verify(b"message", &signature));
    }

    #[test]
    fn the_private_half_is_not_printed() {
        let identity = Identity::generate().unwrap();
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.node_id().short()));
    }

    #[test]
    fn damaged_keys_are_refused() {
        let good = Identity::generate().unwrap().pkcs8().to_vec();
        assert!(Identity::from_pkcs8(&good).is_ok());
        assert!(Identity::from_pkcs8(b"").is_err());
        assert!(Identity::from_pkcs8(&good[..good.len() - 1]).is_err());
        let mut swapped = good;
        let last = swapped.len() - 1;
        swapped[last] ^= 1;
        assert!(Identity::from_pkcs8(&swapped).is_err(), "public half that is not the private one's");
    }
}
