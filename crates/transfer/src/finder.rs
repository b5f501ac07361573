//! The seam of finders: what brings sources to a transfer, and takes them away again in its middle.
//!
//! # Contract
//!
//! * **Each place has a key of its own**, which is added once, and may come again after it was removed.
//! * **A source that is removed is not asked any more.** What it was asked for goes elsewhere; it is told the end
//!   ([`Source::finish`]).
//! * **Nothing is trusted.** A source that is added is asked first whether it has the root at all.
//! * **It says when it has looked once**: until then, for a moment, nobody is told that a thing can't be had.
//! * **It ends with the transfer**: its call is dropped, or nobody hears its changes. It may end before.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::boxed::BoxFuture;
use crate::source::{Context, Source};

/// A change of the sources that there are.
pub enum SourceChange {
    /// A source can be had.
    Added {
        /// Its key among those of the finder.
        key: u64,
        /// The source.
        source: Arc<dyn Source>,
        /// As in DNS SRV records: the smallest number comes first.
        priority: u16,
        /// As in DNS SRV records: the larger, the likelier it is first among those of one priority.
        weight: u16,
    },
    /// It can't be had any more.
    Removed(u64),
    /// All is told that was to be found at first. Said again it says nothing new.
    Looked,
}

/// Finds sources. The contract is at the head of this module.
pub trait Finder: Send + Sync {
    /// Tells of sources through `changes` as they come and go.
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()>;
}
