//! How far the race of connections is: for those who wait, and for what is said if nothing stands.

use std::net::SocketAddr;
use std::sync::Arc;

use towpath_link::tcp::DialError;

/// Progress of the search.
#[derive(Debug, Clone, Default)]
pub(crate) struct RaceStatus {
    /// One stands that goes by no named link.
    pub(crate) stands: bool,
    /// Where that one leads.
    pub(crate) led: Option<SocketAddr>,
    /// Those by named links that stand, at the side that asks.
    pub(crate) links: usize,
    pub(crate) tried: Vec<SocketAddr>,
    pub(crate) last: Option<Arc<DialError>>,
}

impl RaceStatus {
    /// Where the one leads that goes by no named link, unless there are some by named links.
    pub(crate) fn led(&self) -> Option<SocketAddr> {
        self.led.filter(|_| self.stands && self.links == 0)
    }

    /// True if any stands.
    pub(crate) const fn any_stands(&self) -> bool {
        self.stands || self.links > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_is_led_to_beside_named_links_or_while_none_stands() {
        let led = Some("192.0.2.1:7".parse().unwrap());
        for (stands, links, expected) in [(true, 0, led), (true, 1, None), (false, 0, None)] {
            let status = RaceStatus { stands, links, led, ..RaceStatus::default() };
            assert_eq!(status.led(), expected, "{stands} {links}");
        }
    }
}
