//! A TCP socket that a probe may look at while it is in use.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::path::PathProbe;

/// A silent peer is asked after this long, then thrice more, and given up within 70 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 4;
/// What is received at once: the TLS library by itself asks for 4 KiB, a quarter of a record.
const READ_AHEAD: usize = 64 * 1024;

/// The connection is closed when this goes, whoever still has a probe.
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    ahead: ReadAhead,
}

impl Socket {
    /// Sets `stream` up for frames.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        use rustix::net::sockopt;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
        Ok(Self { stream: Arc::new(stream), ahead: ReadAhead::new() })
    }

    pub(super) fn probe(&self) -> PathProbe {
        let stream: Weak<TcpStream> = Arc::downgrade(&self.stream);
        PathProbe::of(stream as Weak<dyn AsFd + Send + Sync>)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, ahead } = self.get_mut();
        if ahead.begin == ahead.end {
            (ahead.begin, ahead.end) = (0, 0);
            ahead.end = ready!(poll_receive(stream, cx, &mut ahead.space))?;
        }
        ahead.hand_on(buf);
        Poll::Ready(Ok(()))
    }
}

fn poll_receive(stream: &TcpStream, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_read(space) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// Bytes received in one system call, and handed on in the crumbs that the TLS library asks for.
struct ReadAhead {
    space: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl ReadAhead {
    fn new() -> Self {
        Self { space: vec![0; READ_AHEAD].into(), begin: 0, end: 0 }
    }

    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) {
        let count = buf.remaining().min(self.end - self.begin);
        buf.put_slice(&self.space[self.begin..self.begin + count]);
        self.begin += count;
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write)?))
    }
}
