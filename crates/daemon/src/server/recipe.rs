//! How an object is cut into chunks: a line for each run of equal ones, as they are read.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use towpath_api::{ApiError, Chunk, ErrorKind, Parts};
use towpath_content::node_id::hex;
use towpath_content::recipe;
use towpath_store::{RecipeNodes, State as Stored, Store};

use super::problem::{Failure, Path};
use crate::errors;
use crate::service::{InProcess, Service, parse_name};

/// Bytes of lines handed on at once.
const PART: usize = 16 << 10;

pub(super) async fn recipe(
    State(api): State<InProcess>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    // Making one reads the object.
    let finding = tokio::task::spawn_blocking(move || find(&api.0, &id));
    let found = finding.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
    let (lines, inbox) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = tell(&*found, &lines) {
            // The body is cut off, which nobody takes for the end.
            let _ = lines.blocking_send(Err(error));
        }
    });
    Ok(([("content-type", "application/x-ndjson")], Body::from_stream(Parts::new(inbox))).into_response())
}

fn find(service: &Service, id: &str) -> Result<Arc<dyn RecipeNodes>, ApiError> {
    let mut oid = parse_name(id)?;
    if let Ok(Stored::Bound(content)) = service.store.have(&oid).map(|have| have.state) {
        oid = content;
    }
    service.store.recipe(&oid).map_err(|error| errors::store(&error))
}

fn tell(nodes: &dyn RecipeNodes, lines: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    let mut part = Vec::with_capacity(PART);
    for extent in recipe::walk(nodes.root(), |hash| nodes.node(hash)) {
        let extent = extent.map_err(io::Error::other)?;
        let run = &extent.run;
        let hash = hex(&run.hash.0);
        let chunk = Chunk { offset: extent.offset, len: run.len.into(), hash, count: run.repeat };
        serde_json::to_writer(&mut part, &chunk)?;
        part.push(b'\n');
        if part.len() >= PART && lines.blocking_send(Ok(std::mem::take(&mut part).into())).is_err() {
            return Ok(());
        }
    }
    let _ = lines.blocking_send(Ok(part.into()));
    Ok(())
}
