//! What the kernel says of a path, and how many bytes to keep outstanding on it.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::time::Duration;

use crate::kernel;

/// The fewest bytes ever suggested: enough for a LAN, and for a path not measured yet.
pub const MIN_OUTSTANDING: u64 = 1 << 20;
/// The most bytes ever suggested: what a receiver may have to hold for one peer.
pub const MAX_OUTSTANDING: u64 = 16 << 20;
/// Room for the rate to grow, and for the peer to be late with its next request.
const HEADROOM: u64 = 2;

/// A snapshot of one TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The shortest round-trip time of late; zero if not measured.
    pub min_rtt: Duration,
    /// What may be under way unacknowledged.
    pub congestion_window_bytes: u64,
    /// How fast data arrived lately, as far as there was enough to send; `None` if not measured.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Bytes in the send queue that were never sent: what waits for the network.
    pub unsent_bytes: u64,
    /// Bytes that arrived and were not read yet: what waits for us.
    pub receive_queue_bytes: u64,
    /// Bytes in the send queue, sent and unsent, that are not acknowledged.
    pub send_queue_bytes: u64,
    /// Segments sent again since the connection began.
    pub retransmits: u64,
}

/// Asks the kernel about a connection. Cheap to clone, and does not keep the connection open.
#[derive(Clone)]
pub struct PathProbe {
    socket: Option<Weak<dyn AsFd + Send + Sync>>,
}

impl PathProbe {
    /// For transports the kernel knows nothing of.
    pub const fn none() -> Self {
        Self { socket: None }
    }

    /// Asks about `socket` for as long as someone else keeps it.
    pub fn of(socket: Weak<dyn AsFd + Send + Sync>) -> Self {
        Self { socket: Some(socket) }
    }

    /// How the path is now; `None` on pipes, elsewhere than on Linux, and after the connection
    /// was dropped. Three system calls, some 1 µs.
    pub fn read(&self) -> Option<PathInfo> {
        let socket = self.socket.as_ref()?.upgrade()?;
        kernel::path_info(socket.as_fd())
    }
}

impl fmt::Debug for PathProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathProbe({})", if self.socket.is_some() { "tcp" } else { "none" })
    }
}

/// How many bytes a receiver should keep requested so that this path never runs dry
/// (`papers/dsync.txt` §6.1).
///
/// That is the bandwidth-delay product, taken from the delivery rate or, while that is unknown or
/// held down by a lack of data, from the congestion window; twice, and within
/// [`MIN_OUTSTANDING`] and [`MAX_OUTSTANDING`].
pub fn suggested_outstanding(info: &PathInfo) -> u64 {
    let rate = info.delivery_rate_bytes_per_s.unwrap_or(0);
    let in_flight = u128::from(rate) * info.rtt.as_micros() / 1_000_000;
    let product = u64::try_from(in_flight).unwrap_or(u64::MAX).max(info.congestion_window_bytes);
    product.saturating_mul(HEADROOM).clamp(MIN_OUTSTANDING, MAX_OUTSTANDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn info(rtt_ms: u64, rate: Option<u64>, window: u64) -> PathInfo {
        PathInfo {
            rtt: Duration::from_millis(rtt_ms),
            delivery_rate_bytes_per_s: rate,
            congestion_window_bytes: window,
            ..PathInfo::default()
        }
    }

    #[test]
    fn outstanding_follows_the_path() {
        let table = [
            ("nothing known yet", info(0, None, 0), MIB),
            ("first window of a new connection", info(50, None, 14_480), MIB),
            ("DSL, 1.5 Mbit/s", info(40, Some(193_000), 20_000), MIB),
            ("100 Mbit/s over 33 ms", info(33, Some(12_500_000), 400_000), MIB),
            ("1 Gbit/s over 20 ms", info(20, Some(125_000_000), 2_000_000), 5_000_000),
            ("window ahead of the measured rate", info(20, Some(1_000_000), 3_000_000), 6_000_000),
            ("1 Gbit/s over 100 ms", info(100, Some(125_000_000), 12_500_000), 16 * MIB),
            ("loopback, no delay to speak of", info(0, Some(3_000_000_000), 655_360), 1_310_720),
            ("nonsense", info(u64::MAX / 1000, Some(u64::MAX), u64::MAX), 16 * MIB),
        ];
        for (name, info, wanted) in table {
            assert_eq!(suggested_outstanding(&info), wanted, "{name}");
        }
    }

    #[test]
    fn a_transport_without_a_socket_tells_nothing() {
        assert_eq!(PathProbe::none().read(), None);
    }
}
