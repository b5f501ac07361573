//! Frames of a service on a slow path: small ones, with urgent ones between them, and nothing more
//! of what was given up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use towpath_content::{NodeId, Oid};
use towpath_link::{Connection, Identity, PathInfo, PathProbe};
use towpath_protocol::wire::{self, Body, DataHeader, Describe, Get, WireCancel, WireWant};
use towpath_protocol::{Peer, PeerConfig, Service, Traffic};
use towpath_store::doubles::noise;
use towpath_store::{About, MemoryStore};

use crate::hostile_peer::liar::Liar;
use crate::support::*;

/// Probe of a kernel at 1.5 Mbit/s on which data wait.
pub fn slow() -> PathProbe {
    PathProbe::from_fn(|| PathInfo {
        rtt: Duration::from_millis(40),
        delivery_rate_bytes_per_s: Some(193_000),
        unsent_bytes: 16 << 10,
        ..PathInfo::default()
    })
}

/// Next message of the other side, but for hellos and pings.
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

/// A service's end of a connection.
struct Serving {
    traffic: Arc<Traffic>,
    _peer: Arc<Peer>,
}

impl Serving {
    /// Over a slow path, to somebody who is `known`.
    fn start(mut connection: Connection, known: Option<NodeId>, service: Arc<Service>) -> Self {
        connection.info = slow();
        connection.peer = known.unwrap_or(connection.peer);
        let traffic = Arc::new(Traffic::default());
        let config = PeerConfig { traffic: Arc::clone(&traffic), ..PeerConfig::default() };
        Self { traffic, _peer: Peer::start(connection, config, Some(service)) }
    }

    /// Waits until it has nothing left to do but wait: it has sent nothing for long.
    async fn is_held_up(&self) {
        let mut sent = self.traffic.sent();
        while is_soon(Duration::from_millis(300), || self.traffic.sent() != sent).await {
            sent = self.traffic.sent();
        }
    }
}

/// One that has asked for 16 pieces and seen the first of their data.
async fn asking() -> (Serving, Liar, Oid) {
    let (near, far) = connected().await;
    let (service, oid) = service();
    let serving = Serving::start(far, None, service);
    let mut liar = Liar::polite(near).await;
    liar.say(get(1, &oid, 16, 0)).await;
    while !matches!(hear(&mut liar).await, Heard::Data(..)) {}
    (serving, liar, oid)
}

/// Frames of 16 KiB that were on their way: in the pipe of 64 KiB, and what was being written.
const ON_THE_WAY: usize = 8;

#[tokio::test]
async fn an_answer_overtakes_data() {
    let (serving, mut liar, oid) = asking().await;
    let name = wire::oid_field(&oid);
    serving.is_held_up().await;
    let question =
        Describe { request: 2, root: name.clone(), oid: name, recipe: true, ..Describe::default() };
    liar.say(Body::Describe(question)).await;
    serving.is_held_up().await;
    let frames = frames_until(&mut liar, |body| matches!(body, Body::Recipe(_))).await;
    assert!(frames <= ON_THE_WAY, "{frames}");
}

#[tokio::test]
async fn what_is_given_up_stops_in_the_middle_of_a_piece() {
    let (serving, mut liar, _) = asking().await;
    serving.is_held_up().await;
    liar.say(Body::Cancel(WireCancel { request: 1, pieces: Vec::new() })).await;
    serving.is_held_up().await;
    let frames = frames_until(&mut liar, |body| matches!(body, Body::Done(_))).await;
    assert!(frames <= ON_THE_WAY, "{frames}");
}

/// One whose node may fetch all from `service`, on a connection of its own.
async fn another(service: &Arc<Service>) -> (Serving, Liar) {
    let (near, far) = connected().await;
    let serving = Serving::start(far, Some(NodeId([7; 32])), Arc::clone(service));
    (serving, Liar::polite(near).await)
}

/// A service with an object of 4 MiB.
fn service() -> (Arc<Service>, Oid) {
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &noise(1, 4 << 20), &About::default());
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    (Arc::new(Service::new(store, Arc::new(keys))), oid)
}

fn get(request: u32, oid: &Oid, count: u32, urgency: i32) -> Body {
    let name = wire::oid_field(oid);
    let want = WireWant { oid: name.clone(), first: 0, count, ..WireWant::default() };
    Body::Get(Get { request, root: name, wants: vec![want], urgency, ..Get::default() })
}

#[tokio::test]
async fn what_is_more_urgent_overtakes_on_its_connection_and_the_rest_still_moves() {
    let (service, oid) = service();
    let (serving, mut liar) = another(&service).await;
    liar.say(get(1, &oid, 16, 0)).await;
    serving.is_held_up().await;
    liar.say(get(2, &oid, 8, 5)).await;
    serving.is_held_up().await;
    let (mut slow, mut urgent, mut slow_after) = (0, 0, 0);
    loop {
        match hear(&mut liar).await {
            Heard::Data(header, _) if header.request == 2 => urgent += 1,
            Heard::Data(..) if urgent == 0 => slow += 1,
            Heard::Data(..) => slow_after += 1,
            Heard::Message(Body::Done(done)) => {
                assert_eq!(done.request, 2);
                break;
            }
            Heard::Message(_) => {}
        }
    }
    assert!(slow <= ON_THE_WAY + 4, "{slow}");
    assert!((1..=urgent / 8).contains(&slow_after), "{slow_after} beside {urgent}");
    frames_until(&mut liar, |body| matches!(body, Body::Done(done) if done.request == 1)).await;
}

#[tokio::test]
async fn what_is_more_urgent_holds_up_the_other_connections_of_its_node() {
    let (service, oid) = service();
    let (_one, mut slow) = another(&service).await;
    let (_two, mut urgent) = another(&service).await;
    slow.say(get(1, &oid, 16, 0)).await;
    while !matches!(hear(&mut slow).await, Heard::Data(..)) {}
    urgent.say(get(1, &oid, 16, 5)).await;
    while !matches!(hear(&mut urgent).await, Heard::Data(..)) {}
    let mut held_up = 0;
    let together = async {
        // As much as it likes, all the while.
        while let Heard::Data(..) | Heard::Message(Body::Proof(_)) = hear(&mut slow).await {
            held_up += 1;
        }
    };
    let first = async {
        // As a network does it: a frame every millisecond, on which the other one waits. What comes last
        // is on its way when the service has no more to do for it.
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..200 {
            ticks.tick().await;
            assert!(matches!(hear(&mut urgent).await, Heard::Data(..)));
        }
    };
    tokio::select! { () = first => {}, () = together => panic!("the slow one was done first") }
    assert!(held_up <= 200 / 8 + 2 * ON_THE_WAY, "{held_up}");
}
