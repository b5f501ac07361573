//! The API over the daemon's Unix socket.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::copy::{CopyEvent, CopyRequest, CopySummary};
use crate::messages::{
    AnswerLine, ApiError, CallEnd, ContentRequest, ErrorKind, Event, GcReply, GcRequest, GetRequest,
    IndexRequest, Indexed, ListRequest, Object, OpenPutRequest, PartReply, Problem, PutReply, PutRequest,
    ShareRequest, Status, StayRequest, Summary, TransferEvent,
};
use crate::passing::PassingStream;
use crate::{Api, BoxFuture, Content, Input, Parts, PutsInParts, Session};

type RequestBody = BoxBody<Bytes, io::Error>;

/// The longest answer taken whole into memory.
const MAX_ANSWER: usize = 64 << 20;
/// The longest line of an event stream.
const MAX_LINE: usize = 1 << 20;
/// Bytes of a streamed put sent at once.
const PART: usize = 256 << 10;

/// Speaks to a daemon.
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon at `socket`; `None` if none answers there.
    pub async fn connect(socket: &Path) -> Option<Self> {
        UnixStream::connect(socket).await.ok()?;
        Some(Self { socket: socket.to_path_buf() })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
    ) -> Result<Response<Incoming>, ApiError> {
        self.send_with(method, path, body, None).await
    }

    /// Sends a request, and a descriptor with its first byte.
    async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
        descriptor: Option<OwnedFd>,
    ) -> Result<Response<Incoming>, ApiError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.lost(&error))?;
        let stream = PassingStream::new(stream, descriptor);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.lost(&error))?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "towpath").header("content-type", "application/json").body(body);
        let request = request.map_err(|error| ApiError::new(ErrorKind::Usage, error.to_string()))?;
        sender.send_request(request).await.map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &dyn std::error::Error) -> ApiError {
        let message = format!("the daemon at {} does not answer: {error}", self.socket.display());
        ApiError::new(ErrorKind::Unreachable, message).hint("see whether 'tow daemon' is still running")
    }

    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        question: Option<&Q>,
    ) -> Result<A, ApiError> {
        let response = self.good(self.send(method, path, json_body(question)?).await?).await?;
        parse(&self.whole(response).await?)
    }

    /// The response, unless it tells of a problem.
    async fn good(&self, response: Response<Incoming>) -> Result<Response<Incoming>, ApiError> {
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        Err(parse::<Problem>(&self.whole(response).await?)?.into())
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ApiError> {
        let limited = http_body_util::Limited::new(response.into_body(), MAX_ANSWER);
        Ok(limited.collect().await.map_err(|error| self.lost(&*error))?.to_bytes())
    }

    /// Sends a request and hands each event of its answer on; returns the one that ends it.
    async fn events(
        &self,
        path: &str,
        body: RequestBody,
        events: &mpsc::Sender<Event>,
    ) -> Result<Event, ApiError> {
        let mut lines = self.lines(Method::POST, path, body).await?;
        while let Some(event) = lines.next().await? {
            match event {
                end @ (Event::Summary(_) | Event::Failed(_)) => return Ok(end),
                event => drop(events.send(event).await),
            }
        }
        Err(cut_short())
    }

    /// Sends a request, and a descriptor with it, and hands each event of its answer on, up to its end.
    async fn to_end<Q: Serialize, S: DeserializeOwned, E: DeserializeOwned>(
        &self,
        path: &str,
        request: Q,
        descriptor: Option<OwnedFd>,
        events: mpsc::Sender<E>,
    ) -> Result<S, ApiError> {
        let answer = self.send_with(Method::POST, path, json_body(Some(&request))?, descriptor).await?;
        let mut lines = AnswerLines::of(self.good(answer).await?);
        while let Some(line) = lines.next().await? {
            match line {
                AnswerLine::Event(event) => drop(events.send(event).await),
                AnswerLine::End(CallEnd::Summary(summary)) => return Ok(summary),
                AnswerLine::End(CallEnd::Failed(error)) => return Err(error),
            }
        }
        Err(cut_short())
    }

    /// Sends a request whose answer is one object a line.
    async fn lines(&self, method: Method, path: &str, body: RequestBody) -> Result<AnswerLines, ApiError> {
        Ok(AnswerLines::of(self.good(self.send(method, path, body).await?).await?))
    }

    async fn part(&self, id: String, offset: u64, part: Input<'_>) -> Result<PartReply, ApiError> {
        let (parts, inbox) = mpsc::channel(2);
        let path = format!("/v1/puts/{id}/data?offset={offset}");
        let sending = async {
            let response =
                self.send(Method::POST, &path, BodyExt::boxed(StreamBody::new(FrameStream(inbox)))).await?;
            parse(&self.whole(self.good(response).await?).await?)
        };
        let (reply, ()) = tokio::join!(sending, pump(part, parts));
        reply
    }
}

fn cut_short() -> ApiError {
    ApiError::new(ErrorKind::Unreachable, "the daemon ended in the middle of the request")
        .hint("run the same command again: it goes on where it was")
}

fn json_body<Q: Serialize>(question: Option<&Q>) -> Result<RequestBody, ApiError> {
    let bytes = match question {
        Some(question) => serde_json::to_vec(question)
            .map_err(|error| ApiError::new(ErrorKind::Usage, error.to_string()))?,
        None => Vec::new(),
    };
    Ok(Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed())
}

fn parse<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::new(ErrorKind::Failed, format!("the daemon's answer is not understood: {error}"))
    })
}

/// An answer of one object a line, as it comes.
struct AnswerLines {
    body: Incoming,
    lines: Lines,
}

impl AnswerLines {
    fn of(answer: Response<Incoming>) -> Self {
        Self { body: answer.into_body(), lines: Lines::default() }
    }

    async fn next<A: DeserializeOwned>(&mut self) -> Result<Option<A>, ApiError> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return parse(&line).map(Some);
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| {
                ApiError::new(ErrorKind::Unreachable, format!("the daemon's answer was cut off: {error}"))
            })?;
            self.lines.feed(frame.data_ref().map_or(&[][..], |data| data))?;
        }
    }
}

/// Hands an answer's bytes on; an answer that is cut off ends in an error.
async fn take_apart(mut body: Incoming, parts: mpsc::Sender<io::Result<Bytes>>) {
    while let Some(frame) = body.frame().await {
        let part = frame.map_err(io::Error::other).map(|frame| frame.into_data().unwrap_or_default());
        let failed = part.is_err();
        if parts.send(part).await.is_err() || failed {
            return;
        }
    }
}

/// Bytes as lines.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > MAX_LINE && !self.buffer.contains(&b'\n') {
            return Err(ApiError::new(ErrorKind::Failed, "the daemon's answer has an endless line"));
        }
        Ok(())
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.iter().position(|&byte| byte == b'\n')?;
        let rest = self.buffer.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.pop();
        Some(line)
    }
}

/// Reads `input` to its end and hands it on in parts; an input that fails fails the body.
async fn pump(mut input: Input<'_>, parts: mpsc::Sender<Result<Frame<Bytes>, io::Error>>) {
    loop {
        let mut part = Vec::with_capacity(PART);
        let read = (&mut input).take(PART as u64).read_to_end(&mut part).await;
        let is_end = matches!(read, Ok(0));
        let frame = read.map(|_| Frame::data(Bytes::from(part)));
        let failed = frame.is_err();
        if is_end || parts.send(frame).await.is_err() || failed {
            return;
        }
    }
}

/// The parts as a stream, for a body.
struct FrameStream(mpsc::Receiver<Result<Frame<Bytes>, io::Error>>);

impl futures_core::Stream for FrameStream {
    type Item = Result<Frame<Bytes>, io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

impl PutsInParts for Client {
    fn open_put(&self, request: OpenPutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { self.call(Method::POST, "/v1/puts", Some(&request)).await })
    }

    fn put_part<'a>(
        &'a self,
        id: String,
        offset: u64,
        part: Input<'a>,
    ) -> BoxFuture<'a, Result<PartReply, ApiError>> {
        Box::pin(self.part(id, offset, part))
    }

    fn commit_put(&self, id: String) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { self.call(Method::POST, &format!("/v1/puts/{id}/commit"), None::<&()>).await })
    }

    fn abort_put(&self, id: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move { self.call(Method::DELETE, &format!("/v1/puts/{id}"), None::<&()>).await })
    }
}

impl Api for Client {
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { self.call(Method::POST, "/v1/put", Some(&request)).await })
    }

    fn put_to_end<'a>(
        &'a self,
        request: PutRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(self.to_end("/v1/put-to-end", request, None, events))
    }

    fn put_stream<'a>(
        &'a self,
        request: OpenPutRequest,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>> {
        Box::pin(async move {
            let query = serde_urlencoded::to_string(&request)
                .map_err(|error| ApiError::new(ErrorKind::Usage, error.to_string()))?;
            let path = format!("/v1/put-stream?{query}");
            let (parts, inbox) = mpsc::channel(2);
            let (events, mut answers) = mpsc::channel(4);
            let body = BodyExt::boxed(StreamBody::new(FrameStream(inbox)));
            let mut last = None;
            let listening = async {
                while let Some(event) = answers.recv().await {
                    if let Event::Ticket(reply) = event {
                        last = Some(reply.clone());
                        let _ = ticket.send(reply).await;
                    }
                }
            };
            let sending = async move { self.events(&path, body, &events).await };
            let (end, (), ()) = tokio::join!(sending, pump(input, parts), listening);
            match (end?, last) {
                (Event::Failed(error), _) => Err(error),
                (Event::Summary(summary), Some(reply)) => {
                    Ok(PutReply { oid: summary.oid, size: Some(summary.bytes), ..reply })
                }
                _ => Err(ApiError::new(ErrorKind::Failed, "the daemon gave no ticket")),
            }
        })
    }

    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(self.to_end("/v1/get", request, None, events))
    }

    fn content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Content, ApiError>> {
        Box::pin(async move {
            let response = self.send(Method::POST, "/v1/content", json_body(Some(&request))?).await?;
            let response = self.good(response).await?;
            let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
            let oid = header("etag").map(|tag| tag.trim_matches('"').to_owned());
            let size = header("content-length").and_then(|length| length.parse().ok());
            let (parts, inbox) = mpsc::channel(2);
            tokio::spawn(take_apart(response.into_body(), parts));
            Ok(Content { oid, size, bytes: Parts::new(inbox) })
        })
    }

    fn copy(
        &self,
        mut request: CopyRequest,
        events: mpsc::Sender<CopyEvent>,
    ) -> BoxFuture<'_, Result<CopySummary, ApiError>> {
        let reached = request.reached.take();
        Box::pin(self.to_end("/v1/copy", request, reached, events))
    }

    fn index(
        &self,
        request: IndexRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<Indexed, ApiError>> {
        Box::pin(self.to_end("/v1/index", request, None, events))
    }

    fn share(&self, _: ShareRequest, _: mpsc::Sender<Event>) -> BoxFuture<'_, Result<(), ApiError>> {
        let refusal = ApiError::new(ErrorKind::Usage, "a daemon serves what is put");
        Box::pin(std::future::ready(Err(refusal.hint("put it instead: its ticket is good until it is done"))))
    }

    fn get_and_stay(
        &self,
        _: GetRequest,
        _: StayRequest,
        _: mpsc::Sender<Event>,
    ) -> BoxFuture<'_, Result<Infallible, ApiError>> {
        let refusal = ApiError::new(ErrorKind::Usage, "a daemon passes nothing on of what it gets");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn session(&self) -> BoxFuture<'_, Result<Session, ApiError>> {
        Box::pin(async move {
            let mut lines = self.lines(Method::POST, "/v1/sessions", json_body(None::<&()>)?).await?;
            match lines.next().await? {
                Some(Event::Session { session }) => Ok(Session { id: session, open: Box::new(lines) }),
                _ => Err(ApiError::new(ErrorKind::Failed, "the daemon began no session")),
            }
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Vec<Object>, ApiError>> {
        Box::pin(async move {
            let path = if request.cached { "/v1/objects?cached=true" } else { "/v1/objects" };
            self.call(Method::GET, path, None::<&()>).await
        })
    }

    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReply, ApiError>> {
        Box::pin(async move { self.call(Method::POST, "/v1/gc", Some(&request)).await })
    }

    fn events(&self) -> BoxFuture<'_, Result<mpsc::Receiver<TransferEvent>, ApiError>> {
        Box::pin(async move {
            let mut lines = self.lines(Method::GET, "/v1/events", json_body(None::<&()>)?).await?;
            let (events, inbox) = mpsc::channel(16);
            tokio::spawn(async move {
                loop {
                    let event = tokio::select! {
                        event = lines.next() => event,
                        () = events.closed() => return,
                    };
                    let Ok(Some(event)) = event else { return };
                    let _ = events.send(event).await;
                }
            });
            Ok(inbox)
        })
    }

    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move { self.call(Method::POST, "/v1/done", Some(&name)).await })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, ApiError>> {
        Box::pin(async move { self.call(Method::GET, "/v1/status", None::<&()>).await })
    }
}
