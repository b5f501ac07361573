//! The local API over a Unix socket of the user's own: HTTP/1.1 with JSON, events one a line.
//!
//! The socket lies in a folder that only its owner can enter, has mode 0600, and a peer of another
//! user is refused whatever the file system allows.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use towpath_api::{Api, ApiError, ErrorKind, Event, GetRequest, PutRequest, Summary};

use crate::errors;
use crate::service::{InProcess, Service};

/// How long requests under way have at the end; a transfer goes on when it is asked for again.
const GRACE: std::time::Duration = std::time::Duration::from_secs(1);

/// The socket of a running server; dropping it removes the file.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Binds the socket; a stale one is replaced, a daemon that answers is an error.
    pub async fn bind(path: &Path) -> Result<Self, ApiError> {
        let folder = path.parent().unwrap_or(path);
        private_folder(folder).map_err(|error| errors::io("create", folder, &error))?;
        if UnixStream::connect(path).await.is_ok() {
            let message = format!("a daemon is already running at {}", path.display());
            return Err(ApiError::new(ErrorKind::Exists, message)
                .hint("stop it first, or set TOW_HOME to another folder"));
        }
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(|error| errors::io("listen on", path, &error))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| errors::io("protect", path, &error))?;
        Ok(Self { listener, path: path.into() })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Answers on `socket` until `end` completes.
pub async fn serve(
    socket: Socket,
    service: Arc<Service>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ApiError> {
    let routes = Router::new()
        .route("/v1/put", post(put))
        .route("/v1/put-stream", post(put_stream).layer(DefaultBodyLimit::disable()))
        .route("/v1/get", post(fetch))
        .route("/v1/objects", get(list))
        .route("/v1/done", post(done))
        .route("/v1/status", get(status))
        .fallback(async || problem(ApiError::new(ErrorKind::NotFound, "the local API has no such call")))
        .with_state(InProcess(service));
    let listener = OwnUserListener(socket);
    let ending = CancellationToken::new();
    let asked = ending.clone();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(async move {
        end.await;
        asked.cancel();
    });
    let grace = async {
        ending.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serving.into_future() => {
            served.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))
        }
        () = grace => Ok(()),
    }
}

/// Lets in nobody but the user that runs the daemon, and root.
struct OwnUserListener(Socket);

impl axum::serve::Listener for OwnUserListener {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.0.listener.accept().await {
                Ok((stream, address)) if is_own_user(&stream) => return (stream, address),
                Ok(_) => tracing::warn!("refused another user on the local socket"),
                Err(error) => {
                    tracing::warn!(%error, "could not accept on the local socket");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.listener.local_addr()
    }
}

fn is_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn problem(error: ApiError) -> Response {
    let status = match error.kind {
        ErrorKind::Usage => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Exists => StatusCode::CONFLICT,
        ErrorKind::Refused => StatusCode::FORBIDDEN,
        ErrorKind::Unreachable => StatusCode::BAD_GATEWAY,
        ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Corrupt | ErrorKind::Changed | ErrorKind::Interrupted | ErrorKind::Failed => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    (status, Json(error)).into_response()
}

fn answer<T: serde::Serialize>(result: Result<T, ApiError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => problem(error),
    }
}

async fn put(State(api): State<InProcess>, Json(request): Json<PutRequest>) -> Response {
    answer(api.put(request).await)
}

async fn list(State(api): State<InProcess>) -> Response {
    answer(api.list().await)
}

async fn done(State(api): State<InProcess>, Json(name): Json<String>) -> Response {
    answer(api.done(name).await)
}

async fn status(State(api): State<InProcess>) -> Response {
    answer(api.status().await)
}

/// The events of a request as lines. The client that goes away cancels it: what is here is kept.
async fn fetch(State(api): State<InProcess>, Json(request): Json<GetRequest>) -> Response {
    let (events, inbox) = mpsc::channel(16);
    let work = async move {
        let end = match api.get(request, events.clone()).await {
            Ok(summary) => Event::Summary(summary),
            Err(error) => Event::Failed(error),
        };
        let _ = events.send(end).await;
    };
    stream_events(work, inbox)
}

async fn put_stream(State(api): State<InProcess>, body: Body) -> Response {
    let (events, inbox) = mpsc::channel(4);
    let work = async move {
        let (ticket, mut tickets) = mpsc::channel(1);
        let input = Box::new(BodyReader { body: body.into_data_stream(), part: Bytes::new() });
        let telling = async {
            if let Some(reply) = tickets.recv().await {
                let _ = events.send(Event::Ticket(reply)).await;
            }
        };
        let (result, ()) = tokio::join!(api.put_stream(input, ticket), telling);
        let end = match result {
            Ok(reply) => Event::Summary(Summary {
                oid: reply.oid,
                bytes: reply.size.unwrap_or(0),
                ..Summary::default()
            }),
            Err(error) => Event::Failed(error),
        };
        let _ = events.send(end).await;
    };
    stream_events(work, inbox)
}

fn stream_events(work: impl Future<Output = ()> + Send + 'static, inbox: mpsc::Receiver<Event>) -> Response {
    let task = tokio::spawn(work);
    let body = Body::from_stream(EventLines { inbox, task });
    ([("content-type", "application/x-ndjson")], body).into_response()
}

/// Events as lines; dropped with the connection, it ends the work.
struct EventLines {
    inbox: mpsc::Receiver<Event>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for EventLines {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl futures_core::Stream for EventLines {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.inbox.poll_recv(context).map(|event| {
            let mut line = serde_json::to_vec(&event?).unwrap_or_default();
            line.push(b'\n');
            Some(Ok(line.into()))
        })
    }
}

/// A request's body as a reader.
struct BodyReader {
    body: axum::body::BodyDataStream,
    part: Bytes,
}

impl tokio::io::AsyncRead for BodyReader {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        use futures_core::Stream;
        while self.part.is_empty() {
            let this = &mut *self;
            match std::task::ready!(std::pin::Pin::new(&mut this.body).poll_next(context)) {
                Some(Ok(part)) => self.part = part,
                Some(Err(error)) => return std::task::Poll::Ready(Err(std::io::Error::other(error))),
                None => return std::task::Poll::Ready(Ok(())),
            }
        }
        let len = self.part.len().min(buf.remaining());
        buf.put_slice(&self.part.split_to(len));
        std::task::Poll::Ready(Ok(()))
    }
}
