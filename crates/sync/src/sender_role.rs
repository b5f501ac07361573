//! The sending side, from its first entry to the receiver's summary.

use std::sync::Arc;

use tokio::task::JoinHandle;
use towpath_api::copy::CopySummary;
use towpath_protocol::ControlReceiver;
use towpath_protocol::offer::Offer;

use super::answering::Scope;
use super::endpoint::{Endpoint, joined, remote_error};
use super::message::Message;
use super::message::hung_up;
use super::sender::Sender;
use super::sent::SentTo;
use super::source::Sources;
use super::threads;
use crate::error::CopyError;

/// Sends the receiver the entries of `sources`, and answers its questions for them over any connection of the copy, until it
/// reports that all is in place; returns its summary.
pub async fn send(
    endpoint: &Endpoint,
    sources: Sources,
    inbox: &mut ControlReceiver,
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
        loop {
            match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
                Message::Finished(finished) => return Ok(finished.into_summary()),
                Message::Event(report) => endpoint.events.pass(report, &endpoint.other).await?,
                Message::Fatal(fatal) => return Err(remote_error(&fatal, &endpoint.other)),
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

fn spawn(
    sender: Arc<Sender>,
    work: impl FnOnce(&Arc<Sender>) -> Result<(), CopyError> + Send + 'static,
) -> JoinHandle<Result<(), CopyError>> {
    threads::spawn(move || work(&sender))
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use towpath_protocol::{ControlSender, Peer, PeerConfig};

    use super::super::endpoint::peer_service;
    use super::super::events::events;
    use super::super::message::{Answer, Settled};
    use super::*;
    use crate::host::Host;
    use towpath_api::copy::CopyOptions;
    use towpath_link::doubles::connected;

    const LIMIT: Duration = Duration::from_secs(20);

    /// The two ends of a connection.
    async fn ends(host: &Host) -> [(Arc<Peer>, ControlSender, ControlReceiver); 2] {
        connected([host.identity.node_id(); 2]).await.map(|connection| {
            let config = PeerConfig { control: true, ..PeerConfig::default() };
            let peer = Peer::start(connection, config, None);
            let (control, inbox) = peer.control().unwrap();
            (peer, control, inbox)
        })
    }

    /// A sender with its home in `folder` that has sent what is in `from`, the receiver's inbox, and the connection.
    pub async fn sender_of(
        folder: &std::path::Path,
        from: std::path::PathBuf,
    ) -> (Arc<Sender>, ControlReceiver, [Arc<Peer>; 2]) {
        let host = Host::below(&folder.join("home"));
        let [(near, control, _inbox), (far, _to_near, inbox)] = ends(&host).await;
        let ((reports, _shown), (offers, _)) = (events(crate::host::plain), peer_service(&host));
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let sources = Sources::open(&[from], true, &options).unwrap();
        let sender =
            Sender::new((Arc::clone(&host.store), Scope::Index), offers, control, reports, &options, true);
        joined(spawn(Arc::clone(&sender), move |sender| sender.send_tree(sources))).await.unwrap();
        (sender, inbox, [near, far])
    }

    async fn answer(inbox: &mut ControlReceiver) -> Answer {
        loop {
            let next = tokio::time::timeout(LIMIT, inbox.next()).await.unwrap().unwrap();
            if let Message::Answers(mut answers) = Message::from_bytes(next).unwrap() {
                assert_eq!(answers.answers.len(), 1);
                return answers.answers.remove(0);
            }
        }
    }

    /// Bytes that a tree takes on the way to a receiver that can unpack or can't, and the tree.
    async fn sent(from: &std::path::Path, host: &Host, unpacks: bool) -> (usize, Vec<u8>) {
        let [(_peer, control, _inbox), (_far, _to_near, mut inbox)] = ends(host).await;
        let ((reports, _shown), (offers, _)) = (events(crate::host::plain), peer_service(host));
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let sources = Sources::open(&[from.into()], true, &options).unwrap();
        let sender =
            Sender::new((Arc::clone(&host.store), Scope::Index), offers, control, reports, &options, unpacks);
        let sending_tree = spawn(sender, move |sender| sender.send_tree(sources));
        let (mut bytes, mut tree) = (0, Vec::new());
        loop {
            let next = tokio::time::timeout(LIMIT, inbox.next()).await.unwrap().unwrap();
            bytes += next.len();
            match Message::from_bytes(next).unwrap() {
                Message::Entries(end) if end.is_empty() => break,
                Message::Entries(entries) => tree.extend_from_slice(&entries),
                other => panic!("{other:?}"),
            }
        }
        joined(sending_tree).await.unwrap();
        (bytes, tree)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tree_is_packed_from_the_start_for_whoever_can_unpack() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir(&from).unwrap();
        (0..500)
            .for_each(|number| std::fs::write(from.join(format!("number {number} of them")), "x").unwrap());
        let host = Host::below(&folder.path().join("home"));
        let (plain, tree) = sent(&from, &host, false).await;
        let (packed, same) = sent(&from, &host, true).await;
        assert_eq!(tree, same);
        assert!(plain > tree.len() && packed < plain * 3 / 4, "{packed} {plain}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn contents_that_went_a_way_that_was_lost_are_sent_again_over_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("settled"), b"settled").unwrap();
        std::fs::write(from.join("under way"), b"under way").unwrap();
        let host = Host::below(&folder.path().join("home"));
        let [(_peer, control, _inbox), (_far, _to_near, mut first)] = ends(&host).await;
        let [(beside, way, mut kept), (_beside_far, _to_beside, mut second)] = ends(&host).await;
        let ((reports, _shown), (offers, _)) = (events(crate::host::plain), peer_service(&host));
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let sources = Sources::open(&[from], true, &options).unwrap();
        let sender =
            Sender::new((Arc::clone(&host.store), Scope::Index), offers, control, reports, &options, true);
        joined(spawn(Arc::clone(&sender), move |sender| sender.send_tree(sources))).await.unwrap();
        let (asks, asked) = mpsc::unbounded_channel();
        let answering = spawn(Arc::clone(&sender), move |sender| sender.answer_all(asked));

        sender.carry(way);
        for (entry, content) in [(2, "settled"), (3, "under way")] {
            let wanted = Asks { entries: vec![entry], inline: 64 << 10, ..Asks::default() };
            sender.recv(Message::Asks(wanted), &asks).unwrap();
            let came = answer(&mut second).await;
            assert_eq!((came.entry, came.content, came.is_again), (entry, Bytes::from(content), false));
        }
        let settled = Settled { placed: vec![2], ..Settled::default() };
        sender.recv(Message::Settled(settled), &asks).unwrap();
        beside.close("lost");
        assert_eq!(tokio::time::timeout(LIMIT, kept.next()).await.unwrap(), None);
        sender.lost(&asks);
        let came = answer(&mut first).await;
        assert_eq!((came.entry, came.content, came.is_again), (3, Bytes::from("under way"), true));
        drop(asks);
        joined(answering).await.unwrap();
    }
}
