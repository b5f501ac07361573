//! State that both sides of a copy over a connection have, whichever is the sender.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use towpath_api::copy::{CopyEvent, CopyOptions, Via};
use towpath_api::{PEER, SourceBytes, SourceList};
use towpath_content::NodeId;
use towpath_plugins::direct::LocalEnd;
use towpath_protocol::{COMPRESS, ControlSender, Pace, Peer, PeerConfig, Service as PeerService};
use towpath_store::Store;
use towpath_transfer::SourceId;
use towpath_transfer::progress::{Progress, Snapshot};

use super::events::Events;
use super::message::{Fatal, violation};
use super::offers::Offers;
use super::receiving::Receiving;
use super::threads;
use crate::error::CopyError;
use crate::host::Host;
use towpath_ssh::race::{Race, SshConnection};

/// Interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// A copy outlives a network that is away for this long. The connection over ssh cannot be made
/// again, and TCP may take as long again as a break lasted before it tries the next segment: what was
/// cut for eight seconds was seen to be silent for more than twenty.
const SILENCE: Duration = Duration::from_secs(60);

/// A copy that is given up must not go on to its end, where it deletes and cleans up.
pub struct StopOnDrop(pub Arc<Receiving>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(CopyError::GivenUp);
    }
}

/// One endpoint of a copy over a connection.
pub struct Endpoint {
    /// This side's machine.
    pub host: Arc<Host>,
    /// The connection over ssh.
    pub peer: Arc<Peer>,
    /// Sender of messages.
    pub control: ControlSender,
    /// Content that the other side may fetch.
    pub offers: Arc<Offers>,
    /// What answers the other side, on all connections.
    pub service: Arc<PeerService>,
    /// Events for the person.
    pub events: Events,
    /// Options of the copy.
    pub options: CopyOptions,
    /// Links of the person's machine that were named, and may come to stand.
    pub links: usize,
    /// The person is at the other side.
    pub is_remote_end: bool,
    /// Name of the other side.
    pub other: String,
}

/// Bytes by where they came from; `other` is what the person calls the other side.
pub fn sources(snapshot: &Snapshot, other: &str) -> SourceList {
    let named = |(source, bytes): (&SourceId, &u64)| {
        let (kind, path) = (source.kind().to_owned(), source.path().map(str::to_owned));
        // A peer's path is one of several links.
        let of_other = path.as_ref().map_or_else(|| other.to_owned(), |link| format!("{other} {link}"));
        let path = if kind == PEER { Some(of_other) } else { path };
        SourceBytes { kind, node: None, path, bytes: *bytes }
    };
    snapshot.by_source.iter().map(named).collect()
}

/// The receiving side of a copy, not begun. `is_pushed`: the person is at the other side.
pub fn receiving(host: &Arc<Host>, options: &CopyOptions, events: Events, is_pushed: bool) -> Arc<Receiving> {
    let store = Arc::clone(&host.store);
    Receiving::new(options.clone(), store, host.resume.clone(), events, is_pushed, host.umask)
}

/// Does work that may block on a thread of its own.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CopyError> + Send + 'static,
) -> Result<T, CopyError> {
    let done = threads::spawn(work).await;
    done?
}

/// Reports progress, until it is aborted.
pub async fn show_progress(receiving: Arc<Receiving>, progress: Option<(Progress, String)>, events: Events) {
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    loop {
        ticks.tick().await;
        let (summary, done) = (receiving.account.summary(), receiving.account.done());
        let (snapshot, other) = match &progress {
            Some((progress, other)) => (progress.snapshot(), &**other),
            None => Default::default(),
        };
        events.progress(CopyEvent::Progress {
            done: snapshot.done.max(done.bytes),
            expected: done.bytes_requested.max(snapshot.expected),
            files_done: snapshot.objects.max(done.files),
            files_seen: summary.seen.total(),
            sources: sources(&snapshot, other),
            trouble: snapshot.last_error,
        });
    }
}

/// The service that answers the other side, and what it may have.
pub fn peer_service(host: &Host) -> (Arc<Offers>, Arc<PeerService>) {
    let offers = Arc::new(Offers::new(host.identity.clone()));
    let store = Arc::clone(&host.store) as Arc<dyn Store>;
    let peers = PeerService::new(store, Arc::clone(&offers) as _);
    (offers, Arc::new(peers.with_processors(host.processors.clone())))
}

/// Settings of a copy's connections; all of one copy share its rate limit.
pub fn peer_config(host: &Host, options: &CopyOptions, pace: Arc<Pace>) -> PeerConfig {
    pace.set(options.limit_rate);
    let bare = host.peer_config();
    let mut wishes = bare.wishes;
    if options.compress && wishes.is_empty() {
        wishes.push(COMPRESS.to_owned());
    }
    PeerConfig {
        control: true,
        silence: SILENCE,
        wishes,
        send_pace: Arc::clone(&pace),
        receive_pace: pace,
        processors: bare.processors,
        ..PeerConfig::default()
    }
}

/// Listens for better connections than ssh's, if the person lets it, and returns the addresses to
/// send to the other side, whose node id is `peer`. `ssh` is given at the remote end, `links` at the person's if they named any.
pub async fn race(
    host: &Host,
    via: Via,
    peers: Arc<PeerService>,
    peer: NodeId,
    config: PeerConfig,
    ssh: Option<SshConnection>,
    links: &[LocalEnd],
) -> Result<(Option<Race>, Vec<String>), CopyError> {
    if via == Via::Ssh {
        return Ok((None, Vec::new()));
    }
    let (race, addresses) = Race::listen(&host.identity, peers, peer, config, ssh, links).await?;
    Ok((Some(race), addresses.iter().map(ToString::to_string).collect()))
}

/// A side that sends nothing for the person's time limit is gone.
pub fn set_silence(peer: &Peer, options: &CopyOptions) {
    peer.set_silence(silence(options));
}

/// The person's time limit, or as long as a network may be away.
pub const fn silence(options: &CopyOptions) -> Duration {
    if options.timeout > 0 { Duration::from_secs(options.timeout) } else { SILENCE }
}

/// The result of a task; that it died is an error like others.
pub async fn joined(handle: JoinHandle<Result<(), CopyError>>) -> Result<(), CopyError> {
    handle.await?
}

/// The error that ended the other side, which is called `other`.
pub fn remote_error(fatal: &Fatal, other: &str) -> CopyError {
    let error = fatal.error().unwrap_or_else(|| violation("an error that can't be read"));
    CopyError::Elsewhere { other: other.to_owned(), error: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remote end gave up after 20 s.
    #[test]
    fn both_sides_bear_a_network_that_is_away_for_a_minute() {
        let of = |timeout| silence(&CopyOptions { timeout, ..CopyOptions::default() });
        assert_eq!((of(0), of(5)), (SILENCE, Duration::from_secs(5)));
    }
}
