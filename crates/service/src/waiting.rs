//! Reports to whoever waits for another machine: for what, and how long it will be tried: soon, since
//! a command that says nothing looks as if it hung.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::Event;
use towpath_protocol::{QUIET, Stall};

use crate::getting::GetUnderWay;

/// Time for which nothing is reported: most of what is in the way is over by then.
const SOON: Duration = Duration::from_millis(800);
/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes between two looks that are no data: a sender with nothing to send shows so that it is there.
const IDLE: u64 = 64;
/// Another reason is not reported sooner than this after the last one.
const NEXT: Duration = Duration::from_secs(5);

/// An obstacle, and how long it was there when it was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TransferObstacle {
    what: String,
    already: Duration,
}

/// The thing waited for, since when, and what was reported of it. It is handed the time.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Instant>,
    reported: Option<(String, Instant)>,
}

impl Waiting {
    /// Time that `obstacle` has been in the way, if it is to be reported now.
    fn look(&mut self, now: Instant, obstacle: Option<&TransferObstacle>) -> Option<Duration> {
        let Some(TransferObstacle { what, already }) = obstacle else {
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

/// Tells what keeps `get` waiting, until it is dropped.
pub(crate) async fn report(get: &GetUnderWay, events: &mpsc::Sender<Event>) -> Infallible {
    let (mut waiting, mut stall) = (Waiting::default(), Stall::default());
    let wait_limit = get.config.ledger.wait_limit;
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let obstacle = in_the_way(get).or_else(|| stalled(get, &mut stall, now));
        if let (Some(waited), Some(TransferObstacle { what, .. })) =
            (waiting.look(now, obstacle.as_ref()), obstacle)
        {
            let left = wait_limit.saturating_sub(waited).as_secs_f64().round() as u64;
            let _ = events.send(Event::Waiting { what, seconds: Some(left) }).await;
        }
    }
}

/// Reason that keeps a get from its sender.
fn in_the_way(get: &GetUnderWay) -> Option<TransferObstacle> {
    let unanswered = || get.unanswered().filter(|_| !get.answered.is_noted());
    let why = get.plugins.root.last_error().or_else(unanswered)?;
    Some(TransferObstacle { what: format!("the sender: {why}"), already: Duration::ZERO })
}

/// Reason that a get over a connection waits: nothing comes of what the sender owes.
fn stalled(get: &GetUnderWay, stall: &mut Stall, now: Instant) -> Option<TransferObstacle> {
    let paths = get.plugins.remote.iter().map(|plugin| plugin.path());
    let (arrived, is_due) =
        paths.fold((0, false), |(arrived, is_due), path| (arrived + path.arrived, is_due || path.is_due));
    let already = stall.look(now, arrived, IDLE, is_due)?;
    Some(TransferObstacle { what: format!("the sender: nothing came for {} s", QUIET.as_secs()), already })
}

/// Does `work`, and tells of `what` it waits for if that takes long.
pub(crate) async fn report_wait<T>(
    work: impl Future<Output = T>,
    what: &str,
    events: &mpsc::Sender<Event>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(SOON) => {}
    }
    let _ = events.send(Event::Waiting { what: what.into(), seconds: None }).await;
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle(what: &str) -> TransferObstacle {
        TransferObstacle { what: what.into(), already: Duration::ZERO }
    }

    #[test]
    fn a_stall_is_told_as_soon_as_it_is_one() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let stall = TransferObstacle { already: QUIET, ..obstacle("a") };
        assert_eq!(waiting.look(start, Some(&stall)), Some(QUIET));
        let longer = TransferObstacle { already: 2 * QUIET, ..stall };
        assert_eq!(waiting.look(start + QUIET, Some(&longer)), None, "once");
        assert_eq!(waiting.look(start + 2 * QUIET, None), None);
        assert_eq!(waiting.look(start + 3 * QUIET, Some(&longer)), Some(2 * QUIET), "another one");
    }

    #[test]
    fn what_lasts_is_told_once_and_what_is_new_a_little_later() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let [a, b] = ["a", "b"].map(obstacle);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(waiting.look(at(0), Some(&a)), None);
        assert_eq!(waiting.look(at(700), Some(&a)), None);
        assert_eq!(waiting.look(at(1100), Some(&a)), Some(Duration::from_millis(1100)));
        assert_eq!(waiting.look(at(9000), Some(&a)), None, "once");
        assert_eq!(waiting.look(at(9200), Some(&b)), Some(Duration::from_millis(9200)));
        assert_eq!(waiting.look(at(9400), Some(&a)), None, "two that alternate");
        assert_eq!(waiting.look(at(15_000), Some(&a)), Some(Duration::from_secs(15)));
    }

    #[test]
    fn what_is_over_soon_is_not_told() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let a = obstacle("a");
        for second in 0..10 {
            let at = |millis: u64| start + Duration::from_millis(second * 1000 + millis);
            assert_eq!(waiting.look(at(0), Some(&a)), None);
            assert_eq!(waiting.look(at(600), None), None);
        }
    }
}
