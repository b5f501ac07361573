//! HTTP over hyper for `object_store`: one pool of connections, TLS by rustls, and a limit on each wait.
//!
//! Every request of a byte store may be repeated, since a name has one content for ever. So all that goes
//! wrong on the way is reported as an error to be tried again. An answer that says "no room" is not: it
//! would be the same each time.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Time for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time for a request and the head of its answer: a part on a slow line takes long.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// Time in which some bytes of an answer come.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// Connections that are kept for the next request.
const IDLE_CONNECTIONS: usize = 64;
/// Time for which they are.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Makes clients over hyper.
#[derive(Debug)]
pub(crate) struct OverHyper;

/// The server has no room.
#[derive(Debug)]
pub(crate) struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server answers 507 Insufficient Storage")
    }
}

impl Error for NoRoom {}

impl HttpConnector for OverHyper {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let generic = |source: io::Error| object_store::Error::Generic { store: "S3", source: source.into() };
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        let roots = HttpsConnectorBuilder::new().with_native_roots().map_err(generic)?;
        let connector = roots.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(HttpClient::new(HyperService(client)))
    }
}

#[derive(Debug)]
struct HyperService(Client<HttpsConnector<TcpConnector>, HttpRequestBody>);

#[async_trait]
impl HttpService for HyperService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = timeout(ANSWER_LIMIT, self.0.request(request)).await;
        let answer = answer.map_err(|_| again(io::Error::from(io::ErrorKind::TimedOut)))?.map_err(again)?;
        if answer.status() == StatusCode::INSUFFICIENT_STORAGE {
            return Err(HttpError::new(HttpErrorKind::Unknown, NoRoom));
        }
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(head, HttpResponseBody::new(NoStall::new(body.map_err(again).boxed()))))
    }
}

/// An error that another attempt may not meet.
fn again(error: impl Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Request, error)
}

type BoxBody = http_body_util::combinators::BoxBody<Bytes, HttpError>;

/// A body that fails once nothing of it came for too long.
struct NoStall {
    body: BoxBody,
    deadline: Pin<Box<Sleep>>,
}

impl NoStall {
    fn new(body: BoxBody) -> Self {
        Self { body, deadline: Box::pin(sleep(STALL_LIMIT)) }
    }
}

impl Body for NoStall {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.deadline.as_mut().reset(Instant::now() + STALL_LIMIT);
            return Poll::Ready(frame);
        }
        let is_late = self.deadline.as_mut().poll(cx).is_ready();
        match is_late {
            true => Poll::Ready(Some(Err(again(io::Error::from(io::ErrorKind::TimedOut))))),
            false => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
