//! Frames on their way out, and what each tells of the path.

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_link::{Frame, PathProbe};

use super::wire::{self, Body, DataHeader};

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

/// Where frames go out.
pub type Outbox = mpsc::Sender<Vec<Outgoing>>;

/// What the kernel suggests to keep outstanding, as a data frame carries it.
pub fn suggestion(probe: &PathProbe) -> u32 {
    let suggested = probe.read().map_or(0, |info| towpath_link::suggested_outstanding(&info));
    u32::try_from(suggested).unwrap_or(u32::MAX)
}
