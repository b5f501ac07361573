//! Puts: of a file or tree by name, of a stream, in parts, and by an open descriptor.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::mpsc;
use towpath_api::{
    Api, DescriptorRequest, Event, OpenPutRequest, PartReply, PutReply, PutRequest, PutsInParts, Summary,
};

use crate::body::BodyReader;
use crate::connection::{PassedBytes, PipelineSlot};
use crate::descriptor;
use crate::lines::{events_of, stream};
use crate::problem::{CallFailure, JsonBody, OptionalJson, Path, ProblemReply, RequestQuery, answer, wrong};
use towpath_service::InProcess;
use towpath_service::boundaries::Boundaries;
use towpath_service::parts::{self, Part};
use towpath_service::put::OpenStream;
use towpath_service::state::parse_name;

pub(crate) async fn put(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<PutRequest>,
) -> ProblemReply<PutReply> {
    answer(api.put(request).await)
}

/// The same, and tells what becomes of it. The client that goes away ends nothing.
pub(crate) async fn put_to_end(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<PutRequest>,
) -> Response {
    events_of(move |events| async move { api.put_to_end(request, events).await })
}

/// A put whose bytes are the body; the ticket is the answer's first line.
pub(crate) async fn put_stream(
    State(api): State<InProcess>,
    RequestQuery(request): RequestQuery<OpenPutRequest>,
    body: Body,
) -> Result<Response, CallFailure> {
    let mut body = BodyReader::new(body);
    let (put, ticket) = match OpenStream::begin(&api.0, &request) {
        Ok(begun) => begun,
        Err(error) => {
            body.drain().await;
            return Err(error.into());
        }
    };
    let (events, inbox) = mpsc::channel(4);
    let work = async move {
        let _ = events.send(Event::Ticket(ticket)).await;
        let end = match put.fill(Box::new(body), &Boundaries::default()).await {
            Ok(reply) => {
                Event::Summary(Summary { oid: reply.oid, bytes: reply.size.unwrap_or(0), ..Summary::here() })
            }
            Err(error) => Event::Failed(error),
        };
        let _ = events.send(end).await;
    };
    Ok(stream(work, inbox))
}

/// Offset of a part, and whether a chunk ends with it.
#[derive(Debug, Deserialize)]
pub(crate) struct PutOffset {
    offset: u64,
    #[serde(default)]
    boundary: bool,
}

pub(crate) async fn open(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<OpenPutRequest>,
) -> ProblemReply<PutReply> {
    answer(api.open_put(request).await)
}

pub(crate) async fn data(
    State(api): State<InProcess>,
    Path(id): Path<String>,
    RequestQuery(PutOffset { offset, boundary }): RequestQuery<PutOffset>,
    body: Body,
) -> ProblemReply<PartReply> {
    let mut body = BodyReader::new(body);
    let part = Part { offset, boundary };
    let result = match parse_name(&id) {
        Ok(live) => parts::append(&api.0, &live, part, Box::new(&mut body)).await,
        Err(error) => Err(error),
    };
    if result.is_err() {
        body.drain().await;
    }
    answer(result)
}

pub(crate) async fn look(State(api): State<InProcess>, Path(id): Path<String>) -> ProblemReply<PartReply> {
    let size = parts::size(&api.0, &parse_name(&id)?).await?;
    Ok(Json(PartReply { size }))
}

pub(crate) async fn commit(State(api): State<InProcess>, Path(id): Path<String>) -> ProblemReply<PutReply> {
    answer(api.commit_put(id).await)
}

pub(crate) async fn abort(State(api): State<InProcess>, Path(id): Path<String>) -> ProblemReply<()> {
    answer(api.abort_put(id).await)
}

/// A put of the descriptor that came with the request's first byte.
pub(crate) async fn put_descriptor(
    State(api): State<InProcess>,
    Extension(slot): Extension<PipelineSlot>,
    RequestQuery(request): RequestQuery<OpenPutRequest>,
    said: Request,
) -> impl IntoResponse {
    const CLOSE: [(HeaderName, &str); 1] = [(header::CONNECTION, "close")];
    let passed = match slot.take() {
        PassedBytes::Descriptor(passed) => Ok(passed),
        PassedBytes::Nothing => {
            let message = "no descriptor came with the first byte of this connection";
            Err(wrong(StatusCode::BAD_REQUEST, message))
        }
        PassedBytes::TooMany => Err(wrong(
            StatusCode::BAD_REQUEST,
            "more than one descriptor came along; all of them were closed",
        )),
    };
    let answered: ProblemReply<PutReply> = match (passed, boundaries(said).await) {
        (Ok(passed), Ok(boundaries)) => {
            let put = descriptor::put(&api.0, passed, &request, boundaries).await;
            put.map(Json).map_err(CallFailure::from)
        }
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    };
    (CLOSE, answered)
}

/// Chunk boundaries in a request's body; it need not have one.
async fn boundaries(request: Request) -> Result<Boundaries, CallFailure> {
    let OptionalJson(said) = OptionalJson::<DescriptorRequest>::from_request(request, &()).await?;
    Ok(Boundaries::new(&said.boundaries)?)
}
