//! Gets into files, as events. The client that goes away cancels its get: what is here is kept.

use axum::extract::State;
use axum::response::Response;
use tokio::sync::mpsc;
use towpath_api::{Api, Event, GetRequest};

use super::lines::stream;
use super::problem::JsonBody;
use crate::in_process::InProcess;

pub(super) async fn get(State(api): State<InProcess>, JsonBody(request): JsonBody<GetRequest>) -> Response {
    let (events, inbox) = mpsc::channel(16);
    let work = async move {
        let end = match api.get(request, events.clone()).await {
            Ok(summary) => Event::Summary(summary),
            Err(error) => Event::Failed(error),
        };
        let _ = events.send(end).await;
    };
    stream(work, inbox)
}
