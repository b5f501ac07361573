//! An object as it comes, out of order: frames of offset (8 bytes), length (4 bytes, both big
//! endian) and bytes. The last one has no bytes and the object's size as offset; without it the
//! object is not whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, BytesMut};
use tokio::sync::mpsc;
use towpath_api::ContentRequest;

use crate::problem::{CallFailure, JsonBody, RequestQuery};
use towpath_service::InProcess;
use towpath_service::content::{self, Opened, PlacedBytes};

/// Bytes before those of a chunk.
const HEAD: usize = 12;

pub(crate) async fn by_query(
    State(api): State<InProcess>,
    RequestQuery(request): RequestQuery<ContentRequest>,
) -> Result<Response, CallFailure> {
    Ok(answer(content::open(&api.0, &request).await?))
}

/// The same with the ticket in the body, which keeps it out of logs.
pub(crate) async fn by_body(
    State(api): State<InProcess>,
    JsonBody(request): JsonBody<ContentRequest>,
) -> Result<Response, CallFailure> {
    Ok(answer(content::open(&api.0, &request).await?))
}

fn answer(opened: Opened) -> Response {
    let frames = Frames { inbox: opened.out_of_order(), bytes: None };
    ([("content-type", "application/vnd.towpath.chunks")], Body::from_stream(frames)).into_response()
}

struct Frames {
    inbox: mpsc::Receiver<PlacedBytes>,
    /// The bytes of a frame whose head is out.
    bytes: Option<Bytes>,
}

impl futures_core::Stream for Frames {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        self.inbox.poll_recv(context).map(|placed| match placed? {
            Err(error) => Some(Err(error)),
            Ok((offset, bytes)) => {
                let head = head(offset, bytes.len());
                self.bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
                Some(Ok(head))
            }
        })
    }
}

fn head(offset: u64, len: usize) -> Bytes {
    let mut head = BytesMut::with_capacity(HEAD);
    head.put_u64(offset);
    head.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    head.freeze()
}
