//! How far the race of connections is: for those who wait, and for what is said if nothing stands.

use std::net::SocketAddr;
use std::sync::Arc;

use towpath_link::tcp::DialError;

/// Progress of the search.
#[derive(Debug, Clone, Default)]
pub(crate) struct RaceStatus {
    /// One stands that goes by no named link.
    pub(crate) stands: bool,
    /// Those by named links that stand, at the side that asks.
    pub(crate) links: usize,
    pub(crate) tried: Vec<SocketAddr>,
    pub(crate) last: Option<Arc<DialError>>,
}

impl RaceStatus {
    /// True if any stands.
    pub(crate) const fn any_stands(&self) -> bool {
        self.stands || self.links > 0
    }
}
