//! The path as the kernel measures it, and the number of bytes to keep outstanding on it.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::kernel;
pub use crate::kernel::PathInfo;

/// The fewest bytes ever suggested: enough for a LAN, and for a path not measured yet.
pub const MIN_OUTSTANDING: u64 = 1 << 20;
/// The most bytes ever suggested: what a receiver may have to hold for one peer.
pub const MAX_OUTSTANDING: u64 = 16 << 20;
/// Room for the rate to grow, and for the peer to be late with its next request: BBR looks for the rate with three times the
/// product under way, and behind a lost packet as much again arrives before the next request is made.
const HEADROOM: u64 = 4;
/// The fewest bytes of payload that a data frame is cut to, unless there are no more.
pub const MIN_FRAME: usize = 16 << 10;
/// The most bytes of payload in a data frame.
pub const MAX_FRAME: usize = 256 << 10;
/// Frames of a path not measured yet.
const FIRST_FRAME: usize = 32 << 10;
/// A frame is to take the path less than this part of a second: one over it.
const FRAMES_PER_SECOND: u64 = 64;
/// From this rate on, in bytes a second, whatever waits in the kernel is soon gone.
const FAST: u64 = 40_000_000;
/// Of slower paths, what they carry in so long may wait unsent in the kernel, ...
const UNSENT: Duration = Duration::from_millis(50);
/// ... or in so many round trips. With less BBR finds nothing to send now and then while it looks for the rate, takes what it
/// measures for the sender's limit, and goes on flooding the path.
const UNSENT_ROUND_TRIPS: u32 = 3;
/// Fewest bytes that may wait there.
const MIN_UNSENT: u32 = 16 << 10;
/// The same for a path not measured yet.
const FIRST_UNSENT: u32 = 64 << 10;

/// Asks the kernel about a connection. Cheap to clone, and does not keep the connection open.
#[derive(Clone)]
pub struct PathProbe(PathSource);

#[derive(Clone)]
enum PathSource {
    Nothing,
    Socket(Weak<dyn AsFd + Send + Sync>),
    Function(Arc<dyn Fn() -> PathInfo + Send + Sync>),
}

impl PathProbe {
    /// For transports the kernel knows nothing of.
    pub const fn none() -> Self {
        Self(PathSource::Nothing)
    }

    /// Asks about `socket` for as long as someone else keeps it.
    pub fn of(socket: Weak<dyn AsFd + Send + Sync>) -> Self {
        Self(PathSource::Socket(socket))
    }

    /// Calls `read`: for transports that measure by themselves.
    pub fn from_fn(read: impl Fn() -> PathInfo + Send + Sync + 'static) -> Self {
        Self(PathSource::Function(Arc::new(read)))
    }

    /// State of the path now, without the received bytes for which nobody is woken yet; `None` on pipes, elsewhere than on
    /// Linux, and after the connection was dropped. Three system calls, some 1 µs.
    pub fn read(&self) -> Option<PathInfo> {
        match &self.0 {
            PathSource::Nothing => None,
            PathSource::Socket(socket) => {
                let info = kernel::path_info(socket.upgrade()?.as_fd())?;
                let receive_queue_bytes =
                    info.receive_queue_bytes.saturating_sub(kernel::MOST_WAITING as u64);
                Some(PathInfo { receive_queue_bytes, ..info })
            }
            PathSource::Function(read) => Some(read()),
        }
    }

    /// True if what this side sends is paced by a rate that the kernel measures (BBR), and not by what is lost.
    pub fn paces(&self) -> bool {
        let PathSource::Socket(socket) = &self.0 else { return false };
        let name = socket.upgrade().and_then(|socket| kernel::congestion_control(socket.as_fd()));
        name.is_some_and(|name| name.starts_with(kernel::PACES))
    }

    /// From now on the kernel takes no more while this many bytes wait there unsent; `None` for no
    /// limit but its buffer's. Does nothing where there is no such thing: then more waits, no more.
    pub fn limit_unsent(&self, bytes: Option<u32>) {
        let PathSource::Socket(socket) = &self.0 else { return };
        if let Some(socket) = socket.upgrade()
            && let Err(error) = kernel::limit_unsent(socket.as_fd(), bytes)
        {
            tracing::debug!(%error, "what waits unsent can't be limited");
        }
    }
}

impl fmt::Debug for PathProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            PathSource::Nothing => "PathProbe(none)",
            PathSource::Socket(_) => "PathProbe(tcp)",
            PathSource::Function(_) => "PathProbe(function)",
        })
    }
}

/// Number of bytes that a receiver should keep requested so that this path never runs dry
/// (`papers/dsync.txt` §6.1).
///
/// That is the bandwidth-delay product, taken from the delivery rate or, while that is unknown or
/// held down by a lack of data, from the congestion window; four times, and within
/// [`MIN_OUTSTANDING`] and [`MAX_OUTSTANDING`].
pub fn suggested_outstanding(info: &PathInfo) -> u64 {
    let rate = info.delivery_rate_bytes_per_s.unwrap_or(0);
    let in_flight = u128::from(rate) * info.rtt.as_micros() / 1_000_000;
    let product = u64::try_from(in_flight).unwrap_or(u64::MAX).max(info.congestion_window_bytes);
    product.saturating_mul(HEADROOM).clamp(MIN_OUTSTANDING, MAX_OUTSTANDING)
}

/// Bytes of payload for a data frame on this path: so few on a slow one that what is urgent, and goes
/// between frames, waits for some 100 ms at most.
pub fn frame_len(info: &PathInfo) -> usize {
    info.delivery_rate_bytes_per_s.map_or(FIRST_FRAME, frame_len_at)
}

/// The same where so many bytes a second are sent.
pub fn frame_len_at(rate: u64) -> usize {
    let len = usize::try_from(rate / FRAMES_PER_SECOND).unwrap_or(MAX_FRAME);
    // A power of two, so that pieces, which are too, are cut into equal parts.
    (len.clamp(MIN_FRAME, MAX_FRAME) + 1).next_power_of_two() / 2
}

/// Number of bytes that may wait in the kernel unsent, for [`PathProbe::limit_unsent`]: what the path carries in
/// 50 ms or three round trips, so that it never runs dry and what is urgent is soon on its way. A fast path has no limit.
pub fn unsent_limit(info: &PathInfo) -> Option<u32> {
    match info.delivery_rate_bytes_per_s {
        None => Some(FIRST_UNSENT),
        Some(FAST..) => None,
        Some(rate) => {
            let time = UNSENT.max(info.min_rtt.saturating_mul(UNSENT_ROUND_TRIPS));
            Some(((rate as f64 * time.as_secs_f64()) as u32).max(MIN_UNSENT))
        }
    }
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

    #[tokio::test]
    async fn what_nobody_is_woken_for_does_not_count_as_waiting() {
        use tokio::io::AsyncWriteExt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = Arc::new(listener.accept().await.unwrap().0);
        let probe = PathProbe::of(Arc::downgrade(&far) as Weak<dyn AsFd + Send + Sync>);
        for (bytes, waiting) in [(kernel::MOST_WAITING, 0), (1000, 1000)] {
            near.write_all(&vec![0; bytes]).await.unwrap();
            let come = async {
                while rustix::io::ioctl_fionread(&far).unwrap() < kernel::MOST_WAITING as u64 + waiting {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(5), come).await.unwrap();
            assert!(probe.read().is_none_or(|info| info.receive_queue_bytes == waiting));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_socket_paces_if_its_congestion_control_does() {
        let socket = Arc::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let probe = PathProbe::of(Arc::downgrade(&socket) as Weak<dyn AsFd + Send + Sync>);
        kernel::set_congestion_control(socket.as_fd(), "reno").unwrap();
        assert!(!probe.paces() && !PathProbe::none().paces());
        if kernel::set_congestion_control(socket.as_fd(), "bbr").is_ok() {
            assert!(probe.paces());
        }
    }

    #[test]
    fn outstanding_follows_the_path() {
        let table = [
            ("nothing known yet", info(0, None, 0), MIB),
            ("first window of a new connection", info(50, None, 14_480), MIB),
            ("DSL, 1.5 Mbit/s", info(40, Some(193_000), 20_000), MIB),
            ("100 Mbit/s over 33 ms", info(33, Some(12_500_000), 400_000), 1_650_000),
            ("1 Gbit/s over 20 ms", info(20, Some(125_000_000), 2_000_000), 10_000_000),
            ("window ahead of the measured rate", info(20, Some(1_000_000), 3_000_000), 12_000_000),
            ("1 Gbit/s over 100 ms", info(100, Some(125_000_000), 12_500_000), 16 * MIB),
            ("loopback, no delay to speak of", info(0, Some(3_000_000_000), 655_360), 2_621_440),
            ("nonsense", info(u64::MAX / 1000, Some(u64::MAX), u64::MAX), 16 * MIB),
        ];
        for (name, info, wanted) in table {
            assert_eq!(suggested_outstanding(&info), wanted, "{name}");
        }
    }

    #[test]
    fn frames_and_what_waits_unsent_are_small_on_slow_paths() {
        let kib = 1 << 10;
        let table = [
            ("nothing known yet", None, 32 * kib, Some(64 << 10)),
            ("a modem", Some(5_000), 16 * kib, Some(16 << 10)),
            ("DSL, 1.5 Mbit/s", Some(193_000), 16 * kib, Some(16 << 10)),
            ("10 Mbit/s", Some(1_250_000), 16 * kib, Some(62_500)),
            ("40 Mbit/s", Some(5_000_000), 64 * kib, Some(250_000)),
            ("100 Mbit/s", Some(12_500_000), 128 * kib, Some(625_000)),
            ("150 Mbit/s", Some(18_000_000), 256 * kib, Some(900_000)),
            ("just below fast", Some(39_999_999), 256 * kib, Some(1_999_999)),
            ("fast", Some(40_000_000), 256 * kib, None),
            ("1 Gbit/s", Some(125_000_000), 256 * kib, None),
            ("nonsense", Some(u64::MAX), 256 * kib, None),
        ];
        for (name, rate, frame, unsent) in table {
            let info = info(20, rate, 100_000);
            assert_eq!((frame_len(&info), unsent_limit(&info)), (frame, unsent), "{name}");
        }
        let min_rtt = Duration::from_millis(66);
        let far = PathInfo { min_rtt, ..info(66, Some(12_500_000), 100_000) };
        assert_eq!(unsent_limit(&far), Some(2_475_000), "three round trips");
    }

    #[test]
    fn a_transport_without_a_socket_tells_nothing_or_what_it_measured() {
        assert_eq!(PathProbe::none().read(), None);
        PathProbe::none().limit_unsent(Some(1));
        let probe = PathProbe::from_fn(|| info(1, Some(2), 3));
        assert_eq!(probe.read(), Some(info(1, Some(2), 3)));
    }
}
