//! The remote end of a copy, started over ssh: does what the first messages ask, and ends with the pipe.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use towpath_api::copy::{CopyOptions, CopySummary, Mode};
use towpath_link::tls::has_fast_aes;
use towpath_protocol::{ControlReceiver, ControlSender, Pace, Peer, PeerConfig, Service as PeerService};

use super::endpoint::{Endpoint, blocking, peer_config, peer_service, race, set_silence};
use super::events::{Events, events};
use super::merge::Destined;
use super::message::hung_up;
use super::message::{
    Coming, CopyRole, EndReport, Fatal, Message, Ready, SenderRole, Start, VERSION, options, violation,
};
use super::offers::Offers;
use super::receiver_role::receive;
use super::run::GRACE;
use super::sender_role::send;
use super::source::Sources;
use crate::error::{CopyError, RequestFault};
use crate::host::Host;
use towpath_ssh::channel;
use towpath_ssh::patterns;
use towpath_ssh::race::SshConnection;
use towpath_sync_messages::race_talk::tell_moves;

/// Bytes of all options: a list of files may be long.
const MAX_OPTIONS: usize = 32 << 20;

/// The remote end of a copy, over this process's standard input and output. Ends with them.
///
/// `begin` gets the paths that this copy may write, before anything of it is done, and gives the runtime to do
/// it on. It may block. What only carries bytes over the pipe stays on the caller's runtime.
pub async fn serve_stdio(
    host: &Arc<Host>,
    begin: impl FnOnce(&Writes) -> Result<Handle, CopyError>,
) -> Result<(), CopyError> {
    let serves = peer_service(host);
    // The limit is the person's, and not known yet.
    let pace = Arc::new(Pace::new(0));
    let (send_pace, receive_pace) = (Arc::clone(&pace), Arc::clone(&pace));
    let config = PeerConfig { control: true, send_pace, receive_pace, ..host.peer_config() };
    let peer = channel::serve_stdio(host.identity.node_id(), Arc::clone(&serves.1), config).await;
    let peer = peer?;
    channel::exit_after(&peer, GRACE);
    let Some((control, mut inbox)) = peer.control() else {
        return Err(violation("a connection without a control stream"));
    };
    let (events, reports) = events(host.words);
    let forwarding = tokio::spawn(reports.send_to(control.clone()));
    let serving = async {
        let task = Task::recv(&mut inbox).await?;
        let runtime = begin(&task.writes())?;
        let (host, peer, control) = (Arc::clone(host), Arc::clone(&peer), control.clone());
        let serving = runtime.spawn(async move {
            serve(&host, (&peer, pace), &control, &mut inbox, serves, events, task).await
        });
        serving.await?
    };
    let message = match serving.await {
        Ok(Some(summary)) => Some(Message::Finished(EndReport::with(summary))),
        Ok(None) => None,
        Err(error) => Some(Message::Fatal(Fatal::of(&error))),
    };
    // All events come before the summary.
    let _ = tokio::time::timeout(GRACE, forwarding).await;
    if let Some(message) = message {
        let _ = control.send(message.into_bytes()).await;
    }
    // The person's side closes when it has received the end.
    drop(control);
    let _ = tokio::time::timeout(GRACE, peer.closed()).await;
    Ok(())
}

/// What it is to be, the message that said so, and all options.
async fn recv_start(inbox: &mut ControlReceiver) -> Result<(CopyRole, Start, Vec<u8>), CopyError> {
    let mut options = Vec::new();
    loop {
        let Message::Start(mut start) = Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? else {
            return Err(violation("something before it was told what to do"));
        };
        if start.version != VERSION {
            let version = start.version;
            let what = format!("version {version} of the copy protocol, where this side knows {VERSION}");
            return Err(violation(&what));
        }
        if options.len() + start.options.len() > MAX_OPTIONS {
            return Err(RequestFault::TooManyOptions.into());
        }
        options.extend_from_slice(&start.options);
        if let Some(role) = start.role.take() {
            return Ok((role, start, options));
        }
    }
}

/// Paths that one side of a copy may write, by its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writes {
    /// The sending side.
    Sender {
        /// Sources whose files are removed once they have arrived.
        removed: Vec<PathBuf>,
    },
    /// The receiving side.
    Receiver {
        /// Destination; nothing of it is written in a dry run.
        destination: Option<PathBuf>,
        /// The folder of the file that a link at the destination leads to.
        behind: Option<PathBuf>,
        /// Directory that replaced files are moved to, if one was named: relative to the destination.
        backups: Option<PathBuf>,
    },
}

/// Task of this side.
struct Task {
    part: Duty,
    options: CopyOptions,
    /// Addresses at which the client can be dialled, as it announces them.
    addresses: Vec<String>,
    /// Links that the client dials by; with any, it is told where this side moves.
    links: usize,
}

/// Part of the copy that is this side's.
enum Duty {
    /// It sends what the sources' wildcards stand for.
    Sender {
        paths: Vec<PathBuf>,
        contents: bool,
    },
    Receiver(Destined),
}

/// Work that is left once the sources are open.
enum Work {
    Send(Box<Sources>),
    Receive(Destined),
}

impl Task {
    async fn recv(inbox: &mut ControlReceiver) -> Result<Self, CopyError> {
        let (role, Start { addresses, links, .. }, options) = recv_start(inbox).await?;
        let options = options::decode(options.into())?;
        Ok(Self { part: Duty::of(role)?, options, addresses, links: links as usize })
    }

    /// Everything that it may write.
    fn writes(&self) -> Writes {
        let destined = match &self.part {
            Duty::Sender { paths, .. } => {
                let removes = self.options.remove_source_files && !self.options.dry_run;
                return Writes::Sender { removed: if removes { paths.clone() } else { Vec::new() } };
            }
            Duty::Receiver(destined) => destined,
        };
        let backups = self.options.backup_dir.as_ref().filter(|_| self.options.backup);
        let backups = backups.map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
        let destination = Some(destined.path.clone()).filter(|_| !self.options.dry_run);
        // A file may go where a link leads.
        let is_link = |path: &&Path| destined.mode == Mode::Cp && path.is_symlink();
        let behind = destination.as_deref().filter(is_link);
        let behind = behind.and_then(|path| Some(path.canonicalize().ok()?.parent()?.to_path_buf()));
        Writes::Receiver { destination, behind, backups }
    }
}

impl Duty {
    fn of(role: CopyRole) -> Result<Self, CopyError> {
        let receiver = match role {
            CopyRole::Sender(SenderRole { sources, is_contents: contents }) => {
                let expand = |path: &Bytes| patterns::expand(path);
                let paths = sources.iter().map(expand).collect::<Result<Vec<_>, _>>()?.concat();
                if contents && paths.len() > 1 {
                    return Err(RequestFault::SeveralContents.into());
                }
                return Ok(Self::Sender { paths, contents });
            }
            CopyRole::Receiver(receiver) => receiver,
        };
        let (sources, contents) = match receiver.coming {
            Some(Coming::Contents(_)) => (1, true),
            Some(Coming::Sources(count)) => (count as usize, false),
            None => return Err(violation("a start that does not say what comes")),
        };
        let path = patterns::here(&receiver.destination);
        let mode = if receiver.is_cp { Mode::Cp } else { Mode::Sync };
        Ok(Self::Receiver(Destined { path, mode, sources, contents, names: None }))
    }
}

/// Does its task; a receiver returns its summary.
async fn serve(
    host: &Arc<Host>,
    (peer, pace): (&Arc<Peer>, Arc<Pace>),
    control: &ControlSender,
    inbox: &mut ControlReceiver,
    (offers, peers): (Arc<Offers>, Arc<PeerService>),
    events: Events,
    task: Task,
) -> Result<Option<CopySummary>, CopyError> {
    let Task { part, options, addresses: theirs, links } = task;
    let (work, count) = match part {
        Duty::Sender { paths, contents } => {
            let (count, options) = (paths.len(), options.clone());
            let sources = blocking(move || Sources::open(&paths, contents, &options)).await?;
            (Work::Send(Box::new(sources)), count)
        }
        Duty::Receiver(destined) => (Work::Receive(destined), 0),
    };
    let (config, ssh) = (peer_config(host, &options, pace), SshConnection::from_env());
    let service = Arc::clone(&peers);
    let (mut race, addresses) = race(host, options.via, peers, peer.node(), config, ssh, &[]).await?;
    let ready = Ready { addresses, sources: count as u32, has_aes: has_fast_aes() };
    control.send(Message::Ready(ready).into_bytes()).await.map_err(|_| hung_up())?;
    let _moving = tell_moves(control, race.as_ref().filter(|_| links > 0));
    set_silence(peer, &options);
    let theirs: Vec<_> = theirs.iter().filter_map(|address| address.parse().ok()).collect();
    let endpoint = Endpoint {
        host: Arc::clone(host),
        peer: Arc::clone(peer),
        control: control.clone(),
        offers,
        service,
        events,
        options,
        links,
        is_remote_end: true,
        other: "the sender".into(),
    };
    match work {
        Work::Send(sources) => {
            if let Some(race) = &mut race {
                race.run(&theirs, None);
            }
            send(&endpoint, *sources, inbox, race.as_ref()).await.map(|_| None)
        }
        Work::Receive(destined) => receive(&endpoint, destined, inbox, race, &theirs).await.map(Some),
    }
}
