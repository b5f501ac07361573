//! Bytes that are sent arrive, over every transport.

use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_link::frame::{MAX_FRAME, ReadError, WriteError};
use towpath_link::{Connection, FrameReader, FrameWriter, Identity, PeerProof, suggested_outstanding};

use crate::pair::{LIMIT, identity, listen, over_pipe, over_tls};

/// A body that says which frame it is and differs at every place.
fn body(index: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(index) + 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn lengths() -> Vec<usize> {
    let odd = [0, 1, 4095, 8191, 8192, 8193, 16384, 65_537, 262_144, 300_001, MAX_FRAME - 1 - 4];
    let small = (0..10_000usize).map(|n| n * 37 % 300);
    small.clone().take(5_000).chain(odd).chain(small.skip(5_000)).chain(odd).collect()
}

async fn send_all(mut writer: FrameWriter) {
    for (index, len) in lengths().into_iter().enumerate() {
        let (header, body) = ((index as u32).to_le_bytes(), body(index as u32, len));
        match index % 2 {
            0 => writer.send(index as u8, &header, &body).await.unwrap(),
            _ => writer.send_bytes(index as u8, &header, Bytes::from(body)).await.unwrap(),
        }
    }
    writer.finish().await.unwrap();
}

async fn receive_all(mut reader: FrameReader) {
    for (index, len) in lengths().into_iter().enumerate() {
        let frame = reader.next().await.unwrap().unwrap();
        assert_eq!(frame.kind, index as u8);
        assert_eq!(frame.body[..4], (index as u32).to_le_bytes());
        assert!(frame.body[4..] == body(index as u32, len), "frame {index}");
    }
    assert!(reader.next().await.unwrap().is_none());
    assert!(reader.next().await.unwrap().is_none(), "the end stays the end");
}

/// Both directions at once, each half in a task of its own.
async fn everything_arrives(near: Connection, far: Connection) {
    let tasks = [
        tokio::spawn(send_all(near.writer)),
        tokio::spawn(receive_all(near.reader)),
        tokio::spawn(send_all(far.writer)),
        tokio::spawn(receive_all(far.reader)),
    ];
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_and_some_large_frames_arrive_in_order_over_tls() {
    let (near, far) = over_tls().await;
    everything_arrives(near, far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_and_some_large_frames_arrive_in_order_over_a_pipe() {
    let (near, far) = over_pipe().await;
    everything_arrives(near, far).await;
}

/// One direction ends; the other goes on.
async fn half_close(near: Connection, far: Connection) {
    let (mut near_reader, near_writer) = near.split();
    let (mut far_reader, mut far_writer) = far.split();
    near_writer.finish().await.unwrap();
    assert!(far_reader.next().await.unwrap().is_none());
    for n in 0..3 {
        far_writer.send(n, b"still", b" here").await.unwrap();
        far_writer.flush().await.unwrap();
        assert_eq!(&near_reader.next().await.unwrap().unwrap().body[..], b"still here");
    }
    far_writer.finish().await.unwrap();
    assert!(near_reader.next().await.unwrap().is_none());
}

#[tokio::test]
async fn one_direction_ends_and_the_other_goes_on() {
    let (near, far) = over_tls().await;
    half_close(near, far).await;
    let (near, far) = over_pipe().await;
    half_close(near, far).await;
}

#[tokio::test]
async fn a_connection_dropped_without_goodbye_was_cut_off() {
    let (near, mut far) = over_tls().await;
    drop(near);
    let error = far.reader.next().await.unwrap_err();
    assert!(matches!(error, ReadError::CutOff { missing: 0 }), "{error:?}");
}

#[tokio::test]
async fn a_probe_does_not_keep_the_connection_open() {
    let (near, mut far) = over_tls().await;
    let probe = near.info.clone();
    assert_eq!(probe.read().is_some(), cfg!(target_os = "linux"));
    drop(near);
    assert!(tokio::time::timeout(LIMIT, far.reader.next()).await.unwrap().is_err());
    assert_eq!(probe.read(), None);
}

#[tokio::test]
async fn writing_to_a_peer_that_left_fails_as_lost() {
    let (mut near, far) = over_tls().await;
    drop(far);
    let begun = Instant::now();
    let error = loop {
        let sent = near.writer.send(1, b"", &[0; 100_000]).await;
        if let Err(error) = sent {
            break error;
        }
        assert!(begun.elapsed() < LIMIT);
    };
    assert!(matches!(error, WriteError::Lost { .. }), "{error:?}");
}

#[tokio::test]
async fn a_peer_that_does_not_read_holds_the_sender_up() {
    let (mut near, far) = over_tls().await;
    let sending = async {
        loop {
            near.writer.send(1, b"", &[0; 1 << 20]).await.unwrap();
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(300), sending).await.is_err());
    if let Some(info) = far.info.read() {
        assert!(info.receive_queue_bytes > 0, "{info:?}");
        let queued = near.info.read().unwrap();
        assert!(queued.unsent_bytes > 0, "{queued:?}");
        assert!(suggested_outstanding(&queued) >= 1 << 20);
    }
}

fn bindings(ends: &(Connection, Connection)) -> ([u8; 32], [u8; 32]) {
    (ends.0.binding, ends.1.binding)
}

#[tokio::test]
async fn both_ends_have_one_binding_and_every_connection_another() {
    let ends = [over_tls().await, over_tls().await, over_pipe().await, over_pipe().await];
    for (index, one) in ends.iter().enumerate() {
        assert_eq!(bindings(one).0, bindings(one).1);
        for other in &ends[..index] {
            assert_ne!(bindings(one).0, bindings(other).0);
        }
    }
}

async fn same_two(near: &Identity, far: &Identity) -> (Connection, Connection) {
    let (listener, address) = listen(far).await;
    let how = towpath_link::tcp::DialConfig::default();
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
    let dialling = towpath_link::tcp::dial(address, near, far.node_id(), &how);
    let (dialled, accepted) = tokio::join!(dialling, accepting);
    (dialled.unwrap(), accepted.unwrap())
}

#[tokio::test]
async fn each_end_knows_the_other_and_bindings_differ_even_between_the_same_two() {
    let (near, far) = (identity(), identity());
    let (one, two) = (same_two(&near, &far).await, same_two(&near, &far).await);
    assert_eq!((one.0.peer, one.1.peer), (far.node_id(), near.node_id()));
    assert_eq!((one.0.proof, one.1.proof), (PeerProof::Key, PeerProof::Key));
    assert_ne!(one.0.binding, two.0.binding);
}
