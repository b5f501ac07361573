//! A holder and what is drawn from it, as all modules here see them.

use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use towpath_content::NodeId;
use towpath_transfer::Tag;
use towpath_vault_format::Digest;

/// Where a holder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderPlace {
    /// Its node.
    pub node: NodeId,
    /// Its address, `HOST:PORT`.
    pub address: String,
}

/// An object that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedObject {
    /// Its hash.
    pub name: Digest,
    /// Its bytes, about: by that the work is dealt out.
    pub length: u32,
}

/// Reason why nothing more is asked of a holder.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HolderFault {
    /// It can't be reached, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses.
    #[error("it refuses: {0}")]
    Refused(String),
    /// It gave other bytes than those that were asked for: it lies.
    #[error("it gave other bytes for {}", .0.short())]
    OtherBytes(Digest),
    /// What it says makes no sense.
    #[error("{0}")]
    Nonsense(String),
    /// Again and again it lacked what it was asked for.
    #[error("it lacks most of what it was asked for")]
    Lacking,
}

impl HolderFault {
    /// How much it says, beside others.
    pub(crate) const fn weight(&self) -> u8 {
        match self {
            Self::Unreachable(_) => 0,
            Self::Lacking => 1,
            Self::Refused(_) => 2,
            Self::Nonsense(_) => 3,
            Self::OtherBytes(_) => 4,
        }
    }
}

/// Reason why objects can't be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DrawError {
    /// No holder is left.
    #[error("none of the vault's {count} holders can be used; {place}: {fault}")]
    NoHolder {
        /// How many there were.
        count: usize,
        /// One of them.
        place: String,
        /// What became of it.
        fault: HolderFault,
    },
    /// There never was one.
    #[error("the vault has no holders")]
    None,
}

/// What a holder is asked for, with the numbers by which it is told.
pub(crate) type AskedObjects = Vec<(Tag, Digest)>;

/// Something happened to a holder.
#[derive(Debug)]
pub(crate) enum HolderEvent {
    /// It can be asked.
    Connected { round_trip: Duration },
    /// It gave an object, with the bytes of its hash; `None`: it has none.
    Gave { tag: Tag, object: Option<Bytes> },
    /// Nothing more comes of it.
    Ended(HolderFault),
}
