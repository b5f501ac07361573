//! The end where a code was typed: it answers the offer once, and gets the ticket or the reason why not.

use std::mem;

use thiserror::Error;
use towpath_content::{DecodeError, NodeId};

use super::keys::{CodeSession, SpakeHalf, WhatWasSaid};
use super::message::{CodeMessage, CodeOffer, EndReason};
use super::{CodeWay, Fingerprint};
use crate::code::Code;
use crate::entropy::Entropy;

/// Reason why a guest gets no ticket. Each wants another next step of the person.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuestFailure {
    /// The other end has other words for this number. Its code is void now: it has shown a new one.
    #[error("the code is wrong")]
    WrongCode,
    /// Somebody has used this code before, or guessed wrongly at it.
    #[error("the code was used already")]
    Spent,
    /// People found different fingerprints: somebody is in between.
    #[error("the fingerprints differ")]
    Differs,
    /// The other end has left.
    #[error("the other end has left")]
    Left,
    /// There is nobody with a code of this number.
    #[error("nobody waits with a code of this number")]
    Nobody,
    /// A message is damaged, or of another version.
    #[error("the other end sent a bad message: {0}")]
    BadMessage(#[from] DecodeError),
    /// A message does not belong here, is not of the node it says, or not of the one that has confirmed.
    #[error("the other end sent a message that does not fit")]
    Unfit,
}

impl From<EndReason> for GuestFailure {
    fn from(reason: EndReason) -> Self {
        match reason {
            EndReason::WrongCode => Self::WrongCode,
            EndReason::Spent => Self::Spent,
            EndReason::Differs => Self::Differs,
            EndReason::Left => Self::Left,
            EndReason::Nobody => Self::Nobody,
        }
    }
}

/// What follows for the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestStep {
    /// Send this. If it may be lost in the mailbox, send the same again: it is still the same guess. On another direct
    /// connection it would be a wrong one; there begin anew.
    Answer(Vec<u8>),
    /// The code is right, the ticket will follow.
    Confirmed,
    /// The code is right. Show the fingerprint: the ticket follows when the other end's person has accepted it.
    Compare(Fingerprint),
    /// The text of the ticket, from a host that knows the words.
    Ticket {
        /// The host.
        host: NodeId,
        /// Its ticket's text, not looked at.
        text: String,
    },
    /// A message that was here before; nothing has changed.
    Ignored,
    /// It is over, without a ticket.
    Failed(GuestFailure),
}

/// The guest of one code. See the head of [`super`].
pub struct CodeGuest {
    number: u32,
    node: NodeId,
    state: GuestState,
    /// The messages that were taken, to pass over their repetition. Three at most.
    taken: Vec<Vec<u8>>,
}

enum GuestState {
    Beginning(Box<SpakeHalf>),
    Answered { session: CodeSession, offer: CodeOffer },
    Confirmed { session: CodeSession, host: NodeId },
    Over,
}

impl CodeGuest {
    /// A guest of `node` with the code that was typed there.
    pub fn new(code: &Code, node: NodeId, mut entropy: Entropy) -> Self {
        let half = SpakeHalf::of_guest(code, &mut entropy);
        let state = GuestState::Beginning(Box::new(half));
        Self { number: code.number(), node, state, taken: Vec::new() }
    }

    /// A message came over `way`.
    pub fn receive(&mut self, bytes: &[u8], way: &CodeWay) -> GuestStep {
        if self.taken.iter().any(|taken| taken == bytes) {
            return GuestStep::Ignored;
        }
        let (state, step) = match CodeMessage::from_bytes(bytes) {
            Ok(message) => self.proceed(message, way),
            Err(error) => failed(error.into()),
        };
        self.state = state;
        if !matches!(step, GuestStep::Failed(_)) {
            self.taken.push(bytes.to_vec());
        }
        step
    }

    fn proceed(&mut self, message: CodeMessage, way: &CodeWay) -> (GuestState, GuestStep) {
        match (mem::replace(&mut self.state, GuestState::Over), message) {
            (GuestState::Beginning(half), CodeMessage::Offer(offer)) => self.answer(*half, offer, way),
            (GuestState::Answered { session, offer }, CodeMessage::Confirm { nonce, confirmation }) => {
                if !session.is_hosts(&offer, &nonce, confirmation) {
                    return failed(GuestFailure::WrongCode);
                }
                let compare = offer.is_verified.then(|| GuestStep::Compare(session.fingerprint(&nonce)));
                let state = GuestState::Confirmed { session, host: offer.node };
                (state, compare.unwrap_or(GuestStep::Confirmed))
            }
            (GuestState::Confirmed { session, host }, CodeMessage::Sealed(sealed)) => {
                match session.open(sealed) {
                    Some(text) => (GuestState::Over, GuestStep::Ticket { host, text }),
                    None => failed(GuestFailure::Unfit),
                }
            }
            // Whatever comes after the ticket cannot take it back.
            (GuestState::Over, _) => (GuestState::Over, GuestStep::Ignored),
            (_, CodeMessage::End(reason)) => failed(reason.into()),
            _ => failed(GuestFailure::Unfit),
        }
    }

    fn answer(&self, half: SpakeHalf, offer: CodeOffer, way: &CodeWay) -> (GuestState, GuestStep) {
        if !way.may_be(offer.node) {
            return failed(GuestFailure::Unfit);
        }
        let element = half.element;
        let said = WhatWasSaid::new(self.number, way, &offer, self.node, &element);
        let Some(session) = half.finish(&offer.element, &said) else { return failed(GuestFailure::Unfit) };
        let confirmation = session.guest_confirmation();
        let answer = CodeMessage::Answer { node: self.node, element, confirmation }.to_bytes();
        (GuestState::Answered { session, offer }, GuestStep::Answer(answer))
    }

    /// The person at this end has found another fingerprint, or wants no more. The message tells the other end.
    pub fn leave(&mut self) -> Vec<u8> {
        let reason = match mem::replace(&mut self.state, GuestState::Over) {
            GuestState::Confirmed { .. } => EndReason::Differs,
            _ => EndReason::Left,
        };
        CodeMessage::End(reason).to_bytes()
    }
}

fn failed(failure: GuestFailure) -> (GuestState, GuestStep) {
    (GuestState::Over, GuestStep::Failed(failure))
}
