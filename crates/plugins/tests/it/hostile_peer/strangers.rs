//! Strangers: peers that reach the port and have no right to anything, whatever they ask for.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;
use towpath_link::Identity;
use towpath_protocol::service::{Issuer, Service};
use towpath_protocol::wire::{Body, Ping, WireWant};
use towpath_protocol::{Peer, PeerConfig};
use towpath_store::MemoryStore;

use super::client::{describe, get, scene, want};
use super::liar::Liar;
use crate::support::*;

/// As much as a `Get` may have: 1 MiB.
fn long_wants() -> Vec<WireWant> {
    let wanted = || WireWant {
        oid: Bytes::from(vec![1; 33]),
        chunk: Bytes::from(vec![7; 16 << 10]),
        ..WireWant::default()
    };
    (0..64).map(|_| wanted()).collect()
}

#[tokio::test]
async fn a_stranger_that_asks_again_and_again_leaves() {
    let scene = scene().await;
    for body in [
        |request, root| get(request, root, vec![want(root, None)]),
        |request, root| Body::Describe(describe(request, root, root)),
        |request, root| Body::Watch(describe(request, root, root)),
    ] {
        let mut stranger = scene.client().await;
        for request in 1..=64 {
            stranger.liar.say(body(request, &scene.tree)).await;
        }
        stranger.expect_goodbye("again and again for what it has no right to").await;
    }
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn a_strangers_long_requests_are_not_even_received() {
    let scene = scene().await;
    let mut stranger = scene.client().await;
    for request in 1..=64 {
        stranger.liar.say(get(request, &scene.tree, long_wants())).await;
    }
    stranger.expect_goodbye("over the limit of 16384").await;
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn whoever_proved_a_root_may_ask_at_length() {
    let scene = scene().await;
    let mut client = scene.proved(scene.tree).await;
    client.liar.say(get(1, &scene.tree, long_wants())).await;
    while !matches!(client.liar.hear().await.expect("the connection stands"), Body::Done(_)) {}
    assert_eq!(client.ask(&scene.tree, want(&scene.tree, None)).await, None);
}

/// A peer with little to say, to a service of which nobody but `allowed` may have anything.
async fn known_to(allow_all: bool, from_anyone: bool) -> (Arc<Peer>, Liar) {
    let identity = Identity::generate().unwrap();
    let keys: Arc<dyn Issuer> = Arc::new(Keys { identity, secrets: [].into(), allow_all });
    let service = Arc::new(Service::new(Arc::new(MemoryStore::new()), keys));
    let (near, far) = connected().await;
    let peer = Peer::start(near, PeerConfig { from_anyone, ..PeerConfig::default() }, Some(service));
    (peer, Liar::polite(far).await)
}

#[tokio::test]
async fn a_node_that_is_allowed_and_one_that_came_by_another_way_are_known_from_the_beginning() {
    for (allow_all, from_anyone) in [(true, true), (true, false), (false, false)] {
        let (peer, _liar) = known_to(allow_all, from_anyone).await;
        timeout(LIMIT, peer.until_known()).await.expect("known");
    }
}

#[tokio::test]
async fn a_stranger_becomes_known_neither_by_words_nor_by_what_is_refused() {
    let (peer, mut liar) = known_to(false, true).await;
    let known = peer.until_known();
    tokio::pin!(known);
    let root = towpath_content::Oid::of(b"nothing");
    for request in 1..=16 {
        liar.say(Body::Ping(Ping::default())).await;
        liar.say(Body::Describe(describe(request, &root, &root))).await;
        while !matches!(liar.hear().await.expect("the connection stands"), Body::Done(_)) {}
        assert!(futures_util::poll!(&mut known).is_pending());
    }
}
