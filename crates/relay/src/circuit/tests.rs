//! One end alone: each rule that the other end or the relay may break, limits of time and memory. Two ends over losses
//! are in `tests/relay`.

use super::receiving::ACK_DELAY;
use super::*;
use crate::message::MAX_BLOCK;

fn block(number: u64, len: usize) -> RelayMessage {
    RelayMessage::Block { number, bytes: vec![7; len].into() }
}

fn sent(circuit: &mut Circuit, now: Instant) -> Vec<RelayMessage> {
    std::iter::from_fn(|| circuit.transmit(now)).collect()
}

fn violation(circuit: &Circuit) -> CircuitViolation {
    match circuit.end() {
        Some(CircuitEnd::Violated { violation }) => violation,
        end => panic!("{end:?}"),
    }
}

#[test]
fn what_breaks_a_rule_ends_the_circuit_by_name() {
    let now = Instant::now();
    let ack = |through| RelayMessage::Ack { through };
    let close = |number| RelayMessage::Close { number };
    let table = [
        ("out of order", vec![block(2, 1)], CircuitViolation::Order { number: 2, expected: 1 }),
        ("doubled", vec![block(1, 1), block(1, 1)], CircuitViolation::Order { number: 1, expected: 2 }),
        (
            "an end out of order",
            vec![block(1, 1), close(1)],
            CircuitViolation::Order { number: 1, expected: 2 },
        ),
        ("behind the end", vec![close(1), block(2, 1)], CircuitViolation::AfterEnd),
        ("a second end", vec![close(1), close(2)], CircuitViolation::AfterEnd),
        ("what was not sent", vec![ack(3)], CircuitViolation::Ack { through: 3, sent: 2 }),
        ("taken back", vec![ack(2), ack(1)], CircuitViolation::Ack { through: 1, sent: 2 }),
        ("no place here", vec![RelayMessage::Ok { received: 0 }], CircuitViolation::Message),
    ];
    for (name, messages, expected) in table {
        let mut circuit = Circuit::new(now);
        for _ in 0..2 {
            circuit.write(b"hello");
            assert_eq!(sent(&mut circuit, now).len(), 1, "{name}");
        }
        messages.into_iter().for_each(|message| circuit.handle(message, now));
        assert_eq!(violation(&circuit), expected, "{name}");
        assert_eq!(sent(&mut circuit, now), [RelayMessage::Abort], "{name}: the other end is told");
    }
}

#[test]
fn a_flood_is_refused_before_it_is_held() {
    for len in [1, MAX_BLOCK] {
        let (now, mut number) = (Instant::now(), 0);
        let mut circuit = Circuit::new(now);
        while circuit.end().is_none() {
            number += 1;
            circuit.handle(block(number, len), now);
            assert!(circuit.held() <= MAX_WINDOW && number <= 2 * MAX_BLOCKS as u64);
        }
        assert!(matches!(violation(&circuit), CircuitViolation::Flood { .. }));
    }
}

#[test]
fn what_may_be_under_way_is_bounded_and_idle_ends_hold_nothing() {
    let now = Instant::now();
    let (mut near, mut far) = (Circuit::new(now), Circuit::new(now));
    let mut written = 0;
    while let Some(count @ 1..) = near.write(&[7; 50_000]) {
        written += count;
    }
    assert_eq!((written, near.held()), (FIRST_WINDOW, FIRST_WINDOW));
    assert!(!near.is_writable());
    sent(&mut near, now).into_iter().for_each(|message| far.handle(message, now));
    assert_eq!(far.held(), FIRST_WINDOW);
    let mut space = vec![0; FIRST_WINDOW];
    assert_eq!(far.read(&mut space, now), Ok(Some(FIRST_WINDOW)));
    sent(&mut far, now).into_iter().for_each(|message| near.handle(message, now));
    assert_eq!((near.held(), far.held()), (0, 0));
    assert!(near.is_writable());
}

#[test]
fn many_small_blocks_are_bounded_by_their_number() {
    let now = Instant::now();
    let mut circuit = Circuit::new(now);
    let mut blocks = 0;
    while circuit.write(b"x") == Some(1) && blocks < 2 * MAX_BLOCKS {
        blocks += sent(&mut circuit, now).len();
    }
    assert_eq!(blocks, MAX_BLOCKS);
}

#[test]
fn a_loss_pauses_and_the_rest_is_sent_again_once() {
    let now = Instant::now();
    let mut circuit = Circuit::new(now);
    for _ in 0..4 {
        circuit.write(&[7; 100]);
        sent(&mut circuit, now);
    }
    circuit.handle(RelayMessage::Ack { through: 1 }, now);
    circuit.lost(now);
    assert!(circuit.is_paused() && sent(&mut circuit, now).is_empty());
    circuit.write(&[7; 100]);
    circuit.close();
    circuit.resumed(3, false, now);
    let numbers = sent(&mut circuit, now).into_iter().map(|message| match message {
        RelayMessage::Block { number, .. } | RelayMessage::Close { number } => number,
        other => panic!("{other:?}"),
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [4, 5, 6]);
    assert_eq!((circuit.sent_bytes(), circuit.losses()), (600, 1));
    assert_eq!(circuit.path_info().retransmits, 1);
}

#[test]
fn a_connection_that_takes_nothing_is_lost_in_time() {
    let begun = Instant::now();
    let mut circuit = Circuit::new(begun);
    circuit.write(&[7; 100]);
    sent(&mut circuit, begun);
    let mut lost_at = None;
    while let Some(due) = circuit.next_timeout().filter(|_| lost_at.is_none()) {
        // Nobody asks what is to be sent: the connection is full.
        circuit.handle_timeout(due);
        lost_at = circuit.is_paused().then_some(due);
    }
    assert_eq!(lost_at, Some(begun + QUIET_WAITING + SILENCE));
}

#[test]
fn who_hears_blocks_no_more_asks_soon() {
    let begun = Instant::now();
    let mut circuit = Circuit::new(begun);
    circuit.write(&[7; 100]);
    sent(&mut circuit, begun);
    let heard = begun + Duration::from_millis(80);
    circuit.handle(RelayMessage::Ack { through: 1 }, heard);
    assert!(circuit.next_timeout().unwrap() >= heard + QUIET, "it expects nothing");
    circuit.handle(block(1, 100), heard);
    let mut space = [0; 100];
    circuit.read(&mut space, heard).unwrap();
    sent(&mut circuit, heard + ACK_DELAY);
    let due = circuit.next_timeout().unwrap();
    assert!(due <= heard + QUIET_WAITING, "more may come");
    circuit.handle_timeout(due);
    assert_eq!(sent(&mut circuit, due), [RelayMessage::Ping]);
}

#[test]
fn a_last_block_that_cannot_be_is_refused() {
    for received in [0, 4] {
        let now = Instant::now();
        let mut circuit = Circuit::new(now);
        for _ in 0..3 {
            circuit.write(b"x");
            sent(&mut circuit, now);
        }
        circuit.handle(RelayMessage::Ack { through: 1 }, now);
        circuit.lost(now);
        circuit.resumed(received, false, now);
        assert_eq!(violation(&circuit), CircuitViolation::Resume { received, acked: 1, sent: 3 });
    }
}

#[test]
fn a_silent_connection_is_asked_and_then_lost_and_then_given_up() {
    let mut now = Instant::now();
    let start = now;
    let mut circuit = Circuit::new(now);
    circuit.write(b"x");
    sent(&mut circuit, now);
    let mut said = Vec::new();
    while circuit.end().is_none() {
        now = circuit.next_timeout().unwrap();
        circuit.handle_timeout(now);
        said.extend(sent(&mut circuit, now));
    }
    assert_eq!((said, circuit.end()), (vec![RelayMessage::Ping], Some(CircuitEnd::GivenUp)));
    assert_eq!(now - start, QUIET_WAITING + SILENCE + PAUSE_LIMIT);
    assert_eq!((circuit.write(b"x"), circuit.next_timeout()), (None, None));
    assert_eq!(circuit.read(&mut [0; 9], now), Err(CircuitEnd::GivenUp));
}

#[test]
fn who_is_asked_answers_at_once() {
    let now = Instant::now();
    let mut circuit = Circuit::new(now);
    circuit.handle(RelayMessage::Ping, now);
    assert_eq!(sent(&mut circuit, now), [RelayMessage::Ack { through: 0 }]);
}

#[test]
fn both_directions_end_and_then_the_circuit() {
    let now = Instant::now();
    let (mut near, mut far) = (Circuit::new(now), Circuit::new(now));
    near.write(b"hello");
    near.close();
    assert_eq!(near.write(b"more"), None);
    sent(&mut near, now).into_iter().for_each(|message| far.handle(message, now));
    let mut space = [0; 9];
    assert_eq!(far.read(&mut space, now), Ok(Some(5)));
    assert_eq!(far.read(&mut space, now), Ok(Some(0)));
    far.close();
    sent(&mut far, now).into_iter().for_each(|message| near.handle(message, now));
    sent(&mut near, now).into_iter().for_each(|message| far.handle(message, now));
    assert_eq!(near.read(&mut space, now), Ok(Some(0)));
    assert_eq!([near.end(), far.end()], [Some(CircuitEnd::Finished); 2]);
}

#[test]
fn who_leaves_has_what_was_written_delivered_and_tells_the_other() {
    let now = Instant::now();
    let mut circuit = Circuit::new(now);
    circuit.write(b"last words");
    circuit.leave(now);
    assert_eq!(sent(&mut circuit, now).len(), 2, "a block and the end");
    circuit.handle(block(1, 10), now);
    assert_eq!((circuit.held(), circuit.end()), (10, None), "nobody reads what comes");
    circuit.handle(RelayMessage::Ack { through: 2 }, now);
    assert_eq!((circuit.end(), sent(&mut circuit, now)), (Some(CircuitEnd::Left), vec![RelayMessage::Abort]));
    let mut other = Circuit::new(now);
    other.handle(block(1, 10), now);
    other.handle(RelayMessage::Abort, now);
    assert_eq!(other.read(&mut [0; 20], now), Ok(Some(10)), "what came before is handed on");
    assert_eq!(other.read(&mut [0; 20], now), Err(CircuitEnd::Aborted));
}

#[test]
fn a_relay_that_shuts_down_is_a_loss_and_one_that_refuses_is_the_end() {
    let now = Instant::now();
    let mut circuit = Circuit::new(now);
    circuit.handle(RelayMessage::Fail { why: FailReason::ShuttingDown }, now);
    assert!(circuit.is_paused());
    circuit.resumed(0, true, now);
    circuit.handle(RelayMessage::Fail { why: FailReason::OverQuota }, now);
    assert_eq!(circuit.end(), Some(CircuitEnd::Failed { why: FailReason::OverQuota }));
}
