//! Sockets of a public server, and how many may shake hands there at once: in all and from one address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_content::lock::lock;
use towpath_link::Connection;
use towpath_link::tcp::{Listener, Pending, Timeouts};

use crate::address_group::AddressGroup;

/// Handshakes at once.
const HANDSHAKES: usize = 512;
/// Those from one address.
const PER_ADDRESS: usize = 64;
/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// Handshakes under way.
#[derive(Debug, Default)]
struct Handshakes(Mutex<HashMap<AddressGroup, usize>>);

/// A place for one handshake.
struct HandshakePlace {
    all: Arc<Handshakes>,
    from: AddressGroup,
}

impl Handshakes {
    fn enter(self: &Arc<Self>, from: AddressGroup) -> Option<HandshakePlace> {
        let mut under_way = lock(&self.0);
        let all: usize = under_way.values().sum();
        let here = under_way.get(&from).copied().unwrap_or(0);
        if all >= HANDSHAKES || here >= PER_ADDRESS {
            return None;
        }
        under_way.insert(from, here + 1);
        Some(HandshakePlace { all: Arc::clone(self), from })
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        let mut under_way = lock(&self.all.0);
        if let Some(here) = under_way.get_mut(&self.from) {
            *here -= 1;
            if *here == 0 {
                under_way.remove(&self.from);
            }
        }
    }
}

/// Hands each connection that comes in at `listener` to `serve`, until `token` ends it.
pub async fn accept<S, F>(listener: Listener, token: CancellationToken, serve: S)
where
    S: Fn(Connection, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let handshakes = Arc::new(Handshakes::default());
    loop {
        let pending = tokio::select! {
            pending = listener.accept() => pending,
            () = token.cancelled() => return,
        };
        match pending {
            Ok(pending) => {
                if let Some(place) = handshakes.enter(AddressGroup::of(pending.address().ip())) {
                    tokio::spawn(shake(pending, place, serve.clone()));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn shake<S, F>(pending: Pending, place: HandshakePlace, serve: S)
where
    S: Fn(Connection, SocketAddr) -> F,
    F: Future<Output = ()>,
{
    let address = pending.address();
    // In memory of its own, which a connection that stands does not hold.
    let shaking = Box::pin(pending.handshake(Timeouts::default().handshake));
    let shaken = shaking.await;
    drop(place);
    match shaken {
        Ok(connection) => serve(connection, address).await,
        Err(error) => tracing::debug!(%error, "a handshake failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_counted_by_address_and_in_all() {
        let all = Arc::new(Handshakes::default());
        let from = |last: u8| AddressGroup::of([192, 0, 2, last].into());
        let here: Vec<_> = (0..PER_ADDRESS).map(|_| all.enter(from(1)).unwrap()).collect();
        assert!(all.enter(from(1)).is_none());
        let others: Vec<_> = (2..9).flat_map(|last| (0..PER_ADDRESS).map(move |_| last)).collect();
        let others: Vec<_> = others.into_iter().filter_map(|last| all.enter(from(last))).collect();
        assert_eq!(here.len() + others.len(), HANDSHAKES);
        assert!(all.enter(from(200)).is_none());
        drop((here, others));
        assert!(lock(&all.0).is_empty());
    }
}
