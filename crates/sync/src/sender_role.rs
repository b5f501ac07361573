//! The sending side, from its first entry to the receiver's summary.

use std::sync::Arc;

use tokio::task::JoinHandle;
use towpath_api::copy::CopySummary;
use towpath_protocol::ControlReceiver;
use towpath_protocol::offer::Offer;

use super::answering::Scope;
use super::endpoint::{Endpoint, joined, remote_error};
use super::message::{Message, PROBE, hung_up, violation};
use super::sender::Sender;
use super::sent::SentTo;
use super::source::Sources;
use super::threads;
use crate::error::CopyError;
use towpath_ssh::race::Race;
use towpath_sync_messages::race_talk::{heed_move, heed_wish};

/// Sends the receiver the entries of `sources`, and answers its questions for them over any connection of the copy, until it
/// reports that all is in place; returns its summary. `race` dials as many connections as the receiver wants.
pub async fn send(
    endpoint: &Endpoint,
    sources: Sources,
    inbox: &mut ControlReceiver,
    race: Option<&Race>,
) -> Result<CopySummary, CopyError> {
    let scope = match endpoint.is_remote_end {
        true => Scope::Index,
        false => Scope::Sent(SentTo::new(&endpoint.host.shares, &endpoint.peer.node())),
    };
    let sender = Sender::new(
        (Arc::clone(&endpoint.host.store), scope),
        Arc::clone(&endpoint.offers),
        endpoint.control.clone(),
        endpoint.events.clone(),
        &endpoint.options,
        endpoint.host.processors.inspect_any(),
    );
    let offer: Arc<dyn Offer> = Arc::clone(&sender) as _;
    endpoint.service.set_offer(Arc::downgrade(&offer));
    let sending_tree = spawn(Arc::clone(&sender), move |sender| sender.send_tree(sources));
    let receiving = async {
        let mut is_probed = false;
        loop {
            match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
                Message::Finished(finished) => return Ok(finished.into_summary()),
                Message::Event(report) => endpoint.events.pass(report, &endpoint.other).await?,
                Message::Fatal(fatal) => return Err(remote_error(&fatal, &endpoint.other)),
                Message::Probe(asked) if std::mem::replace(&mut is_probed, true) || !asked.is_empty() => {
                    return Err(violation("a second probe, or one with bytes"));
                }
                Message::Probe(_) => {
                    let probed = Message::Probe(probe().into());
                    endpoint.control.send(probed.into_bytes()).await.map_err(|_| hung_up())?;
                }
                Message::Connections(wish) => heed_wish(race, &wish),
                Message::Ready(moved) if !endpoint.is_remote_end => heed_move(race, &moved),
                message => sender.recv(message)?,
            }
        }
    };
    let failing = async {
        // A side that fails explains why the other one hangs up.
        match joined(sending_tree).await {
            Err(error) => error,
            Ok(()) => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = receiving => result,
        error = failing => Err(error),
        error = sender.failed() => Err(error),
    };
    sender.end();
    result
}

/// Bytes that no compression makes fewer.
fn probe() -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..PROBE).map(next).collect()
}

fn spawn(
    sender: Arc<Sender>,
    work: impl FnOnce(&Arc<Sender>) -> Result<(), CopyError> + Send + 'static,
) -> JoinHandle<Result<(), CopyError>> {
    threads::spawn(move || work(&sender))
}

#[cfg(test)]
pub mod tests {
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use towpath_protocol::{ControlSender, Peer, PeerConfig, Service as PeerService};

    use super::super::endpoint::peer_service;
    use super::super::entry_sink::{Came, TestSink};
    use super::super::events::events;
    use super::super::message::{Considered, Settled};
    use super::*;
    use crate::host::Host;
    use towpath_api::copy::CopyOptions;
    use towpath_link::doubles::connected;
    use towpath_store::{FileRecord, hash_open_file};
    use towpath_transfer::offer::{EntryQuery, EntryWant};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A sender that offers what is in a folder.
    pub struct Sending {
        pub sender: Arc<Sender>,
        /// The other end of its connection.
        pub far: Arc<Peer>,
        pub inbox: ControlReceiver,
        /// The way of messages to it.
        pub to_near: ControlSender,
        host: Arc<Host>,
        service: Arc<PeerService>,
        _offer: Arc<dyn Offer>,
        _near: Arc<Peer>,
    }

    impl Sending {
        /// Its index has this file.
        pub fn remember(&self, file: &Path) {
            let hashed = hash_open_file(&File::open(file).unwrap(), file).unwrap();
            let record = FileRecord::new(file.parent().unwrap(), file.file_name().unwrap(), hashed);
            self.host.store.remember(&[record]).unwrap();
        }

        /// Both ends of one more connection: the sender's, and the other one.
        pub async fn connect(&self) -> [Arc<Peer>; 2] {
            let [near, far] = connected([self.host.identity.node_id(); 2]).await;
            let config = PeerConfig::default();
            [
                Peer::start(near, config.clone(), Some(Arc::clone(&self.service))),
                Peer::start(far, config, None),
            ]
        }
    }

    /// A sender with its home in `folder` that sends what is in `from`.
    pub async fn sender_of(folder: &Path, from: PathBuf) -> Sending {
        let host = Host::below(&folder.join("home"));
        let ((reports, _shown), (offers, service)) = (events(crate::host::plain), peer_service(&host));
        let config = PeerConfig { control: true, ..PeerConfig::default() };
        let [near, far] = connected([host.identity.node_id(); 2]).await;
        let near = Peer::start(near, config.clone(), Some(Arc::clone(&service)));
        let far = Peer::start(far, config, None);
        let ((control, _inbox), (to_near, inbox)) = (near.control().unwrap(), far.control().unwrap());
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let sources = Sources::open(&[from], true, &options).unwrap();
        let store = (Arc::clone(&host.store), Scope::Index);
        let sender = Sender::new(store, offers, control, reports, &options, false);
        let offer: Arc<dyn Offer> = Arc::clone(&sender) as _;
        service.set_offer(Arc::downgrade(&offer));
        joined(spawn(Arc::clone(&sender), move |sender| sender.send_tree(sources))).await.unwrap();
        Sending { sender, far, inbox, to_near, host, service, _offer: offer, _near: near }
    }

    /// Whether these entries can be had, one after the other.
    async fn are_had(sending: &Sending, entries: &[u64]) -> Vec<bool> {
        let (sink, mut came) = TestSink::new();
        let mut had = Vec::new();
        for &entry in entries {
            let query = EntryQuery { entry, compare: false, inline: 100, pack: 0, base: None };
            let want = EntryWant { tag: entry, query: Arc::new(query) };
            sending.far.get_entries(vec![want], Arc::clone(&sink) as _).await;
            had.push(matches!(came.recv().await.unwrap(), Came::Content(_)));
        }
        had
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_wanted_can_be_had_again_until_it_is_settled_and_the_rest_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir(&from).unwrap();
        ["a", "b", "c"].into_iter().for_each(|name| std::fs::write(from.join(name), name).unwrap());
        let sending = sender_of(folder.path(), from).await;
        let [a, b, c] = [2, 3, 4];
        assert_eq!(are_had(&sending, &[a]).await, [true], "before it is known to be wanted");
        let considered = Considered { entry: 5, wanted: vec![a, c] };
        sending.sender.recv(Message::Considered(considered)).unwrap();
        assert_eq!(are_had(&sending, &[a, b, c]).await, [true, true, false]);
        let settled = Settled { placed: vec![a], dropped: vec![b], ..Settled::default() };
        sending.sender.recv(Message::Settled(settled)).unwrap();
        assert_eq!(are_had(&sending, &[a, b]).await, [false, false]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tree_is_packed_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir(&from).unwrap();
        (0..500)
            .for_each(|number| std::fs::write(from.join(format!("number {number} of them")), "x").unwrap());
        let mut sending = sender_of(folder.path(), from).await;
        let (mut came, mut tree) = (0, 0);
        loop {
            let next = tokio::time::timeout(LIMIT, sending.inbox.next()).await.unwrap().unwrap();
            came += next.len();
            let Message::Entries(part) = Message::from_bytes(next).unwrap() else { panic!("no entries") };
            let Some(bytes) = part.unpack().unwrap() else { break };
            tree += bytes.len();
        }
        assert!(came < tree * 3 / 4, "{came} {tree}");
    }
}
