//! Recipes of objects as text: a line for each run of equal ones, as they are read. Only a few
//! are sent at once, and a reader that stalls loses its place.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::{ApiError, Chunk, ErrorKind, Parts};
use towpath_content::node_id::hex;
use towpath_content::recipe;
use towpath_store::{RecipeNodes, State as Stored, Store};

use crate::problem::{CallFailure, Path};
use towpath_service::state::parse_name;
use towpath_service::{InProcess, Service};
use towpath_words as words;

/// Bytes of lines handed on at once.
const PART: usize = 16 << 10;
/// Longest time that a reader may leave a part lying.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn recipe(
    State(api): State<InProcess>,
    Path(id): Path<String>,
) -> Result<Response, CallFailure> {
    let permit = api.0.recipe_permit().await?;
    // Making one reads the object.
    let finding = tokio::task::spawn_blocking(move || find(&api.0, &id));
    let found = finding.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
    let (lines, inbox) = mpsc::channel(2);
    // There is room for an error in any case: an answer that is cut off is not to look whole.
    let last = lines.clone().reserve_owned().await;
    let last = last.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    let lines = RecipeLines { lines, runtime: Handle::current(), wait_limit: WAIT_LIMIT };
    tokio::task::spawn_blocking(move || {
        if let Err(error) = send(&*found, &lines) {
            last.send(Err(error));
        }
        drop(permit);
    });
    Ok(([("content-type", "application/x-ndjson")], Body::from_stream(Parts::new(inbox))).into_response())
}

/// The way to a reader, who must not leave parts lying for too long.
struct RecipeLines {
    lines: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    wait_limit: Duration,
}

impl RecipeLines {
    /// Blocks until the reader has taken an earlier part.
    fn send(&self, part: Vec<u8>) -> io::Result<()> {
        let sending = async { tokio::time::timeout(self.wait_limit, self.lines.send(Ok(part.into()))).await };
        match self.runtime.block_on(sending) {
            Ok(sent) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn find(service: &Service, id: &str) -> Result<Arc<dyn RecipeNodes>, ApiError> {
    let mut oid = parse_name(id)?;
    if let Ok(Stored::Bound(content)) = service.store().have(&oid).map(|have| have.state) {
        oid = content;
    }
    service.store().recipe(&oid).map_err(|error| words::store(&error))
}

fn send(nodes: &dyn RecipeNodes, lines: &RecipeLines) -> io::Result<()> {
    let mut part = Vec::with_capacity(PART);
    for extent in recipe::walk(nodes.root(), |hash| nodes.node(hash)) {
        let extent = extent.map_err(io::Error::other)?;
        let run = &extent.run;
        let hash = hex(&run.hash.0);
        let chunk = Chunk { offset: extent.offset, len: run.len.into(), hash, count: run.repeat };
        serde_json::to_writer(&mut part, &chunk)?;
        part.push(b'\n');
        if part.len() >= PART {
            lines.send(std::mem::replace(&mut part, Vec::with_capacity(PART)))?;
        }
    }
    lines.send(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_stalls_is_cut_off() {
        let (lines, mut inbox) = mpsc::channel(2);
        let last = lines.clone().reserve_owned().await.unwrap();
        let lines = RecipeLines { lines, runtime: Handle::current(), wait_limit: Duration::from_millis(20) };
        let sending = tokio::task::spawn_blocking(move || {
            lines.send(b"taken".to_vec()).unwrap();
            let late = lines.send(b"late".to_vec()).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            last.send(Err(late));
        });
        sending.await.unwrap();
        assert_eq!(&inbox.recv().await.unwrap().unwrap()[..], b"taken");
        assert!(inbox.recv().await.unwrap().is_err(), "not an end");
    }
}
