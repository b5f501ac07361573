//! Connections on the local socket, within limits: whoever is too many gets an error, whoever is not
//! the user is closed, and whoever does not finish a request's head is not waited for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use towpath_api::{ApiError, ErrorKind};

use crate::Socket;
use crate::connection::{LocalStream, PipelineSlot, ReaderWaitLimit};
use crate::problem::CallFailure;
use crate::routes;
use towpath_service::InProcess;

/// Connections that are being answered 503. A further one is closed.
const MAX_TURNED_AWAY: usize = 256;
/// Longest time for a request's head, and for a connection to be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for answering one that is too many.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that requests under way have at the end; a transfer goes on when it is asked for again.
const GRACE: Duration = Duration::from_secs(1);
/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);
/// Read buffer of a connection, and the longest head of a request. Bounds memory together with
/// `limits.local_connections`.
const BUFFER: usize = 32 << 10;

/// Calls whose answers hold memory while the application does not read on. Others may go unread for ever:
/// a session's stream holds leases.
const CONTENT: [&str; 2] = ["/v1/content", "/v1/chunks"];

/// Answers on `socket` until `end` completes.
pub(crate) async fn run(socket: &Socket, api: InProcess, end: impl Future<Output = ()>) {
    let routes = routes::router(api.clone());
    let (ending, aborting) = (CancellationToken::new(), CancellationToken::new());
    let _abort = aborting.clone().drop_guard();
    let connections = TaskTracker::new();
    let turned_away = Arc::new(Semaphore::new(MAX_TURNED_AWAY));
    tokio::pin!(end);
    loop {
        let stream = tokio::select! {
            stream = accept(socket) => stream,
            () = &mut end => break,
        };
        let limit = api.0.config().limits.local_connections.0;
        if (connections.len() as u64) < limit {
            let (routes, ending, aborting) = (routes.clone(), ending.clone(), aborting.clone());
            let api = api.clone();
            connections.spawn(async move {
                tokio::select! {
                    () = serve(stream, routes, api, ending) => {}
                    () = aborting.cancelled() => {}
                }
            });
        } else if let Ok(permit) = Arc::clone(&turned_away).try_acquire_owned() {
            tokio::spawn(turn_away(stream, limit, permit));
        }
    }
    ending.cancel();
    connections.close();
    let _ = tokio::time::timeout(GRACE, connections.wait()).await;
}

async fn accept(socket: &Socket) -> UnixStream {
    loop {
        match socket.listener.accept().await {
            Ok((stream, _)) if is_own_user(&stream) => return stream,
            Ok(_) => tracing::warn!("refused another user on the local socket"),
            Err(error) => {
                tracing::warn!(%error, "could not accept on the local socket");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Nobody but the user that runs the daemon, and root.
fn is_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER);
    http
}

async fn serve(stream: UnixStream, routes: Router, api: InProcess, ending: CancellationToken) {
    let (slot, wait_limit) = (PipelineSlot::default(), ReaderWaitLimit::default());
    let io = TokioIo::new(LocalStream::new(stream, slot.clone(), wait_limit.clone()));
    let routes = TowerToHyperService::new(routes);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        // A pipeline slot that the call does not take is closed here, and a later request finds nothing.
        let passed = PipelineSlot::of(slot.take());
        request.extensions_mut().insert(passed);
        let is_content = CONTENT.contains(&request.uri().path());
        wait_limit.limit(if is_content { api.0.config().limits.reader_stall.0 } else { 0 });
        routes.call(request)
    });
    let connection = http().serve_connection(io, answer);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a local connection ended");
    }
}

/// Reads a request and says that there are too many.
async fn turn_away(stream: UnixStream, limit: u64, _permit: OwnedSemaphorePermit) {
    let answer = service_fn(move |_request: Request<Incoming>| async move {
        let message = format!("{limit} local connections are open already (limits.local_connections)");
        let error = ApiError::new(ErrorKind::Busy, message).hint("close some, or try again later");
        let mut response: Response<Body> = CallFailure::from(error).into_response();
        response.headers_mut().insert("connection", axum::http::HeaderValue::from_static("close"));
        Ok::<_, Infallible>(response)
    });
    let connection = http().serve_connection(TokioIo::new(stream), answer);
    let _ = tokio::time::timeout(TURN_AWAY_TIMEOUT, connection).await;
}
