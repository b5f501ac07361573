//! Faults of single messages, whatever their link is like.

use std::time::Duration;

use crate::node::ConnectionId;

/// A message on its way over a connection.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    /// Counts all messages of the simulation, in the order in which they were sent.
    pub number: u64,
    /// Time at which it is sent.
    pub now: Duration,
    /// The host that sends it.
    pub from: usize,
    /// The host it goes to.
    pub to: usize,
    /// Its connection.
    pub connection: ConnectionId,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Fault of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetFault {
    /// Nothing.
    #[default]
    None,
    /// Its connection breaks in this moment: it and all that is under way is lost, and both ends
    /// are told.
    Break,
    /// Neither it nor anything after it on this connection arrives, in this direction, and nobody
    /// is told.
    Stall,
    /// It arrives this much later, and later ones overtake it.
    Hold(Duration),
    /// It arrives twice.
    Twice,
    /// These bytes arrive instead.
    Replace(Vec<u8>),
}

/// Decides on each message.
pub type Faults = Box<dyn FnMut(&Passing<'_>) -> NetFault>;
