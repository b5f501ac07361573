//! A lying peer for copies: one end of a connection runs the real sender or receiver, the other one follows a script of
//! messages that no honest side would send. Over a pipe, as beside ssh, and over TLS.
//!
//! | module | story |
//! |---|---|
//! | `lying_sender` | lies that a receiver refuses, or bears without harm |
//! | `lying_receiver` | lies that a sender refuses, or bears without harm |
//! | `floods` | memory that either side takes for them |
//! | `measured` | the same in MiB, for docs/results/security.md |

mod floods;
mod lying_receiver;
mod lying_sender;
mod measured;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use towpath_api::copy::{CopyEvent, CopyOptions, CopySummary, Mode, Via};
use towpath_content::delta::exchange::{DeltaRun, NextSignature};
use towpath_content::tree::{Encoder, Entry, Event, Kind, Metadata, Time};
use towpath_link::doubles::connected;
use towpath_link::tcp::{DialConfig, Listener, dial};
use towpath_link::{Connection, Identity};
use towpath_protocol::offer::{EntryAsk, EntryTag, Offer};
use towpath_protocol::{ControlReceiver, ControlSender, Peer, PeerConfig, Replies};
use towpath_transfer::offer::{EntryContent, EntryQuery, EntryWant};
use towpath_transfer::{Outcome, Tag};

use super::endpoint::{Endpoint, peer_config, peer_service};
use super::entry_sink::{Came, TestSink};
use super::events::{EventInbox, events};
use super::merge::Destined;
use super::message::{Message, TreeBytes};
use super::receiver_role::receive;
use super::sender_role::send;
use super::source::Sources;
use crate::error::CopyError;
use crate::host::Host;

/// Time that a lie may take to be found out, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Carrier of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Pipe,
    Tls,
}

pub const CARRIERS: [Carrier; 2] = [Carrier::Pipe, Carrier::Tls];

/// Step of the liar.
#[derive(Clone)]
pub enum Step {
    /// Sends a message.
    Send(Message),
    /// Sends bytes as if they were a message.
    Raw(Vec<u8>),
    /// Sends so many messages, each made when its turn comes.
    Flood(u64, fn(u64) -> Message),
    /// Waits until the other side sends something of this kind.
    Recv(fn(&Message) -> bool),
    /// Ends its direction.
    HangUp,
    /// Waits until the other side asks for an entry.
    RecvAsk,
    /// Answers the ask.
    Answer(EntryContent),
    /// Sends a run of it.
    Run(Vec<u8>),
    /// Refuses it.
    Refuse(Outcome),
    /// Asks for an entry.
    Ask(EntryQuery),
    /// Waits until an entry that it asked for has ended.
    RecvEnd,
    /// Sends a signature of the entry that it asked for last.
    Signature(NextSignature),
}

/// End of a copy with a liar.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// With an error that has these words.
    Error(&'static str),
    /// As it should, but for a file or more: with a complaint that has these words.
    Complaint(&'static str),
    /// As it should.
    Harmless,
}

/// A folder with what a copy of a test needs.
pub struct Scene {
    folder: tempfile::TempDir,
    pub options: CopyOptions,
}

/// Results of a copy.
pub struct Ended {
    pub result: Result<CopySummary, CopyError>,
    pub complaints: Vec<String>,
    /// Answers that the liar waited for.
    pub answers: Vec<Came>,
}

impl Scene {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("to")).unwrap();
        Self { folder, options: CopyOptions { via: Via::Ssh, ..CopyOptions::default() } }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a file with all that it lies in.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The real side, its events, and the liar.
    pub(super) async fn endpoints(
        &self,
        carrier: Carrier,
        is_remote_end: bool,
    ) -> (Endpoint, ControlReceiver, EventInbox, Liar) {
        let host = Host::below(&self.path("home"));
        let [near, far] = match carrier {
            Carrier::Pipe => connected([host.identity.node_id(); 2]).await,
            Carrier::Tls => over_tls(&host.identity).await,
        };
        let options = self.options.clone();
        let (offers, peers) = peer_service(&host);
        let service = Arc::clone(&peers);
        let peer = Peer::start(near, peer_config(&host, &options, Arc::default()), Some(peers));
        let liar = Liar::start(far, &host);
        let (control, inbox) = peer.control().unwrap();
        let (events, reports) = events(crate::host::plain);
        let (other, links) = ("the liar".into(), 0);
        let endpoint =
            Endpoint { host, peer, control, offers, service, events, options, links, is_remote_end, other };
        (endpoint, inbox, reports, liar)
    }

    /// A receiver of a pull or push to `destined`, and a sender that follows the script.
    pub async fn receive(&self, carrier: Carrier, is_pull: bool, destined: Destined, lie: &[Step]) -> Ended {
        let (endpoint, mut inbox, reports, mut liar) = self.endpoints(carrier, !is_pull).await;
        let result = {
            let receiving = receive(&endpoint, destined, &mut inbox, None, &[]);
            with(receiving, liar.follow_script(lie)).await
        };
        drop(endpoint);
        Ended { result, complaints: complaints(reports).await, answers: liar.answers }
    }

    /// A sender of what is in `from`, by push or pull, and a receiver that follows the script.
    pub async fn send(&self, carrier: Carrier, is_pull: bool, lie: &[Step]) -> Ended {
        let (endpoint, mut inbox, reports, mut liar) = self.endpoints(carrier, is_pull).await;
        let sources = Sources::open(&[self.path("from")], true, &self.options).unwrap();
        let result = {
            let sending = send(&endpoint, sources, &mut inbox, None);
            with(sending, liar.follow_script(lie)).await
        };
        drop(endpoint);
        Ended { result, complaints: complaints(reports).await, answers: liar.answers }
    }

    /// Destination of a directory's contents: into `to`.
    pub fn contents(&self) -> Destined {
        Destined { path: self.path("to"), mode: Mode::Sync, sources: 1, contents: true, names: None }
    }
}

impl Ended {
    /// Fails unless the copy ended so.
    pub fn assert(&self, lie: &str, end: End) {
        let complaints = self.complaints.join("\n");
        match (end, &self.result) {
            (End::Error(words), Err(error)) => {
                assert!(error.to_string().contains(words), "{lie}: {error}");
            }
            (End::Complaint(words), Ok(_)) => assert!(complaints.contains(words), "{lie}: {complaints}"),
            (End::Harmless, Ok(_)) => assert_eq!(complaints, "", "{lie}"),
            (end, result) => panic!("{lie}: {end:?} was expected, not {result:?}; {complaints}"),
        }
    }
}

/// The real side's end, which comes while the liar sends or receives; the liar never ends by itself.
async fn with<T>(real: impl Future<Output = T>, liar: impl Future<Output = ()>) -> T {
    let mut liar = std::pin::pin!(liar);
    tokio::select! {
        result = real => result,
        () = &mut liar => panic!("the liar was through"),
        () = tokio::time::sleep(LIMIT) => panic!("it took too long"),
    }
}

/// The lying side.
pub struct Liar {
    peer: Arc<Peer>,
    /// Asks of the other side.
    asked: mpsc::UnboundedReceiver<(EntryAsk, Arc<Replies>)>,
    _offer: Arc<dyn Offer>,
    /// The ask that it answers.
    ask: Option<(EntryTag, Arc<Replies>)>,
    /// Its own asks.
    sink: Arc<TestSink>,
    came: mpsc::UnboundedReceiver<Came>,
    answers: Vec<Came>,
    /// Of the last of its own asks.
    tag: Tag,
}

impl Liar {
    fn start(connection: Connection, host: &Arc<Host>) -> Self {
        let (asked_in, asked) = mpsc::unbounded_channel();
        let offer: Arc<dyn Offer> = Arc::new(LyingOffer(asked_in));
        let (_, service) = peer_service(host);
        service.set_offer(Arc::downgrade(&offer));
        let config = PeerConfig { control: true, ..PeerConfig::default() };
        let peer = Peer::start(connection, config, Some(service));
        let (sink, came) = TestSink::new();
        Self { peer, asked, _offer: offer, ask: None, sink, came, answers: Vec::new(), tag: 0 }
    }

    /// Follows a script, then listens to the end.
    async fn follow_script(&mut self, lie: &[Step]) {
        let (control, mut inbox) = self.peer.control().unwrap();
        let mut control = Some(control);
        for step in lie {
            match step {
                Step::Send(message) => send_bytes(control.as_ref(), message.clone().into_bytes()).await,
                Step::Raw(bytes) => send_bytes(control.as_ref(), bytes.clone().into()).await,
                Step::Flood(count, message) => {
                    for number in 0..*count {
                        send_bytes(control.as_ref(), message(number).into_bytes()).await;
                    }
                }
                Step::HangUp => drop(control.take()),
                Step::Recv(is_it) => {
                    while let Some(received) = inbox.next().await {
                        if is_it(&Message::from_bytes(received).unwrap()) {
                            break;
                        }
                    }
                }
                step => self.step(step).await,
            }
        }
        while inbox.next().await.is_some() {}
        std::future::pending().await
    }

    /// A step that is about contents. The other side may have had enough.
    async fn step(&mut self, step: &Step) {
        match step {
            Step::RecvAsk => {
                let (ask, replies) = self.asked.recv().await.unwrap();
                self.ask = Some((ask.tag, replies));
            }
            Step::Answer(content) => {
                let (tag, replies) = self.ask.as_ref().unwrap();
                for batch in replies.batches(vec![(*tag, content.clone())]) {
                    let _ = replies.send(batch.plain()).await;
                }
            }
            Step::Run(run) => {
                let (tag, replies) = self.ask.as_ref().unwrap();
                let run = DeltaRun::from_bytes(run).unwrap();
                let _ = replies.send(replies.run(*tag, &run)).await;
            }
            Step::Refuse(outcome) => {
                let (tag, replies) = self.ask.as_ref().unwrap();
                replies.refuse(*tag, outcome);
            }
            Step::Ask(query) => {
                self.tag += 1;
                let want = EntryWant { tag: self.tag, query: Arc::new(query.clone()) };
                let (peer, sink) = (Arc::clone(&self.peer), Arc::clone(&self.sink));
                tokio::spawn(async move { peer.get_entries(vec![want], sink).await });
                self.sink.way(self.tag).await;
            }
            Step::RecvEnd => self.answers.extend(self.came.recv().await),
            Step::Signature(signature) => self.sink.way(self.tag).await.send(self.tag, signature),
            _ => unreachable!("a message"),
        }
    }
}

/// Keeps all asks for the script.
struct LyingOffer(mpsc::UnboundedSender<(EntryAsk, Arc<Replies>)>);

impl Offer for LyingOffer {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        asks.into_iter().for_each(|ask| drop(self.0.send((ask, Arc::clone(replies)))));
    }
}

async fn send_bytes(control: Option<&ControlSender>, bytes: bytes::Bytes) {
    // The other side may have had enough.
    if let Some(control) = control {
        let _ = control.send(bytes).await;
    }
}

async fn complaints(reports: EventInbox) -> Vec<String> {
    let (person, mut shown) = mpsc::channel(1 << 16);
    tokio::time::timeout(LIMIT, reports.show_to(person)).await.unwrap();
    let mut all = Vec::new();
    while let Some(event) = shown.recv().await {
        if let CopyEvent::Failed { path, error, .. } = event {
            all.push(format!("{}: {error}", String::from_utf8_lossy(&path)));
        }
    }
    all
}

async fn over_tls(near: &Identity) -> [Connection; 2] {
    let far = Identity::generate().unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), near).await.unwrap();
    let (address, how) = (listener.address().unwrap(), DialConfig::default());
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await.unwrap() };
    let dialling = async { dial(address, &far, near.node_id(), &how).await.unwrap() };
    let (near, far) = tokio::join!(accepting, dialling);
    [near, far]
}

pub fn entry(name: &str, kind: Kind) -> Entry {
    let metadata = Metadata { mode: 0o644, modified: Time { seconds: 9, nanos: 0 }, ..Metadata::default() };
    Entry { name: name.as_bytes().to_vec(), kind, metadata, hard_link: None }
}

pub fn dir(name: &str) -> Event {
    let entry = entry(name, Kind::Directory);
    Event::Enter(Entry { metadata: Metadata { mode: 0o755, ..entry.metadata }, ..entry })
}

pub fn leaf(name: &str, size: u64) -> Event {
    Event::Leaf(entry(name, Kind::File { size, oid: None, extents: None }))
}

/// The descriptor of these steps between the root and its end.
pub fn tree(steps: &[Event]) -> Step {
    let mut encoder = Encoder::new(true);
    encoder.push(&dir("")).unwrap();
    steps.iter().for_each(|step| encoder.push(step).unwrap());
    encoder.push(&Event::Leave).unwrap();
    entries(&encoder.finish().unwrap())
}

/// Bytes of a descriptor as they are.
pub fn entries(bytes: &[u8]) -> Step {
    Step::Send(Message::Entries(TreeBytes::new(bytes.to_vec().into(), 0)))
}

/// One directory, which is entry 1, with these steps in it: the first is entry 2.
pub fn one(steps: &[Event]) -> Step {
    tree(&[&[dir("src")], steps, &[Event::Leave]].concat())
}

/// Step that ends the tree.
pub fn end() -> Step {
    Step::Send(Message::Entries(TreeBytes::default()))
}

/// Everything below a directory, with what files hold, to see whether anything changed.
pub fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for found in fs::read_dir(folder).into_iter().flatten() {
        let path = found.unwrap().path();
        match path.symlink_metadata().unwrap().is_dir() {
            true => all.extend(snapshot(&path).into_iter().chain([(path, Vec::new())])),
            false => all.push((path.clone(), fs::read(&path).unwrap_or_default())),
        }
    }
    all.sort();
    all
}
