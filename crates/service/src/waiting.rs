//! Reports to whoever waits for another machine: for what, and how long it will be tried: soon, since
//! a command that says nothing looks as if it hung.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::Event;

use crate::getting::GetUnderWay;

/// Time for which nothing is reported: most of what is in the way is over by then.
const SOON: Duration = Duration::from_millis(800);
/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Another reason is not reported sooner than this after the last one.
const NEXT: Duration = Duration::from_secs(5);

/// The thing waited for, since when, and what was reported of it. It is handed the time.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Instant>,
    reported: Option<(String, Instant)>,
}

impl Waiting {
    /// Time that `what` has been in the way, if it is to be reported now.
    fn look(&mut self, now: Instant, what: Option<&str>) -> Option<Duration> {
        let Some(what) = what else {
            *self = Self::default();
            return None;
        };
        let waited = now.duration_since(*self.since.get_or_insert(now));
        let is_news = match &self.reported {
            None => waited >= SOON,
            Some((reported, at)) => reported != what && now.duration_since(*at) >= NEXT,
        };
        if is_news {
            self.reported = Some((what.to_owned(), now));
        }
        is_news.then_some(waited)
    }
}

/// Tells what keeps `get` waiting, until it is dropped.
pub(crate) async fn report(get: &GetUnderWay, events: &mpsc::Sender<Event>) -> Infallible {
    let (mut waiting, wait_limit) = (Waiting::default(), get.config.ledger.wait_limit);
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let what = in_the_way(get);
        if let Some(waited) = waiting.look(Instant::now(), what.as_deref()) {
            let left = wait_limit.saturating_sub(waited).as_secs_f64().round() as u64;
            let what = what.unwrap_or_default();
            let _ = events.send(Event::Waiting { what, seconds: Some(left) }).await;
        }
    }
}

/// Reason that keeps a get from its sender.
fn in_the_way(get: &GetUnderWay) -> Option<String> {
    let last_error = get.plugins.root.last_error().map(|error| format!("the sender: {error}"));
    last_error.or_else(|| {
        let unanswered = get.unanswered().filter(|_| !get.answered.is_noted())?;
        Some(format!("the sender: {unanswered}"))
    })
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

    #[test]
    fn what_lasts_is_told_once_and_what_is_new_a_little_later() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(waiting.look(at(0), Some("a")), None);
        assert_eq!(waiting.look(at(700), Some("a")), None);
        assert_eq!(waiting.look(at(1100), Some("a")), Some(Duration::from_millis(1100)));
        assert_eq!(waiting.look(at(9000), Some("a")), None, "once");
        assert_eq!(waiting.look(at(9200), Some("b")), Some(Duration::from_millis(9200)));
        assert_eq!(waiting.look(at(9400), Some("a")), None, "two that alternate");
        assert_eq!(waiting.look(at(15_000), Some("a")), Some(Duration::from_secs(15)));
    }

    #[test]
    fn what_is_over_soon_is_not_told() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        for second in 0..10 {
            let at = |millis: u64| start + Duration::from_millis(second * 1000 + millis);
            assert_eq!(waiting.look(at(0), Some("a")), None);
            assert_eq!(waiting.look(at(600), None), None);
        }
    }
}
