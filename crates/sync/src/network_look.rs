//! What is known of the network, for threads that wait a little for it the first time.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use towpath_reuse::policy::network::Network;
use towpath_sync_messages::errands::close;

/// What is known of the network at the moment.
pub type Look = Box<dyn Fn() -> Network + Send + Sync>;
/// Completes when something is.
pub type Known = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the head of this module.
pub struct NetworkLook {
    look: Look,
    /// Those who wait, until something is known.
    waits: mpsc::Sender<NetworkWait>,
}

/// Somebody waits for what is known, so long at most; told by dropping the sender.
struct NetworkWait {
    limit: Duration,
    _told: oneshot::Sender<()>,
}

impl NetworkLook {
    /// `look` tells of the network, once `known` completes. Must be made within a runtime.
    pub fn new(look: Look, known: Known) -> Self {
        let (waits, inbox) = mpsc::channel(1);
        tokio::spawn(wait_for(known, inbox));
        Self { look, waits }
    }

    /// The network, if to know it could save so many bytes. The first time this waits a little for somebody to know it. Blocks.
    pub fn network_for(&self, bytes: u64) -> Network {
        let (told, wait) = oneshot::channel::<()>();
        let asked = NetworkWait { limit: Network::first_wait(bytes), _told: told };
        if self.waits.blocking_send(asked).is_ok() {
            let _ = wait.blocking_recv();
        }
        (self.look)()
    }
}

/// Lets all wait until something is known, but no longer than they would, all together.
async fn wait_for(known: Known, mut inbox: mpsc::Receiver<NetworkWait>) {
    until_known(known, &mut inbox).await;
    close(inbox).await;
}

async fn until_known(mut known: Known, inbox: &mut mpsc::Receiver<NetworkWait>) {
    let mut waited = Duration::ZERO;
    loop {
        let wait = tokio::select! {
            () = &mut known => return,
            wait = inbox.recv() => wait,
        };
        let Some(NetworkWait { limit, .. }) = &wait else { return };
        let rest = limit.saturating_sub(waited);
        waited = waited.max(*limit);
        if tokio::time::timeout(rest, &mut known).await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};
    use towpath_reuse::policy::table::{FIRST_WAIT as WAIT_LIMIT, MOST_FIRST_WAIT as MAX_WAIT_LIMIT};

    use super::*;

    const SLOW: Network = Network { rate: 2e5, round_trip: Duration::from_millis(40) };

    /// What is known of a network `for_bytes`, if a connection that tells of it stands once `standing` is over.
    async fn known(standing: impl Future<Output = ()> + Send + 'static, for_bytes: u64) -> Network {
        let stands = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stands);
        let look = move || if seen.load(Ordering::Relaxed) { SLOW } else { Network::default() };
        let known = async move {
            standing.await;
            stands.store(true, Ordering::Relaxed);
        };
        let network = NetworkLook::new(Box::new(look), Box::pin(known));
        let (told, known) = oneshot::channel();
        // No thread of the runtime: its time stands still while those work.
        std::thread::spawn(move || {
            // Somebody asks for little first.
            network.network_for(0);
            told.send(network.network_for(for_bytes)).unwrap();
        });
        known.await.unwrap()
    }

    /// It did, in one of some thousand copies.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_asks_while_something_becomes_known_does_not_wait_for_ever() {
        for _ in 0..20_000 {
            let network = NetworkLook::new(Box::new(|| SLOW), Box::pin(std::future::ready(())));
            let (told, known) = oneshot::channel();
            // No thread of the runtime, which would wait for its end.
            std::thread::spawn(move || told.send(network.network_for(1)));
            let asked = tokio::time::timeout(Duration::from_secs(30), known).await;
            assert_eq!(asked.expect("it hangs").unwrap(), SLOW);
        }
    }

    /// A connection over 40 ms took 120, and 50 MB of which half was there came without a delta of that.
    #[tokio::test(start_paused = true)]
    async fn large_files_wait_longer_for_a_connection_that_tells_of_the_network() {
        assert_eq!(known(sleep(Duration::from_millis(150)), 50_000_000).await, SLOW);
        let started = Instant::now();
        assert_eq!(known(pending(), 100_000).await, Network::default());
        let waited = started.elapsed();
        assert!(waited >= WAIT_LIMIT && waited < MAX_WAIT_LIMIT, "{waited:?}");
        let started = Instant::now();
        assert_eq!(known(pending(), u64::MAX).await, Network::default());
        let waited = started.elapsed();
        assert!(
            waited >= MAX_WAIT_LIMIT && waited < MAX_WAIT_LIMIT + Duration::from_millis(10),
            "{waited:?}"
        );
    }
}
