//! A relay with addresses of its own.
//!
//! Who has connected and not proved anything yet costs a socket alone until it speaks; handshakes, which take memory,
//! are few at a time; and no network may have more than a share of those that are still to come.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_link::tcp::{AcceptError, BindError, Listener, Pending};

use super::RelayServer;
use crate::RELAY_PROTOCOL;
use crate::table::{RelayRules, neighbourhood};

/// From being accepted to the end of the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Handshakes at a time.
const HANDSHAKES: usize = 16;
/// Connections that have proved nothing yet, in all and of one network.
const PENDING: usize = 512;
const PENDING_PER_ADDRESS: usize = 64;
/// A wait when the system can't accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A relay that listens. Dropping it ends nothing: its token does.
pub struct RelayListening {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// The relay.
    pub server: RelayServer,
    tasks: JoinSet<()>,
}

impl RelayListening {
    /// Waits until it has ended and all addresses are free.
    pub async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl RelayServer {
    /// Listens at `addresses` as `identity`, with these rules, until `token` ends.
    pub async fn listen(
        addresses: &[SocketAddr],
        identity: &Identity,
        rules: RelayRules,
        token: &CancellationToken,
    ) -> Result<RelayListening, BindError> {
        let (server, door) = (Self::new(rules), Arc::new(RelayDoor::new()));
        let (mut bound, mut tasks) = (Vec::new(), JoinSet::new());
        for &address in addresses {
            let listener = Listener::bind_for(address, identity, &[RELAY_PROTOCOL]).await?;
            bound.push(listener.address().unwrap_or(address));
            tasks.spawn(accept_all(listener, server.clone(), Arc::clone(&door), token.clone()));
        }
        Ok(RelayListening { addresses: bound, server, tasks })
    }
}

/// Those who have connected and proved nothing yet.
struct RelayDoor {
    pending: Mutex<HashMap<IpAddr, usize>>,
    handshakes: Semaphore,
}

impl RelayDoor {
    fn new() -> Self {
        Self { pending: Mutex::new(HashMap::new()), handshakes: Semaphore::new(HANDSHAKES) }
    }

    /// Lets one more come in, if there is room.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<DoorStep> {
        let address = neighbourhood(address);
        let mut pending = lock(&self.pending);
        let own = pending.get(&address).copied().unwrap_or(0);
        if own >= PENDING_PER_ADDRESS || pending.values().sum::<usize>() >= PENDING {
            return None;
        }
        pending.insert(address, own + 1);
        Some(DoorStep { door: Arc::clone(self), address })
    }
}

/// One place among those at the door.
struct DoorStep {
    door: Arc<RelayDoor>,
    address: IpAddr,
}

impl Drop for DoorStep {
    fn drop(&mut self) {
        let mut pending = lock(&self.door.pending);
        if let Some(count) = pending.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                pending.remove(&self.address);
            }
        }
    }
}

async fn accept_all(listener: Listener, server: RelayServer, door: Arc<RelayDoor>, token: CancellationToken) {
    let mut guests = JoinSet::new();
    loop {
        let accepted: io::Result<Pending> = tokio::select! {
            accepted = listener.accept() => accepted,
            () = token.cancelled() => break,
        };
        while guests.try_join_next().is_some() {}
        match accepted {
            Ok(pending) => {
                let Some(step) = door.enter(pending.address().ip()) else { continue };
                guests.spawn(receive(pending, step, server.clone(), token.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the relay can't accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while guests.join_next().await.is_some() {}
}

/// A guest, from its first byte on.
async fn receive(pending: Pending, step: DoorStep, server: RelayServer, token: CancellationToken) {
    let remote = pending.address().ip();
    let shaken = tokio::select! {
        shaken = shake(pending, &step) => shaken,
        () = token.cancelled() => return,
    };
    drop(step);
    match shaken {
        Ok(connection) => server.serve(connection, remote, token).await,
        Err(error) => tracing::debug!(%error, "no guest of the relay"),
    }
}

async fn shake(pending: Pending, step: &DoorStep) -> Result<towpath_link::Connection, AcceptError> {
    pending.spoken(HANDSHAKE_LIMIT).await?;
    // Never closed, so always granted.
    let _turn = step.door.handshakes.acquire().await;
    pending.handshake(HANDSHAKE_LIMIT).await
}
