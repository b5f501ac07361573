//! Relays and nodes over loopback.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;
use towpath_link::{Connection, Identity, Protocol};
use towpath_relay::server::RelayListening;
use towpath_relay::{
    CallError, RelayDial, RelayPass, RelayPlace, RelayRules, RelayServer, Waiting, WaitingPlace,
    WaitingState, call,
};

pub const LIMIT: Duration = Duration::from_secs(60);
const SECRET: &[u8] = b"for these tests";

pub fn identity() -> Identity {
    Identity::generate().unwrap()
}

/// Rules by which who has the pass may wait.
pub fn rules() -> RelayRules {
    RelayRules { pass: Some(RelayPass::new(SECRET)), ..RelayRules::default() }
}

/// Ends with all that runs in it, at once.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

/// A relay with threads of its own, so that it can be killed.
pub struct TestRelay {
    runtime: OwnRuntime,
    pub listening: RelayListening,
    pub place: RelayPlace,
    pub token: CancellationToken,
    identity: Identity,
    rules: RelayRules,
}

impl TestRelay {
    pub fn start(rules: RelayRules) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), identity(), rules)
    }

    fn start_at(address: SocketAddr, identity: Identity, rules: RelayRules) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let token = CancellationToken::new();
        let (own, kept, stop) = (identity.clone(), rules.clone(), token.clone());
        let bound = runtime.spawn(async move {
            loop {
                // The killed one may still hold its address.
                match RelayServer::listen(&[address], &own, kept.clone(), &stop).await {
                    Ok(listening) => return listening,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        });
        let listening =
            std::thread::scope(|scope| scope.spawn(|| runtime.block_on(bound)).join()).unwrap().unwrap();
        let addresses = vec![listening.addresses[0].to_string()];
        let place = RelayPlace { node: identity.node_id(), addresses };
        let runtime = OwnRuntime(Some(runtime));
        Self { runtime, listening, place, token, identity, rules }
    }

    /// All its connections end at once, without a word.
    pub fn kill(self) -> (SocketAddr, Identity, RelayRules) {
        let address = self.listening.addresses[0];
        drop(self.listening);
        drop(self.runtime);
        (address, self.identity, self.rules)
    }

    pub fn kill_and_restart(self) -> Self {
        let (address, identity, rules) = self.kill();
        Self::start_at(address, identity, rules)
    }
}

/// A node that waits at these relays, once they all have it.
pub async fn waiting_at(places: &[RelayPlace], identity: &Identity) -> Waiting {
    let place =
        |place: &RelayPlace| WaitingPlace { place: place.clone(), pass: Some(RelayPass::new(SECRET)) };
    let waiting = Waiting::start(places.iter().map(place).collect(), identity, &RelayDial::default());
    let mut states = waiting.states();
    let all = states.wait_for(|states| states.iter().all(|state| *state == WaitingState::Waiting));
    timeout(LIMIT, all).await.unwrap().unwrap();
    waiting
}

pub async fn called(places: &[RelayPlace], near: &Identity, callee: NodeId) -> Result<Connection, CallError> {
    call(places, near, callee, Protocol::PEER, &RelayDial::default()).await
}

/// Both ends of a connection through one of these relays: the caller's, and that of the node that waits.
pub async fn connected(
    places: &[RelayPlace],
    near: &Identity,
    far: &Identity,
) -> (Connection, Connection, Waiting) {
    let mut waiting = waiting_at(places, far).await;
    let accepting = async { waiting.next().await.unwrap().accept(&[Protocol::PEER]).await };
    let (called, accepted) = tokio::join!(called(places, near, far.node_id()), accepting);
    (called.unwrap(), accepted.unwrap(), waiting)
}
