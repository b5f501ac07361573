//! Reports to whoever waits for another machine: for what, and how long it will be tried: soon, since
//! a command that says nothing looks as if it hung.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::Event;
use towpath_protocol::waiting::{self, WaitReason, WaitReports};
use towpath_protocol::{QUIET, Stall};

use crate::getting::GetUnderWay;

/// Time for which nothing is reported: most of what is in the way is over by then.
const SOON: Duration = Duration::from_millis(800);
/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes between two looks that are no data: a sender with nothing to send shows so that it is there.
const IDLE: u64 = 64;

/// Tells what keeps `get` waiting, until it is dropped.
pub(crate) async fn report(get: &GetUnderWay, events: &mpsc::Sender<Event>) -> Infallible {
    let (mut reports, mut stall) = (WaitReports::default(), Stall::default());
    let wait_limit = get.config.ledger.wait_limit;
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let obstacle = in_the_way(get).or_else(|| stalled(get, &mut stall, now));
        if let (Some(waited), Some(WaitReason { what, .. })) =
            (reports.look(now, obstacle.as_ref()), obstacle)
        {
            let left = wait_limit.saturating_sub(waited).as_secs_f64().round() as u64;
            let _ = events.send(Event::Waiting { what, seconds: Some(left) }).await;
        }
    }
}

/// Reason that keeps a get from its sender.
fn in_the_way(get: &GetUnderWay) -> Option<WaitReason> {
    let unanswered = || get.unanswered().filter(|_| !get.answered.is_noted());
    let why = get.plugins.root.state().trouble.or_else(unanswered)?;
    Some(WaitReason { what: format!("the sender: {why}"), already: Duration::ZERO })
}

/// Reason that a get over a connection waits: nothing comes of what the sender owes.
fn stalled(get: &GetUnderWay, stall: &mut Stall, now: Instant) -> Option<WaitReason> {
    let paths = get.plugins.remote.iter().map(|source| source.state().path);
    let (arrived, is_due) =
        paths.fold((0, false), |(arrived, is_due), path| (arrived + path.arrived, is_due || path.is_due));
    let already = stall.look(now, arrived, IDLE, is_due)?;
    Some(WaitReason { what: format!("the sender: nothing came for {} s", QUIET.as_secs()), already })
}

/// Does `work`, and tells of `what` it waits for if that takes long.
pub(crate) async fn report_wait<T>(
    work: impl Future<Output = T>,
    what: &str,
    events: &mpsc::Sender<Event>,
) -> T {
    let report = async {
        let _ = events.send(Event::Waiting { what: what.into(), seconds: None }).await;
    };
    waiting::report_wait(work, SOON, report).await
}
