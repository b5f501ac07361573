//! Reports to whoever waits for the other machine: for what, and how long it will be tried. ssh may ask for a password
//! or take its time, and a side that answered may fall silent while the connection stands.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use towpath_api::copy::CopyEvent;
use towpath_protocol::{Arrived, Peer, QUIET, Stall};

use super::talk::Events;

/// A login may take so long before a word is said of it.
const LOGIN: Duration = Duration::from_millis(1500);
/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Watch for a stall that is to be reported: once. It is handed the time.
#[derive(Debug, Default)]
struct StallWatch {
    stall: Stall,
    is_told: bool,
}

impl StallWatch {
    /// Time that nothing came, if that is to be reported now. A side that is there sends a ping twice a second.
    fn look(&mut self, now: Instant, heard: Arrived) -> Option<Duration> {
        let quiet = self.stall.look(now, heard.bytes, 0, heard.listens);
        let was_told = std::mem::replace(&mut self.is_told, quiet.is_some());
        quiet.filter(|_| !was_told)
    }
}

/// Does `login`, and tells that `other` is waited for if that takes long.
pub async fn told<T>(login: impl Future<Output = T>, other: &str, events: &Events) -> T {
    let mut login = std::pin::pin!(login);
    tokio::select! {
        done = &mut login => return done,
        () = tokio::time::sleep(LOGIN) => {}
    }
    events.waiting(format!("ssh to {other}"), None).await;
    login.await
}

/// Tells each time that nothing comes of `other`, which is given up after `silence`; until the connection has ended.
pub async fn watch(peer: Weak<Peer>, other: String, silence: Duration, events: Events) {
    let (mut watch, mut ticks) = (StallWatch::default(), tokio::time::interval(LOOK_EVERY));
    while let Some(heard) = heard(&peer) {
        if let Some(quiet) = watch.look(Instant::now(), heard) {
            let left = silence.saturating_sub(quiet).as_secs_f64().round() as u64;
            events.waiting(words(&other), Some(left)).await;
        }
        ticks.tick().await;
    }
}

fn heard(peer: &Weak<Peer>) -> Option<Arrived> {
    let peer: Arc<Peer> = peer.upgrade()?;
    peer.ended().is_none().then(|| peer.heard())
}

fn words(other: &str) -> String {
    format!("{other}: nothing came for {} s", QUIET.as_secs())
}

impl Events {
    async fn waiting(&self, what: String, seconds: Option<u64>) {
        self.tell(CopyEvent::Waiting { what, seconds }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::talk::events;
    use super::*;
    use crate::host::plain;

    #[test]
    fn a_side_that_falls_silent_is_told_of_once() {
        let (mut watch, start) = (StallWatch::default(), Instant::now());
        let mut look = |second, bytes| {
            let heard = Arrived { bytes, listens: true, awaits_data: false };
            watch.look(start + Duration::from_secs(second), heard)
        };
        assert_eq!((look(0, 9), look(1, 9)), (None, None));
        assert_eq!((look(2, 9), look(3, 9)), (Some(QUIET), None));
        assert_eq!((look(9, 10), look(10, 10)), (None, None));
        assert_eq!(look(11, 10), Some(QUIET), "another stall");
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_that_takes_long_is_told_of() {
        let (events, told_of) = events(plain);
        told(std::future::ready(()), "box", &events).await;
        told(tokio::time::sleep(3 * LOGIN), "box", &events).await;
        drop(events);
        let (person, mut shown) = tokio::sync::mpsc::channel(8);
        told_of.show_to(person).await;
        let waiting = CopyEvent::Waiting { what: "ssh to box".into(), seconds: None };
        assert_eq!((shown.recv().await, shown.recv().await), (Some(waiting), None));
    }
}
