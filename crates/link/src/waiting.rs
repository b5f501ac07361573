//! Reports to whoever waits for another machine: for what, and for how long already. Soon, since a command that says
//! nothing looks as if it hung, and once for each reason.

use std::time::{Duration, Instant};

/// Time for which nothing is reported: most of what is in the way is over by then.
const SOON: Duration = Duration::from_millis(800);
/// Another reason is not reported sooner than this after the last one.
const NEXT: Duration = Duration::from_secs(5);

/// An obstacle, and how long it was there when it was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReason {
    /// The reason, for people.
    pub what: String,
    /// Time that it has been in the way.
    pub already: Duration,
}

/// The thing waited for, since when, and what was reported of it. It is handed the time.
#[derive(Debug, Default)]
pub struct WaitReports {
    since: Option<Instant>,
    reported: Option<(String, Instant)>,
}

impl WaitReports {
    /// Time that `obstacle` has been in the way, if it is to be reported now.
    pub fn look(&mut self, now: Instant, obstacle: Option<&WaitReason>) -> Option<Duration> {
        let Some(WaitReason { what, already }) = obstacle else {
            *self = Self::default();
            return None;
        };
        let begin = || now.checked_sub(*already).unwrap_or(now);
        let waited = now.duration_since(*self.since.get_or_insert_with(begin));
        let is_news = match &self.reported {
            None => waited >= SOON,
            Some((reported, at)) => reported != what && now.duration_since(*at) >= NEXT,
        };
        if is_news {
            self.reported = Some((what.clone(), now));
        }
        is_news.then_some(waited)
    }
}

/// Does `work`, and `report`s if it takes longer than `soon`.
pub async fn report_wait<T>(
    work: impl Future<Output = T>,
    soon: Duration,
    report: impl Future<Output = ()>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(soon) => {}
    }
    report.await;
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stall::QUIET;

    fn obstacle(what: &str) -> WaitReason {
        WaitReason { what: what.into(), already: Duration::ZERO }
    }

    #[test]
    fn a_stall_is_told_as_soon_as_it_is_one() {
        let (mut reports, start) = (WaitReports::default(), Instant::now());
        let stall = WaitReason { already: QUIET, ..obstacle("a") };
        assert_eq!(reports.look(start, Some(&stall)), Some(QUIET));
        let longer = WaitReason { already: 2 * QUIET, ..stall };
        assert_eq!(reports.look(start + QUIET, Some(&longer)), None, "once");
        assert_eq!(reports.look(start + 2 * QUIET, None), None);
        assert_eq!(reports.look(start + 3 * QUIET, Some(&longer)), Some(2 * QUIET), "another one");
    }

    #[test]
    fn what_lasts_is_told_once_and_what_is_new_a_little_later() {
        let (mut reports, start) = (WaitReports::default(), Instant::now());
        let [a, b] = ["a", "b"].map(obstacle);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(reports.look(at(0), Some(&a)), None);
        assert_eq!(reports.look(at(700), Some(&a)), None);
        assert_eq!(reports.look(at(1100), Some(&a)), Some(Duration::from_millis(1100)));
        assert_eq!(reports.look(at(9000), Some(&a)), None, "once");
        assert_eq!(reports.look(at(9200), Some(&b)), Some(Duration::from_millis(9200)));
        assert_eq!(reports.look(at(9400), Some(&a)), None, "two that alternate");
        assert_eq!(reports.look(at(15_000), Some(&a)), Some(Duration::from_secs(15)));
    }

    #[test]
    fn what_is_over_soon_is_not_told() {
        let (mut reports, start) = (WaitReports::default(), Instant::now());
        let a = obstacle("a");
        for second in 0..10 {
            let at = |millis: u64| start + Duration::from_millis(second * 1000 + millis);
            assert_eq!(reports.look(at(0), Some(&a)), None);
            assert_eq!(reports.look(at(600), None), None);
        }
    }
}
