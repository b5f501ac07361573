//! An attempt to reach a peer, which goes on when whoever waits for it goes away. What is asked first has often ended before a far
//! peer answers; who asks next waits for the same attempt. Else each would begin anew, and none come to its end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use towpath_content::NodeId;
use towpath_link::dialling::Dialling;
use towpath_link::tcp::{DialConfig, DialError, dial_any};
use towpath_link::{Connection, Identity};

use super::redialling::dial_again_and_again;

/// What is known about dialling for one place.
pub struct SlotDialling {
    /// When to dial again.
    pub backoff: Dialling,
    /// The attempt that is under way.
    pub attempt: Option<DialAttempt>,
}

/// What came of an attempt.
pub struct Dialled {
    /// The connection.
    pub connection: Result<Connection, DialError>,
    /// The addresses that were dialled.
    pub addresses: Vec<SocketAddr>,
}

/// See the head of this module. Dropping it ends it.
pub struct DialAttempt(AbortOnDropHandle<Dialled>);

impl DialAttempt {
    /// Begins to dial `node`. `unreached`: a relay brings its bytes meanwhile, and it was not reached for so long.
    pub fn begin(
        addresses: Vec<SocketAddr>,
        identity: Identity,
        node: NodeId,
        how: DialConfig,
        unreached: Option<Duration>,
    ) -> Self {
        Self(AbortOnDropHandle::new(tokio::spawn(async move {
            let connection = match unreached {
                Some(unreached) => dial_again_and_again(&addresses, &identity, node, &how, unreached).await,
                None => dial_any(&addresses, &identity, node, &how).await,
            };
            Dialled { connection, addresses }
        })))
    }

    /// Waits for its end; `None`: it broke off. Cancel-safe: it can be waited for again.
    pub async fn ended(&mut self) -> Option<Dialled> {
        (&mut self.0).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::timeout;
    use towpath_link::tcp::Listener;

    use super::*;

    #[tokio::test]
    async fn it_goes_on_when_who_waited_for_it_goes_away() {
        let (here, there) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), &there).await.unwrap();
        let addresses = vec![listener.address().unwrap()];
        let mut attempt = DialAttempt::begin(addresses, here, there.node_id(), DialConfig::default(), None);
        let pending = listener.accept().await.unwrap();
        for _ in 0..3 {
            let waiting = timeout(Duration::from_millis(1), attempt.ended()).await;
            assert!(waiting.is_err(), "the handshake has not begun");
        }
        let (_accepted, dialled) = tokio::join!(pending.handshake(Duration::from_secs(10)), attempt.ended());
        assert!(dialled.unwrap().connection.is_ok());
        let another = timeout(Duration::from_millis(10), listener.accept()).await;
        assert!(another.is_err(), "it was dialled once");
    }
}
