//! The site's cache as a source: it comes before all others, which are its reserve. It may still be getting what it was asked to
//! bring, and promises then to have it soon.

use std::sync::Arc;

use towpath_content::NodeId;
use towpath_transfer::{BoxFuture, Source};

/// Tells whether a cache still keeps its promise. May be asked at any time, also by several at once.
pub trait Promise: Send + Sync {
    /// True if what it lacks is on its way to it.
    fn stands(&self) -> BoxFuture<'_, bool>;
}

/// What a cache has of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NearHolding {
    /// All of it, and all that it mentions.
    Everything,
    /// What has come to it. It tells.
    Coming {
        /// Bytes of the whole.
        size: u64,
    },
}

/// See the head of this module.
#[derive(Clone)]
pub struct NearSource {
    /// The cache's node.
    pub node: NodeId,
    /// The way to it.
    pub source: Arc<dyn Source>,
    /// What it has.
    pub holding: NearHolding,
    /// Whether the rest comes.
    pub promise: Arc<dyn Promise>,
}
