//! A service whose compressed data are not what they should be.

use std::sync::Arc;

use towpath_content::Oid;
use towpath_link::Identity;
use towpath_plugins::Direct;
use towpath_protocol::wire::{self, Body, DataHeader, VERSION};
use towpath_protocol::{Peer, PeerConfig};
use towpath_transfer::{Session, Single};

use super::liar::{Liar, header, hello};
use crate::support::*;

/// End of the connection after `payload` came, flagged as compressed, for a piece of 256 KiB.
async fn ended_after(payload: &[u8], offset: u32) -> String {
    ended_with(payload, offset, hello(VERSION)).await
}

/// The same of a service that says that its payloads tell their lengths.
async fn ended_after_part(len: usize, encoded: &[u8], offset: u32) -> String {
    let Body::Hello(mut hello) = hello(VERSION) else { panic!() };
    hello.capabilities.push(wire::PARTS.to_owned());
    ended_with(&wire::with_len(len, encoded), offset, Body::Hello(hello)).await
}

async fn ended_with(payload: &[u8], offset: u32, hello: Body) -> String {
    let data = pattern(PIECE, 1);
    let (near, far) = connected().await;
    let peer = Peer::start(near, PeerConfig::default(), None);
    let direct = Direct::over(Arc::clone(&peer), Identity::generate().unwrap());
    let (keep, hints) = tokio::sync::watch::channel(Vec::new());
    let context = towpath_transfer::Context { root: Oid::of(&data), node: None, secret: None, hints };
    let session =
        Session::start(Single::root(Arc::new(direct)), context, impatient(std::time::Duration::from_secs(1)));
    let target = Arc::new(Memory::default());
    let fetching = session.fetch(request(Oid::of(&data), Some(data.len() as u64), &target));
    let lying = async {
        let mut liar = Liar::new(far);
        liar.say(hello).await;
        let get = liar.hear_get().await.unwrap();
        let header = DataHeader { encoding: 1, offset, ..header(get.request, 0, 0) };
        liar.data(header, payload).await;
        liar.linger().await;
    };
    let (fetched, ()) = tokio::join!(fetching, lying);
    assert!(fetched.is_err() && target.completed.lock().unwrap().is_none());
    drop(keep);
    peer.ended().unwrap()
}

fn packed(len: usize) -> Vec<u8> {
    zstd::bulk::compress(&vec![0; len], 1).unwrap()
}

#[tokio::test]
async fn sizes_that_lie_and_bombs_end_the_connection() {
    for len in [0, 1, PIECE - 1, PIECE + 1, 2 * PIECE, 1 << 30] {
        let why = ended_after(&packed(len), 0).await;
        assert!(why.contains("compressed data that are not 262144 bytes"), "{len}: {why}");
    }
    let twice = [packed(PIECE / 2), packed(PIECE / 2)].concat();
    assert!(ended_after(&twice, 0).await.contains("not 262144 bytes"));
    assert!(ended_after(&packed(PIECE), 1).await.contains("not 262143 bytes"));
    assert!(ended_after(&packed(PIECE), u32::MAX).await.contains("in the wrong order"));
}

#[tokio::test]
async fn parts_that_lie_end_the_connection() {
    for (len, told, words) in [
        (PIECE, PIECE + 1, "in the wrong order"),
        (PIECE, u32::MAX as usize, "in the wrong order"),
        (1000, 999, "not 999 bytes"),
        (1 << 30, 1000, "not 1000 bytes"),
        (1000, 0, "does not tell its length"),
    ] {
        let why = ended_after_part(told, &packed(len), 0).await;
        assert!(why.contains(words), "{len} as {told}: {why}");
    }
    assert!(ended_after_part(PIECE, &packed(PIECE), 1).await.contains("in the wrong order"));
    assert!(ended_after_part(1000, &packed(1000), 1000).await.contains("in the wrong order"));
}

#[tokio::test]
async fn garbage_ends_the_connection() {
    assert!(ended_after(b"garbage", 0).await.contains("compressed data"));
    let mut damaged = zstd::bulk::compress(&pattern(PIECE, 2), 1).unwrap();
    let middle = damaged.len() / 2;
    damaged.truncate(middle);
    assert!(ended_after(&damaged, 0).await.contains("compressed data"));
}
