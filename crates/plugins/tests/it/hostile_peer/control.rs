//! A peer that does not keep to the rules of the control stream.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;
use towpath_protocol::control::{MAX_MESSAGE, OVERHEAD, WINDOW};
use towpath_protocol::wire::{Body, ControlCredit, ControlData, ControlEnd};
use towpath_protocol::{Peer, PeerConfig};

use super::liar::Liar;
use crate::support::{self, LIMIT, connected};

async fn scene(control: bool) -> (Arc<Peer>, Liar) {
    let (near, far) = connected().await;
    let peer = Peer::start(near, PeerConfig { control, ..PeerConfig::default() }, None);
    let mut liar = Liar::new(far);
    liar.say(support::hello(&["control"])).await;
    (peer, liar)
}

fn data(len: usize) -> Body {
    Body::ControlData(ControlData { message: Bytes::from(vec![7; len]) })
}

/// The connection is closed, with `words` for both sides.
async fn expect_closed(peer: &Peer, mut liar: Liar, words: &str) {
    let told = timeout(LIMIT, async {
        let mut told = None;
        while let Some(body) = liar.hear().await {
            if let Body::Goodbye(goodbye) = body {
                told = Some(goodbye.reason);
            }
        }
        told
    });
    let (told, here) = (told.await.expect("closed").expect("a goodbye"), peer.ended().unwrap());
    assert!(told.contains(words) && here.contains(words), "{told:?}, {here:?}: not {words:?}");
}

#[tokio::test]
async fn a_flood_ends_at_the_window() {
    for len in [0, 1000, MAX_MESSAGE] {
        let (peer, mut liar) = scene(true).await;
        // Nobody takes anything, so no credit comes.
        let _halves = peer.control().unwrap();
        for _ in 0..=WINDOW / (len + OVERHEAD) {
            liar.say(data(len)).await;
        }
        expect_closed(&peer, liar, "than its window allows").await;
    }
}

#[tokio::test]
async fn a_flood_that_nobody_ever_asked_to_hear_ends_there_too() {
    let (peer, mut liar) = scene(true).await;
    for _ in 0..=WINDOW / MAX_MESSAGE {
        liar.say(data(MAX_MESSAGE)).await;
    }
    expect_closed(&peer, liar, "than its window allows").await;
}

#[tokio::test]
async fn long_messages_and_false_credit_end_the_connection() {
    let (peer, mut liar) = scene(true).await;
    liar.say(data(MAX_MESSAGE + 1)).await;
    expect_closed(&peer, liar, "a message of 262145 bytes").await;
    for bytes in [1, u64::MAX] {
        let (peer, mut liar) = scene(true).await;
        liar.say(Body::ControlCredit(ControlCredit { bytes })).await;
        expect_closed(&peer, liar, "gave back more").await;
    }
    let (peer, mut liar) = scene(true).await;
    let (sender, _receiver) = peer.control().unwrap();
    sender.send(Bytes::from_static(b"four")).await.unwrap();
    while !matches!(liar.hear().await, Some(Body::ControlData(_))) {}
    liar.say(Body::ControlCredit(ControlCredit { bytes: 4 + OVERHEAD as u64 })).await;
    liar.say(Body::ControlCredit(ControlCredit { bytes: 1 })).await;
    expect_closed(&peer, liar, "gave back more").await;
}

#[tokio::test]
async fn nothing_comes_after_the_end() {
    let (peer, mut liar) = scene(true).await;
    liar.say(Body::ControlEnd(ControlEnd {})).await;
    liar.say(data(1)).await;
    expect_closed(&peer, liar, "after the end").await;
    let (peer, mut liar) = scene(true).await;
    liar.say(Body::ControlEnd(ControlEnd {})).await;
    liar.say(Body::ControlEnd(ControlEnd {})).await;
    expect_closed(&peer, liar, "ended the control stream twice").await;
}

#[tokio::test]
async fn a_side_without_a_control_stream_takes_none_of_it() {
    let messages =
        [data(1), Body::ControlCredit(ControlCredit { bytes: 0 }), Body::ControlEnd(ControlEnd {})];
    for message in messages {
        let (peer, mut liar) = scene(false).await;
        liar.say(message).await;
        expect_closed(&peer, liar, "a control stream that is not there").await;
    }
}
