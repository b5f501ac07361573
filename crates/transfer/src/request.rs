//! Requests for objects, and how they end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use towpath_content::{DecodeError, Oid};
use towpath_store::About;

use crate::claim::RecipeClaim;
use crate::object::CheckError;
use crate::target::Target;
use crate::want::{Group, Outcome};

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
        source_name: Arc<str>,
        /// Fault of the delivery.
        what: CheckError,
    },
    /// Nothing came for too long.
    #[error("nothing came for {}{}", in_seconds(*.waited), .last_error.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Stalled {
        /// Time that was waited.
        waited: Duration,
        /// Trouble that the plugins report.
        last_error: Option<String>,
    },
    /// Taking the bytes failed on this side.
    #[error("{0}")]
    Write(#[from] io::Error),
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
