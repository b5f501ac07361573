//! Calls that are answered at once: what is here, and giving it back.

use axum::extract::State;
use axum::response::IntoResponse;
use towpath_api::{Api, GcReply, GcRequest, ListRequest, Object, Status};

use crate::problem::{CallFailure, JsonBody, ProblemReply, RequestQuery, answer};
use towpath_service::InProcess;

pub(crate) async fn list(
    State(api): State<InProcess>,
    RequestQuery(request): RequestQuery<ListRequest>,
) -> ProblemReply<Vec<Object>> {
    answer(api.list(request).await)
}

pub(crate) async fn done(
    State(api): State<InProcess>,
    JsonBody(name): JsonBody<String>,
) -> Result<impl IntoResponse, CallFailure> {
    answer(api.done(name).await)
}

pub(crate) async fn gc(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<GcRequest>,
) -> ProblemReply<GcReply> {
    answer(api.gc(request).await)
}

pub(crate) async fn status(State(api): State<InProcess>) -> ProblemReply<Status> {
    answer(api.status().await)
}
