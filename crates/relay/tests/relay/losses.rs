//! Connections through real relays: what arrives, and what becomes of it when relays go.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};
use towpath_link::frame::ReadError;
use towpath_link::{Connection, FrameReader, FrameWriter, PeerProof, Protocol};
use towpath_relay::client::AttemptError;
use towpath_relay::message::{FailReason, MAX_BLOCK};
use towpath_relay::{CallError, Quotas, RelayDial, RelayRules, Waiting, WaitingPlace, WaitingState};

use crate::real::{LIMIT, TestRelay, called, connected, identity, rules, waiting_at};

const FRAME: usize = 100_000;

fn body(index: u32) -> Vec<u8> {
    (0..FRAME as u32).map(|at| (at ^ (at >> 8) ^ index.wrapping_mul(2_654_435_761)) as u8).collect()
}

/// Sends so many frames, at most this many bytes a second, and says goodbye.
fn send(mut writer: FrameWriter, frames: u32, rate: u64) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut due = interval(Duration::from_secs_f64(FRAME as f64 / rate as f64));
        for index in 0..frames {
            due.tick().await;
            writer.send(1, &index.to_le_bytes(), &body(index)).await.unwrap();
        }
        writer.finish().await.unwrap();
    })
}

async fn receive(reader: &mut FrameReader, frames: u32) {
    for index in 0..frames {
        let frame = timeout(LIMIT, reader.next()).await.unwrap().unwrap().unwrap();
        assert!(frame.body[..4] == index.to_le_bytes() && frame.body[4..] == body(index), "frame {index}");
    }
    assert!(timeout(LIMIT, reader.next()).await.unwrap().unwrap().is_none(), "a goodbye");
}

/// Frames both ways at once, with `meanwhile` beside them.
async fn exchange(
    near: Connection,
    far: Connection,
    frames: u32,
    rate: u64,
    meanwhile: impl Future<Output = ()>,
) {
    let sending = [send(near.writer, frames, rate), send(far.writer, frames, rate)];
    let (mut near, mut far) = (near.reader, far.reader);
    tokio::join!(receive(&mut near, frames), receive(&mut far, frames), meanwhile);
    for sending in sending {
        sending.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_only_dial_out_have_a_proved_connection() {
    let (relay, near, far) = (TestRelay::start(rules()), identity(), identity());
    let (one, other, _waiting) = connected(std::slice::from_ref(&relay.place), &near, &far).await;
    assert_eq!((one.peer, other.peer), (far.node_id(), near.node_id()));
    assert_eq!((one.proof, other.proof, one.binding), (PeerProof::Key, PeerProof::Key, other.binding));
    assert_eq!((one.protocol, other.protocol), (Protocol::PEER, Protocol::PEER));
    let path = one.info.clone();
    exchange(one, other, 100, 1 << 40, async {}).await;
    let path = path.read().unwrap();
    assert!(path.delivery_rate_bytes_per_s.is_some() && path.rtt > Duration::ZERO, "{path:?}");
    assert_eq!(path.retransmits, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_killed_and_comes_back_costs_little() {
    let (relay, near, far) = (TestRelay::start(rules()), identity(), identity());
    let (one, other, _waiting) = connected(std::slice::from_ref(&relay.place), &near, &far).await;
    let mut relay = Some(relay);
    let (path, frames) = (one.info.clone(), 300);
    let killing = async {
        for _ in 0..4 {
            sleep(Duration::from_millis(300)).await;
            let killed = relay.take().unwrap();
            relay = Some(tokio::task::spawn_blocking(|| killed.kill_and_restart()).await.unwrap());
        }
    };
    exchange(one, other, frames, 15_000_000, killing).await;
    let path = path.read().unwrap();
    let again = path.retransmits * MAX_BLOCK as u64;
    // Little is kept on so short a way; what a relay and the system hold is of no more account than that.
    assert!(again <= 4 * 2 * path.congestion_window_bytes.max(512 << 10), "{path:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_relay_takes_over() {
    for is_killed in [true, false] {
        let relays = [TestRelay::start(rules()), TestRelay::start(rules())];
        let places = relays.each_ref().map(|relay| relay.place.clone());
        let (near, far) = (identity(), identity());
        let (one, other, _waiting) = connected(&places, &near, &far).await;
        let [first, second] = relays;
        let killing = async {
            sleep(Duration::from_millis(300)).await;
            match is_killed {
                true => drop(first.kill()),
                false => first.token.cancel(),
            }
        };
        exchange(one, other, 100, 12_000_000, killing).await;
        assert!(second.listening.server.counts().guests >= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_is_seen_to_leave_and_the_relay_forgets_both() {
    let (relay, near, far) = (TestRelay::start(rules()), identity(), identity());
    let (mut one, mut other, waiting) = connected(std::slice::from_ref(&relay.place), &near, &far).await;
    one.writer.send(5, b"", b"last words").await.unwrap();
    one.writer.flush().await.unwrap();
    drop(one);
    let frame = timeout(LIMIT, other.reader.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(frame.body, &b"last words"[..]);
    let error = timeout(LIMIT, other.reader.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, ReadError::CutOff { missing: 0 }), "{error}");
    drop((other, waiting));
    let begun = Instant::now();
    while relay.listening.server.counts().guests > 0 {
        assert!(begun.elapsed() < LIMIT);
        sleep(Duration::from_millis(10)).await;
    }
}

fn reasons(error: CallError) -> Vec<FailReason> {
    let CallError::AllFailed { attempts } = error else { panic!("{error}") };
    let reasons = attempts.into_iter().map(|attempt| match attempt.error {
        AttemptError::Refused { why } => why,
        error => panic!("{error}"),
    });
    reasons.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_there_is_not_reached_and_the_next_relay_is_tried() {
    let relays = [TestRelay::start(rules()), TestRelay::start(rules())];
    let places = relays.each_ref().map(|relay| relay.place.clone());
    let (near, far) = (identity(), identity());
    let error = called(&places, &near, far.node_id()).await.unwrap_err();
    assert_eq!(reasons(error), [FailReason::NotWaiting; 2]);
    assert!(matches!(called(&[], &near, far.node_id()).await, Err(CallError::NoRelay)));
    let mut waiting = waiting_at(&places[1..], &far).await;
    let accepting = async { waiting.next().await.unwrap().accept(&[Protocol::PEER]).await };
    let (one, other) = tokio::join!(called(&places, &near, far.node_id()), accepting);
    assert_eq!((one.unwrap().peer, other.unwrap().peer), (far.node_id(), near.node_id()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_pass_does_not_wait() {
    let (relay, far) = (TestRelay::start(rules()), identity());
    let place = WaitingPlace { place: relay.place.clone(), pass: None };
    let waiting = Waiting::start(vec![place.clone()], &far, &RelayDial::default());
    let mut states = waiting.states();
    let refused = states.wait_for(|states| states[0] == WaitingState::Refused(FailReason::NotAllowed));
    timeout(LIMIT, refused).await.unwrap().unwrap();
    let open = TestRelay::start(RelayRules { nodes: [far.node_id()].into(), ..RelayRules::default() });
    let place = WaitingPlace { place: open.place.clone(), ..place };
    let waiting = Waiting::start(vec![place], &far, &RelayDial::default());
    let mut states = waiting.states();
    timeout(LIMIT, states.wait_for(|states| states[0] == WaitingState::Waiting)).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circuit_ends_with_its_bytes_and_a_node_gets_its_rate() {
    let quotas =
        Quotas { bytes_per_circuit: Some(1_000_000), bytes_per_second: Some(1_000_000), ..Quotas::default() };
    let (relay, near, far) = (TestRelay::start(RelayRules { quotas, ..rules() }), identity(), identity());
    let (mut one, mut other, _waiting) = connected(std::slice::from_ref(&relay.place), &near, &far).await;
    let sending = tokio::spawn(async move { while one.writer.send(1, b"", &[7; FRAME]).await.is_ok() {} });
    let (begun, mut frames) = (Instant::now(), 0);
    while let Ok(Some(_)) = timeout(LIMIT, other.reader.next()).await.unwrap() {
        frames += 1;
    }
    assert!((5..10).contains(&frames), "{frames}");
    assert!(begun.elapsed() > Duration::from_millis(400), "{:?}", begun.elapsed());
    timeout(LIMIT, sending).await.unwrap().unwrap();
}
