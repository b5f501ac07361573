//! Reports to whoever waits for the other machine: for what, and how long it will be tried. ssh may ask for a password
//! or take its time, and a side that answered may fall silent while the connection stands.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use towpath_protocol::waiting::{WaitReason, WaitReports, report_wait};
use towpath_protocol::{Arrived, Peer, QUIET, Stall};

use super::events::Events;

/// A login may take so long before a word is printed of it.
const LOGIN: Duration = Duration::from_millis(1500);
/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Does `login`, and reports that `other` is waited for if that takes long.
pub async fn report_long_login<T>(login: impl Future<Output = T>, other: &str, events: &Events) -> T {
    report_wait(login, LOGIN, events.waiting(format!("ssh to {other}"), None)).await
}

/// Reports each time that nothing comes of `other`, which is given up after `silence`; until the connection has ended. A
/// side that is there sends a ping twice a second.
pub async fn watch(peer: Weak<Peer>, other: String, silence: Duration, events: Events) {
    let (mut stall, mut reports) = (Stall::default(), WaitReports::default());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    while let Some(arrived) = arrived(&peer) {
        let now = Instant::now();
        let quiet = stall.look(now, arrived.bytes, 0, arrived.listens);
        let obstacle = quiet.map(|already| WaitReason { what: stall_text(&other), already });
        if let (Some(waited), Some(WaitReason { what, .. })) =
            (reports.look(now, obstacle.as_ref()), obstacle)
        {
            let left = silence.saturating_sub(waited).as_secs_f64().round() as u64;
            events.waiting(what, Some(left)).await;
        }
        ticks.tick().await;
    }
}

fn arrived(peer: &Weak<Peer>) -> Option<Arrived> {
    let peer: Arc<Peer> = peer.upgrade()?;
    peer.ended().is_none().then(|| peer.heard())
}

fn stall_text(other: &str) -> String {
    format!("{other}: nothing came for {} s", QUIET.as_secs())
}

#[cfg(test)]
mod tests {
    use towpath_api::copy::CopyEvent;

    use super::super::events::events;
    use super::*;
    use crate::host::plain;

    #[tokio::test(start_paused = true)]
    async fn a_login_that_takes_long_is_reported() {
        let (events, reports) = events(plain);
        report_long_login(std::future::ready(()), "box", &events).await;
        report_long_login(tokio::time::sleep(3 * LOGIN), "box", &events).await;
        drop(events);
        let (person, mut shown) = tokio::sync::mpsc::channel(8);
        reports.show_to(person).await;
        let waiting = CopyEvent::Waiting { what: "ssh to box".into(), seconds: None };
        assert_eq!((shown.recv().await, shown.recv().await), (Some(waiting), None));
    }
}
