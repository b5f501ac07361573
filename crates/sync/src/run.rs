//! A copy from its beginning to its end, at the person's side. A copy to or from another machine
//! starts a remote end there (`remote_end`).
//!
//! ```text
//!   person's side                         remote end  
//!   ssh host tow remote  ───────────────► serve_stdio
//!   Start (what to do)   ───────────────►
//!                        ◄─────────────── Ready
//!   sender or receiver   ◄── control ───► receiver or sender
//!                        ◄─────────────── events, Finished
//! ```

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use towpath_api::Seconds;
use towpath_api::copy::{CopyEvent, CopyOptions, CopyRequest, CopySummary, Mode};
use towpath_protocol::{ControlReceiver, ControlSender, Traffic};

use super::endpoint::{
    Endpoint, blocking, peer_config, peer_service, race, remote_error, set_silence, silence,
};
use super::events::{Events, events};
use super::local_copy::copy_locally;
use super::merge::Destined;
use super::message::hung_up;
use super::message::{
    Coming, CopyRole, Empty, EndReport, Fatal, Message, Ready, ReceiverRole, SenderRole, Start, VERSION,
    options, violation,
};
use super::naming::{meant, names_contents};
use super::receiver_role::receive;
use super::sender_role::send;
use super::source::Sources;
use super::watching::{report_long_login, watch};
use crate::error::{CopyError, RequestFault};
use crate::host::Host;
use towpath_ssh::address::{Address, Remote};
use towpath_ssh::channel::{Channel, Rsh};
use towpath_ssh::patterns::Requested;
use towpath_ssh::race::Race;

/// Time that a side whose person is gone may take to end.
pub const GRACE: Duration = Duration::from_secs(5);

/// Bytes of options in one message.
const PART: usize = 128 << 10;

/// Copies what the request names, and sends `person` its events. The summary counts the failures of
/// single entries; an error ended the copy as a whole.
pub async fn run(
    host: &Arc<Host>,
    request: CopyRequest,
    person: mpsc::Sender<CopyEvent>,
) -> Result<CopySummary, CopyError> {
    let start = Instant::now();
    check(&request.options)?;
    let destination = Address::parse(&request.destination)?;
    let sources = meant(request.mode, request.options.files_from.is_some(), &request.sources);
    let sources: Vec<Address> =
        sources.iter().map(|source| Address::parse(source)).collect::<Result<_, _>>()?;
    let remote = sources.iter().filter(|source| matches!(source, Address::Remote(_))).count();
    let (events, reports) = events(host.words);
    let tally = tokio::spawn(reports.show_to(person));
    let result = match &destination {
        Address::Remote(_) if remote > 0 => {
            drop(events);
            Err(RequestFault::BothElsewhere.into())
        }
        Address::Remote(remote) => {
            let paths = sources.into_iter().filter_map(local).collect();
            push(host, request, paths, remote, events).await
        }
        Address::Local(path) if remote == 0 => {
            let paths = sources.into_iter().filter_map(local).collect();
            copy_locally(host, &request, paths, path, events).await
        }
        Address::Local(path) => pull(host, request, &sources, path, events).await,
    };
    let tally = tally.await.unwrap_or_default();
    let mut summary = result?;
    summary.failed += tally.failed;
    summary.vanished += tally.vanished;
    summary.skipped += tally.skipped;
    summary.seconds = Seconds::from_duration(start.elapsed());
    Ok(summary)
}

/// Faults that show without looking at anything.
fn check(options: &CopyOptions) -> Result<(), CopyError> {
    if options.delete && options.files_from.is_some() {
        return Err(RequestFault::DeletionByList.into());
    }
    if options.delete && !options.recursive {
        return Err(RequestFault::DeletionAtTop.into());
    }
    Ok(())
}

fn local(address: Address) -> Option<PathBuf> {
    match address {
        Address::Local(path) => Some(path),
        Address::Remote(_) => None,
    }
}

/// Options that concern the other side: names of this machine's directories do not.
fn for_the_other(options: &CopyOptions, is_sender: bool) -> CopyOptions {
    let mut options = options.clone();
    if is_sender {
        (options.search, options.backup_dir) = (Vec::new(), None);
    }
    options
}

/// The connection to the other side and all that hangs on it, at the person's side.
struct RemoteEnd {
    channel: Channel,
    endpoint: Endpoint,
    inbox: ControlReceiver,
    race: Option<Race>,
    /// Hello of the other side: its addresses, and how many sources there are.
    theirs: Vec<std::net::SocketAddr>,
    sources: usize,
    traffic: Arc<Traffic>,
    /// Tells of a stall until the end.
    _watching: AbortOnDropHandle<()>,
}

/// Starts the remote end, sends it its task, and waits until it is ready.
async fn start_remote_end(
    host: &Arc<Host>,
    request: CopyRequest,
    remote: &Remote,
    events: Events,
    mut message: Start,
) -> Result<RemoteEnd, CopyError> {
    let options = request.options;
    let (offers, peers) = peer_service(host);
    let rsh = Rsh::choose(request.rsh.as_deref())?.with_quick_cipher(remote, &host.aes_hosts).await;
    let config = peer_config(host, &options, Arc::default());
    let traffic = Arc::clone(&config.traffic);
    let opening = Channel::open(
        remote,
        (&rsh, &request.tow_path),
        request.reached,
        host.identity.node_id(),
        Arc::clone(&peers),
        config.clone(),
    );
    let other = remote.display();
    let mut channel = report_long_login(opening, &other, &events).await?;
    let peer = Arc::clone(channel.peer());
    let watching = watch(Arc::downgrade(&peer), other.clone(), silence(&options), events.clone());
    let watching = AbortOnDropHandle::new(tokio::spawn(watching));
    let service = Arc::clone(&peers);
    let (race, addresses) = race(host, options.via, peers, peer.node(), config, None, &host.links).await?;
    message.version = VERSION;
    let links = if race.is_some() { host.links.len() } else { 0 };
    (message.addresses, message.links) = (addresses, links as u32);
    let Some((control, mut inbox)) = peer.control() else {
        return Err(violation("a connection without a control stream"));
    };
    let Ready { addresses, sources, has_aes } =
        match agree(&control, &mut inbox, message, &options, &events, &other).await {
            Ok(ready) => ready,
            Err(error) if error.is_unreachable() => return Err(channel.failure().await.into()),
            Err(error) => return Err(error),
        };
    host.aes_hosts.keep(remote, has_aes);
    let theirs = addresses.iter().filter_map(|address| address.parse().ok()).collect();
    set_silence(&peer, &options);
    let host = Arc::clone(host);
    let is_remote_end = false;
    let endpoint =
        Endpoint { host, peer, control, offers, service, events, options, links, is_remote_end, other };
    Ok(RemoteEnd {
        channel,
        endpoint,
        inbox,
        race,
        theirs,
        sources: sources as usize,
        traffic,
        _watching: watching,
    })
}

/// Sends the other side its task, and waits until it is ready.
async fn agree(
    control: &ControlSender,
    inbox: &mut ControlReceiver,
    mut message: Start,
    options: &CopyOptions,
    events: &Events,
    other: &str,
) -> Result<Ready, CopyError> {
    let is_sender = matches!(message.role, Some(CopyRole::Sender(_)));
    let mut front = options::encode(&for_the_other(options, is_sender));
    message.options = front.split_off(front.len() - front.len() % PART);
    // A list of files may be longer than a message.
    while !front.is_empty() {
        let part = Start { version: VERSION, options: front.split_to(PART), ..Start::default() };
        control.send(Message::Start(part).into_bytes()).await.map_err(|_| hung_up())?;
    }
    control.send(Message::Start(message).into_bytes()).await.map_err(|_| hung_up())?;
    loop {
        match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
            Message::Ready(ready) => return Ok(ready),
            Message::Event(report) => events.pass(report, other).await?,
            Message::Fatal(fatal) => return Err(remote_error(&fatal, other)),
            _ => return Err(violation("something before it was ready")),
        }
    }
}

/// Local sources to another machine.
async fn push(
    host: &Arc<Host>,
    request: CopyRequest,
    paths: Vec<PathBuf>,
    remote: &Remote,
    events: Events,
) -> Result<CopySummary, CopyError> {
    let names: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let (count, contents) = (names.len(), names_contents(request.mode, &names)?);
    let options = request.options.clone();
    // Before anything is started: a source that is not there is the commonest mistake.
    let sources = blocking(move || Sources::open(&paths, contents, &options)).await?;
    let message = Start {
        role: Some(CopyRole::Receiver(ReceiverRole {
            destination: Bytes::copy_from_slice(remote.path()),
            is_cp: request.mode == Mode::Cp,
            coming: Some(if contents { Coming::Contents(Empty {}) } else { Coming::Sources(count as u32) }),
        })),
        ..Start::default()
    };
    let mut remote_end = start_remote_end(host, request, remote, events, message).await?;
    if let Some(race) = &mut remote_end.race {
        race.run(&remote_end.theirs, None);
    }
    let sent = send(&remote_end.endpoint, sources, &mut remote_end.inbox, remote_end.race.as_ref()).await;
    finish(remote_end, sent).await
}

/// Sources on another machine to here.
async fn pull(
    host: &Arc<Host>,
    request: CopyRequest,
    sources: &[Address],
    destination: &Path,
    events: Events,
) -> Result<CopySummary, CopyError> {
    let mut remotes = sources.iter().map(|source| match source {
        Address::Remote(remote) => Ok(remote),
        Address::Local(_) => Err(RequestFault::BothSides),
    });
    let first = remotes.next().ok_or(RequestFault::NoSource)??;
    let mut paths = vec![first.path()];
    for remote in remotes {
        let remote = remote?;
        if (remote.host(), remote.login()) != (first.host(), first.login()) {
            return Err(RequestFault::SeveralMachines.into());
        }
        paths.push(remote.path());
    }
    let (mode, contents) = (request.mode, names_contents(request.mode, &paths)?);
    let requested = Requested::of(&paths, contents)?;
    let message = Start {
        role: Some(CopyRole::Sender(SenderRole {
            sources: paths.iter().map(|path| Bytes::copy_from_slice(path)).collect(),
            is_contents: contents,
        })),
        ..Start::default()
    };
    let mut remote_end = start_remote_end(host, request, first, events, message).await?;
    if !requested.allows(remote_end.sources) {
        return finish(remote_end, Err(violation("another number of sources than was asked for"))).await;
    }
    // Nothing of it is the sender's word.
    let destined = Destined {
        path: destination.into(),
        mode,
        sources: requested.sources(),
        contents,
        names: requested.names,
    };
    let race = remote_end.race.take();
    let received =
        receive(&remote_end.endpoint, destined, &mut remote_end.inbox, race, &remote_end.theirs).await;
    if received.is_ok() {
        // The sender may have files to remove, and something to report.
        let _ = remote_end.endpoint.control.send(Message::Finished(EndReport::default()).into_bytes()).await;
        let _ = tokio::time::timeout(GRACE, drain(&remote_end.endpoint, &mut remote_end.inbox)).await;
    }
    finish(remote_end, received).await
}

/// Handles what the other side sends until it hangs up.
async fn drain(endpoint: &Endpoint, inbox: &mut ControlReceiver) {
    while let Some(message) = inbox.next().await {
        if let Ok(Message::Event(report)) = Message::from_bytes(message) {
            let _ = endpoint.events.pass(report, &endpoint.other).await;
        }
    }
}

/// Ends the connection, and explains why it ended if it did by itself.
async fn finish(
    mut remote_end: RemoteEnd,
    result: Result<CopySummary, CopyError>,
) -> Result<CopySummary, CopyError> {
    match result {
        Ok(mut summary) => {
            (summary.sent, summary.received) = (remote_end.traffic.sent(), remote_end.traffic.received());
            remote_end.channel.close().await;
            Ok(summary)
        }
        Err(error) if error.is_unreachable() && remote_end.endpoint.peer.ended().is_some() => {
            Err(remote_end.channel.failure().await.into())
        }
        Err(error) => {
            // The error is for the person, who is here; it may name what lies here.
            let last = Message::Fatal(Fatal::of(&CopyError::GivenUp));
            let _ = remote_end.endpoint.control.send(last.into_bytes()).await;
            remote_end.channel.close().await;
            Err(error)
        }
    }
}
