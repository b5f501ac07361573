//! Dialling a peer again and again while a relay brings its bytes. A way that opens is to be found soon, and nobody tells when it does.
//! So attempts overlap: the next one does not wait until the one before has got no answer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use towpath_content::NodeId;
use towpath_link::tcp::{DialConfig, DialError, Timeouts, dial_any};
use towpath_link::{Connection, Identity};
use towpath_transfer::BoxFuture;

/// Time for one attempt: a peer that is farther away is not found so.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// Time for all attempts, until it is looked again which addresses there are.
const ROUND: Duration = Duration::from_secs(3);
/// Shortest time between two attempts, ...
const SOONEST: Duration = Duration::from_millis(200);
/// ... what each address adds to it, ...
const EACH: Duration = Duration::from_millis(100);
/// ... and the longest.
const LATEST: Duration = Duration::from_secs(3);
/// A way is looked for the more seldom, the longer there is none: after so many times this long.
const SELDOM: u32 = 200;

/// Time between two attempts at so many addresses, of a peer that was not reached for so long.
fn interval(addresses: usize, unreached: Duration) -> Duration {
    let addresses = u32::try_from(addresses).unwrap_or(u32::MAX);
    SOONEST.max(EACH.saturating_mul(addresses)).max(unreached / SELDOM).min(LATEST)
}

/// Connects to `node`, which was not reached for so long, by whichever attempt gets through first: all addresses in their order, and
/// then each of them anew at once.
pub(super) async fn dial_again_and_again(
    addresses: &[SocketAddr],
    identity: &Identity,
    node: NodeId,
    how: &DialConfig,
    unreached: Duration,
) -> Result<Connection, DialError> {
    let connect = how.timeouts.connect.min(ATTEMPT);
    let how = &DialConfig { timeouts: Timeouts { connect, ..how.timeouts }, ..how.clone() };
    let (every, end) = (interval(addresses.len(), unreached), Instant::now() + ROUND);
    let mut attempts: FuturesUnordered<BoxFuture<'_, Result<Connection, DialError>>> =
        FuturesUnordered::new();
    attempts.push(Box::pin(dial_any(addresses, identity, node, how)));
    let mut failure = DialError::NoAddress;
    while Instant::now() < end {
        let pause = tokio::time::sleep(every);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(attempt) = attempts.next() => match attempt {
                    Ok(connection) => return Ok(connection),
                    Err(error) => failure = error,
                },
            }
        }
        for address in addresses {
            attempts.push(Box::pin(dial_any(std::slice::from_ref(address), identity, node, how)));
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_looked_for_often_at_first_and_seldom_where_there_is_none_for_long() {
        let rows = [
            (1, 0, 200),
            (2, 5, 200),
            (8, 5, 800),
            (2, 60, 300),
            (2, 300, 1500),
            (2, 36_000, 3000),
            (usize::MAX, 0, 3000),
        ];
        for (addresses, seconds, millis) in rows {
            let expected = Duration::from_millis(millis);
            assert_eq!(interval(addresses, Duration::from_secs(seconds)), expected, "{addresses} {seconds}");
        }
    }

    #[tokio::test]
    async fn a_way_that_opens_later_is_found() {
        let [own, peer] = [1, 2].map(|_| Identity::generate().unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Nobody is there for the first ones.
        let opens = async {
            for _ in 0..2 {
                drop(listener.accept().await.unwrap());
            }
            let listener = towpath_link::tcp::Listener::inherit(listener.into_std().unwrap(), &peer).unwrap();
            listener.accept().await.unwrap().handshake(Duration::from_secs(10)).await.unwrap()
        };
        let (addresses, how) = ([address], DialConfig::default());
        let found = dial_again_and_again(&addresses, &own, peer.node_id(), &how, Duration::ZERO);
        let (found, _there) = tokio::join!(found, opens);
        assert_eq!(found.unwrap().peer, peer.node_id());
    }

    #[tokio::test]
    async fn a_round_ends_where_nobody_is() {
        let [own, peer] = [1, 2].map(|_| Identity::generate().unwrap());
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (addresses, how) = ([nobody], DialConfig::default());
        let failed = dial_again_and_again(&addresses, &own, peer.node_id(), &how, ROUND).await;
        assert!(matches!(failed, Err(DialError::Refused { .. })));
    }
}
