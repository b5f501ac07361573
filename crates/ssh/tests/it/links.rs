//! Connections by several links of the person's machine. On loopback two addresses are two links, and what lies between the sides
//! passes wires that can be cut.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use towpath_content::Oid;
use towpath_link::Identity;
use towpath_link::tcp::LocalEnd;
use towpath_plugins::Takeover;
use towpath_plugins::takeover::Names;
use towpath_protocol::PeerConfig;
use towpath_ssh::race::{Race, SshConnection};

use crate::race::until;
use crate::support::*;

const NAMES: Names = Names { first: "ssh", better: "tls" };
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NEAR: SshConnection = SshConnection { client: HERE, server: HERE };
const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const DATA: usize = 24 << 20;

/// Carries connections on, and knows them by the address that they come from.
#[derive(Clone, Default)]
struct Wires(Arc<Mutex<WireState>>);

#[derive(Default)]
struct WireState {
    cut: HashSet<IpAddr>,
    passed: HashMap<IpAddr, u64>,
    /// Cut as soon as so much has passed there.
    fuse: Option<(IpAddr, u64)>,
}

impl Wires {
    /// Wires to a listener on this machine; returns their other end.
    async fn to(&self, listener: SocketAddr) -> SocketAddr {
        let wires = TcpListener::bind((HERE, 0)).await.unwrap();
        let (address, this) = (wires.local_addr().unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, from)) = wires.accept().await {
                tokio::spawn(this.clone().carry(stream, from.ip(), listener));
            }
        });
        address
    }

    async fn carry(self, near: TcpStream, from: IpAddr, to: SocketAddr) {
        let Ok(far) = TcpStream::connect(to).await else { return };
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::join!(self.pass(from, near_in, far_out), self.pass(from, far_in, near_out));
    }

    async fn pass(&self, from: IpAddr, mut read: OwnedReadHalf, mut write: OwnedWriteHalf) {
        let mut buf = vec![0; 16 << 10];
        while let Ok(len @ 1..) = read.read(&mut buf).await {
            if !self.lets_pass(from, len as u64) {
                // As when a cable is pulled: nobody is told.
                return std::future::pending().await;
            }
            if write.write_all(&buf[..len]).await.is_err() {
                return;
            }
        }
    }

    fn lets_pass(&self, from: IpAddr, bytes: u64) -> bool {
        let mut state = self.0.lock().unwrap();
        let passed = state.passed.entry(from).or_default();
        *passed += bytes;
        let passed = *passed;
        if state.fuse.is_some_and(|(wire, most)| wire == from && passed > most) {
            state.cut.insert(from);
            state.fuse = None;
        }
        !state.cut.contains(&from)
    }

    fn is_cut(&self, wire: IpAddr) -> bool {
        self.0.lock().unwrap().cut.contains(&wire)
    }
}

struct Sides {
    /// The person's, whose machine has the links, and the remote one.
    person: Race,
    remote: Race,
    takeover: Arc<Takeover>,
    data: Vec<u8>,
}

/// Both sides, of which the person's asks or answers.
async fn sides(wires: &Wires, person_asks: bool) -> Sides {
    let links = [FIRST, SECOND].map(LocalEnd::Address);
    let (own, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let data = pattern(DATA);
    let config = PeerConfig::default;
    let listening = Race::listen(&own, service(&own, &data, b""), other.node_id(), config(), None, &links);
    let (mut person, _) = listening.await.unwrap();
    let listening =
        Race::listen(&other, service(&other, &data, b""), own.node_id(), config(), Some(NEAR), &[]);
    let (mut remote, addresses) = listening.await.unwrap();
    let through = wires.to(SocketAddr::new(HERE, addresses[0].port())).await;
    let takeover = Takeover::only_better("nothing stands", NAMES);
    let (asks, answers) = match person_asks {
        true => (Some(Arc::clone(&takeover)), None),
        false => (None, Some(Arc::clone(&takeover))),
    };
    remote.run(&[], answers);
    person.run(&[through], asks);
    Sides { person, remote, takeover, data }
}

impl Sides {
    async fn fetch(&self) -> HashSet<String> {
        let came = fetch_under(Oid::of(b"copy"), Arc::clone(&self.takeover) as _, &self.data).await.unwrap();
        came.by_source.keys().filter_map(|source| source.path().map(str::to_owned)).collect()
    }

    /// Fetches until both links have brought something at once: one may stand before the other does.
    async fn use_both(&self) {
        timeout(LIMIT, async { while self.fetch().await.len() < 2 {} }).await.expect("one link is not used");
    }

    async fn stand(&self) {
        let standing = [&self.person, &self.remote].map(|race| race.stands(LIMIT));
        futures_of(standing).await;
    }
}

async fn futures_of(standing: [impl Future<Output = Result<(), towpath_ssh::SshError>>; 2]) {
    for side in standing {
        side.await.unwrap();
    }
}

#[tokio::test]
async fn what_is_asked_comes_by_all_links_whichever_side_has_them() {
    for person_asks in [true, false] {
        let sides = sides(&Wires::default(), person_asks).await;
        sides.stand().await;
        sides.use_both().await;
    }
}

/// The dealer has the other link bring what the dead one owes; the side that asks need not be the one that has the links.
#[tokio::test]
async fn a_link_that_is_cut_and_mended_costs_nothing_but_its_share() {
    for person_asks in [true, false] {
        let wires = Wires::default();
        let sides = sides(&wires, person_asks).await;
        sides.stand().await;
        sides.use_both().await;
        let passed = wires.0.lock().unwrap().passed[&SECOND];
        wires.0.lock().unwrap().fuse = Some((SECOND, passed + (2 << 20)));
        let cut = async {
            while !wires.is_cut(SECOND) {
                sides.fetch().await;
            }
        };
        timeout(LIMIT, cut).await.expect("it was not used enough to be cut");
        assert!(sides.fetch().await.contains("127.0.0.1"));
        wires.0.lock().unwrap().cut.clear();
        sides.use_both().await;
    }
}

/// All links are cut, and come back.
#[tokio::test]
async fn links_that_are_all_away_for_a_while_come_back() {
    let wires = Wires::default();
    let sides = sides(&wires, true).await;
    sides.stand().await;
    sides.use_both().await;
    wires.0.lock().unwrap().cut.extend([FIRST, SECOND]);
    let waiting = timeout(Duration::from_secs(60), sides.fetch());
    let mending = async {
        let lost = until(async || (sides.takeover.active() != "tls").then_some(()));
        timeout(LIMIT, lost).await.expect("they are not missed");
        wires.0.lock().unwrap().cut.clear();
    };
    let (fetched, ()) = tokio::join!(waiting, mending);
    assert!(!fetched.expect("it hangs").is_empty());
}
