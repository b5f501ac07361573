//! Input of a session, and its output.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use towpath_transfer::offer::EntryContent;
use towpath_transfer::{Delivery, Description, Outcome, Tag};

use crate::wire::{self, Body, WireHolder, Withdrawn};

/// Outcome of a request that the connection did not outlive, or that nobody waits for.
pub(super) const LOST: Outcome = Outcome::RetryLater(Duration::ZERO);

/// Encoding that the answering half may use: the peer takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// Of this side's encodings.
    pub number: u8,
    /// Either side asks for it; otherwise it is used only where that is quicker.
    pub is_asked: bool,
    /// Payloads of any size can be encoded, and tell it.
    pub in_parts: bool,
}

/// An action that the caller has to do.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Send a message, in this order.
    Send(Body),
    /// Send a message before those that wait, in this order.
    SendFirst(Body),
    /// The peer's hello has come.
    Greeted {
        /// It has a control stream.
        control: bool,
        /// Encoding that the answering half may use.
        encoding: Option<Encoded>,
    },
    /// The word came that a ticket was withdrawn; not looked at yet.
    Withdrawn(Withdrawn),
    /// The word came that another node serves, too; not looked at yet.
    Holder(WireHolder),
    /// The round trip is known, or better than before: [`super::Session::round_trip`].
    Measured,
    /// The bytes of a want.
    Delivery {
        /// The `Get` that asked.
        request: u32,
        /// The bytes.
        delivery: Delivery,
    },
    /// The first bytes of a piece of which no more come; its outcome follows.
    PartialPiece {
        /// The `Get` that asked.
        request: u32,
        /// The bytes.
        delivery: Delivery,
    },
    /// A want ended without bytes.
    Outcome {
        /// The `Get` that asked.
        request: u32,
        /// The want.
        tag: Tag,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Contents of entries. Once they are taken, [`super::Session::took`] is told `cost`.
    Contents {
        /// The `Get` that asked.
        request: u32,
        /// Each of another want.
        contents: Vec<(Tag, EntryContent)>,
        /// Bytes that they keep in memory.
        kept: usize,
        /// Bytes that they count for.
        cost: usize,
    },
    /// A run of an entry whose content came. Once it is taken, [`super::Session::took`] is told `cost`.
    Run {
        /// The `Get` that asked.
        request: u32,
        /// The want.
        tag: Tag,
        /// The run.
        run: Bytes,
        /// Bytes that it counts for.
        cost: usize,
    },
    /// An answer to a `Describe`.
    Answer {
        /// The question.
        request: u32,
        /// The answer.
        answer: Description,
    },
    /// An answer to a `Watch`.
    Ranges {
        /// The question.
        request: u32,
        /// The pieces that can be had.
        ranges: Vec<Range<u64>>,
    },
    /// Some wants of a `Get` came in part: who asked for it waits for another one, too, which asks for their next steps.
    GoesOn {
        /// The `Get` that asked.
        request: u32,
        /// The one by which it goes on.
        by: u32,
    },
    /// Nothing more comes for a request; of a `Get`, every want has ended, or goes on by another one.
    Ended {
        /// The request's number.
        request: u32,
        /// The outcome of a question; `Ok` for a `Get`.
        result: Result<(), Outcome>,
    },
    /// A request of the peer: for [`crate::answering::Answering::take`].
    Request(Body),
    /// Data, credit or end of the control stream.
    Control(Body),
    /// The connection has ended: [`super::Session::goodbye`] tells what to say last.
    Closed,
}

/// A question about an object, to which the session gives its number.
#[derive(Debug, Clone)]
pub enum Question {
    /// A question what an object is.
    Describe(wire::Describe),
    /// A question which pieces can be had.
    Watch(wire::Describe),
    /// A ticket, for what it names to be fetched: has that begun to come?
    Bring(Bytes),
}
