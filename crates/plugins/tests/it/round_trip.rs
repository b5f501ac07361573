//! The round trip of a pipe, of which no kernel tells anything: both ends measure it by themselves.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use towpath_link::Identity;
use towpath_link::pipe::{self, Role};
use towpath_protocol::{Peer, PeerConfig};

use crate::support::LIMIT;

/// Time that bytes are on their way.
const ONE_WAY: Duration = Duration::from_millis(15);

/// Hands bytes on, each after the same time.
fn delay(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>) {
    let (line, mut end) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut buf = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut buf).await {
            if line.send((Instant::now() + ONE_WAY, buf[..len].to_vec())).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((when, bytes)) = end.recv().await {
            sleep_until(when).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
}

/// Two peers over a pipe that is as long.
async fn far_apart() -> [std::sync::Arc<Peer>; 2] {
    let ((near, near_line), (far, far_line)) = (duplex(64 << 10), duplex(64 << 10));
    let ((from_near, to_near), (from_far, to_far)) = (split(near_line), split(far_line));
    delay(from_near, to_far);
    delay(from_far, to_near);
    let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
    let node = || Identity::generate().unwrap().node_id();
    let (near, far) = tokio::join!(
        pipe::open(near_read, near_write, node(), Role::Initiator, LIMIT),
        pipe::open(far_read, far_write, node(), Role::Responder, LIMIT),
    );
    [near.unwrap(), far.unwrap()].map(|connection| Peer::start(connection, PeerConfig::default(), None))
}

/// Content that came over ssh alone was thought to come over a fast network: 2.5 MB for a new version that 17 KB make.
#[tokio::test]
async fn both_ends_of_a_pipe_know_how_long_it_is() {
    for peer in &far_apart().await {
        timeout(LIMIT, peer.until_measured()).await.unwrap();
        let path = peer.path().unwrap();
        assert!(path.min_rtt >= 2 * ONE_WAY, "{path:?}");
        assert_eq!(path.delivery_rate_bytes_per_s, None, "nothing else is known");
    }
}
