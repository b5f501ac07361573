//! The control stream between two ends that keep to the rules.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use towpath_protocol::control::{MAX_MESSAGE, OVERHEAD, WINDOW};
use towpath_protocol::wire::{Body, Goodbye};
use towpath_protocol::{ControlClosed, ControlReceiver, ControlSender, Pace, Peer, PeerConfig};

use crate::support::*;

struct End {
    peer: Arc<Peer>,
    sender: ControlSender,
    receiver: ControlReceiver,
}

fn with_control() -> PeerConfig {
    PeerConfig { control: true, ..PeerConfig::default() }
}

async fn ends() -> (End, End) {
    let (near, far) = connected().await;
    let end = |connection| {
        let peer = Peer::start(connection, with_control(), None);
        let (sender, receiver) = peer.control().unwrap();
        End { peer, sender, receiver }
    };
    (end(near), end(far))
}

fn message(number: usize, len: usize) -> Bytes {
    pattern(len, number as u8).into()
}

/// Waits long enough for anything that is going to happen.
async fn is_stuck<T>(future: impl Future<Output = T>) -> bool {
    timeout(Duration::from_millis(200), future).await.is_err()
}

/// A long one waits for its time, and those behind it wait with it.
#[tokio::test]
async fn messages_come_in_order_at_a_limited_rate() {
    let (near, far) = connected().await;
    let slow = PeerConfig { send_pace: Arc::new(Pace::new(400_000)), ..with_control() };
    let near = Peer::start(near, slow, None);
    let far = Peer::start(far, with_control(), None);
    let ((sender, _back), (_forth, mut receiver)) = (near.control().unwrap(), far.control().unwrap());
    let lens = [100_000, 10, 50_000, 0, 20];
    for (number, len) in lens.into_iter().enumerate() {
        sender.send(message(number, len)).await.unwrap();
    }
    for (number, len) in lens.into_iter().enumerate() {
        let came = timeout(LIMIT, receiver.next()).await.unwrap().unwrap();
        assert!(came == message(number, len), "message {number}");
    }
}

#[tokio::test]
async fn messages_come_in_order_in_both_directions_far_beyond_the_window() {
    let (near, mut far) = ends().await;
    let lens = [0, 1, 1000, MAX_MESSAGE];
    let count = 4 * 4 * WINDOW / MAX_MESSAGE;
    let sending = async {
        for number in 0..count {
            near.sender.send(message(number, lens[number % 4])).await.unwrap();
        }
    };
    let echoing = async {
        for number in 0..count {
            let came = far.receiver.next().await.unwrap();
            assert!(came == message(number, lens[number % 4]), "message {number}");
            far.sender.send(came).await.unwrap();
        }
    };
    let mut receiver = near.receiver;
    let receiving = async {
        for number in 0..count {
            assert!(receiver.next().await.unwrap() == message(number, lens[number % 4]));
        }
    };
    timeout(LIMIT, async { tokio::join!(sending, echoing, receiving) }).await.unwrap();
    assert!(near.peer.ended().is_none() && near.peer.control().is_none(), "once");
}

#[tokio::test]
async fn a_receiver_that_does_not_read_stops_the_sender_at_the_window() {
    let (near, mut far) = ends().await;
    let cost = MAX_MESSAGE + OVERHEAD;
    for number in 0..WINDOW / cost {
        near.sender.send(message(number, MAX_MESSAGE)).await.unwrap();
    }
    assert!(is_stuck(near.sender.send(message(0, MAX_MESSAGE))).await);
    assert_eq!(near.sender.delivered().fastest, Some(0.0), "nothing was taken for long");
    // The other direction does not notice, nor do other messages once there is room again.
    far.sender.send(message(1, 10)).await.unwrap();
    for number in 0..WINDOW / cost {
        assert!(far.receiver.next().await.unwrap() == message(number, MAX_MESSAGE));
    }
    near.sender.send(message(9, MAX_MESSAGE)).await.unwrap();
    assert!(far.receiver.next().await.unwrap() == message(9, MAX_MESSAGE));
    assert!(is_soon(LIMIT, || near.sender.delivered().fastest != Some(0.0)).await, "not counted");
}

#[tokio::test]
async fn dropping_the_last_sender_ends_the_stream_and_nothing_else() {
    let (near, mut far) = ends().await;
    let End { peer, sender, mut receiver } = near;
    let clone = sender.clone();
    drop(sender);
    assert!(is_stuck(far.receiver.next()).await, "a clone is left");
    clone.send(message(1, 10)).await.unwrap();
    drop(clone);
    assert_eq!(far.receiver.next().await, Some(message(1, 10)));
    assert_eq!(far.receiver.next().await, None);
    assert!(peer.ended().is_none());
    far.sender.send(message(2, 10)).await.unwrap();
    assert_eq!(receiver.next().await, Some(message(2, 10)));
}

#[tokio::test]
async fn a_sender_dropped_before_the_hello_ends_the_stream_too() {
    let (near, far) = connected().await;
    let near = Peer::start(near, with_control(), None);
    drop(near.control());
    let far = Peer::start(far, with_control(), None);
    let (_sender, mut receiver) = far.control().unwrap();
    assert_eq!(timeout(LIMIT, receiver.next()).await.unwrap(), None);
    assert!(far.ended().is_none());
}

#[tokio::test]
async fn a_receiver_that_was_dropped_holds_nobody_up() {
    let (near, far) = ends().await;
    drop(far.receiver);
    for number in 0..3 * WINDOW / MAX_MESSAGE {
        timeout(LIMIT, near.sender.send(message(number, MAX_MESSAGE))).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_lost_connection_ends_both_halves() {
    let (near, far) = ends().await;
    let mut receiver = near.receiver;
    far.peer.close("test");
    assert_eq!(timeout(LIMIT, receiver.next()).await.unwrap(), None);
    assert_eq!(near.sender.send(message(1, 10)).await, Err(ControlClosed));
    // Messages that had come before are still there to be read.
    let (near, mut far) = ends().await;
    near.sender.send(message(1, 10)).await.unwrap();
    near.peer.close("test");
    assert_eq!(far.receiver.next().await, Some(message(1, 10)));
    assert_eq!(far.receiver.next().await, None);
}

#[tokio::test]
async fn a_message_too_long_is_not_sent() {
    let (near, mut far) = ends().await;
    assert_eq!(near.sender.send(message(1, MAX_MESSAGE + 1)).await, Err(ControlClosed));
    near.sender.send(message(2, 1)).await.unwrap();
    assert_eq!(far.receiver.next().await, Some(message(2, 1)));
}

#[tokio::test]
async fn a_peer_without_a_control_stream_is_sent_nothing() {
    let (near, far) = connected().await;
    let near = Peer::start(near, with_control(), None);
    let far = Peer::start(far, PeerConfig::default(), None);
    let (sender, mut receiver) = near.control().unwrap();
    assert_eq!(sender.send(message(1, 10)).await, Err(ControlClosed));
    assert_eq!(receiver.next().await, None);
    drop(sender);
    assert!(far.control().is_none());
    assert!(is_stuck(far.closed()).await, "{:?}", far.ended());
}

/// Bulk data that wait to be sent, as far as the queue takes them, stand behind the message.
#[tokio::test]
async fn messages_overtake_data_that_wait() {
    let (near, far) = connected().await;
    let near = Peer::start(near, with_control(), None);
    let (mut reader, mut writer) = far.split();
    writer.send_bytes(0, &[], hello(&["control"]).to_frame()).await.unwrap();
    writer.flush().await.unwrap();
    let (sender, _receiver) = near.control().unwrap();
    assert!(near.greeted().await);
    // The pipe holds 64 KiB; so this is in the writer's hands, and the rest in the queue.
    let bulk = |n: usize| Body::Goodbye(Goodbye { reason: format!("{n}{}", "x".repeat(512 << 10)) });
    let queueing = async {
        for n in 0..4 {
            assert!(near.send(bulk(n)).await);
        }
    };
    queueing.await;
    sender.send(message(1, 10)).await.unwrap();
    let mut before = 0;
    loop {
        match Body::from_frame(reader.next().await.unwrap().unwrap().body).unwrap() {
            Body::ControlData(data) => break assert_eq!(data.message, message(1, 10)),
            Body::Goodbye(_) => before += 1,
            _ => {}
        }
    }
    assert!(before <= 2, "{before} were sent before");
}
