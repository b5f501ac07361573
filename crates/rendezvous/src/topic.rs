//! What a ticket's secret becomes at a rendezvous: a topic to look under, and a key that entries are sealed with.
//!
//! Both are made of secret, terms and root by a function that can't be turned round. So a server, or whoever watches it, learns
//! neither; and only who has the ticket can write an entry that others open.

use std::fmt;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use towpath_content::Oid;
use towpath_content::ticket::BoundSecret;

const TOPIC: &str = "towpath 2026-11 rendezvous topic v1";
const SEAL: &str = "towpath 2026-11 rendezvous entry seal v1";

/// The key that entries of one ticket are found under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(pub [u8; 32]);

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({})", towpath_content::node_id::hex(&self.0[..4]))
    }
}

/// What who has a ticket can do at a rendezvous.
#[derive(Clone)]
pub struct TopicKeys {
    topic: Topic,
    seal: [u8; 32],
}

impl fmt::Debug for TopicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopicKeys").field(&self.topic).finish()
    }
}

impl TopicKeys {
    /// Those of the ticket for `root` with this secret.
    pub fn new(root: &Oid, secret: &BoundSecret) -> Self {
        let told = [&root.to_bytes()[..], &secret.to_bytes()].concat();
        Self { topic: Topic(blake3::derive_key(TOPIC, &told)), seal: blake3::derive_key(SEAL, &told) }
    }

    /// The topic.
    pub const fn topic(&self) -> Topic {
        self.topic
    }

    /// `plain` for who has the ticket: nonce, ciphertext and tag. `beside` is bound to it, and not hidden.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LEN], beside: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        // A body of a few hundred bytes is far below the cipher's limit.
        match self.key().map(|key| key.seal_in_place_append_tag(unique, Aad::from(beside), &mut sealed)) {
            Some(Ok(())) => [&nonce[..], &sealed].concat(),
            _ => Vec::new(),
        }
    }

    /// What was sealed so; `None` if it was by somebody without the ticket, or for something else.
    pub(crate) fn open(&self, beside: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut plain = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = self.key()?.open_in_place(nonce, Aad::from(beside), &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }

    fn key(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &self.seal).ok().map(LessSafeKey::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::ticket::{Secret, Terms};

    #[test]
    fn secret_terms_and_root_each_make_another_topic() {
        let (root, secret) = (Oid::of(b"root"), BoundSecret::from(Secret([7; 16])));
        let keys = TopicKeys::new(&root, &secret);
        let ends = BoundSecret { terms: Terms { expires: Some(9), no_swarm: false }, ..secret };
        let others = [
            TopicKeys::new(&Oid::of(b"other"), &secret),
            TopicKeys::new(&root, &Secret([8; 16]).into()),
            TopicKeys::new(&root, &ends),
        ];
        let sealed = keys.seal([1; NONCE_LEN], b"beside", b"body");
        assert_eq!(keys.open(b"beside", &sealed).as_deref(), Some(&b"body"[..]));
        assert_eq!(keys.open(b"elsewhere", &sealed), None);
        assert_eq!(keys.open(b"beside", &sealed[..20]), None);
        for other in others {
            assert_ne!(other.topic(), keys.topic());
            assert_eq!(other.open(b"beside", &sealed), None);
        }
    }
}
