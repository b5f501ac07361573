//! A connection to a daemon whose first byte takes an open descriptor along (`SCM_RIGHTS`).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// The connection.
pub struct PassingStream {
    stream: UnixStream,
    /// Goes along with the first byte; closed here once it went.
    descriptor: Option<OwnedFd>,
}

impl PassingStream {
    /// Writes to `stream`.
    pub const fn new(stream: UnixStream, descriptor: Option<OwnedFd>) -> Self {
        Self { stream, descriptor }
    }

    fn poll_pass(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        descriptor: &OwnedFd,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_io(Interest::WRITABLE, || pass(&self.stream, bytes, descriptor)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                passed => return Poll::Ready(passed),
            }
        }
    }
}

fn pass(stream: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let passed = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&passed)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

impl AsyncRead for PassingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for PassingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(descriptor) = &self.descriptor {
            let passed = ready!(self.poll_pass(context, bytes, descriptor));
            self.descriptor = None;
            return Poll::Ready(passed);
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
