//! Calls whose answers are events: gets into files, copies, indexing. The client that goes away ends its call: what is
//! here is kept.

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use towpath_api::copy::CopyRequest;
use towpath_api::{Api, GetRequest, IndexRequest};

use super::body::BodyReader;
use super::connection::{PassedBytes, PipelineSlot};
use super::lines::events_of;
use super::problem::{CallFailure, JsonBody, wrong};
use crate::copy;
use crate::in_process::InProcess;
use crate::metrics::Direction;

/// The longest request of a copy: it may have a list of files.
const MAX_COPY: usize = 8 << 20;

pub(super) async fn get(State(api): State<InProcess>, JsonBody(request): JsonBody<GetRequest>) -> Response {
    events_of(move |events| async move { api.get(request, events).await })
}

pub(super) async fn index(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<IndexRequest>,
) -> Response {
    events_of(move |events| async move { api.index(request, events).await })
}

/// The other side's socket comes with the first byte of the connection, if the copy has one.
pub(super) async fn copy(
    State(api): State<InProcess>,
    Extension(slot): Extension<PipelineSlot>,
    request: Request,
) -> Result<Response, CallFailure> {
    // Before the request is in memory.
    let admitted = match api.0.admission.begin_anywhere(Direction::Copy) {
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
