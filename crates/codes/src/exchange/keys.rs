//! What follows from the words: SPAKE2's session, confirmations bound to all that was said, the key that seals.
//!
//! SPAKE2 gives the same 32 bytes to both ends if their words, the mailbox's number and the halves are the same. All
//! else is bound by what is derived from them: version, both nodes, the channel if there is one, and the offer.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use towpath_content::NodeId;
use towpath_content::codec::Writer;

use super::message::{CodeOffer, VERSION};
use super::{CodeWay, Fingerprint};
use crate::code::Code;
use crate::entropy::Entropy;

const SESSION: &str = "towpath 2026-11 code session v1";
const GUEST_CONFIRMATION: &str = "towpath 2026-11 code guest confirmation v1";
const HOST_CONFIRMATION: &str = "towpath 2026-11 code host confirmation v1";
const SEAL: &str = "towpath 2026-11 code ticket v1";
const FINGERPRINT: &str = "towpath 2026-11 code fingerprint v1";
const COMMITMENT: &str = "towpath 2026-11 code commitment v1";
/// How SPAKE2 marks the halves of its two sides, in front of them.
const HOST_SIDE: u8 = b'A';
const GUEST_SIDE: u8 = b'B';

/// One end's half of SPAKE2, until the other one comes.
pub(super) struct SpakeHalf {
    spake: Spake2<Ed25519Group>,
    is_host: bool,
    /// The half that is told.
    pub element: [u8; 32],
}

impl SpakeHalf {
    pub(super) fn of_host(code: &Code, entropy: &mut Entropy) -> Self {
        let [host, guest] = identities(code);
        let (spake, told) = Spake2::start_a_with_rng(&Password::new(code.password()), &host, &guest, entropy);
        Self { spake, is_host: true, element: without_side(&told) }
    }

    pub(super) fn of_guest(code: &Code, entropy: &mut Entropy) -> Self {
        let [host, guest] = identities(code);
        let (spake, told) = Spake2::start_b_with_rng(&Password::new(code.password()), &host, &guest, entropy);
        Self { spake, is_host: false, element: without_side(&told) }
    }

    /// The session, if the other end's half is a half at all.
    pub(super) fn finish(self, other: &[u8; 32], said: &WhatWasSaid<'_>) -> Option<CodeSession> {
        let side = if self.is_host { GUEST_SIDE } else { HOST_SIDE };
        let secret = self.spake.finish(&[&[side], &other[..]].concat()).ok()?;
        let transcript = said.transcript();
        let key = blake3::derive_key(SESSION, &[&secret[..], &transcript].concat());
        Some(CodeSession { key, transcript })
    }
}

/// The mailbox is in SPAKE2 itself: words for one number are worth nothing at another.
fn identities(code: &Code) -> [Identity; 2] {
    ["host", "guest"].map(|role| {
        let name = format!("towpath code {VERSION} {role} {}", code.number());
        Identity::new(name.as_bytes())
    })
}

fn without_side(told: &[u8]) -> [u8; 32] {
    let (_, element) = told.split_last_chunk().expect("SPAKE2 tells a side and 32 bytes");
    *element
}

/// What both ends have told each other, and over which way.
pub(super) struct WhatWasSaid<'a> {
    number: u32,
    way: &'a CodeWay,
    offer: &'a CodeOffer,
    guest: NodeId,
    guest_element: &'a [u8; 32],
}

impl<'a> WhatWasSaid<'a> {
    pub(super) const fn new(
        number: u32,
        way: &'a CodeWay,
        offer: &'a CodeOffer,
        guest: NodeId,
        guest_element: &'a [u8; 32],
    ) -> Self {
        Self { number, way, offer, guest, guest_element }
    }

    fn transcript(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.varint(VERSION).varint(u64::from(self.number)).u8(u8::from(self.offer.is_verified));
        match self.way {
            CodeWay::Carried => writer.u8(0),
            CodeWay::Direct { binding, .. } => writer.u8(1).raw(binding),
        };
        writer.raw(&self.offer.node.0).raw(&self.guest.0).raw(&self.offer.commitment);
        writer.raw(&self.offer.element).raw(self.guest_element);
        writer.into_bytes()
    }
}

/// What both ends share if their words are the same.
pub(super) struct CodeSession {
    key: [u8; 32],
    transcript: Vec<u8>,
}

impl CodeSession {
    /// The guest's proof.
    pub(super) fn guest_confirmation(&self) -> [u8; 32] {
        *blake3::keyed_hash(&blake3::derive_key(GUEST_CONFIRMATION, &self.key), &self.transcript).as_bytes()
    }

    /// The host's proof.
    pub(super) fn host_confirmation(&self, nonce: &[u8; 32]) -> [u8; 32] {
        let said = [&self.transcript[..], nonce].concat();
        *blake3::keyed_hash(&blake3::derive_key(HOST_CONFIRMATION, &self.key), &said).as_bytes()
    }

    /// True if this is the guest's proof.
    pub(super) fn is_guests(&self, confirmation: [u8; 32]) -> bool {
        is_same(self.guest_confirmation(), confirmation)
    }

    /// True if this is the host's proof, and the nonce is the one that its offer was committed to.
    pub(super) fn is_hosts(&self, offer: &CodeOffer, nonce: &[u8; 32], confirmation: [u8; 32]) -> bool {
        commitment(nonce) == offer.commitment && is_same(self.host_confirmation(nonce), confirmation)
    }

    /// What people compare. It hangs on the nonce, which nobody but the host knows before the guest's half is fixed.
    pub(super) fn fingerprint(&self, nonce: &[u8; 32]) -> Fingerprint {
        let hash = blake3::derive_key(FINGERPRINT, &[self.key, *nonce].concat());
        Fingerprint::of(u64::from_le_bytes(*hash.first_chunk().expect("a hash has more than 8 bytes")))
    }

    /// The ticket's text, for the guest alone. Once in a session: there is one nonce.
    pub(super) fn seal(&self, ticket: &str) -> Vec<u8> {
        let mut bytes = ticket.as_bytes().to_vec();
        let sealed = self.seal_key().seal_in_place_append_tag(zero(), Aad::empty(), &mut bytes);
        sealed.expect("a ticket's text is far below the limit of the cipher");
        bytes
    }

    /// The text that the host sealed.
    pub(super) fn open(&self, mut sealed: Vec<u8>) -> Option<String> {
        let text = self.seal_key().open_in_place(zero(), Aad::empty(), &mut sealed).ok()?;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }

    fn seal_key(&self) -> LessSafeKey {
        let key = blake3::derive_key(SEAL, &self.key);
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).expect("the key has 32 bytes"))
    }
}

fn zero() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// What an offer says of the nonce.
pub(super) fn commitment(nonce: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key(COMMITMENT, nonce)
}

/// Compares in constant time, as hashes of this kind do.
fn is_same(ours: [u8; 32], theirs: [u8; 32]) -> bool {
    blake3::Hash::from_bytes(ours) == blake3::Hash::from_bytes(theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever stands in between and knows the words could otherwise choose it last, until both fingerprints are equal.
    #[test]
    fn a_nonce_that_the_offer_was_not_committed_to_confirms_nothing() {
        let code: Code = "7-otter-lagoon".parse().unwrap();
        let host = SpakeHalf::of_host(&code, &mut Entropy::from_seed(&[1; 32]));
        let guest = SpakeHalf::of_guest(&code, &mut Entropy::from_seed(&[2; 32]));
        let (own, other) = ([3; 32], [4; 32]);
        let (node, guest_node) = (NodeId([5; 32]), NodeId([6; 32]));
        let offer =
            CodeOffer { is_verified: true, node, commitment: commitment(&own), element: host.element };
        let [host_element, guest_element] = [host.element, guest.element];
        let said = WhatWasSaid::new(7, &CodeWay::Carried, &offer, guest_node, &guest_element);
        let at_host = host.finish(&guest_element, &said).unwrap();
        let at_guest = guest.finish(&host_element, &said).unwrap();
        assert!(at_guest.is_hosts(&offer, &own, at_host.host_confirmation(&own)));
        assert!(!at_guest.is_hosts(&offer, &other, at_host.host_confirmation(&other)));
        assert_eq!(at_guest.fingerprint(&own), at_host.fingerprint(&own));
        assert_ne!(at_guest.fingerprint(&own), at_guest.fingerprint(&other));
    }
}
