//! A real server on a port of its own, and clients that find each other there.

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use towpath_content::Oid;
use towpath_content::ticket::Secret;
use towpath_link::Identity;
use towpath_link::tcp::Listener;
use towpath_rendezvous::client::{FoundNodes, Meeting};
use towpath_rendezvous::letters::{LetterError, LetterEvent, Letters};
use towpath_rendezvous::message::Refusal;
use towpath_rendezvous::place::KnownServer;
use towpath_rendezvous::server::ServerLimits;
use towpath_rendezvous::{
    HolderEntry, PROTOCOL, Rendezvous, RendezvousServer, ServerPlace, TopicKeys, listening,
};

const LIMIT: Duration = Duration::from_secs(20);

struct RunningServer {
    server: Arc<RendezvousServer>,
    identity: Identity,
    address: SocketAddr,
    token: CancellationToken,
}

impl RunningServer {
    async fn start(identity: Identity, address: SocketAddr) -> Self {
        // The port may still be held by the server before.
        let binding = async {
            loop {
                match Listener::bind_for(address, &identity, &[PROTOCOL]).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let listener = timeout(LIMIT, binding).await.expect("the port is let go");
        let (server, token) = (RendezvousServer::new(ServerLimits::default()), CancellationToken::new());
        let address = listener.address().unwrap();
        let (serving, ending) = (Arc::clone(&server), token.clone());
        tokio::spawn(listening::accept(listener, token.clone(), move |connection, address| {
            let (serving, ending) = (Arc::clone(&serving), ending.clone());
            async move { serving.serve(connection, address, &ending).await }
        }));
        Self { server, identity, address, token }
    }

    async fn fresh() -> Self {
        Self::start(Identity::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).await
    }

    fn place(&self) -> KnownServer {
        let place = ServerPlace { node: self.identity.node_id(), address: self.address.to_string() };
        KnownServer { place, is_trusted: true }
    }
}

fn keys() -> TopicKeys {
    TopicKeys::new(&Oid::of(b"root"), &Secret([7; 16]).into())
}

fn has(part: u16) -> Option<HolderEntry> {
    Some(HolderEntry { has: part, ..HolderEntry::default() })
}

async fn until(meeting: &Meeting, what: impl Fn(&FoundNodes) -> bool) -> FoundNodes {
    let mut found = meeting.found();
    let found = timeout(LIMIT, found.wait_for(|found| what(found))).await.expect("in time").unwrap();
    found.clone()
}

fn parts(found: &FoundNodes) -> Vec<u16> {
    found.iter().map(|(_, entry)| entry.has).collect()
}

#[tokio::test]
async fn two_holders_hear_of_each_other_of_what_changes_and_of_the_end() {
    let server = RunningServer::fresh().await;
    let nodes = [(); 2].map(|()| Identity::generate().unwrap());
    let rendezvous = nodes.clone().map(Rendezvous::new);
    let [one, other] = rendezvous.each_ref().map(|node| node.meet(&[server.place()], &keys()));
    one.say(has(1));
    other.say(has(2));
    assert_eq!(parts(&until(&one, |found| !parts(found).is_empty()).await), [2]);
    assert_eq!(parts(&until(&other, |found| !parts(found).is_empty()).await), [1], "not itself");
    one.say(has(1000));
    until(&other, |found| parts(found) == [1000]).await;
    let seen = one.seen();
    assert!(matches!(seen[..], [address] if address.ip() == server.address.ip()), "{seen:?}");
    drop(one);
    until(&other, |found| parts(found).is_empty()).await;
}

#[tokio::test]
async fn after_a_restart_of_the_server_everybody_is_back() {
    let server = RunningServer::fresh().await;
    let [one, other] = [(); 2].map(|()| Rendezvous::new(Identity::generate().unwrap()));
    let first = one.meet(&[server.place()], &keys());
    first.say(has(1));
    let place = server.place();
    until(&first, |found| found.told == 1).await;
    server.token.cancel();
    let RunningServer { identity, address, .. } = server;
    let server = RunningServer::start(identity, address).await;
    let second = other.meet(&[place], &keys());
    assert_eq!(parts(&until(&second, |found| !parts(found).is_empty()).await), [1]);
    assert_eq!(server.server.counts().1, 1);
}

/// One that is away, or another one, costs nothing where a second one is named.
#[tokio::test]
async fn of_several_servers_one_is_enough() {
    let server = RunningServer::fresh().await;
    let mut wrong = server.place();
    wrong.place.node = Identity::generate().unwrap().node_id();
    let mut away = wrong.clone();
    away.place.address = "127.0.0.1:1".into();
    let mut private = server.place();
    private.is_trusted = false;
    let all = [wrong, away, private, server.place()];
    let [one, other] = [(); 2].map(|()| Rendezvous::new(Identity::generate().unwrap()));
    let (first, second) = (one.meet(&all, &keys()), other.meet(&all, &keys()));
    first.say(has(1));
    until(&second, |found| parts(found) == [1]).await;
    while first.servers().iter().filter(|(_, status)| status.trouble.is_some()).count() < 3 {
        timeout(LIMIT, first.changed()).await.unwrap();
    }
    let troubles: Vec<String> =
        first.servers().into_iter().filter_map(|(_, status)| status.trouble).collect();
    for (trouble, expected) in troubles.iter().zip(["found node", "refused", "not a public one"]) {
        assert!(trouble.contains(expected), "{trouble}");
    }
}

#[tokio::test]
async fn letters_go_both_ways_between_two_ends_under_a_number() {
    let server = RunningServer::fresh().await;
    let [host, guest, third] = [(); 3].map(|()| Identity::generate().unwrap());
    let (mut waiting, number) = Letters::open(&server.place(), &host, 7).await.unwrap();
    assert_eq!(number, 7);
    waiting.send(Bytes::from_static(b"first")).await.unwrap();
    let (mut coming, node) = Letters::join(&server.place(), &guest, 7).await.unwrap();
    assert_eq!(node, host.node_id());
    let refused = LetterError::Refused(Refusal::NobodyWaits);
    for number in [7, 8] {
        assert_eq!(Letters::join(&server.place(), &third, number).await.err(), Some(refused.clone()));
    }
    assert_eq!(coming.next().await, Ok(LetterEvent::Letter(Bytes::from_static(b"first"))));
    coming.send(Bytes::from_static(b"answer")).await.unwrap();
    assert_eq!(waiting.next().await, Ok(LetterEvent::Joined(guest.node_id())));
    assert_eq!(waiting.next().await, Ok(LetterEvent::Letter(Bytes::from_static(b"answer"))));
    drop(coming);
    assert_eq!(waiting.next().await, Ok(LetterEvent::Left));
    assert_eq!(Letters::join(&server.place(), &third, 7).await.err(), Some(refused), "one try");
}
