//! Two connected ends in one process.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{duplex, split};
use towpath_link::pipe::{self, Role};
use towpath_link::tcp::{self, DialConfig, Listener};
use towpath_link::{Connection, Identity};

pub const LIMIT: Duration = Duration::from_secs(20);

pub fn identity() -> Identity {
    Identity::generate().unwrap()
}

pub async fn listen(identity: &Identity) -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), identity).await.unwrap();
    let address = listener.address().unwrap();
    (listener, address)
}

pub async fn over_tls() -> (Connection, Connection) {
    let (near, far) = (identity(), identity());
    let (listener, address) = listen(&far).await;
    let how = DialConfig::default();
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
    let (dialled, accepted) = tokio::join!(tcp::dial(address, &near, far.node_id(), &how), accepting);
    (dialled.unwrap(), accepted.unwrap())
}

pub async fn over_pipe() -> (Connection, Connection) {
    let (near, far) = duplex(64 * 1024);
    let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
    let (near, far) = tokio::join!(
        pipe::open(near_read, near_write, identity().node_id(), Role::Initiator, LIMIT),
        pipe::open(far_read, far_write, identity().node_id(), Role::Responder, LIMIT),
    );
    (near.unwrap(), far.unwrap())
}
