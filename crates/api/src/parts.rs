//! Bytes that come in parts through a channel, read as a stream or as a file is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

/// The receiving end; an error in place of a part is the end of what can be had.
pub struct Parts {
    inbox: mpsc::Receiver<io::Result<Bytes>>,
    part: Bytes,
}

impl Parts {
    /// Parts as they come through `inbox`.
    pub fn new(inbox: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self { inbox, part: Bytes::new() }
    }
}

impl Stream for Parts {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inbox.poll_recv(context)
    }
}

impl AsyncRead for Parts {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.part.is_empty() {
            match ready!(self.inbox.poll_recv(context)) {
                Some(part) => self.part = part?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let len = self.part.len().min(buf.remaining());
        buf.put_slice(&self.part.split_to(len));
        Poll::Ready(Ok(()))
    }
}
