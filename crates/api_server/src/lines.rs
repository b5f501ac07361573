//! Answers that are one JSON object a line, as things happen: events, and the stream that is an
//! application's session.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use towpath_api::{AnswerLine, Api, ApiError, CallEnd, Event};

use crate::problem::CallFailure;
use towpath_service::InProcess;

/// Interval at which a session's stream sends that it is alive. Writing is what notices an application that
/// died after it had sent more than its request.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Events on their way to the client.
const EVENTS: usize = 16;

/// A session: it lives as long as this answer is read.
pub(crate) async fn session(State(api): State<InProcess>) -> Result<Response, CallFailure> {
    let open = api.session().await?;
    let (events, inbox) = mpsc::channel(1);
    let work = async move {
        // All of it moves in here: it is open until this ends.
        let open = open;
        let _ = events.send(Event::Session { session: open.id.clone() }).await;
        let mut ticks = tokio::time::interval(ALIVE_EVERY);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if events.send(Event::Alive).await.is_err() {
                return;
            }
        }
    };
    Ok(stream(work, inbox))
}

/// Events of all transfers.
pub(crate) async fn events(State(api): State<InProcess>) -> Result<Response, CallFailure> {
    let inbox = api.events().await?;
    Ok(stream(std::future::pending(), inbox))
}

/// Answers with the events of a call, and its end; a client that goes away ends the call.
pub(crate) fn events_of<S, E, F>(call: impl FnOnce(mpsc::Sender<E>) -> F + Send + 'static) -> Response
where
    S: Serialize + Send + 'static,
    E: Serialize + Send + 'static,
    F: Future<Output = Result<S, ApiError>> + Send,
{
    let (lines, inbox) = mpsc::channel(EVENTS);
    let work = async move {
        let (events, mut told) = mpsc::channel(1);
        let relaying = async {
            while let Some(event) = told.recv().await {
                let _ = lines.send(AnswerLine::Event(event)).await;
            }
        };
        let (result, ()) = tokio::join!(call(events), relaying);
        let end = result.map_or_else(CallEnd::Failed, CallEnd::Summary);
        let _ = lines.send(AnswerLine::End(end)).await;
    };
    stream(work, inbox)
}

/// Answers with what `work` sends, a line each; a client that goes away ends the work.
pub(crate) fn stream<T: Serialize + Send + 'static>(
    work: impl Future<Output = ()> + Send + 'static,
    inbox: mpsc::Receiver<T>,
) -> Response {
    let task = tokio::spawn(work);
    let body = Body::from_stream(EventLines { inbox, task });
    ([("content-type", "application/x-ndjson")], body).into_response()
}

/// Events as lines; dropped with the connection, it ends the work.
struct EventLines<T> {
    inbox: mpsc::Receiver<T>,
    task: JoinHandle<()>,
}

impl<T> Drop for EventLines<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: Serialize> futures_core::Stream for EventLines<T> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inbox.poll_recv(context).map(|event| {
            let mut line = serde_json::to_vec(&event?).unwrap_or_default();
            line.push(b'\n');
            Some(Ok(line.into()))
        })
    }
}
