//! Calls whose answers are events: gets into files, copies, indexing. The client that goes away ends its call: what is
//! here is kept.

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use towpath_api::copy::CopyRequest;
use towpath_api::{Api, GetRequest, IndexRequest};

use crate::body::BodyReader;
use crate::connection::{PassedBytes, PipelineSlot};
use crate::lines::events_of;
use crate::problem::{CallFailure, JsonBody, wrong};
use towpath_service::InProcess;
use towpath_service::copy;

/// The longest request of a copy: it may have a list of files.
const MAX_COPY: usize = 8 << 20;

pub(crate) async fn get(State(api): State<InProcess>, JsonBody(request): JsonBody<GetRequest>) -> Response {
    events_of(move |events| async move { api.get(request, events).await })
}

pub(crate) async fn index(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<IndexRequest>,
) -> Response {
    events_of(move |events| async move { api.index(request, events).await })
}

/// The other side's socket comes with the first byte of the connection, if the copy has one.
pub(crate) async fn copy(
    State(api): State<InProcess>,
    Extension(slot): Extension<PipelineSlot>,
    request: Request,
) -> Result<Response, CallFailure> {
    // Before the request is in memory.
    let admitted = match api.0.begin_copy() {
        Ok(admitted) => admitted,
        Err(error) => {
            BodyReader::new(request.into_body()).drain().await;
            return Err(error.into());
        }
    };
    let JsonBody(mut request) = JsonBody::<CopyRequest, MAX_COPY>::from_request(request, &()).await?;
    request.reached = match slot.take() {
        PassedBytes::Descriptor(socket) => Some(socket),
        PassedBytes::Nothing => None,
        PassedBytes::TooMany => {
            return Err(wrong(StatusCode::BAD_REQUEST, "more than one descriptor came along"));
        }
    };
    copy::check(&api.0, &request)?;
    Ok(events_of(move |events| async move {
        let copied = api.copy(request, events).await;
        if copied.is_ok() {
            admitted.done();
        }
        copied
    }))
}
