//! The local API: requests of an application to the service, and their answers.
//!
//! [`Api`] is the one trait. The daemon implements it in process; [`client::Client`] implements it
//! over the daemon's Unix socket, so a front end does not see the difference. Messages are JSON
//! over HTTP/1.1; events are one JSON object a line (`docs/formats/local-api.md`).
//!
//! | call | HTTP |
//! |---|---|
//! | [`Api::put`] | `POST /v1/put` |
//! | [`Api::put_stream`] | `POST /v1/put-stream`, the bytes as body |
//! | [`PutsInParts::open_put`] | `POST /v1/puts` |
//! | [`PutsInParts::put_part`] | `POST /v1/puts/{id}/data`, the bytes as body |
//! | [`PutsInParts::commit_put`] | `POST /v1/puts/{id}/commit` |
//! | [`PutsInParts::abort_put`] | `DELETE /v1/puts/{id}` |
//! | [`Api::get`] | `POST /v1/get`, events as body |
//! | [`Api::content`] | `POST /v1/content`, the bytes as answer |
//! | [`Api::copy`] | `POST /v1/copy`, events as body; the other side's socket comes along |
//! | [`Api::index`] | `POST /v1/index`, events as body |
//! | [`Api::share`], [`Api::get_and_stay`] | none: they listen for their own commands |
//! | [`Api::session`] | `POST /v1/sessions` |
//! | [`Api::list`] | `GET /v1/objects` |
//! | [`Api::done`] | `POST /v1/done` |
//! | [`Api::gc`] | `POST /v1/gc` |
//! | [`Api::status`] | `GET /v1/status` |
//! | [`Api::events`] | `GET /v1/events` |

pub mod client;
pub mod copy;
pub mod messages;
mod metadata;
mod names;
mod parts;
mod passing;
mod sources;

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use tokio::io::AsyncRead;
use tokio::sync::mpsc;

pub use client::Client;
use copy::{CopyEvent, CopyRequest, CopySummary};
pub use messages::{
    Announced, AnswerLine, ApiError, CallEnd, Chunk, ContentRequest, DescriptorRequest, EntryKind, ErrorKind,
    Event, Fetch, FetchState, FileDelta, GcReply, GcRequest, GetRequest, GetUpdate, Held, IndexRequest,
    Indexed, ListRequest, ListedEntry, MAX_BOUNDARIES, Object, OpenPutRequest, PartReply, Problem, Progress,
    PutKind, PutReply, PutRequest, SearchEffort, Searched, Seconds, ShareRequest, Status, StayRequest,
    Summary, TicketTerms, TransferEvent, UpdateCounts,
};
pub use metadata::ToldMetadata;
pub use parts::Parts;
pub use sources::{PEER, RELAYED, SourceBytes, SourceList, THIS_MACHINE};

/// A boxed future, so that the API can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes on their way into a put.
pub type Input<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;

/// An object's bytes, in order.
pub struct Content {
    /// The content's id, if it is known before the end.
    pub oid: Option<String>,
    /// Bytes, if that is known before the end.
    pub size: Option<u64>,
    /// The bytes, each checked. An error means that what was read before is right and the rest
    /// can't be had.
    pub bytes: Parts,
}

/// An application's session; dropping it ends the session and the leases that it holds.
pub struct Session {
    /// Name by which puts refer to it.
    pub id: String,
    /// Guard that keeps it open.
    pub open: Box<dyn Any + Send>,
}

/// Puts whose bytes come in parts.
pub trait PutsInParts: Send + Sync {
    /// Begins a put whose bytes come in parts. Its ticket can be given away at once, and a receiver
    /// follows.
    fn open_put(&self, request: OpenPutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>>;

    /// Appends a part to the put `id` (its live OID). `offset` is where the part begins: what the
    /// put has already is taken for a repeat and left out, and a gap is refused.
    fn put_part<'a>(
        &'a self,
        id: String,
        offset: u64,
        part: Input<'a>,
    ) -> BoxFuture<'a, Result<PartReply, ApiError>>;

    /// Ends a put in parts: the object is whole. May be said again.
    fn commit_put(&self, id: String) -> BoxFuture<'_, Result<PutReply, ApiError>>;

    /// Gives a put in parts up; whoever follows it gets an event.
    fn abort_put(&self, id: String) -> BoxFuture<'_, Result<(), ApiError>>;
}

/// The service, in process or behind the socket.
pub trait Api: PutsInParts {
    /// Hands a file or a tree to the service; its ticket comes at once.
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>>;

    /// The same, and returns when all of it has been read. Events come while it goes on: the ticket at
    /// once, then what is left out. Who does not wait for the end does not end it.
    fn put_to_end<'a>(
        &'a self,
        request: PutRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>>;

    /// Hands bytes to the service as they are produced. The ticket is sent through `ticket` before
    /// the first byte is read; the call returns when the input has ended and the object is whole.
    fn put_stream<'a>(
        &'a self,
        request: OpenPutRequest,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>>;

    /// Fetches into a file or directory. Events come while it goes on; the last is a summary.
    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>>;

    /// Fetches an object as a stream.
    fn content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Content, ApiError>>;

    /// Copies trees and files within this machine, or to or from another one over ssh. Events come while it goes on. The
    /// summary counts entries that failed; an error ended the copy as a whole.
    ///
    /// Without a daemon the copy runs in the caller's own process, and starts ssh there. A daemon starts no programs and has
    /// another umask and working directory: of it, see [`CopyRequest`]. Dropping the future ends the copy; what is
    /// complete stays.
    fn copy(
        &self,
        request: CopyRequest,
        events: mpsc::Sender<CopyEvent>,
    ) -> BoxFuture<'_, Result<CopySummary, ApiError>>;

    /// Reads files ahead of time, so that later transfers find them. Events come while it goes on: progress, and files that
    /// could not be read. Dropping the future ends it; what was indexed stays.
    fn index(
        &self,
        request: IndexRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<Indexed, ApiError>>;

    /// Serves a file or tree until the future is dropped, under the same ticket as last time if it has not changed; or until as
    /// many nodes as may fetch by it have all of it: then the ticket is taken back, and the future completes. Events:
    /// the ticket at once, files that are left out, a summary when all has been read, and who fetches. The client of a
    /// daemon refuses: a share listens where its own command says, and a daemon serves what is put.
    fn share(
        &self,
        request: ShareRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Fetches what a ticket names, whole, and serves others by the same ticket until the future is dropped: what has come while
    /// the get runs, and all of it afterwards. Events: a ticket that names this node too, those of [`Self::get`], a summary
    /// when all is here, and who fetches. The client of a daemon refuses, as with [`Self::share`].
    fn get_and_stay(
        &self,
        request: GetRequest,
        stay: StayRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<Infallible, ApiError>>;

    /// Begins a session, which holds what is put under its name.
    fn session(&self) -> BoxFuture<'_, Result<Session, ApiError>>;

    /// Lists what is put and not done, and what is cached.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Vec<Object>, ApiError>>;

    /// Gives a put back; the name is a ticket or an OID.
    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Removes what nobody needs.
    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReply, ApiError>>;

    /// The service's own state.
    fn status(&self) -> BoxFuture<'_, Result<Status, ApiError>>;

    /// Events of all transfers, from now on. A listener that is too slow misses some, and is
    /// informed how many.
    fn events(&self) -> BoxFuture<'_, Result<mpsc::Receiver<TransferEvent>, ApiError>>;
}
