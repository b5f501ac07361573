//! What a service sends on a slow path: small frames, with what is urgent between them, and nothing more
//! of what was given up.

use std::sync::Arc;
use std::time::Duration;

use towpath_content::Oid;
use towpath_link::{Identity, PathInfo, PathProbe};
use towpath_plugins::direct::wire::{self, Body, DataHeader, Describe, Get, RequestOnly, WireWant};
use towpath_plugins::direct::{Peer, PeerConfig, Service};
use towpath_store::{About, MemoryStore};

use crate::hostile_peer::liar::Liar;
use crate::support::*;

/// What a kernel says of 1.5 Mbit/s on which data wait.
pub fn slow() -> PathProbe {
    PathProbe::told(|| PathInfo {
        rtt: Duration::from_millis(40),
        delivery_rate_bytes_per_s: Some(193_000),
        unsent_bytes: 16 << 10,
        ..PathInfo::default()
    })
}

/// What the other side says next, but for hellos and pings.
enum Heard {
    Data(DataHeader, usize),
    Message(Body),
}

async fn hear(liar: &mut Liar) -> Heard {
    loop {
        let frame = liar.reader.next().await.unwrap().unwrap();
        if frame.kind == wire::DATA {
            let (header, payload) = DataHeader::decode(frame.body).unwrap();
            return Heard::Data(header, payload.len());
        }
        match Body::from_frame(frame.body).unwrap() {
            Body::Hello(_) | Body::Ping(_) => {}
            body => return Heard::Message(body),
        }
    }
}

/// Data frames until a message that `is_it`.
async fn frames_until(liar: &mut Liar, is_it: impl Fn(&Body) -> bool) -> usize {
    let mut frames = 0;
    loop {
        match hear(liar).await {
            Heard::Data(header, len) => {
                assert!(len <= 16 << 10 && header.offset.is_multiple_of(16 << 10));
                frames += 1;
            }
            Heard::Message(body) if is_it(&body) => return frames,
            Heard::Message(_) => {}
        }
    }
}

/// One that has asked for 16 pieces and seen the first of their data.
async fn asking() -> (Arc<Peer>, Liar, Oid) {
    let (near, mut far) = connected().await;
    far.info = slow();
    let store = Arc::new(MemoryStore::new());
    let data: Vec<u8> = (0..131_072u32).flat_map(|n| *Oid::of(&n.to_le_bytes()).digest()).collect();
    let oid = put(&store, &data, &About::default());
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let serving =
        Peer::start(far, PeerConfig::default(), Some(Arc::new(Service::new(store, Arc::new(keys)))));
    let mut liar = Liar::polite(near).await;
    let name = wire::oid_field(&oid);
    let want = WireWant { oid: name.clone(), first: 0, count: 16, ..WireWant::default() };
    liar.say(Body::Get(Get { request: 1, root: name, wants: vec![want] })).await;
    while !matches!(hear(&mut liar).await, Heard::Data(..)) {}
    (serving, liar, oid)
}

/// Frames of 16 KiB that were on their way: in the pipe of 64 KiB, and what was being written.
const ON_THE_WAY: usize = 8;

#[tokio::test]
async fn an_answer_overtakes_data() {
    let (_serving, mut liar, oid) = asking().await;
    let name = wire::oid_field(&oid);
    // Until the service has nothing left to do but wait.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let question =
        Describe { request: 2, root: name.clone(), oid: name, recipe: true, ..Describe::default() };
    liar.say(Body::Describe(question)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let frames = frames_until(&mut liar, |body| matches!(body, Body::Recipe(_))).await;
    assert!(frames <= ON_THE_WAY, "{frames}");
}

#[tokio::test]
async fn what_is_given_up_stops_in_the_middle_of_a_piece() {
    let (_serving, mut liar, _) = asking().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    liar.say(Body::Cancel(RequestOnly { request: 1 })).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let frames = frames_until(&mut liar, |body| matches!(body, Body::Done(_))).await;
    assert!(frames <= ON_THE_WAY, "{frames}");
}
