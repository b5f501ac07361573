//! The end that shows a code: it hands out its ticket to the first guest, if that one knows the words.

use std::mem;

use thiserror::Error;
use towpath_content::{DecodeError, NodeId};

use super::keys::{self, CodeSession, SpakeHalf, WhatWasSaid};
use super::message::{CodeMessage, CodeOffer, EndReason, MAX_TICKET};
use super::{CodeWay, Fingerprint};
use crate::code::Code;
use crate::entropy::Entropy;

/// A ticket's text is longer than [`MAX_TICKET`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the ticket has {found} bytes, over the limit of {MAX_TICKET} for what a code may buy")]
pub struct TicketTooLong {
    /// Its length.
    pub found: usize,
}

/// What follows for the host. Messages in `send` go to whoever the received one came from, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostStep {
    /// The words were right, the ticket is under way, the code is spent.
    Sold {
        /// The node that has it.
        guest: NodeId,
        /// Confirmation and ticket; after [`CodeHost::accept`] the ticket alone.
        send: Vec<Vec<u8>>,
    },
    /// The words were right. Show the fingerprint, then call [`CodeHost::accept`] or [`CodeHost::refuse`].
    Compare {
        /// The node that has the words.
        guest: NodeId,
        /// The host's confirmation.
        send: Vec<Vec<u8>>,
        /// As the guest shows it too.
        fingerprint: Fingerprint,
    },
    /// The words were wrong: a mistyped code, or somebody guesses. This host gives its ticket to nobody any more; what
    /// next, says [`crate::attempts::Renewals`].
    Void {
        /// Tells the guest.
        send: Vec<Vec<u8>>,
    },
    /// Nothing has changed, but the other end is owed these: it lost them, or came too late.
    Told {
        /// The messages.
        send: Vec<Vec<u8>>,
    },
    /// The guest has left, or its person found the fingerprints different. The code is spent without a ticket.
    Parted(EndReason),
    /// The message is none that could be a guess, and changes nothing.
    Ignored(Option<DecodeError>),
}

/// The host of one code. See the head of [`super`].
pub struct CodeHost {
    number: u32,
    offer: CodeOffer,
    offered: Vec<u8>,
    nonce: [u8; 32],
    ticket: String,
    state: HostState,
}

enum HostState {
    Waiting(Box<SpakeHalf>),
    Comparing(CodeSession, Accepted),
    Sold(Accepted),
    /// A guess was wrong, or the ends have parted.
    Over,
}

/// The answer that was right, and what was said to it: if that was lost, it is said again.
struct Accepted {
    guest: NodeId,
    answer: Vec<u8>,
    sent: Vec<Vec<u8>>,
}

impl CodeHost {
    /// A host of `node` that sells `ticket` for `code`; after people have compared a fingerprint, if `is_verified`.
    pub fn new(
        code: &Code,
        node: NodeId,
        ticket: String,
        is_verified: bool,
        mut entropy: Entropy,
    ) -> Result<Self, TicketTooLong> {
        if ticket.len() > MAX_TICKET {
            return Err(TicketTooLong { found: ticket.len() });
        }
        let (half, nonce) = (SpakeHalf::of_host(code, &mut entropy), entropy.array());
        let commitment = keys::commitment(&nonce);
        let offer = CodeOffer { is_verified, node, commitment, element: half.element };
        let offered = CodeMessage::Offer(offer).to_bytes();
        let state = HostState::Waiting(Box::new(half));
        Ok(Self { number: code.number(), offer, offered, nonce, ticket, state })
    }

    /// The first message, the same for whoever comes: it may wait in a mailbox.
    pub fn offer(&self) -> &[u8] {
        &self.offered
    }

    /// A message came over `way`.
    pub fn receive(&mut self, bytes: &[u8], way: &CodeWay) -> HostStep {
        match CodeMessage::from_bytes(bytes) {
            Ok(CodeMessage::Answer { node, element, confirmation }) if way.may_be(node) => {
                let said = WhatWasSaid::new(self.number, way, &self.offer, node, &element);
                match mem::replace(&mut self.state, HostState::Over) {
                    HostState::Waiting(half) => {
                        let session = half.finish(&element, &said).filter(|it| it.is_guests(confirmation));
                        self.answered(session, node, bytes)
                    }
                    state => {
                        self.state = state;
                        self.answered_again(bytes)
                    }
                }
            }
            Ok(CodeMessage::End(reason)) => self.parted(reason),
            Ok(_) => HostStep::Ignored(None),
            Err(error) => HostStep::Ignored(Some(error)),
        }
    }

    /// The first answer; with a session if its words were right.
    fn answered(&mut self, session: Option<CodeSession>, guest: NodeId, answer: &[u8]) -> HostStep {
        let Some(session) = session else {
            return HostStep::Void { send: vec![CodeMessage::End(EndReason::WrongCode).to_bytes()] };
        };
        let confirmation = session.host_confirmation(&self.nonce);
        let sent = vec![CodeMessage::Confirm { nonce: self.nonce, confirmation }.to_bytes()];
        let accepted = Accepted { guest, answer: answer.to_vec(), sent: sent.clone() };
        if self.offer.is_verified {
            let fingerprint = session.fingerprint(&self.nonce);
            self.state = HostState::Comparing(session, accepted);
            return HostStep::Compare { guest, send: sent, fingerprint };
        }
        let ticket = self.sell(&session, accepted);
        HostStep::Sold { guest, send: [sent, vec![ticket]].concat() }
    }

    /// Seals the ticket and remembers to whom.
    fn sell(&mut self, session: &CodeSession, mut accepted: Accepted) -> Vec<u8> {
        let ticket = CodeMessage::Sealed(session.seal(&self.ticket)).to_bytes();
        accepted.sent.push(ticket.clone());
        self.state = HostState::Sold(accepted);
        ticket
    }

    /// A later answer: the same one again, or of somebody who came too late.
    fn answered_again(&self, answer: &[u8]) -> HostStep {
        match &self.state {
            HostState::Comparing(_, accepted) | HostState::Sold(accepted) if accepted.answer == answer => {
                HostStep::Told { send: accepted.sent.clone() }
            }
            _ => HostStep::Told { send: vec![CodeMessage::End(EndReason::Spent).to_bytes()] },
        }
    }

    /// The other end says that it is over. Before it has shown that it knows the words, it may be anybody.
    fn parted(&mut self, reason: EndReason) -> HostStep {
        match self.state {
            HostState::Comparing(..) => {
                self.state = HostState::Over;
                HostStep::Parted(reason)
            }
            _ => HostStep::Ignored(None),
        }
    }

    /// The person at this end has found the same fingerprint at the other end. `None` where no fingerprint is compared.
    pub fn accept(&mut self) -> Option<HostStep> {
        match mem::replace(&mut self.state, HostState::Over) {
            HostState::Comparing(session, accepted) => {
                let guest = accepted.guest;
                let ticket = self.sell(&session, accepted);
                Some(HostStep::Sold { guest, send: vec![ticket] })
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// The person has found another fingerprint, or wants no more. Nothing can be had for the code any longer. The
    /// message tells the other end.
    pub fn refuse(&mut self) -> Vec<u8> {
        let reason = match mem::replace(&mut self.state, HostState::Over) {
            HostState::Comparing(..) => EndReason::Differs,
            _ => EndReason::Left,
        };
        CodeMessage::End(reason).to_bytes()
    }
}
