//! The end of a service that is asked to end: nothing new begins, and what is under way has a time
//! to finish. What does not finish resumes when it is asked for again.

use std::time::{Duration, Instant};

/// Interval at which it looks at what is still under way.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Peers that took nothing for this long are not waited for. A receiver that searches its own disk asks for
/// nothing meanwhile.
const QUIET: Duration = Duration::from_secs(2);

/// Work that is still under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderWay {
    /// Transfers of this machine's applications.
    pub transfers: u64,
    /// Connections from peers.
    pub connections: u64,
    /// Bytes that peers were sent so far.
    pub sent: u64,
}

/// The end of waiting. It is handed the time.
#[derive(Debug)]
pub struct Ending {
    deadline: Instant,
    sent: u64,
    quiet_since: Instant,
}

impl Ending {
    /// Begins to wait, for `grace` at most.
    pub fn new(now: Instant, grace: Duration, sent: u64) -> Self {
        Self { deadline: now + grace, sent, quiet_since: now }
    }

    /// True if this is the end.
    pub fn is_over(&mut self, now: Instant, under_way: UnderWay) -> bool {
        if under_way.sent != self.sent {
            (self.sent, self.quiet_since) = (under_way.sent, now);
        }
        let peers_rest = under_way.connections == 0 || now.duration_since(self.quiet_since) >= QUIET;
        now >= self.deadline || under_way.transfers == 0 && peers_rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn under_way(transfers: u64, connections: u64, sent: u64) -> UnderWay {
        UnderWay { transfers, connections, sent }
    }

    #[test]
    fn an_idle_service_ends_at_once() {
        let now = Instant::now();
        assert!(Ending::new(now, GRACE, 5).is_over(now, under_way(0, 0, 5)));
    }

    #[test]
    fn transfers_are_waited_for_until_the_grace_is_over() {
        let now = Instant::now();
        let mut ending = Ending::new(now, GRACE, 0);
        assert!(!ending.is_over(now + GRACE / 2, under_way(1, 0, 0)));
        assert!(ending.is_over(now + GRACE, under_way(1, 0, 0)));
        assert!(Ending::new(now, GRACE, 0).is_over(now, under_way(0, 0, 0)), "it finished");
    }

    #[test]
    fn peers_are_waited_for_while_they_take_something() {
        let now = Instant::now();
        let mut ending = Ending::new(now, GRACE, 0);
        assert!(!ending.is_over(now, under_way(0, 1, 0)));
        assert!(!ending.is_over(now + QUIET, under_way(0, 1, 9)));
        assert!(!ending.is_over(now + QUIET + QUIET / 2, under_way(0, 1, 9)));
        assert!(ending.is_over(now + QUIET * 2, under_way(0, 1, 9)));
    }
}
