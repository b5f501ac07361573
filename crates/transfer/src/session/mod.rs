//! The transfer session: an actor around the [`Ledger`](crate::ledger::Ledger) with worker
//! threads that check and write.
//!
//! * `mod.rs`: the handle that callers hold, and their results.
//! * `actor.rs`: the one task that owns all state; its inbox is `SessionEvent`.
//! * `events.rs`: the events in that inbox.
//! * `table.rs`: the objects in flight, and the wants of each.
//! * `active.rs`: one of them.
//! * `plan.rs`: the wants that an object needs next.
//! * `partial_pieces.rs`: chunks out of pieces that did not come whole.
//! * `calls.rs`: the root's calls, which bring batches of wants.
//! * `meter.rs`: the rate at which pieces come.
//! * `comparing.rs`: the choice whether bytes that may be here are read by the disk or fetched by the network; pure.
//! * `existing.rs`: that choice carried out.
//! * `samples.rs`: from an older version in its place to one that is followed.
//! * `followed.rs`: a worker's reads from it.
//! * `questions.rs`: questions about objects.
//! * `entries.rs`: entries that are asked for by their numbers, and what came of each; pure.
//! * `entry_calls.rs`: the calls that ask for them, and their sink.
//! * `entry_target.rs`: who takes what comes of one.
//! * `entry_work.rs`: events of an entry, as a worker hands them to its target.
//! * `values.rs`: values first, where a source proves nothing.
//! * `unproved.rs`: pieces that came before their values; pure.
//! * `live.rs`: objects that are still being produced.
//! * `recipes.rs`: from pieces to chunks in mid-transfer.
//! * `jobs.rs`: the queue to the workers.
//! * `requests.rs`: requests about an object in flight, and what is kept of the answers.
//! * `work.rs`: the jobs of workers: `Job`.
//! * `workers.rs`: blocking threads that hash, write and read back.
//! * `sink.rs`: the bounded sink that sources deliver into.
//!
//! A delivery is checked once, in a worker, on the buffer it arrived in, and written from there.
//! Memory is bounded by [`SessionConfig::buffer_bytes`] for payload, by 16 MiB for pieces whose values are not known, and by the number of objects
//! and wants in flight for the rest. Dropping the [`Session`] ends the actor, its calls
//! and its workers; bytes already written stay in their targets.

mod active;
mod actor;
mod announced;
mod calls;
mod comparing;
mod entries;
mod entry_calls;
mod entry_target;
mod entry_work;
mod events;
mod existing;
mod followed;
mod jobs;
mod live;
mod meter;
mod partial_pieces;
mod plan;
mod questions;
mod recipes;
mod requests;
mod samples;
mod sink;
mod table;
mod unproved;
mod values;
mod work;
mod workers;

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::{DecodeError, Oid};
use towpath_store::About;

pub use self::entry_target::{EntryNext, EntryRequest, EntryTarget};
pub use crate::claim::{RecipeChunk, RecipeClaim};
use crate::ledger::LedgerConfig;
use crate::object::CheckError;
use crate::offer::OfferSource;
use crate::progress::Progress;
use crate::root::Root;
use crate::source::Context;
use crate::source_id::SourceId;
use crate::target::Target;
use crate::want::{Group, Outcome};
use actor::Actor;
use entries::MOST_WANTS;
use entry_calls::NoOffers;
use events::{EntryMessage, SessionEvent};

/// Objects of many that are queued at once, at most.
const AT_ONCE: usize = 64;

/// Limits of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// Retries and wait limit.
    pub ledger: LedgerConfig,
    /// Payload delivered and not yet written, at most. Default 32 MiB.
    pub buffer_bytes: u32,
    /// Bytes of wants handed to the root in one call. Default 4 MiB.
    pub batch_bytes: u64,
    /// Wants handed to the root in one call. Default 256.
    pub batch_wants: usize,
    /// Calls of the root under way, for each source that it draws from. Default 16.
    pub calls: usize,
    /// Objects and entries in flight. Default 2048.
    pub objects: usize,
    /// Threads that check and write. Default: one per processor, 2 to 4.
    pub workers: usize,
}

impl Default for SessionConfig {
    fn default() -> Self {
        // The kernel is asked once: it takes the reading of several files.
        static PROCESSORS: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(2, usize::from));
        Self {
            ledger: LedgerConfig::default(),
            buffer_bytes: 32 << 20,
            batch_bytes: 4 << 20,
            batch_wants: 256,
            calls: 16,
            objects: 2048,
            workers: PROCESSORS.clamp(2, 4),
        }
    }
}

/// One object to fetch.
pub struct ObjectRequest {
    /// Object.
    pub oid: Oid,
    /// Its bytes, if known: then nothing is asked before its pieces are.
    pub size: Option<u64>,
    /// File that it belongs to.
    pub group: Arc<Group>,
    /// Target of its bytes.
    pub target: Arc<dyn Target>,
    /// Ask for these chunks rather than for pieces; pieces come in where the claim proves wrong.
    pub recipe: Option<RecipeClaim>,
}

/// An object that is here, whole and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its content OID, also if a live one was requested.
    pub oid: Oid,
    /// Its bytes.
    pub size: u64,
    /// Description by its source.
    pub about: About,
}

/// A time in whole seconds, as errors have it.
pub fn in_seconds(time: Duration) -> String {
    match time.as_secs() {
        1 => "1 second".into(),
        seconds => format!("{seconds} seconds"),
    }
}

/// Reason why an object is not here.
#[derive(Debug, Error)]
pub enum FetchError {
    /// No source ended the want otherwise than so.
    #[error("{}", describe_outcome(.0))]
    Ended(Outcome),
    /// Deliveries did not match, time and again.
    #[error("{source_name} {what}")]
    Bad {
        /// Source that sent it.
        source_name: SourceId,
        /// Fault of the delivery.
        what: CheckError,
    },
    /// Nothing came for too long.
    #[error("nothing came for {}{}", in_seconds(*.waited), .last_error.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Stalled {
        /// Time that was waited.
        waited: Duration,
        /// Trouble that the sources report.
        last_error: Option<String>,
    },
    /// Taking the bytes failed on this side.
    #[error("{0}")]
    Write(#[from] io::Error),
    /// Bytes came that can't be checked: whoever brought them proves nothing, and nobody tells the values of the pieces.
    #[error("it came without proofs, and no source tells how to check it")]
    NoValues,
    /// The live object's producer began anew; what is here can be kept and checked again.
    #[error("the producer started over")]
    StartedOver,
    /// The live object's producer gave up.
    #[error("the producer gave up before the object was complete")]
    Abandoned,
    /// A live object's statement is malformed or not signed by the ticket's node.
    #[error("the sender's statement about the live object is not valid: {0}")]
    Statement(#[from] DecodeError),
    /// The pieces that the ticket's node signed do not make up the OID it bound them to.
    #[error("the signed pieces do not make up the object they were bound to")]
    BindingWrong,
    /// The source says the object is larger than this program takes.
    #[error("the object's size is over the limit: {0}")]
    TooLarge(towpath_content::pieces::PieceError),
    /// The session ended first.
    #[error("cancelled")]
    Cancelled,
}

fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::NotHere => "no source has it".into(),
        Outcome::Gone => "its source has removed it".into(),
        Outcome::SourceChanged => "it was changed or removed at its source after it was put".into(),
        // By a processor, which names itself.
        Outcome::Refused(why) if why.starts_with("by ") => format!("refused {why}"),
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::RetryLater(_) => "its source cannot be reached for now".into(),
        Outcome::Cancelled => "cancelled".into(),
    }
}

/// Called once with the end of a request; must not block.
pub type OnDone = Box<dyn FnOnce(Result<Fetched, FetchError>) + Send>;

/// A running session; dropping it ends it.
pub struct Session {
    events: mpsc::UnboundedSender<SessionEvent>,
    slots: Arc<Semaphore>,
    /// Objects and entries in flight, at most.
    most: usize,
    progress: Progress,
    _end: DropGuard,
}

impl Session {
    /// Starts a session that draws from `root`. Needs a tokio runtime.
    pub fn start(root: Arc<dyn Root>, context: Context, config: SessionConfig) -> Self {
        Self::start_with_offers(root, Arc::new(NoOffers), context, config)
    }

    /// Starts a session that draws objects from `root` and asks `offers` for entries. Needs a tokio runtime.
    pub fn start_with_offers(
        root: Arc<dyn Root>,
        offers: Arc<dyn OfferSource>,
        context: Context,
        config: SessionConfig,
    ) -> Self {
        let token = CancellationToken::new();
        let progress = Progress::default();
        // Without a bound of its own: who tells an outcome cannot wait, and must not overtake what was delivered before. Slots of
        // objects and entries, the room of the sinks, questions and the wants of the ledger bound it: of each there are few
        // events at once.
        let (events, inbox) = mpsc::unbounded_channel();
        let actor =
            Actor::new(root, offers, context, config, events.clone(), progress.clone(), token.clone());
        tokio::spawn(actor.run(inbox));
        let slots = Arc::new(Semaphore::new(config.objects));
        let most = config.objects.max(1);
        Self { events, slots, most, progress, _end: token.drop_guard() }
    }

    /// Queues an object; waits while too many are in flight.
    pub async fn submit(&self, request: ObjectRequest, on_done: OnDone) {
        let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else {
            return on_done(Err(FetchError::Cancelled));
        };
        self.send(vec![Submission { request, on_done, permit }]);
    }

    /// Queues objects, some at a time; waits while too many are in flight.
    pub async fn submit_all(&self, requests: impl IntoIterator<Item = (ObjectRequest, OnDone)>) {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let some: Vec<_> = requests.by_ref().take(self.most.min(AT_ONCE)).collect();
            let Ok(mut permits) = Arc::clone(&self.slots).acquire_many_owned(some.len() as u32).await else {
                return some.into_iter().for_each(|(_, on_done)| on_done(Err(FetchError::Cancelled)));
            };
            let submission =
                |(request, on_done)| Some(Submission { request, on_done, permit: permits.split(1)? });
            self.send(some.into_iter().filter_map(submission).collect());
        }
    }

    /// Queues entries, some at a time; waits while too many are in flight. Each takes the place of an object, and leaves it
    /// to the one that is fetched by its name. When the session ends those that are not over are dropped.
    pub async fn submit_entries(&self, requests: Vec<EntryRequest>) {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let some: Vec<_> = requests.by_ref().take(self.most.min(MOST_WANTS)).collect();
            let Ok(mut permits) = Arc::clone(&self.slots).acquire_many_owned(some.len() as u32).await else {
                return;
            };
            let submission = |request| Some(EntrySubmission { request, permit: permits.split(1)? });
            let submissions = some.into_iter().filter_map(submission).collect();
            let _ = self.events.send(SessionEvent::Entry(EntryMessage::Submit(submissions)));
        }
    }

    /// Fetches one object and returns when it is complete.
    pub async fn fetch(&self, request: ObjectRequest) -> Result<Fetched, FetchError> {
        let (done, end) = oneshot::channel();
        self.submit(request, Box::new(move |result| drop(done.send(result)))).await;
        end.await.unwrap_or(Err(FetchError::Cancelled))
    }

    fn send(&self, submissions: Vec<Submission>) {
        if let Err(mpsc::error::SendError(SessionEvent::Submit(submissions))) =
            self.events.send(SessionEvent::Submit(submissions))
        {
            cancel(submissions);
        }
    }

    /// The session's counters.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

/// A request on its way to the actor.
struct Submission {
    request: ObjectRequest,
    on_done: OnDone,
    permit: OwnedSemaphorePermit,
}

/// An entry on its way to the actor.
struct EntrySubmission {
    request: EntryRequest,
    permit: OwnedSemaphorePermit,
}

/// The session ended first.
fn cancel(submissions: Vec<Submission>) {
    for submission in submissions {
        (submission.on_done)(Err(FetchError::Cancelled));
    }
}

#[cfg(test)]
mod tests;
