//! The seam below the records: any two-way stream of bytes can carry them.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use crate::kernel;

/// A stream of bytes both ways, such as a TCP connection.
///
/// # Contract
///
/// - Each direction is used by one task at a time, and neither waits for the other's progress.
/// - `Pending` means that the task is woken when it is worth another call; nothing was taken or handed out then.
/// - Bytes arrive as they were sent and in order, or not at all: what a stranger changed is found out above.
/// - Dropping it closes both directions.
pub trait RecordSocket: Send + Sync + 'static {
    /// Completes when there may be something to read, so that no memory need be held meanwhile.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads into `space`, which is not empty; 0 bytes are the end.
    fn poll_read(&self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Fewer bytes than these are of no use from now on: a socket that can do so makes who waits for bytes wait until
    /// so many, or the end, are here. Others do nothing.
    fn wake_at(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Takes some bytes from the front of `bytes`, which are not empty.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends the writing direction behind what was written.
    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl RecordSocket for TcpStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match self.try_read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn wake_at(&self, bytes: usize) {
        // Where it fails, each packet wakes.
        let _ = kernel::wake_at(self.as_fd(), bytes);
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(self, rustix::net::Shutdown::Write)?))
    }
}

/// Reads what has come; 0 bytes are the end.
pub(super) async fn read(socket: &impl RecordSocket, space: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| socket.poll_read(cx, space)).await
}

/// Writes all of `bytes`.
pub(super) async fn write_all(socket: &impl RecordSocket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|cx| socket.poll_write(cx, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}
