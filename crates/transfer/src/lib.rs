//! Transfer of objects to here: the seam of sources (DOT's transfer plugins, `papers/dot.txt` §4.2)
//! and the session that asks its root for wants, checks what they deliver, and writes it.
//!
//! ```text
//!   fetch(object, target) ──► Session ──► root (wraps sources) ──► peers, disk, media
//!                                ▲   wants                     │ deliveries, outcomes
//!                                │                             ▼
//!                       Ledger (pure)  ◄── results ── workers: check, write ◄── bounded sink
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`want`] | requests for content, deliveries, and the end of each want |
//! | [`source`] | the seam of sources: the [`Source`] trait and its contract |
//! | [`root`] | what the session talks to: a source that gives advice |
//! | [`root_space`] | places of a tree's files in one line: pure |
//! | [`finder`] | the seam of finders: sources that come and go |
//! | [`claim`] | recipes as their makers claim them, checked as they come: pure |
//! | [`gathering`] | bytes of several sources that make one piece: pure |
//! | [`following`] | positions of an object's pieces in an older version, by samples of it |
//! | [`intervals`] | the bytes of an object that are there |
//! | [`ledger`] | every want's state; decides what to request next: pure, handed the time |
//! | [`metadata`] | a source's metadata of an object, besides its bytes |
//! | [`object`] | one object on its way: known piece values, checks |
//! | [`offer`] | the seam of entries that have no names yet |
//! | [`target`] | targets of checked bytes |
//! | [`session`] | the actor around the ledger, with its workers |
//! | [`source_id`] | names of sources |
//! | [`progress`] | bytes by source, for people and programs |
//! | [`rate`] | measured rates of networks and disks: pure |
//!
//! Decisions live in [`ledger`]; no socket, clock or file is used there.

mod boxed;
pub mod claim;
pub mod finder;
pub mod following;
pub mod gathering;
pub mod intervals;
pub mod ledger;
pub mod metadata;
pub mod object;
pub mod offer;
pub mod progress;
pub mod rate;
pub mod root;
pub mod root_space;
pub mod session;
pub mod source;
pub mod source_id;
pub mod target;
pub mod want;

pub use boxed::BoxFuture;
pub use metadata::Metadata;
pub use progress::Progress;
pub use root::{Advice, ObjectFacts, OpenWays, RestWay, Root, Single};
pub use session::{FetchError, Fetched, ObjectRequest, Session, SessionConfig, in_seconds};
pub use source::{Context, Description, FirstPiece, Query, RecipePart, Sink, Source, SourceState};
pub use source_id::SourceId;
pub use target::{Announcing, BoundSink, Target};
pub use want::{
    Coverage, Delivery, Group, ObjectOffset, Origin, Outcome, Payload, PiecePart, Proof, SignedBase, Tag,
    Want, WantId,
};
