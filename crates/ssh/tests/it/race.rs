//! Connections that race beside the channel.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use towpath_link::Identity;
use towpath_link::tcp::{DialConfig, DialError, Listener, dial};
use towpath_plugins::Takeover;
use towpath_plugins::takeover::Names;
use towpath_protocol::{Peer, PeerConfig, Service};
use towpath_ssh::SshError;
use towpath_ssh::race::{Race, SshConnection};

use crate::support::*;

const NAMES: Names = Names { first: "ssh", better: "tls" };
const NEAR: SshConnection = SshConnection {
    client: std::net::IpAddr::V4(Ipv4Addr::LOCALHOST),
    server: std::net::IpAddr::V4(Ipv4Addr::LOCALHOST),
};

struct Side {
    identity: Identity,
    service: Arc<Service>,
    race: Race,
    addresses: Vec<SocketAddr>,
}

async fn side(identity: Identity, other: &Identity, ssh: Option<SshConnection>) -> Side {
    let service = service(&identity, &pattern(1 << 20), b"secret");
    let listening =
        Race::listen(&identity, Arc::clone(&service), other.node_id(), PeerConfig::default(), ssh, &[]);
    let (race, addresses) = listening.await.unwrap();
    Side { identity, service, race, addresses }
}

/// The asking side, the remote one that answers, and where data come from.
async fn sides() -> (Side, Side, Arc<Takeover>) {
    let (asks, answers) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let near = side(asks.clone(), &answers, None).await;
    let far = side(answers, &asks, Some(NEAR)).await;
    (near, far, Takeover::only_better("nothing stands", NAMES))
}

pub async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// True if this way is taken within this time.
async fn takes_within(time: Duration, takeover: &Takeover, way: &str) -> bool {
    timeout(time, until(async || (takeover.active() == way).then_some(()))).await.is_ok()
}

#[tokio::test]
async fn the_asking_side_dials() {
    let (mut near, mut far, takeover) = sides().await;
    far.race.run(&[], None);
    near.race.run(&far.addresses, Some(Arc::clone(&takeover)));
    near.race.stands(LIMIT).await.unwrap();
    assert_eq!(takeover.active(), "tls");
    fetch(takeover, &pattern(1 << 20)).await.unwrap();
}

/// The client's addresses may be of no use here, but ssh tells where it came from.
#[tokio::test]
async fn the_remote_side_dials_back() {
    let (mut near, mut far, takeover) = sides().await;
    near.race.run(&[], Some(Arc::clone(&takeover)));
    far.race.run(&near.addresses[..1], None);
    near.race.stands(LIMIT).await.unwrap();
    fetch(takeover, &pattern(1 << 20)).await.unwrap();
}

#[tokio::test]
async fn both_dial_and_one_connection_serves() {
    for _ in 0..10 {
        let (mut near, mut far, takeover) = sides().await;
        far.race.run(&near.addresses, None);
        near.race.run(&far.addresses, Some(Arc::clone(&takeover)));
        near.race.stands(LIMIT).await.unwrap();
        fetch(takeover.clone(), &pattern(1 << 20)).await.unwrap();
        assert!(!takes_within(Duration::from_millis(300), &takeover, "ssh").await, "it still stands");
        fetch(takeover, &pattern(1 << 20)).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_connection_is_dialled_again() {
    let (mut near, far, takeover) = sides().await;
    near.race.run(&far.addresses, Some(Arc::clone(&takeover)));
    near.race.stands(LIMIT).await.unwrap();
    // The other side's process ends, and is there again at the same place: a port can be had twice.
    let (port, service) = (far.addresses[0].port(), Arc::clone(&far.service));
    drop(far.race);
    let again = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let free = until(async || Listener::bind(again, &far.identity).await.ok());
    let listener = timeout(LIMIT, free).await.expect("the port is taken");
    let connection = listener.accept().await.unwrap().handshake(LIMIT).await.unwrap();
    let _peer = Peer::start(connection, PeerConfig::default(), Some(service));
    fetch(takeover, &pattern(1 << 20)).await.unwrap();
}

#[tokio::test]
async fn strangers_are_not_served() {
    let (mut near, mut far, takeover) = sides().await;
    far.race.run(&[], None);
    near.race.run(&[], Some(takeover.clone()));
    let stranger = Identity::generate().unwrap();
    let (at, node) = (far.addresses[0], far.identity.node_id());
    let connection = dial(at, &stranger, node, &DialConfig::default()).await.unwrap();
    let peer = Peer::start(connection, PeerConfig::default(), None);
    assert!(!timeout(LIMIT, peer.greeted()).await.unwrap(), "was let in");
    // Nor does an honest side take another node's answer.
    let imposter = side(stranger, &near.identity, Some(NEAR)).await;
    let mut race = side(near.identity.clone(), &far.identity, None).await.race;
    race.run(&imposter.addresses, Some(Arc::clone(&takeover)));
    let error = race.stands(Duration::from_secs(1)).await.unwrap_err();
    let SshError::NoConnection { last: Some(last), .. } = error else { panic!("{error:?}") };
    assert!(matches!(last.downcast_ref(), Some(DialError::WrongNode { .. })), "{last:?}");
    assert_eq!(takeover.active(), "ssh");
}

#[tokio::test]
async fn an_error_names_what_was_tried() {
    let (mut near, far, takeover) = sides().await;
    let addresses = [SocketAddr::new(Ipv4Addr::LOCALHOST.into(), far.addresses[0].port())];
    drop(far.race);
    near.race.run(&addresses, Some(takeover));
    let error = near.race.stands(Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(&error, SshError::NoConnection { tried, .. } if *tried == addresses), "{error:?}");
}

#[tokio::test]
async fn everything_ends_with_the_race() {
    let (mut near, mut far, takeover) = sides().await;
    far.race.run(&near.addresses, None);
    near.race.run(&far.addresses, Some(Arc::clone(&takeover)));
    near.race.stands(LIMIT).await.unwrap();
    let at = far.addresses[0];
    drop((near.race, far.race));
    let refuses = until(async || tokio::net::TcpStream::connect(at).await.err());
    timeout(LIMIT, refuses).await.expect("still listens");
    // The connection that the takeover still holds is closed, which shows when it is used.
    let data = pattern(1 << 20);
    let fetching = timeout(Duration::from_millis(500), fetch(takeover.clone(), &data));
    assert!(fetching.await.is_err());
    assert!(takes_within(LIMIT, &takeover, "ssh").await, "the takeover does not know");
}
