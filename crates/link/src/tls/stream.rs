//! The encrypted stream that follows the handshake: records on a socket, each direction by itself.
//!
//! The two directions share nothing but [`Duties`]: what the receiving one finds that the sending one
//! has to say.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustls::Error;
use tokio::io::AsyncWrite;

use super::handshake::Shaken;
use super::record::{CONTENT, OpenedRecord, Opening, RECORD, Sealing, alert_for, record_len};
use super::socket::RecordSocket;
use super::waking::Waking;
use crate::recv_buffer::{Receive, RecvBuffer};

/// Encrypted bytes that may wait for the socket, written in one system call. Four records still lie
/// in the core's own cache when the kernel copies them; more cost up to a third more CPU time.
const SEND: usize = 4 * RECORD;
/// Room behind them for a key update or a goodbye.
const LAST_WORDS: usize = 2 * RECORD;
/// Content for which little memory is enough, with the last words.
const LITTLE: usize = 2 * 1024;
/// Memory for that.
const LITTLE_SEND: usize = 3 * 1024;
/// No alert. (It is a goodbye's number, which is no duty.)
const NONE: u8 = 0;

/// The two directions of a connection that has shaken hands.
pub(super) fn split<Socket: RecordSocket>(
    socket: Arc<Socket>,
    shaken: Shaken,
) -> (TlsReceiver<Socket>, TlsSender<Socket>) {
    let duties = Arc::new(Duties::default());
    let receiver = TlsReceiver {
        socket: Arc::clone(&socket),
        opening: Opening::new(shaken.receiving),
        early: shaken.early,
        waking: Waking::new(Instant::now()),
        end: None,
        duties: Arc::clone(&duties),
    };
    let sealing = Sealing::new(shaken.sending);
    let out = Box::default();
    let (is_used, has_closed) = (false, false);
    (receiver, TlsSender { socket, sealing, out, sealed: 0, sent: 0, is_used, has_closed, duties })
}

/// Records that the sending direction has to send before it goes on.
#[derive(Default)]
struct Duties {
    /// The peer asked for other keys.
    update: AtomicBool,
    /// The number of the alert by which the connection ends.
    alert: AtomicU8,
}

/// The receiving direction.
pub(super) struct TlsReceiver<Socket> {
    socket: Arc<Socket>,
    opening: Opening,
    /// Bytes that came behind the handshake, until it is in the buffer.
    early: Vec<u8>,
    waking: Waking,
    end: Option<StreamEnd>,
    duties: Arc<Duties>,
}

/// Reason why nothing more is received.
enum StreamEnd {
    /// The peer said goodbye.
    Closed,
    /// Its bytes can't be understood.
    Failed(Error),
}

impl<Socket: RecordSocket> Receive for TlsReceiver<Socket> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.early.is_empty() || self.end.is_some() {
            return Poll::Ready(Ok(()));
        }
        if let Some(bytes) = self.waking.at_once() {
            self.socket.wake_at(bytes);
        }
        self.socket.poll_readable(cx)
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut RecvBuffer,
        wanted: usize,
        least: usize,
    ) -> Poll<io::Result<usize>> {
        let early = std::mem::take(&mut self.early);
        buffer.free()[..early.len()].copy_from_slice(&early);
        buffer.received(early.len());
        // The record in which what is wanted ends may be a full one that has just begun.
        let most = wanted + wanted.div_ceil(CONTENT) * (RECORD - CONTENT) + RECORD;
        loop {
            let opened = self.open_all(buffer);
            match &self.end {
                _ if opened > 0 => return Poll::Ready(Ok(opened)),
                Some(StreamEnd::Closed) => return Poll::Ready(Ok(0)),
                Some(StreamEnd::Failed(error)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())));
                }
                None => {}
            }
            // Before it is read from: what comes from then on wakes, if it is enough.
            if let Some(bytes) = self.waking.at(buffer.raw(), least) {
                self.socket.wake_at(bytes);
            }
            let most = most.saturating_sub(buffer.raw().len()).max(1);
            let free = buffer.free();
            let most = most.min(free.len());
            match ready!(self.socket.poll_read(cx, &mut free[..most]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                count => buffer.received(count),
            }
            self.waking.has_read(Instant::now());
        }
    }

    fn wait_for(&mut self, most: usize, soon: Duration) {
        self.waking.wait_for(most, soon);
    }
}

impl<Socket> TlsReceiver<Socket> {
    /// Opens all whole records; returns how many bytes of content these had.
    fn open_all(&mut self, buffer: &mut RecvBuffer) -> usize {
        let mut content = 0;
        while self.end.is_none() {
            match self.open_next(buffer) {
                Ok(Some(OpenedRecord::Content(len))) => content += len,
                Ok(Some(OpenedRecord::KeyUpdate { answer })) => {
                    self.duties.update.fetch_or(answer, Ordering::Relaxed);
                }
                Ok(Some(OpenedRecord::Closed)) => self.end = Some(StreamEnd::Closed),
                Ok(None) => break,
                Err(error) => {
                    let alert = alert_for(&error).map_or(NONE, u8::from);
                    self.duties.alert.store(alert, Ordering::Relaxed);
                    self.end = Some(StreamEnd::Failed(error));
                }
            }
        }
        content
    }

    /// Opens the next record, if all of it is here.
    fn open_next(&mut self, buffer: &mut RecvBuffer) -> Result<Option<OpenedRecord>, Error> {
        let Some(len) = record_len(buffer.raw())?.filter(|&len| len <= buffer.raw().len()) else {
            return Ok(None);
        };
        let (memory, raw, plain) = buffer.open();
        let opened = self.opening.open(memory, raw.start..raw.start + len, plain)?;
        buffer.opened(len, if let OpenedRecord::Content(content) = opened { content } else { 0 });
        Ok(Some(opened))
    }
}

/// The sending direction.
pub(super) struct TlsSender<Socket> {
    socket: Arc<Socket>,
    sealing: Sealing,
    /// Memory for records, taken when there is something to send.
    out: Box<[u8]>,
    /// Bytes of whole records in `out`.
    sealed: usize,
    /// Of these, what the socket has taken.
    sent: usize,
    /// Something was sealed since the last flush.
    is_used: bool,
    has_closed: bool,
    duties: Arc<Duties>,
}

impl<Socket: RecordSocket> TlsSender<Socket> {
    /// Hands over to the socket what is sealed.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.sealed {
            match ready!(self.socket.poll_write(cx, &self.out[self.sent..self.sealed]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        (self.sealed, self.sent) = (0, 0);
        Poll::Ready(Ok(()))
    }

    /// Has memory for so much content. Nothing is sealed in it.
    fn take_memory(&mut self, content: usize) {
        let len = if content <= LITTLE { LITTLE_SEND } else { SEND + LAST_WORDS };
        if self.out.len() < len {
            self.out = vec![0; len].into();
        }
        self.is_used = true;
    }

    /// Seals what has to be said before anything else. If that was why the connection ends, nothing
    /// more may be.
    fn fulfil(&mut self) -> Result<(), Error> {
        let alert = self.duties.alert.swap(NONE, Ordering::Relaxed);
        if alert != NONE && !self.has_closed {
            self.sealed += self.sealing.alert(alert.into(), &mut self.out[self.sealed..])?;
            self.has_closed = true;
        }
        if !self.has_closed
            && (self.duties.update.swap(false, Ordering::Relaxed) || self.sealing.needs_update())
        {
            self.sealed += self.sealing.update(&mut self.out[self.sealed..])?;
        }
        Ok(())
    }

    /// Seals as much as there is room for; returns how much that is.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Error> {
        let mut content = RecordContent { slices, begun: 0, taken: 0 };
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        while self.sealed < SEND && content.taken < all {
            self.fulfil()?;
            if self.has_closed {
                break;
            }
            self.sealed += self.sealing.seal(&mut self.out[self.sealed..], |space| content.fill(space))?;
        }
        Ok(content.taken)
    }
}

impl<Socket: RecordSocket> AsyncWrite for TlsSender<Socket> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        self.take_memory(slices.iter().map(|slice| slice.len()).sum());
        let taken = self.seal(slices).map_err(io::Error::other)?;
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        match self.has_closed {
            true => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            false => Poll::Ready(Ok(taken)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        if !std::mem::replace(&mut self.is_used, false) {
            self.out = Box::default();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        self.take_memory(0);
        self.fulfil().map_err(io::Error::other)?;
        if !self.has_closed {
            self.has_closed = true;
            let Self { sealing, out, sealed, .. } = &mut *self;
            *sealed += sealing.close(&mut out[*sealed..]).map_err(io::Error::other)?;
        }
        ready!(self.poll_send(cx))?;
        self.socket.poll_shutdown(cx)
    }
}

/// Slices as one run of bytes.
struct RecordContent<'a> {
    /// Those that are not taken yet.
    slices: &'a [IoSlice<'a>],
    /// Bytes taken of the first of them.
    begun: usize,
    /// Bytes taken of all.
    taken: usize,
}

impl RecordContent<'_> {
    /// Takes what fits into `space`; returns how much that is.
    fn fill(&mut self, space: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(first) = self.slices.first()
            && filled < space.len()
        {
            let rest = &first[self.begun..];
            let count = rest.len().min(space.len() - filled);
            space[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            self.begun += count;
            if count == rest.len() {
                (self.slices, self.begun) = (&self.slices[1..], 0);
            }
        }
        self.taken += filled;
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameReader, FrameWriter, HEAD_LEN, encode_head};
    use crate::protocol::Protocol;
    use crate::tls::Agreed;
    use crate::tls::keys::{Keys, Suite};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use towpath_content::NodeId;

    async fn sockets() -> (Arc<TcpStream>, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Arc::new(near), Arc::new(listener.accept().await.unwrap().0))
    }

    /// As if both had shaken hands, with keys good for `records` records.
    fn shaken(records: u64, sending: u8, receiving: u8) -> Shaken {
        let suite = Suite::new(rustls::CipherSuite::TLS13_AES_128_GCM_SHA256).unwrap();
        let keys = |secret| Keys::new(Suite { records, ..suite }, &[secret; 32]).unwrap();
        let agreed = Agreed { peer: NodeId([0; 32]), protocol: Protocol::PEER, binding: [0; 32] };
        Shaken { agreed, sending: keys(sending), receiving: keys(receiving), early: Vec::new() }
    }

    #[tokio::test]
    async fn keys_are_renewed_before_they_have_encrypted_too_much() {
        let (near, far) = sockets().await;
        let (_, sender) = split(near, shaken(5, 1, 2));
        let (receiver, _) = split(far, shaken(u64::MAX, 2, 1));
        let mut writer = FrameWriter::new(Box::pin(sender));
        let sending = tokio::spawn(async move {
            for len in [1_000_000, 1, 300_000] {
                writer.send(1, b"", &vec![7; len]).await.unwrap();
                writer.flush().await.unwrap();
            }
            writer.finish().await.unwrap();
        });
        let mut reader = FrameReader::new(Box::new(receiver));
        for len in [1_000_000, 1, 300_000] {
            assert_eq!(reader.next().await.unwrap().unwrap().body, vec![7; len]);
        }
        assert!(reader.next().await.unwrap().is_none());
        sending.await.unwrap();
    }

    #[tokio::test]
    async fn who_is_idle_holds_no_memory_and_who_says_little_holds_little() {
        let (near, far) = sockets().await;
        let (_, mut sender) = split(near, shaken(u64::MAX, 1, 2));
        let (receiver, _) = split(far, shaken(u64::MAX, 2, 1));
        let mut reader = FrameReader::new(Box::new(receiver));
        assert_eq!((sender.out.len(), reader.held()), (0, 0));
        for (len, takes) in [(LITTLE, LITTLE_SEND), (LITTLE + 1, SEND + LAST_WORDS), (9, SEND + LAST_WORDS)] {
            let head = encode_head(1, len - HEAD_LEN).unwrap();
            sender.write_all(&[&head[..], &vec![7; len - HEAD_LEN]].concat()).await.unwrap();
            sender.flush().await.unwrap();
            assert_eq!(sender.out.len(), takes);
            assert_eq!(reader.next().await.unwrap().unwrap().body, vec![7; len - HEAD_LEN]);
        }
        sender.flush().await.unwrap();
        // The first time it may be awake for nothing.
        for _ in 0..2 {
            reader.rest();
            tokio::select! {
                biased;
                _ = reader.next() => panic!("nothing was sent"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!((sender.out.len(), reader.held()), (0, 0));
    }

    #[tokio::test]
    async fn what_the_peer_finds_wrong_is_told_once_and_nothing_follows() {
        let (near, far) = sockets().await;
        let (_near_receiver, mut sender) = split(near, shaken(100, 1, 2));
        let (mut receiver, mut answers) = split(Arc::clone(&far), shaken(100, 2, 9));
        sender.take_memory(0);
        sender.sealed =
            sender.sealing.alert(rustls::AlertDescription::InternalError, &mut sender.out).unwrap();
        std::future::poll_fn(|cx| sender.poll_send(cx)).await.unwrap();
        let mut buffer = RecvBuffer::default();
        buffer.move_to(vec![0; 1 << 16].into(), 0);
        let received = std::future::poll_fn(|cx| receiver.poll_receive(cx, &mut buffer, 1, 1)).await;
        assert!(received.is_err(), "another key");
        assert_eq!(
            answers.duties.alert.load(Ordering::Relaxed),
            u8::from(rustls::AlertDescription::BadRecordMac)
        );
        for _ in 0..2 {
            let sent = std::future::poll_fn(|cx| Pin::new(&mut answers).poll_write(cx, b"more")).await;
            assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }
}
