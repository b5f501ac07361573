//! Guests of a real relay that break its rules, and a relay asked for the impossible.

use tokio::time::timeout;
use towpath_content::NodeId;
use towpath_link::tcp::{DialConfig, dial};
use towpath_link::{Connection, Identity, Protocol};
use towpath_relay::message::{CircuitId, FailReason, MAX_BLOCK, RelayMessage};
use towpath_relay::{RELAY_PROTOCOL, RelayRules};

use crate::real::{LIMIT, TestRelay, identity};

const CIRCUIT: CircuitId = CircuitId([3; 16]);

fn open_relay() -> TestRelay {
    TestRelay::start(RelayRules { public: true, ..RelayRules::default() })
}

async fn guest(relay: &TestRelay, identity: &Identity) -> Connection {
    let how = DialConfig { protocol: RELAY_PROTOCOL, ..DialConfig::default() };
    dial(relay.listening.addresses[0], identity, relay.place.node, &how).await.unwrap()
}

async fn say(guest: &mut Connection, message: &RelayMessage) {
    let (kind, head, rest) = message.encode();
    say_raw(guest, kind, &[&head[..], &rest].concat()).await;
}

async fn say_raw(guest: &mut Connection, kind: u8, body: &[u8]) {
    guest.writer.send(kind, b"", body).await.unwrap();
    guest.writer.flush().await.unwrap();
}

/// The next message, or none if the connection ended.
async fn hear(guest: &mut Connection) -> Option<RelayMessage> {
    let frame = timeout(LIMIT, guest.reader.next()).await.unwrap().ok()??;
    Some(RelayMessage::decode(frame.kind, frame.body).unwrap())
}

async fn dismissed(guest: &mut Connection, why: FailReason) {
    assert_eq!(hear(guest).await, Some(RelayMessage::Fail { why }));
    assert_eq!(hear(guest).await, None, "and nothing follows");
}

/// Two guests that are joined.
async fn joined(relay: &TestRelay) -> (Connection, Connection) {
    let (near, far) = (identity(), identity());
    let mut waiting = guest(relay, &far).await;
    say(&mut waiting, &RelayMessage::Wait { pass: None }).await;
    assert_eq!(hear(&mut waiting).await, Some(RelayMessage::Ok { received: 0 }));
    let mut caller = guest(relay, &near).await;
    say(&mut caller, &RelayMessage::Call { node: far.node_id(), circuit: CIRCUIT }).await;
    let incoming = RelayMessage::Incoming { circuit: CIRCUIT, caller: near.node_id() };
    assert_eq!(hear(&mut waiting).await, Some(incoming));
    let mut callee = guest(relay, &far).await;
    say(&mut callee, &RelayMessage::Take { circuit: CIRCUIT }).await;
    for end in [&mut caller, &mut callee] {
        assert_eq!(hear(end).await, Some(RelayMessage::Ok { received: 0 }));
    }
    (caller, callee)
}

fn block(number: u64, len: usize) -> RelayMessage {
    RelayMessage::Block { number, bytes: vec![7; len].into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_words_that_ask_for_nothing_are_refused() {
    let relay = open_relay();
    for message in
        [RelayMessage::Ping, RelayMessage::Ok { received: 1 }, block(1, 10), RelayMessage::Ack { through: 0 }]
    {
        let mut guest = guest(&relay, &identity()).await;
        say(&mut guest, &message).await;
        dismissed(&mut guest, FailReason::Violation).await;
    }
    for (kind, body) in
        [(1, vec![0; 31]), (2, vec![0; 47]), (99, vec![]), (4, vec![0; 120]), (2, vec![0; 60_000])]
    {
        let mut guest = guest(&relay, &identity()).await;
        say_raw(&mut guest, kind, &body).await;
        // Of a frame that is too long nothing is read, so the answer may be lost with the connection.
        let heard = hear(&mut guest).await;
        let why = FailReason::Violation;
        assert!(
            heard == Some(RelayMessage::Fail { why }) || (body.len() > 1000 && heard.is_none()),
            "{heard:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_says_no_more_than_its_first_block_before_it_is_joined() {
    let (relay, far) = (open_relay(), identity());
    let mut waiting = guest(&relay, &far).await;
    say(&mut waiting, &RelayMessage::Wait { pass: None }).await;
    hear(&mut waiting).await;
    let mut caller = guest(&relay, &identity()).await;
    say(&mut caller, &RelayMessage::Call { node: far.node_id(), circuit: CIRCUIT }).await;
    assert!(matches!(hear(&mut waiting).await, Some(RelayMessage::Incoming { .. })));
    for number in 1..=2 {
        say(&mut caller, &block(number, 10)).await;
    }
    dismissed(&mut caller, FailReason::Violation).await;
    say(&mut waiting, &RelayMessage::Take { circuit: CIRCUIT }).await;
    dismissed(&mut waiting, FailReason::NoCircuit).await;
    let mut caller = guest(&relay, &identity()).await;
    say(&mut caller, &RelayMessage::Call { node: far.node_id(), circuit: CIRCUIT }).await;
    say(&mut caller, &block(1, 300)).await;
    dismissed(&mut caller, FailReason::NotWaiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_block_comes_with_the_call_to_who_takes_it_where_it_waits() {
    let relay = open_relay();
    let (near, far) = (identity(), identity());
    let mut waiting = guest(&relay, &far).await;
    say(&mut waiting, &RelayMessage::Wait { pass: None }).await;
    hear(&mut waiting).await;
    let mut caller = guest(&relay, &near).await;
    say(&mut caller, &RelayMessage::Call { node: far.node_id(), circuit: CIRCUIT }).await;
    say(&mut caller, &block(1, 300)).await;
    assert!(matches!(hear(&mut waiting).await, Some(RelayMessage::Incoming { .. })));
    say(&mut waiting, &RelayMessage::Take { circuit: CIRCUIT }).await;
    assert_eq!(hear(&mut waiting).await, Some(RelayMessage::Ok { received: 0 }));
    assert_eq!(hear(&mut waiting).await, Some(block(1, 300)));
    say(&mut waiting, &block(1, 70)).await;
    assert_eq!(hear(&mut caller).await, Some(RelayMessage::Ok { received: 0 }));
    assert_eq!(hear(&mut caller).await, Some(block(1, 70)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_block_that_is_too_long_ends_the_call() {
    let relay = open_relay();
    let far = identity();
    let mut waiting = guest(&relay, &far).await;
    say(&mut waiting, &RelayMessage::Wait { pass: None }).await;
    hear(&mut waiting).await;
    let mut caller = guest(&relay, &identity()).await;
    say(&mut caller, &RelayMessage::Call { node: far.node_id(), circuit: CIRCUIT }).await;
    say(&mut caller, &block(1, 5_000)).await;
    dismissed(&mut caller, FailReason::Violation).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_there_and_what_was_not_called_is_told() {
    let relay = open_relay();
    let mut caller = guest(&relay, &identity()).await;
    say(&mut caller, &RelayMessage::Call { node: NodeId([1; 32]), circuit: CIRCUIT }).await;
    dismissed(&mut caller, FailReason::NotWaiting).await;
    let mut taker = guest(&relay, &identity()).await;
    say(&mut taker, &RelayMessage::Take { circuit: CIRCUIT }).await;
    dismissed(&mut taker, FailReason::NoCircuit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_good_passes_and_what_breaks_a_rule_ends_both() {
    let relay = open_relay();
    let bad = [
        block(1, 10),
        block(4, 10),
        RelayMessage::Ack { through: 1 },
        RelayMessage::Close { number: 9 },
        RelayMessage::Call { node: NodeId([1; 32]), circuit: CIRCUIT },
    ];
    for message in bad {
        let (mut near, mut far) = joined(&relay).await;
        for number in 1..=2 {
            say(&mut near, &block(number, MAX_BLOCK)).await;
            assert_eq!(hear(&mut far).await, Some(block(number, MAX_BLOCK)));
        }
        say(&mut far, &RelayMessage::Ack { through: 2 }).await;
        assert_eq!(hear(&mut near).await, Some(RelayMessage::Ack { through: 2 }));
        say(&mut near, &message).await;
        dismissed(&mut near, FailReason::Violation).await;
        dismissed(&mut far, FailReason::Violation).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_is_too_long_takes_no_memory_and_ends_both() {
    let relay = open_relay();
    let (mut near, mut far) = joined(&relay).await;
    // The relay may hang up in the middle of it.
    let _ = near.writer.send(8, b"", &vec![1; 8 + MAX_BLOCK + 1]).await;
    let _ = near.writer.flush().await;
    dismissed(&mut far, FailReason::Violation).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_at_one_end_ends_the_other_without_a_reason() {
    let relay = open_relay();
    let (near, mut far) = joined(&relay).await;
    drop(near);
    assert_eq!(hear(&mut far).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_speaks_no_other_protocol() {
    let relay = open_relay();
    let how = DialConfig { protocol: Protocol::PEER, ..DialConfig::default() };
    assert!(dial(relay.listening.addresses[0], &identity(), relay.place.node, &how).await.is_err());
}
