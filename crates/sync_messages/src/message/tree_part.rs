//! What a sender says of its tree, without the packing that it travels in.

use bytes::Bytes;

use super::{Message, TreeBytes, violation};
use crate::error::CopyError;

/// What a message without bytes of its own counts.
const LITTLE: usize = 64;

/// A part of a tree on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreePart {
    /// The next bytes of its descriptor, at most a block.
    Entries(Bytes),
    /// See [`Message::Closed`].
    Closed(u64),
    /// There are no more.
    End {
        /// See [`TreeBytes::is_incomplete`].
        is_incomplete: bool,
    },
}

impl TreePart {
    /// The message that carries it, packed with zstd's `level`; 0: as it is.
    pub fn pack(self, level: i32) -> Message {
        match self {
            Self::Entries(bytes) => Message::Entries(TreeBytes::new(bytes, level)),
            Self::Closed(entry) => Message::Closed(entry),
            Self::End { is_incomplete } => Message::Entries(TreeBytes::end(is_incomplete)),
        }
    }

    /// The part that a message carries, in memory of its own.
    pub fn unpack(message: Message) -> Result<Self, CopyError> {
        match message {
            Message::Entries(part) => {
                let end = Self::End { is_incomplete: part.is_incomplete };
                Ok(part.unpack()?.map_or(end, Self::Entries))
            }
            Message::Closed(entry) => Ok(Self::Closed(entry)),
            _ => Err(violation("a message that a sender does not send")),
        }
    }

    /// Bytes that it counts while it waits.
    pub fn cost(&self) -> usize {
        match self {
            Self::Entries(bytes) => LITTLE + bytes.len(),
            Self::Closed(_) | Self::End { .. } => LITTLE,
        }
    }
}
