//! A request's body as a reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Bytes of a refused body that are taken.
const MOST_DRAINED: u64 = 64 << 20;
/// Longest time that they are waited for.
const LONGEST_DRAIN: Duration = Duration::from_secs(2);

/// Reads a body; one that is cut off is an error, not an end.
pub(crate) struct BodyReader {
    body: BodyDataStream,
    part: Bytes,
}

impl BodyReader {
    /// Reads `body`.
    pub(crate) fn new(body: Body) -> Self {
        Self { body: body.into_data_stream(), part: Bytes::new() }
    }
}

impl BodyReader {
    /// Takes what else comes, for a while: many clients read no answer before they sent their all.
    pub(crate) async fn drain(&mut self) {
        let (mut rest, mut nowhere) = (self.take(MOST_DRAINED), tokio::io::sink());
        let draining = tokio::io::copy(&mut rest, &mut nowhere);
        let _ = tokio::time::timeout(LONGEST_DRAIN, draining).await;
    }
}

impl AsyncRead for BodyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.part.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(context)) {
                Some(Ok(part)) => self.part = part,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let len = self.part.len().min(buf.remaining());
        buf.put_slice(&self.part.split_to(len));
        Poll::Ready(Ok(()))
    }
}
