//! Frames on their way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_link::Frame;

use super::wire::{self, Body, DataHeader};
use towpath_link::queued::QueuedBatch;

/// A frame on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub(super) kind: u8,
    pub(super) header: Option<[u8; wire::DATA_HEADER]>,
    pub(super) body: Bytes,
}

impl Outgoing {
    /// A control message.
    pub fn control(body: Body) -> Self {
        Self { kind: wire::CONTROL, header: None, body: body.to_frame() }
    }

    /// A data frame.
    pub fn data(header: &DataHeader, payload: Bytes) -> Self {
        Self { kind: wire::DATA, header: Some(header.encode()), body: payload }
    }

    /// Bytes of objects in it.
    pub(super) fn payload_len(&self) -> u64 {
        if self.kind == wire::DATA { self.body.len() as u64 } else { 0 }
    }

    /// As the other side reads it. Copies the payload of data, which the writer task need not do.
    pub fn to_frame(&self) -> Frame {
        let body = match &self.header {
            Some(header) => [&header[..], &self.body].concat().into(),
            None => self.body.clone(),
        };
        Frame { kind: self.kind, body }
    }

    /// Bytes it takes on the wire, about.
    pub fn len(&self) -> usize {
        self.body.len() + 32
    }

    /// Never: a frame has a head.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// Frames that go to the writer task together.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) frames: Vec<Outgoing>,
    /// Set when nobody wants their data any more.
    pub(super) given_up: Option<Arc<AtomicBool>>,
    /// The network is slow: nothing is to be gathered behind them before they are written.
    pub(super) is_slow: bool,
    /// Counts it among what waits for peers.
    pub(super) queued: Option<QueuedBatch>,
}

impl Batch {
    /// Bytes they take on the wire, about.
    pub(super) fn len(&self) -> usize {
        self.frames.iter().map(Outgoing::len).sum()
    }

    /// Leaves out data that were given up while they waited.
    pub(super) fn drop_unwanted(&mut self) {
        if self.given_up.as_ref().is_some_and(|given_up| given_up.load(Ordering::Relaxed)) {
            self.frames.retain(|frame| frame.header.is_none());
        }
    }
}

impl From<Outgoing> for Batch {
    fn from(frame: Outgoing) -> Self {
        Self { frames: vec![frame], ..Self::default() }
    }
}

/// Queue of frames that go out.
pub type Outbox = mpsc::Sender<Batch>;
