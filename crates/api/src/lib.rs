//! The local API: what an application says to the service and what it hears back.
//!
//! [`Api`] is the one trait. The daemon implements it in process; [`client::Client`] implements it
//! over the daemon's Unix socket, so a front end does not see the difference. Messages are JSON
//! over HTTP/1.1; events are one JSON object a line (`docs/formats/local-api.md`).
//!
//! | call | HTTP |
//! |---|---|
//! | [`Api::put`] | `POST /v1/put` |
//! | [`Api::put_stream`] | `POST /v1/put-stream`, the bytes as body |
//! | [`Api::get`] | `POST /v1/get`, events as body |
//! | [`Api::list`] | `GET /v1/objects` |
//! | [`Api::done`] | `POST /v1/done` |
//! | [`Api::status`] | `GET /v1/status` |

pub mod client;
pub mod messages;
mod paths;

use std::future::Future;
use std::pin::Pin;

use tokio::io::AsyncRead;
use tokio::sync::mpsc;

pub use client::Client;
pub use messages::{
    ApiError, ErrorKind, Event, GetRequest, Object, Progress, PutReply, PutRequest, Seconds, Status, Summary,
};

/// A boxed future, so that the API can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes on their way into a put.
pub type Input<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;

/// The service, in process or behind the socket.
pub trait Api: Send + Sync {
    /// Hands a file or a tree to the service; its ticket comes at once.
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>>;

    /// Hands bytes to the service as they are produced. The ticket is sent through `ticket` before
    /// the first byte is read; the call returns when the input has ended and the object is whole.
    fn put_stream<'a>(
        &'a self,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>>;

    /// Fetches into a file or directory. Events come while it goes on; the last is a summary.
    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>>;

    /// What is put and not done.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Object>, ApiError>>;

    /// Gives a put back; the name is a ticket or an OID.
    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>>;

    /// The service's own state.
    fn status(&self) -> BoxFuture<'_, Result<Status, ApiError>>;
}
