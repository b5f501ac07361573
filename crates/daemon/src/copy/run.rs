//! A copy from its beginning to its end, at the person's side and at the side that was started.
//!
//! ```text
//!   person's side                         started side
//!   ssh host tow remote  ───────────────► serve_stdio
//!   Start (what to do)   ───────────────►
//!                        ◄─────────────── Ready
//!   sender or receiver   ◄── control ───► receiver or sender
//!                        ◄─────────────── events, Finished
//! ```

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use towpath_api::{ApiError, ErrorKind, Seconds};
use towpath_content::Oid;
use towpath_content::tree::{Decoder, Event};
use towpath_plugins::direct::{
    ControlReceiver, ControlSender, Pace, Peer, PeerConfig, Service as PeerService, Traffic,
};
use towpath_plugins::local::SOURCE as LOCAL;
use towpath_plugins::{Cascade, Direct, Local, Takeover, takeover};
use towpath_store::Store;
use towpath_transfer::ledger::LedgerConfig;
use towpath_transfer::progress::{Progress, Snapshot};
use towpath_transfer::{Context, Session, SessionConfig, TransferPlugin};

use super::channel::{self, Channel, Rsh};
use super::events::{CopyEvent, CopySummary};
use super::local::LocalSupplier;
use super::merge::{Destined, Merge};
use super::message::{Answer, Empty, Fatal, Message, Ready, Start, VERSION, violation};
use super::options::{CopyOptions, CopyRequest, Mode, Via};
use super::patterns;
use super::place::{Place, Remote};
use super::race::{Race, STAND_LIMIT, SshConnection};
use super::receiving::{Receiving, refuse};
use super::remote::RemoteSupplier;
use super::sender::{Offers, Sender, hung_up};
use super::source::{Sources, Step};
use super::talk::{Events, events};
use crate::service::Service;

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How long a side whose person is gone may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// What the two ways to the other side are called.
const WAYS: takeover::Names = takeover::Names { first: "ssh", better: "tls" };
/// Bytes told by a sender and not looked at, at most: one that keeps to its window needs far less.
const MAX_WAITING: usize = 64 << 20;
/// Bytes of options in one message.
const PART: usize = 128 << 10;
/// Bytes of all options: a list of files may be long.
const MAX_OPTIONS: usize = 1 << 30;
/// What a message without bytes of its own counts.
const LITTLE: usize = 64;

/// Copies.
pub async fn run(
    service: &Arc<Service>,
    request: CopyRequest,
    person: mpsc::Sender<CopyEvent>,
) -> Result<CopySummary, ApiError> {
    let start = Instant::now();
    check(&request.options)?;
    let destination = Place::parse(&request.destination)?;
    let sources: Vec<Place> =
        request.sources.iter().map(|source| Place::parse(source)).collect::<Result<_, _>>()?;
    let remote = sources.iter().filter(|source| matches!(source, Place::Remote(_))).count();
    let (events, told) = events();
    let tally = tokio::spawn(told.show_to(person));
    let result = match &destination {
        Place::Remote(_) if remote > 0 => {
            drop(events);
            Err(refuse("only one side can be on another machine", "run tow on one of the two, over ssh"))
        }
        Place::Remote(remote) => {
            let paths = sources.into_iter().filter_map(local).collect();
            push(service, &request, paths, remote, events).await
        }
        Place::Local(path) if remote == 0 => {
            let paths = sources.into_iter().filter_map(local).collect();
            within(service, &request, paths, path, events).await
        }
        Place::Local(path) => pull(service, &request, &sources, path, events).await,
    };
    let tally = tally.await.unwrap_or_default();
    let mut summary = result?;
    summary.failed += tally.failed;
    summary.vanished += tally.vanished;
    summary.skipped += tally.skipped;
    summary.seconds = Seconds::from_duration(start.elapsed());
    Ok(summary)
}

/// What can be said without looking at anything.
fn check(options: &CopyOptions) -> Result<(), ApiError> {
    if options.delete && options.files_from.is_some() {
        return Err(refuse(
            "--delete does not go with --files-from, which tells only a part of the source",
            "use filters instead: --include and --exclude",
        ));
    }
    if options.delete && !options.recursive {
        return Err(refuse("--delete needs -r: without it nothing is known of what is below", "add -r"));
    }
    Ok(())
}

/// How many sources there are, and whether the one names what is in it.
fn shape(mode: Mode, sources: &[&[u8]]) -> Result<(usize, bool), ApiError> {
    let is_contents = |path: &[u8]| {
        path.ends_with(b"/")
            || path.ends_with(b"/.")
            || path.ends_with(b"/..")
            || matches!(path, b"." | b".." | b"")
    };
    if mode == Mode::Sync && sources.len() > 1 && sources.iter().any(|path| path.ends_with(b"/")) {
        let hint = "run it once for each; a slash at the end of a source means what is in it";
        return Err(refuse("the contents of a directory and other sources don't go together", hint));
    }
    // With a dot at the end cp too means what is in a directory.
    let is_dot = |path: &[u8]| path.ends_with(b"/.") || path == b".";
    let is_meant = |path| if mode == Mode::Sync { is_contents(path) } else { is_dot(path) };
    Ok((sources.len(), sources.len() == 1 && is_meant(sources[0])))
}

fn local(place: Place) -> Option<PathBuf> {
    match place {
        Place::Local(path) => Some(path),
        Place::Remote(_) => None,
    }
}

// --- within one machine ---

async fn within(
    service: &Arc<Service>,
    request: &CopyRequest,
    paths: Vec<PathBuf>,
    destination: &Path,
    events: Events,
) -> Result<CopySummary, ApiError> {
    let names: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let (count, contents) = shape(request.mode, &names)?;
    let options = request.options.clone();
    let receiving = receiving(service, &options, events.clone(), false);
    let supplier = LocalSupplier::start(events.clone(), options.remove_source_files);
    receiving.set_supplier(Arc::clone(&supplier) as Arc<dyn super::supply::Supplier>);
    let destined =
        Destined { path: destination.into(), mode: request.mode, sources: count, contents, names: None };
    let mut merge = Merge::new(&receiving, destined)?;
    let _stop = StopOnDrop(Arc::clone(&receiving));
    let telling = AbortOnDropHandle::new(tokio::spawn(tell(Arc::clone(&receiving), None, events.clone())));
    let avoid = not_into_itself(&paths, destination, contents, request.mode)?;
    let removal = Arc::clone(&supplier);
    let working = blocking(move || {
        let mut sources = Sources::open(&paths, contents, &options)?.avoiding(avoid);
        let read = sources.read(&mut |step| match step {
            Step::Walk(event, located) => {
                if let (Some(located), Event::Leaf(_)) = (&located, &event) {
                    supplier.note(merge.seen(), located);
                }
                merge.step(event, located)
            }
            Step::Closed => {
                let next = merge.seen();
                merge.closed(next)
            }
            Step::Failed { path, error } => {
                merge.incomplete();
                events.item(super::talk::failed_at(&path, &error));
                Ok(())
            }
            Step::Skipped { path, why } => {
                events.item(super::talk::skipped(&path, why));
                Ok(())
            }
        });
        removal.source_is_read();
        read?;
        merge.finish()
    });
    let result = working.await;
    drop(telling);
    result.and(receiving.check())?;
    Ok(receiving.summary())
}

/// A directory can't be copied into itself. Returns the directory that the copy goes to if it lies
/// in a source and `sync` may go on without it, as people do with backups beside their data.
fn not_into_itself(
    paths: &[PathBuf],
    destination: &Path,
    contents: bool,
    mode: Mode,
) -> Result<Option<PathBuf>, ApiError> {
    let destination = resolve(destination);
    let mut avoid = None;
    for path in paths {
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        let Some(source) = path.canonicalize().ok().filter(|source| source.is_dir() && !is_link) else {
            continue;
        };
        if !destination.starts_with(&source) || (contents && destination == source) {
            continue;
        }
        if mode == Mode::Cp || destination == source {
            let shown = towpath_files::display_name(path.as_os_str().as_bytes());
            return Err(refuse(format!("{shown} can't be copied into itself"), "choose another destination"));
        }
        avoid = Some(destination.clone());
    }
    Ok(avoid)
}

/// A path without symbolic links, as far as it is there.
fn resolve(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => resolve(Path::new(".")).join(name),
        (Some(parent), Some(name)) => resolve(parent).join(name),
        _ => path.to_path_buf(),
    }
}

fn receiving(
    service: &Arc<Service>,
    options: &CopyOptions,
    events: Events,
    is_pushed: bool,
) -> Arc<Receiving> {
    let store = Arc::clone(&service.store);
    Receiving::new(options.clone(), store, service.home.resume(), events, is_pushed)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// A copy that is given up must not go on to its end, where it deletes and cleans up.
struct StopOnDrop(Arc<Receiving>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(ApiError::new(ErrorKind::Interrupted, "the copy was given up"));
    }
}

/// Tells how far it is, until it is aborted.
async fn tell(receiving: Arc<Receiving>, progress: Option<(Progress, String)>, events: Events) {
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    loop {
        ticks.tick().await;
        let summary = receiving.summary();
        let (snapshot, other) = match &progress {
            Some((progress, other)) => (progress.snapshot(), &**other),
            None => Default::default(),
        };
        events.progress(CopyEvent::Progress {
            done: snapshot.done.max(receiving.bytes_done()),
            expected: summary.transferred_size.max(snapshot.expected),
            files_done: snapshot.objects.max(receiving.files_done()),
            files_seen: summary.seen.total(),
            by_source: by_source(&snapshot, other),
            trouble: snapshot.trouble,
        });
    }
}

// --- over a connection ---

/// Bytes by where they came from; `other` is what the person calls the other side.
fn by_source(snapshot: &Snapshot, other: &str) -> BTreeMap<String, u64> {
    let name = |name: &str| if name == LOCAL { name.to_owned() } else { other.to_owned() };
    snapshot.by_source.iter().map(|(source, bytes)| (name(source), *bytes)).collect()
}

/// One side of a copy over a connection.
struct Side {
    service: Arc<Service>,
    peer: Arc<Peer>,
    control: ControlSender,
    offers: Arc<Offers>,
    events: Events,
    options: CopyOptions,
    /// The person is at the other side.
    is_started: bool,
    /// What the other side is called.
    other: String,
}

/// The service that answers the other side, and what it may have.
fn peer_service(service: &Service) -> (Arc<Offers>, Arc<PeerService>) {
    let offers = Arc::new(Offers::new(service.identity.clone()));
    let store = Arc::clone(&service.store) as Arc<dyn Store>;
    let peers = Arc::new(PeerService::new(store, Arc::clone(&offers) as _));
    (offers, peers)
}

fn peer_config(options: &CopyOptions) -> PeerConfig {
    let pace = Arc::new(Pace::new(options.limit_rate));
    PeerConfig {
        control: true,
        compress: options.compress,
        send_pace: Arc::clone(&pace),
        receive_pace: pace,
        ..PeerConfig::default()
    }
}

/// A side that says nothing for the person's time limit is gone.
fn set_silence(peer: &Peer, options: &CopyOptions) {
    if options.timeout > 0 {
        peer.set_silence(Duration::from_secs(options.timeout));
    }
}

/// The connection to the other side and all that hangs on it, at the person's side.
struct Started {
    channel: Channel,
    side: Side,
    inbox: ControlReceiver,
    race: Option<Race>,
    /// What it said: its addresses, and how many sources there are.
    theirs: Vec<std::net::SocketAddr>,
    sources: usize,
    traffic: Arc<Traffic>,
}

async fn start(
    service: &Arc<Service>,
    request: &CopyRequest,
    remote: &Remote,
    events: Events,
    mut message: Start,
) -> Result<Started, ApiError> {
    let options = request.options.clone();
    let (offers, peers) = peer_service(service);
    let rsh = Rsh::choose(request.rsh.as_deref())?;
    let config = peer_config(&options);
    let traffic = Arc::clone(&config.traffic);
    let opening = Channel::open(
        remote,
        &rsh,
        &request.tow_path,
        service.identity.node_id(),
        Arc::clone(&peers),
        config.clone(),
    );
    let mut channel = opening.await?;
    let peer = Arc::clone(channel.peer());
    let (race, addresses) = match options.via {
        Via::Ssh => (None, Vec::new()),
        Via::Both | Via::Tls => {
            let (race, addresses) = Race::listen(&service.identity, peers, peer.node(), config, None).await?;
            (Some(race), addresses)
        }
    };
    message.version = VERSION;
    message.is_cp = request.mode == Mode::Cp;
    let json = Bytes::from(serde_json::to_vec(&options).unwrap_or_default());
    let (front, rest) = json.split_at(json.len() - json.len() % PART);
    message.options = Bytes::copy_from_slice(rest);
    message.addresses = addresses.iter().map(ToString::to_string).collect();
    let Some((control, mut inbox)) = peer.control() else {
        return Err(violation("a connection without a control stream"));
    };
    let theirs = async {
        // A list of files may be longer than a message.
        for part in front.chunks(PART) {
            let part = Message::More(Bytes::copy_from_slice(part)).into_bytes();
            control.send(part).await.map_err(|_| hung_up())?;
        }
        control.send(Message::Start(message).into_bytes()).await.map_err(|_| hung_up())?;
        loop {
            match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
                Message::Ready(Ready { addresses, sources }) => {
                    let addresses = addresses.iter().filter_map(|address| address.parse().ok());
                    return Ok((addresses.collect(), sources as usize));
                }
                Message::Event(json) => {
                    let event =
                        serde_json::from_slice(&json).map_err(|error| violation(&error.to_string()))?;
                    events.pass(event).await;
                }
                Message::Fatal(fatal) => return Err(told_error(&fatal)),
                _ => return Err(violation("something before it was ready")),
            }
        }
    };
    let (theirs, sources) = match theirs.await {
        Ok(ready) => ready,
        Err(error) if error.kind == ErrorKind::Unreachable => return Err(channel.failure().await),
        Err(error) => return Err(error),
    };
    set_silence(&peer, &options);
    let service = Arc::clone(service);
    let other = remote.display();
    let side = Side { service, peer, control, offers, events, options, is_started: false, other };
    Ok(Started { channel, side, inbox, race, theirs, sources, traffic })
}

fn told_error(fatal: &Fatal) -> ApiError {
    serde_json::from_slice(&fatal.error).unwrap_or_else(|_| violation("an error that can't be read"))
}

/// Local sources to another machine.
async fn push(
    service: &Arc<Service>,
    request: &CopyRequest,
    paths: Vec<PathBuf>,
    remote: &Remote,
    events: Events,
) -> Result<CopySummary, ApiError> {
    let names: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let (count, contents) = shape(request.mode, &names)?;
    let options = request.options.clone();
    // Before anything is started: a source that is not there is the commonest mistake.
    let sources = blocking(move || Sources::open(&paths, contents, &options)).await?;
    let message = Start {
        destination: Bytes::copy_from_slice(remote.path()),
        source_count: count as u32,
        is_contents: contents,
        ..Start::default()
    };
    let mut started = start(service, request, remote, events, message).await?;
    if let Some(race) = &mut started.race {
        race.run(&started.theirs, None);
    }
    let sent = send(&started.side, sources, &mut started.inbox).await;
    finish(started, sent).await
}

/// Sources on another machine to here.
async fn pull(
    service: &Arc<Service>,
    request: &CopyRequest,
    sources: &[Place],
    destination: &Path,
    events: Events,
) -> Result<CopySummary, ApiError> {
    let mut remotes = sources.iter().map(|source| match source {
        Place::Remote(remote) => Ok(remote),
        Place::Local(_) => Err(refuse(
            "all sources have to be on the same side",
            "copy those of this machine and those of the other one after the other",
        )),
    });
    let first = remotes.next().ok_or_else(|| refuse("there is no source", "name one"))??;
    let mut paths = vec![first.path()];
    for remote in remotes {
        let remote = remote?;
        if (remote.host(), remote.login()) != (first.host(), first.login()) {
            let hint = "copy from one machine after the other";
            return Err(refuse("the sources are on different machines", hint));
        }
        paths.push(remote.path());
    }
    let (count, contents) = shape(request.mode, &paths)?;
    let message = Start {
        is_sender: true,
        sources: paths.iter().map(|path| Bytes::copy_from_slice(path)).collect(),
        source_count: count as u32,
        is_contents: contents,
        ..Start::default()
    };
    let mut started = start(service, request, first, events, message).await?;
    let destined = Destined {
        path: destination.into(),
        mode: request.mode,
        sources: started.sources,
        contents,
        names: patterns::names(&paths),
    };
    let race = started.race.take();
    let received = receive(&started.side, destined, &mut started.inbox, race, &started.theirs).await;
    if received.is_ok() {
        // The sender may have files to remove, and something to tell of it.
        let _ = started.side.control.send(Message::Finished(Bytes::from_static(b"{}")).into_bytes()).await;
        let _ = tokio::time::timeout(GRACE, last_words(&started.side, &mut started.inbox)).await;
    }
    finish(started, received).await
}

/// What the other side says until it hangs up.
async fn last_words(side: &Side, inbox: &mut ControlReceiver) {
    while let Some(message) = inbox.next().await {
        if let Ok(Message::Event(json)) = Message::from_bytes(message)
            && let Ok(event) = serde_json::from_slice(&json)
        {
            side.events.pass(event).await;
        }
    }
}

/// Ends the connection, and explains why it ended if it did by itself.
async fn finish(
    mut started: Started,
    result: Result<CopySummary, ApiError>,
) -> Result<CopySummary, ApiError> {
    match result {
        Ok(mut summary) => {
            (summary.sent, summary.received) = (started.traffic.sent(), started.traffic.received());
            started.channel.close().await;
            Ok(summary)
        }
        Err(error) if error.kind == ErrorKind::Unreachable && started.side.peer.ended().is_some() => {
            Err(started.channel.failure().await)
        }
        Err(error) => {
            let json = serde_json::to_vec(&error).unwrap_or_default();
            let _ =
                started.side.control.send(Message::Fatal(Fatal { error: json.into() }).into_bytes()).await;
            started.channel.close().await;
            Err(error)
        }
    }
}

/// The sending side, from the first entry to the receiver's summary.
async fn send(side: &Side, sources: Sources, inbox: &mut ControlReceiver) -> Result<CopySummary, ApiError> {
    let sender = Sender::new(
        Arc::clone(&side.service.store),
        Arc::clone(&side.offers),
        side.control.clone(),
        side.events.clone(),
        side.options.remove_source_files,
    );
    let (asks, asked) = mpsc::unbounded_channel();
    let telling = spawn(Arc::clone(&sender), move |sender| sender.tell(sources));
    let answering = spawn(Arc::clone(&sender), move |sender| sender.answer_all(asked));
    let hearing = async {
        loop {
            let message = Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)?;
            match message {
                Message::Finished(json) => {
                    return serde_json::from_slice(&json).map_err(|error| violation(&error.to_string()));
                }
                Message::Event(json) => {
                    let event =
                        serde_json::from_slice(&json).map_err(|error| violation(&error.to_string()))?;
                    side.events.pass(event).await;
                }
                Message::Fatal(fatal) => return Err(told_error(&fatal)),
                message => sender.hear(message, &asks)?,
            }
        }
    };
    let failing = async {
        // A side that fails explains why the other one hangs up.
        match tokio::try_join!(joined(telling), joined(answering)) {
            Err(error) => error,
            Ok(_) => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = hearing => result,
        error = failing => Err(error),
    };
    sender.end();
    result
}

fn spawn(
    sender: Arc<Sender>,
    work: impl FnOnce(&Arc<Sender>) -> Result<(), ApiError> + Send + 'static,
) -> JoinHandle<Result<(), ApiError>> {
    tokio::task::spawn_blocking(move || work(&sender))
}

async fn joined(handle: JoinHandle<Result<(), ApiError>>) -> Result<(), ApiError> {
    handle.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// What the merging thread is handed.
enum Heard {
    Entries(Bytes),
    Closed(u64),
    Incomplete,
}

/// The receiving side, from the first entry to the last sync.
async fn receive(
    side: &Side,
    destined: Destined,
    inbox: &mut ControlReceiver,
    mut race: Option<Race>,
    theirs: &[std::net::SocketAddr],
) -> Result<CopySummary, ApiError> {
    let options = &side.options;
    let receiving = receiving(&side.service, options, side.events.clone(), side.is_started);
    let first = Arc::new(Direct::over(Arc::clone(&side.peer), side.service.identity.clone()));
    let takeover = match options.via {
        Via::Tls => Takeover::only_better("no TLS connection yet", WAYS),
        Via::Both | Via::Ssh => Takeover::new(first, WAYS),
    };
    if let Some(race) = &mut race {
        race.run(theirs, Some(Arc::clone(&takeover)));
    }
    if let (Via::Tls, Some(race)) = (options.via, &race) {
        let patience = Duration::from_secs(options.timeout);
        race.stands(if patience.is_zero() { STAND_LIMIT } else { patience }).await?;
    }
    let (session, _hints) = session(side, Arc::clone(&takeover));
    let session = Arc::new(session);
    let supplier = RemoteSupplier::new(side.control.clone(), &session);
    receiving.set_supplier(Arc::clone(&supplier) as Arc<dyn super::supply::Supplier>);
    let merge = Merge::new(&receiving, destined)?;
    let progress = session.progress();
    let _stop = StopOnDrop(Arc::clone(&receiving));
    let shown = Some((progress.clone(), side.other.clone()));
    let telling = tell(Arc::clone(&receiving), shown, side.events.clone());
    let telling = AbortOnDropHandle::new(tokio::spawn(telling));

    let (heard_in, heard) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let merging = {
        let waiting = Arc::clone(&waiting);
        tokio::task::spawn_blocking(move || follow(merge, heard, &waiting))
    };
    let (answers_in, answers) = mpsc::unbounded_channel();
    let answering = {
        let (supplier, waiting) = (Arc::clone(&supplier), Arc::clone(&waiting));
        tokio::task::spawn_blocking(move || take_answers(&supplier, answers, &waiting))
    };
    let hearing = hear(side, inbox, heard_in, answers_in, &waiting);
    let result = tokio::select! {
        result = joined(merging) => result,
        error = hearing => Err(error),
        error = failed(answering) => Err(error),
        () = receiving.stopped() => receiving.check(),
    };
    drop(telling);
    supplier.flush().await;
    tracing::info!(way = takeover.active(), "data came");
    // What makes going on useless explains why the rest failed.
    receiving.check().and(result).inspect_err(|error| receiving.stop(error.clone()))?;
    let snapshot = progress.snapshot();
    let mut summary = receiving.summary();
    summary.by_source = by_source(&snapshot, &side.other);
    let local = snapshot.by_source.get(LOCAL).copied().unwrap_or(0);
    summary.literal = snapshot.by_source.values().sum::<u64>() - local;
    summary.kept = snapshot.kept;
    summary.matched += local + snapshot.kept;
    Ok(summary)
}

async fn failed(handle: JoinHandle<Result<(), ApiError>>) -> ApiError {
    match joined(handle).await {
        Err(error) => error,
        Ok(()) => std::future::pending().await,
    }
}

/// The session that files are fetched by: from this machine where it has them, else from the other
/// side, the way that is best.
fn session(side: &Side, takeover: Arc<Takeover>) -> (Session, watch::Sender<Vec<towpath_content::Hint>>) {
    let store = Arc::clone(&side.service.store) as Arc<dyn Store>;
    // Whoever may log in here may know what is here (`docs/threat-model.md`).
    let local = Arc::new(Local::new(store, Arc::new(|_: &Oid| true))) as Arc<dyn TransferPlugin>;
    let root = Arc::new(Cascade::new(vec![local, takeover]));
    let (hints_in, hints) = watch::channel(Vec::new());
    let context = Context { root: Oid::of(b"copy"), node: Some(side.peer.node()), secret: None, hints };
    let mut config = SessionConfig::default();
    if side.options.timeout > 0 {
        let patience = Duration::from_secs(side.options.timeout);
        config.ledger = LedgerConfig { patience, ..config.ledger };
    }
    (Session::start(root, context, config), hints_in)
}

/// Sorts what the sender says, and never waits for the disk. Returns when it is over.
async fn hear(
    side: &Side,
    inbox: &mut ControlReceiver,
    entries: mpsc::UnboundedSender<Heard>,
    answers: mpsc::UnboundedSender<Vec<Answer>>,
    waiting: &AtomicUsize,
) -> ApiError {
    let work = async {
        loop {
            let message = Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)?;
            let cost = cost(&message);
            if waiting.fetch_add(cost, Ordering::Relaxed) > MAX_WAITING {
                return Err(violation("more than was asked for"));
            }
            match message {
                Message::Entries(bytes) => drop(entries.send(Heard::Entries(bytes))),
                Message::Closed(entry) => drop(entries.send(Heard::Closed(entry))),
                Message::Incomplete(Empty {}) => drop(entries.send(Heard::Incomplete)),
                Message::Answers(told) => drop(answers.send(told.answers)),
                Message::Event(json) if !side.is_started => {
                    let event =
                        serde_json::from_slice(&json).map_err(|error| violation(&error.to_string()))?;
                    side.events.pass(event).await;
                }
                Message::Fatal(fatal) => return Err(told_error(&fatal)),
                _ => return Err(violation("a message that a sender does not send")),
            }
        }
    };
    let result: Result<std::convert::Infallible, ApiError> = work.await;
    match result {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// Bytes that a message takes while it waits for another thread.
fn cost(message: &Message) -> usize {
    match message {
        Message::Entries(bytes) => bytes.len(),
        Message::Answers(told) => told.answers.len() * size_of::<Answer>(),
        Message::Closed(_) | Message::Incomplete(_) => LITTLE,
        _ => 0,
    }
}

/// The merging thread.
fn follow(
    mut merge: Merge,
    mut heard: mpsc::UnboundedReceiver<Heard>,
    waiting: &AtomicUsize,
) -> Result<(), ApiError> {
    let bad = |error: towpath_content::DecodeError| violation(&error.to_string());
    let mut decoder = Decoder::new();
    loop {
        let next = match heard.try_recv() {
            Ok(next) => Some(next),
            Err(_) => {
                merge.push()?;
                heard.blocking_recv()
            }
        };
        match next {
            None => return Err(hung_up()),
            Some(Heard::Closed(entry)) => {
                waiting.fetch_sub(LITTLE, Ordering::Relaxed);
                merge.closed(entry)?;
            }
            Some(Heard::Incomplete) => {
                waiting.fetch_sub(LITTLE, Ordering::Relaxed);
                merge.incomplete();
            }
            Some(Heard::Entries(bytes)) if bytes.is_empty() => {
                decoder.finish().map_err(bad)?;
                return merge.finish();
            }
            Some(Heard::Entries(bytes)) => {
                waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
                let mut rest = &bytes[..];
                loop {
                    let taken = decoder.feed(rest);
                    rest = &rest[taken..];
                    while let Some(located) = decoder.next_event().map_err(bad)? {
                        merge.step(located.event, None)?;
                    }
                    if rest.is_empty() {
                        break;
                    }
                }
            }
        }
    }
}

fn take_answers(
    supplier: &RemoteSupplier,
    mut answers: mpsc::UnboundedReceiver<Vec<Answer>>,
    waiting: &AtomicUsize,
) -> Result<(), ApiError> {
    while let Some(batch) = answers.blocking_recv() {
        waiting.fetch_sub(batch.len() * size_of::<Answer>(), Ordering::Relaxed);
        batch.iter().try_for_each(|answer| supplier.answered(answer))?;
    }
    Ok(())
}

// --- the side that was started ---

/// The other side of a copy, over this process's standard input and output. Ends with them.
pub async fn serve_stdio(service: &Arc<Service>) -> Result<(), ApiError> {
    let (offers, peers) = peer_service(service);
    let config = PeerConfig { control: true, ..PeerConfig::default() };
    let peer = channel::serve_stdio(service.identity.node_id(), Arc::clone(&peers), config).await?;
    channel::exit_after(&peer, GRACE);
    let Some((control, mut inbox)) = peer.control() else {
        return Err(violation("a connection without a control stream"));
    };
    let (events, told) = events();
    let forwarding = tokio::spawn(told.send_to(control.clone()));
    let serving = serve(service, &peer, &control, &mut inbox, offers, peers, events);
    let message = match serving.await {
        Ok(Some(summary)) => Some(Message::Finished(serde_json::to_vec(&summary).unwrap_or_default().into())),
        Ok(None) => None,
        Err(error) => {
            Some(Message::Fatal(Fatal { error: serde_json::to_vec(&error).unwrap_or_default().into() }))
        }
    };
    // All events come before the summary.
    let _ = tokio::time::timeout(GRACE, forwarding).await;
    if let Some(message) = message {
        let _ = control.send(message.into_bytes()).await;
    }
    // The person's side closes when it has heard the end.
    drop(control);
    let _ = tokio::time::timeout(GRACE, peer.until_closed()).await;
    Ok(())
}

/// The first message, and the options that came in parts before it.
async fn told_to_start(inbox: &mut ControlReceiver) -> Result<(Start, Vec<u8>), ApiError> {
    let mut options = Vec::new();
    loop {
        match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
            Message::More(part) if options.len() + part.len() <= MAX_OPTIONS => {
                options.extend_from_slice(&part);
            }
            Message::More(_) => return Err(violation("more options than any copy has")),
            Message::Start(start) => {
                options.extend_from_slice(&start.options);
                return Ok((start, options));
            }
            _ => return Err(violation("something before it was told what to do")),
        }
    }
}

/// Does what the first message says; a receiver returns its summary.
async fn serve(
    service: &Arc<Service>,
    peer: &Arc<Peer>,
    control: &ControlSender,
    inbox: &mut ControlReceiver,
    offers: Arc<Offers>,
    peers: Arc<PeerService>,
    events: Events,
) -> Result<Option<CopySummary>, ApiError> {
    let (start, options) = told_to_start(inbox).await?;
    if start.version != VERSION {
        let what = format!("version {} of the copy protocol, where this side knows {VERSION}", start.version);
        return Err(violation(&what));
    }
    let options: CopyOptions =
        serde_json::from_slice(&options).map_err(|error| violation(&error.to_string()))?;
    let mode = if start.is_cp { Mode::Cp } else { Mode::Sync };
    let paths =
        start.sources.iter().map(|path| patterns::expand(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let count = paths.len();
    if start.is_contents && count > 1 {
        return Err(refuse("several directories' contents can't become one", "copy one after the other"));
    }
    let sources = match start.is_sender {
        true => {
            let (contents, options) = (start.is_contents, options.clone());
            Some(blocking(move || Sources::open(&paths, contents, &options)).await?)
        }
        false => None,
    };
    let (mut race, addresses) = match options.via {
        Via::Ssh => (None, Vec::new()),
        Via::Both | Via::Tls => {
            let ssh = SshConnection::from_env();
            let config = peer_config(&options);
            let (race, addresses) = Race::listen(&service.identity, peers, peer.node(), config, ssh).await?;
            (Some(race), addresses)
        }
    };
    let addresses = addresses.iter().map(ToString::to_string).collect();
    let ready = Ready { addresses, sources: count as u32 };
    control.send(Message::Ready(ready).into_bytes()).await.map_err(|_| hung_up())?;
    set_silence(peer, &options);
    let theirs: Vec<_> = start.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let side = Side {
        service: Arc::clone(service),
        peer: Arc::clone(peer),
        control: control.clone(),
        offers,
        events,
        options,
        is_started: true,
        other: "the sender".into(),
    };
    match sources {
        Some(sources) => {
            if let Some(race) = &mut race {
                race.run(&theirs, None);
            }
            send(&side, sources, inbox).await.map(|_| None)
        }
        None => {
            let destined = Destined {
                path: patterns::here(&start.destination),
                mode,
                sources: start.source_count as usize,
                contents: start.is_contents,
                names: None,
            };
            receive(&side, destined, inbox, race, &theirs).await.map(Some)
        }
    }
}
