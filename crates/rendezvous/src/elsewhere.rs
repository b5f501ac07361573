//! Clients of one server whose mailbox is at another one, and numbers that others may have given: what waits for whoever asks the other
//! servers. The seam to them is [`crate::mailbox_sharing`].

use std::collections::HashMap;

use tokio::sync::mpsc;
use towpath_content::NodeId;

use crate::address_group::AddressGroup;
use crate::board::{Board, Sendings};
use crate::entry_table::ConnectionNumber;
use crate::message::{Refusal, ToClient, ToServer};

/// Questions that wait for whoever asks others; one more is answered here alone.
pub(crate) const QUESTIONS: usize = 1024;
/// Letters of a guest that wait to be carried to another server.
pub(crate) const LETTERS: usize = 16;

/// What other servers are asked for a client of this one.
#[derive(Debug)]
pub enum MailboxQuestion {
    /// Who waits under a number? Here nobody does.
    Seek(SeekingGuest),
    /// Has another node this number elsewhere?
    Given(GivenNumber),
}

/// A client of this server that comes in at a mailbox of another one, if there is one.
#[derive(Debug)]
pub struct SeekingGuest {
    /// The mailbox.
    pub number: u32,
    /// The client's node.
    pub node: NodeId,
    /// An address that counts as the client's.
    pub from: AddressGroup,
    /// What it says; ends when it leaves.
    pub said: mpsc::Receiver<ToServer>,
    pub(crate) connection: ConnectionNumber,
}

/// A number that a client of this server has got, if nobody else has it.
#[derive(Debug)]
pub struct GivenNumber {
    /// The number.
    pub number: u32,
    /// The client's node.
    pub node: NodeId,
    pub(crate) connection: ConnectionNumber,
    pub(crate) tries: u32,
}

/// Clients of this server whose other end is at another one.
#[derive(Debug, Default)]
pub(crate) struct EndsElsewhere {
    pub(crate) questions: Option<mpsc::Sender<MailboxQuestion>>,
    pub(crate) guests: HashMap<ConnectionNumber, mpsc::Sender<ToServer>>,
}

/// What a client asked for that others may know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Join(u32),
    Open,
    Nothing,
}

impl Asked {
    pub(crate) const fn by(message: &ToServer) -> Self {
        match message {
            ToServer::Join(number) => Self::Join(*number),
            ToServer::Open(_) => Self::Open,
            _ => Self::Nothing,
        }
    }
}

impl EndsElsewhere {
    /// Carries what a guest says whose host is elsewhere, and returns what it is told; everything else comes back.
    pub(crate) fn carry(&mut self, of: ConnectionNumber, message: ToServer) -> Result<ToServer, Sendings> {
        let Some(carried) = self.guests.get(&of) else { return Ok(message) };
        match message {
            ToServer::Leave => {
                self.guests.remove(&of);
                Err(Vec::new())
            }
            ToServer::Letter(_) if carried.try_send(message.clone()).is_err() => {
                self.guests.remove(&of);
                Err(vec![(of, ToClient::Left)])
            }
            ToServer::Letter(_) => Err(Vec::new()),
            ToServer::Open(_) | ToServer::Join(_) => Err(vec![(of, ToClient::Refused(Refusal::Malformed))]),
            _ => Ok(message),
        }
    }

    /// A client was to be told this of what it asked for. What others may know of waits until they have answered.
    pub(crate) fn ask(
        &mut self,
        of: ConnectionNumber,
        asked: Asked,
        board: &Board,
        told: Sendings,
    ) -> Sendings {
        let (Some(questions), Some((node, from))) = (&self.questions, board.client(of)) else { return told };
        let Ok(place) = questions.try_reserve() else { return told };
        match (asked, told.as_slice()) {
            (Asked::Join(number), [(_, ToClient::Refused(Refusal::NobodyWaits))]) => {
                let (carried, said) = mpsc::channel(LETTERS);
                self.guests.insert(of, carried);
                place.send(MailboxQuestion::Seek(SeekingGuest { number, node, from, said, connection: of }));
                Vec::new()
            }
            (Asked::Open, [(_, ToClient::Opened(number))]) => {
                let given = GivenNumber { number: *number, node, connection: of, tries: 0 };
                place.send(MailboxQuestion::Given(given));
                Vec::new()
            }
            _ => told,
        }
    }

    /// A client is gone.
    pub(crate) fn gone(&mut self, of: ConnectionNumber) {
        self.guests.remove(&of);
    }
}

impl GivenNumber {
    /// Times that another one was drawn.
    pub const fn tries(&self) -> u32 {
        self.tries
    }
}
