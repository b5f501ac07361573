//! The offer seam: contents that have no name yet that this side knows. The other side offers entries by their numbers;
//! each answer says what the entry's content is called, and may hold it, or what makes it of something that lies here.
//!
//! ```text
//!   EntryRequest ──► Session ──► OfferSource ──► the other side
//!                       ▲                           │ contents, runs, outcomes
//!                       │                           ▼
//!       EntryTarget ◄── workers ◄────────────── EntrySink
//! ```
//!
//! # Contract
//!
//! * **One answer for each want.** An [`OfferSource`] hands each want one content, or one [`Outcome`], or returns it unasked.
//!   Runs may follow a content whose reply says that the rest comes in parts; an outcome may end them. After the call has
//!   returned nothing more comes.
//! * **Nothing is trusted.** What comes is for the [`EntryTarget`](crate::session::EntryTarget) to check.
//! * **A lost connection is an outcome.** What was not answered ends as [`Outcome::RetryLater`], and the session asks again
//!   over what stands then.

use std::sync::Arc;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::delta::exchange::{NextSignature, Reply, Request};
use towpath_content::tree::Time;

use crate::boxed::BoxFuture;
use crate::source_id::SourceId;
use crate::want::{Outcome, Tag};

/// Question for the content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryQuery {
    /// Its number among those that are offered.
    pub entry: u64,
    /// It is compared: it must be named by its content, and does not come with its name.
    pub compare: bool,
    /// A content of at most so many bytes may come with its name.
    pub inline: u32,
    /// zstd's level that answers are worth; 0: none.
    pub pack: u32,
    /// What this side has of it, if that is something.
    pub base: Option<Request>,
}

/// An entry that is to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryWant {
    /// Named so in answers.
    pub tag: Tag,
    /// The question.
    pub query: Arc<EntryQuery>,
}

/// An entry's content, as the other side says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryContent {
    /// Its name; none where the reply tells it, or asks for another question.
    pub oid: Option<Oid>,
    /// Its bytes, as they are now.
    pub size: u64,
    /// Its time of last modification, as it is now.
    pub modified: Time,
    /// It takes less room on disk than it has bytes.
    pub is_sparse: bool,
    /// What comes with the name.
    pub body: EntryBody,
}

/// Bytes that come with the name of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryBody {
    /// None.
    Named,
    /// All of it.
    Whole(Bytes),
    /// The reply to what was asked of its base.
    Delta(Reply),
}

/// Takes what comes of entries that were asked for.
pub trait EntrySink: Send + Sync {
    /// These were asked for; signatures go that way.
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>);

    /// Contents, which keep so many bytes in memory. Waits while the receiving side is behind.
    fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()>;

    /// A run of one whose content came. Waits while the receiving side is behind.
    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()>;

    /// No content comes, or no more runs of one that comes in parts.
    fn outcome(&self, tag: Tag, outcome: Outcome);
}

/// The way that entries were asked for: signatures go behind the questions.
pub trait SignatureWay: Send + Sync {
    /// Name of whoever was asked, if several are told apart.
    fn source(&self) -> Option<&SourceId> {
        None
    }

    /// Sends the next signature of an entry. Must not block; a way that is lost takes none.
    fn send(&self, tag: Tag, signature: &NextSignature);
}

/// Asks for entries. The contract is at the head of this module.
pub trait OfferSource: Send + Sync {
    /// Asks; returns when nothing more comes, with those that could not be asked for, as there is no way at the moment.
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>>;
}
