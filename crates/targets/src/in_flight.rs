//! Objects that are on their way to applications of this machine: each crosses the network once,
//! however many ask for it.
//!
//! ```text
//!   application ─┐                                    ┌── network
//!   application ─┴─ content ─► Arrival { Spool } ◄── session ──► the store, as cache
//!   application ──── get ───► waits for the same flight, then finds it on this machine
//! ```
//!
//! A *flight* is an object asked for with the right of one ticket's node: what another node would
//! send is a matter of its own, so that none learns what the others sent. The first who asks leads.
//! Streams join the leader's spool; gets into files wait for its end, and draw from what it left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use towpath_api::{ApiError, ErrorKind};
use towpath_content::pieces::Layout;
use towpath_content::{NodeId, Oid};
use towpath_store::About;
use towpath_transfer::Progress;

use crate::spool::Spool;
use towpath_content::lock::lock;

/// Fetches at once; each has a few threads. Further ones wait in line.
const MAX_FETCHES: usize = 256;
/// Longest time that a fetch waits in line.
const LONGEST_LINE: Duration = Duration::from_secs(60);

/// The object, the node whose ticket asks for it, and the group.
pub type FlightKey = (Oid, Option<NodeId>, FlightGroup);

/// Requests that may share a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlightGroup {
    /// Everybody who needs the whole object, or can wait for it.
    All,
    /// Streams of an object that is still being produced, while a get into a file leads: they follow
    /// it now, not at its end.
    Streams,
}

/// A source's description of an object.
pub type Described = (About, Option<Layout>);

/// Objects that are on their way now.
pub struct Flights {
    flights: Arc<Mutex<HashMap<FlightKey, FlightEntry>>>,
    fetches: Semaphore,
}

impl Default for Flights {
    fn default() -> Self {
        Self { flights: Arc::default(), fetches: Semaphore::new(MAX_FETCHES) }
    }
}

struct FlightEntry {
    /// The leader's stream, if it is one.
    arrival: Weak<Arrival>,
    ended: CancellationToken,
}

/// Role of someone who asks for a flight.
pub enum FlightRole<T> {
    /// Nobody asked before: he leads.
    Lead(T),
    /// A stream to join.
    Join(Arc<Arrival>),
    /// A leader whose bytes go elsewhere; this completes at its end.
    Wait(CancellationToken),
}

impl Flights {
    /// The stream of the flight `key` that is under way, if there is one to join.
    pub fn find(&self, key: &FlightKey) -> Option<Arc<Arrival>> {
        lock(&self.flights).get(key)?.arrival.upgrade()
    }

    /// Enters the flight `key`; `lead` starts it if there is none.
    pub fn enter<T>(
        &self,
        key: FlightKey,
        lead: impl FnOnce(Leading) -> (T, Weak<Arrival>),
    ) -> FlightRole<T> {
        let mut flights = lock(&self.flights);
        if let Some(entry) = flights.get(&key) {
            return match entry.arrival.upgrade() {
                Some(arrival) => FlightRole::Join(arrival),
                None => FlightRole::Wait(entry.ended.clone()),
            };
        }
        let ended = CancellationToken::new();
        let leading = Leading { flights: Arc::clone(&self.flights), key, ended: ended.clone() };
        let (leader, arrival) = lead(leading);
        flights.insert(key, FlightEntry { arrival, ended });
        FlightRole::Lead(leader)
    }

    /// A permit among those that fetch; waits in line for it.
    pub async fn permit(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        let permit = tokio::time::timeout(LONGEST_LINE, self.fetches.acquire()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("{MAX_FETCHES} transfers are under way, and none of them ended");
            ApiError::new(ErrorKind::Busy, message).hint("try again later")
        })
    }
}

/// Held by a leader; when it is dropped those who wait go on.
pub struct Leading {
    flights: Arc<Mutex<HashMap<FlightKey, FlightEntry>>>,
    key: FlightKey,
    ended: CancellationToken,
}

impl Drop for Leading {
    fn drop(&mut self) {
        lock(&self.flights).remove(&self.key);
        self.ended.cancel();
    }
}

/// What is known of an arrival once its source said what it is.
#[derive(Debug, Clone, Copy)]
pub struct ArrivalFacts {
    /// Its bytes, if that is known before the end.
    pub size: Option<u64>,
    /// All that crosses a network for it is encrypted.
    pub encrypted: bool,
}

/// Stage of an arrival.
#[derive(Debug, Clone)]
pub enum Stage {
    /// Its source is being asked what it is.
    Asking,
    /// Its bytes are coming.
    Coming(ArrivalFacts),
    /// It is here.
    Complete {
        /// Its content.
        oid: Oid,
        /// What was known before.
        facts: ArrivalFacts,
    },
    /// It can't be had.
    Failed(ApiError),
}

/// An object on its way into a spool. It is given up when nobody holds it any more.
pub struct Arrival {
    /// Where its bytes go.
    pub spool: Arc<Spool>,
    /// How far it is.
    pub stage: watch::Receiver<Stage>,
    /// Counters of its session.
    pub progress: Progress,
    /// What brings it.
    pub task: tokio::task::AbortHandle,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Arrival {
    /// The session's counters.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// What its source said that it is, as soon as it did.
    pub async fn described(&self) -> Result<ArrivalFacts, ApiError> {
        match self.wait(|stage| !matches!(stage, Stage::Asking)).await {
            Stage::Failed(error) => Err(error),
            Stage::Coming(facts) | Stage::Complete { facts, .. } => Ok(facts),
            Stage::Asking => Err(given_up()),
        }
    }

    /// The content, when all is here.
    pub async fn ended(&self) -> Result<Oid, ApiError> {
        match self.wait(|stage| matches!(stage, Stage::Complete { .. } | Stage::Failed(_))).await {
            Stage::Complete { oid, .. } => Ok(oid),
            Stage::Failed(error) => Err(error),
            Stage::Asking | Stage::Coming(_) => Err(given_up()),
        }
    }

    async fn wait(&self, until: impl FnMut(&Stage) -> bool) -> Stage {
        let mut stage = self.stage.clone();
        let seen = stage.wait_for(until).await.map(|stage| stage.clone());
        seen.unwrap_or_else(|_| self.stage.borrow().clone())
    }
}

fn given_up() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the transfer was given up")
}
