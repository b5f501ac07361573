//! Messages of an exchange. Each has one encoding, and a length that is bounded before anything is taken for it.

use towpath_content::codec::{DecodeError, Reader, Writer, invalid};
use towpath_content::{NodeId, ticket};

/// No message is longer, in bytes.
pub const MAX_MESSAGE: usize = 16 << 10;
/// The longest text of a ticket: `tow:` and its digits.
pub const MAX_TICKET: usize = ticket::MAX_TEXT + 4;
/// Bytes by which sealing makes a text longer.
pub(super) const SEAL_LEN: usize = 16;
/// The version of the exchange, its words and its keys.
pub(super) const VERSION: u64 = 1;

const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const CONFIRM: u8 = 3;
const SEALED: u8 = 4;
const END: u8 = 5;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeMessage {
    /// The host's first one.
    Offer(CodeOffer),
    /// The guest's answer to it: a guess, right or wrong.
    Answer {
        /// The guest.
        node: NodeId,
        /// Its half of SPAKE2.
        element: [u8; 32],
        /// Proves that it knows the words.
        confirmation: [u8; 32],
    },
    /// The host found the answer right.
    Confirm {
        /// What the offer was committed to.
        nonce: [u8; 32],
        /// Proves that the host knows the words, and has seen the same messages.
        confirmation: [u8; 32],
    },
    /// The ticket's text, encrypted.
    Sealed(Vec<u8>),
    /// Nothing more will come. Anybody can say so: it is for people, and decides nothing.
    End(EndReason),
}

/// The host's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeOffer {
    /// People compare a fingerprint before the ticket comes.
    pub is_verified: bool,
    /// The host.
    pub node: NodeId,
    /// Hides a number that the host shows later, so that nobody can look for two exchanges with one fingerprint.
    pub commitment: [u8; 32],
    /// Its half of SPAKE2.
    pub element: [u8; 32],
}

/// Reason why an exchange is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The guest's words are not the host's; the code is void now.
    WrongCode,
    /// Somebody was there before, with the right words or with wrong ones.
    Spent,
    /// A person found the fingerprints different.
    Differs,
    /// The other end has left.
    Left,
    /// There is no mailbox of this number, or nobody waits there. WhatWasSaid by whoever keeps mailboxes.
    Nobody,
}

const REASONS: [EndReason; 5] =
    [EndReason::WrongCode, EndReason::Spent, EndReason::Differs, EndReason::Left, EndReason::Nobody];

impl CodeMessage {
    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Self::Offer(offer) => {
                writer.u8(OFFER).varint(VERSION).u8(u8::from(offer.is_verified));
                writer.raw(&offer.node.0).raw(&offer.commitment).raw(&offer.element)
            }
            Self::Answer { node, element, confirmation } => {
                writer.u8(ANSWER).varint(VERSION).raw(&node.0).raw(element).raw(confirmation)
            }
            Self::Confirm { nonce, confirmation } => writer.u8(CONFIRM).raw(nonce).raw(confirmation),
            Self::Sealed(sealed) => writer.u8(SEALED).bytes(sealed),
            // Reasons are numbered by their place in the list, from 1.
            Self::End(reason) => writer.u8(END).u8(*reason as u8 + 1),
        };
        writer.into_bytes()
    }

    /// Reads a message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_MESSAGE {
            let (found, limit) = (bytes.len() as u64, MAX_MESSAGE as u64);
            return Err(DecodeError::TooLarge { field: "message of a code", found, limit });
        }
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("kind")? {
            OFFER => read_offer(&mut reader)?,
            ANSWER => read_answer(&mut reader)?,
            CONFIRM => {
                Self::Confirm { nonce: reader.array("nonce")?, confirmation: reader.array("confirmation")? }
            }
            SEALED => read_sealed(&mut reader)?,
            END => read_end(&mut reader)?,
            _ => return Err(invalid("kind", "is none of a code's messages")),
        };
        reader.finish().map(|()| message)
    }
}

fn read_offer(reader: &mut Reader<'_>) -> Result<CodeMessage, DecodeError> {
    read_version(reader)?;
    let is_verified = match reader.u8("flags")? {
        0 => false,
        1 => true,
        _ => return Err(invalid("flags", "are none that this version knows")),
    };
    let node = NodeId(reader.array("node id")?);
    let (commitment, element) = (reader.array("commitment")?, reader.array("element")?);
    Ok(CodeMessage::Offer(CodeOffer { is_verified, node, commitment, element }))
}

fn read_answer(reader: &mut Reader<'_>) -> Result<CodeMessage, DecodeError> {
    read_version(reader)?;
    let node = NodeId(reader.array("node id")?);
    let (element, confirmation) = (reader.array("element")?, reader.array("confirmation")?);
    Ok(CodeMessage::Answer { node, element, confirmation })
}

fn read_version(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    match reader.varint("exchange of a code")? {
        VERSION => Ok(()),
        found => Err(DecodeError::Version { field: "exchange of a code", found, known: VERSION }),
    }
}

fn read_sealed(reader: &mut Reader<'_>) -> Result<CodeMessage, DecodeError> {
    let sealed = reader.bytes("sealed ticket", MAX_TICKET + SEAL_LEN)?;
    match sealed.len() {
        ..=SEAL_LEN => Err(invalid("sealed ticket", "holds nothing")),
        _ => Ok(CodeMessage::Sealed(sealed.to_vec())),
    }
}

fn read_end(reader: &mut Reader<'_>) -> Result<CodeMessage, DecodeError> {
    let number = usize::from(reader.u8("reason")?);
    let reason = number.checked_sub(1).and_then(|index| REASONS.get(index));
    reason.map(|reason| CodeMessage::End(*reason)).ok_or(invalid("reason", "is not known"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Vec<CodeMessage> {
        let (node, element, confirmation) = (NodeId([1; 32]), [2; 32], [3; 32]);
        let offer =
            |is_verified| CodeMessage::Offer(CodeOffer { is_verified, node, commitment: [4; 32], element });
        let answer = CodeMessage::Answer { node, element, confirmation };
        let confirm = CodeMessage::Confirm { nonce: [5; 32], confirmation };
        let sealed = |len| CodeMessage::Sealed(vec![6; len]);
        let mut all =
            vec![offer(false), offer(true), answer, confirm, sealed(17), sealed(MAX_TICKET + SEAL_LEN)];
        all.extend(REASONS.map(CodeMessage::End));
        all
    }

    #[test]
    fn every_message_comes_back_and_no_part_of_one_does() {
        for message in some() {
            let bytes = message.to_bytes();
            assert!(bytes.len() <= MAX_MESSAGE);
            assert_eq!(CodeMessage::from_bytes(&bytes), Ok(message));
            for len in 0..bytes.len() {
                assert!(CodeMessage::from_bytes(&bytes[..len]).is_err(), "{len} of {bytes:?}");
            }
            assert_eq!(
                CodeMessage::from_bytes(&[&bytes[..], &[0]].concat()),
                Err(DecodeError::Trailing { count: 1 })
            );
        }
    }

    #[test]
    fn what_no_version_writes_is_refused() {
        let offer = some()[0].to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = offer.clone();
            bytes[at] = byte;
            CodeMessage::from_bytes(&bytes).unwrap_err().to_string()
        };
        assert_eq!(with(0, 9), "kind: is none of a code's messages");
        assert_eq!(with(1, 2), "exchange of a code has version 2, this program knows 1");
        assert_eq!(with(2, 2), "flags: are none that this version knows");
        for bytes in [&[][..], &[END, 0], &[END, 6], &[SEALED, 0], &[SEALED, 16, 0], &[0; MAX_MESSAGE + 1]] {
            assert!(CodeMessage::from_bytes(bytes).is_err());
        }
        let long = CodeMessage::Sealed(vec![0; MAX_TICKET + SEAL_LEN + 1]).to_bytes();
        assert!(matches!(CodeMessage::from_bytes(&long), Err(DecodeError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(kind in 0u8..7, bytes: Vec<u8>) {
            let bytes = [&[kind][..], &bytes].concat();
            if let Ok(message) = CodeMessage::from_bytes(&bytes) {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
