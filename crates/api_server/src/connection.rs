//! A local connection as the HTTP server reads it, with the file descriptor that may come along.
//!
//! An application can pass one open descriptor (`SCM_RIGHTS`), attached to the first byte that it
//! sends. Only the first read takes descriptors in: any that come later are closed by the kernel,
//! as they are for every program that does not ask for them.
//!
//! An application that stops reading what it asked for holds memory, so its connection may be given a
//! limit for that.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::Sleep;

use towpath_content::lock::lock;

/// Room for descriptors: one more than are allowed, so that a second one is noticed.
const ROOM: usize = 2;
/// Bytes read at once with a descriptor.
const FIRST_READ: usize = 16 << 10;

/// Descriptors that came with the first bytes of a connection.
#[derive(Debug, Default)]
pub(crate) enum PassedBytes {
    /// No descriptor, or it was taken.
    #[default]
    Nothing,
    /// One descriptor.
    Descriptor(OwnedFd),
    /// More than one, all of them closed.
    TooMany,
}

/// The passed descriptor, for the first request of the connection to take.
#[derive(Debug, Clone, Default)]
pub(crate) struct PipelineSlot(Arc<Mutex<PassedBytes>>);

impl PipelineSlot {
    /// A slot that holds this.
    pub(crate) fn of(passed: PassedBytes) -> Self {
        Self(Arc::new(Mutex::new(passed)))
    }

    /// Takes what was passed; what is not taken is closed when the first request ends.
    pub(crate) fn take(&self) -> PassedBytes {
        std::mem::take(&mut *lock(&self.0))
    }

    fn fill(&self, passed: PassedBytes) {
        *lock(&self.0) = passed;
    }
}

/// Longest time for which the application may take none of the bytes that are sent: for ever, until it is limited.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReaderWaitLimit(Arc<AtomicU64>);

impl ReaderWaitLimit {
    /// From now on so many seconds; 0 is for ever.
    pub(crate) fn limit(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
}

/// A connection on the local socket.
pub(crate) struct LocalStream {
    stream: UnixStream,
    slot: PipelineSlot,
    has_read: bool,
    wait_limit: ReaderWaitLimit,
    /// Since when nothing was taken: when that has been too long.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl LocalStream {
    /// Reads from `stream`; a descriptor goes into `slot`. Writes wait as long as `wait_limit` says.
    pub(crate) const fn new(stream: UnixStream, slot: PipelineSlot, wait_limit: ReaderWaitLimit) -> Self {
        Self { stream, slot, has_read: false, wait_limit, stalled: None }
    }

    /// Ends the wait for an application that takes nothing.
    fn bounded(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let Some(limit) = self.wait_limit.get() else { return Poll::Pending };
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stalled.as_mut().poll(context));
        let why = "the application did not read what it asked for (limits.reader_stall)";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    fn poll_first(&mut self, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining().min(FIRST_READ);
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let received = self
                .stream
                .try_io(Interest::READABLE, || receive(&self.stream, buf.initialize_unfilled_to(room)));
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok((len, passed)) => {
                    self.has_read = true;
                    self.slot.fill(passed);
                    buf.advance(len);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Reads bytes and what descriptors come with them.
fn receive(stream: &UnixStream, buf: &mut [u8]) -> io::Result<(usize, PassedBytes)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(buf)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    let passed = match descriptors.pop() {
        _ if received.flags.contains(ReturnFlags::CTRUNC) => PassedBytes::TooMany,
        Some(descriptor) if descriptors.is_empty() => PassedBytes::Descriptor(descriptor),
        Some(_) => PassedBytes::TooMany,
        None => PassedBytes::Nothing,
    };
    Ok((received.bytes, passed))
}

impl AsyncRead for LocalStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.has_read {
            true => Pin::new(&mut self.stream).poll_read(context, buf),
            false => self.poll_first(context, buf),
        }
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buf);
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bufs);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
