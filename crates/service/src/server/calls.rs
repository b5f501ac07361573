//! Calls that are answered at once: what is here, and giving it back.

use axum::extract::State;
use axum::response::IntoResponse;
use towpath_api::{Api, GcReply, GcRequest, ListRequest, Object, Status};

use super::problem::{Answer, Failure, JsonBody, Query, answer};
use crate::in_process::InProcess;

pub(super) async fn list(
    State(api): State<InProcess>,
    Query(request): Query<ListRequest>,
) -> Answer<Vec<Object>> {
    answer(api.list(request).await)
}

pub(super) async fn done(
    State(api): State<InProcess>,
    JsonBody(name): JsonBody<String>,
) -> Result<impl IntoResponse, Failure> {
    answer(api.done(name).await)
}

pub(super) async fn gc(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<GcRequest>,
) -> Answer<GcReply> {
    answer(api.gc(request).await)
}

pub(super) async fn status(State(api): State<InProcess>) -> Answer<Status> {
    answer(api.status().await)
}
