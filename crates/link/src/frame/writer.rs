//! Writing frames to a byte stream: small ones together, large payloads from where they lie.
//!
//! Frames wait in a queue until it is worth a write or [`FrameWriter::flush`] is called.
//! Small payloads are copied into the queue's tail, one after the other; large ones stand in the
//! queue as they are, and head and payload are written in one gathering write. Unless flushed, the
//! last crumb of a write waits for more, so that encryption works on whole records.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{FrameError, encode_head};

/// Once this much waits, it is written without being asked for.
const WRITE_AT: usize = 256 * 1024;
/// Up to this size a payload is copied, since a slice of its own in a gathering write costs more,
/// and what is left of a write is kept back, since a record and a system call of its own cost more.
const CRUMB: usize = 8 * 1024;
/// The most that one record of the encryption holds (RFC 8446 §5.1).
const RECORD: usize = 16 * 1024;
/// Slices in one write.
const SLICES: usize = 32;

/// The sending half of a connection.
pub struct FrameWriter {
    stream: Pin<Box<dyn AsyncWrite + Send>>,
    queue: VecDeque<Bytes>,
    tail: BytesMut,
    waiting: usize,
    /// A borrowed payload was abandoned in mid-frame, or the stream failed.
    broken: bool,
}

/// Reason why a frame was not sent.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The frame is longer than any may be. Nothing was sent, the connection is well.
    #[error("can't send {source}")]
    Malformed {
        /// The frame's error.
        source: FrameError,
    },
    /// The peer is gone, or takes no more.
    #[error("the other end is gone")]
    Lost {
        /// The system's error.
        source: io::Error,
    },
    /// An earlier write failed or was abandoned half done, so nothing more can be sent.
    #[error("an earlier write on this connection failed")]
    Broken,
    /// Anything else the system reports.
    #[error("writing to the connection failed")]
    Io {
        /// The system's error.
        source: io::Error,
    },
}

impl FrameWriter {
    /// Writes frames to `stream`.
    pub fn new(stream: Pin<Box<dyn AsyncWrite + Send>>) -> Self {
        Self { stream, queue: VecDeque::new(), tail: BytesMut::new(), waiting: 0, broken: false }
    }

    /// Sends a frame whose body is `header` followed by `payload`.
    ///
    /// Frames wait for [`Self::flush`], or until 256 KiB have come together. A payload over 8 KiB
    /// is written at once, straight from the slice, but for a crumb at its end that waits too.
    /// Don't drop the future: if a large payload was under way, the connection is broken then.
    /// [`Self::send_bytes`] has no such catch.
    pub async fn send(&mut self, kind: u8, header: &[u8], payload: &[u8]) -> Result<(), WriteError> {
        self.begin(kind, header, payload.len())?;
        if payload.len() <= CRUMB {
            self.append(payload);
            return self.write_if_worth_it().await;
        }
        self.broken = true;
        let result = self.write_until(CRUMB, payload).await;
        self.broken = result.is_err();
        let rest = result?;
        self.append(rest);
        Ok(())
    }

    /// Sends a frame whose body is `header` followed by `payload`, which is kept, not copied,
    /// until it is written.
    ///
    /// Cancel-safe in this sense: the whole frame is in the queue before anything is awaited, and
    /// whatever is not written yet is written by the next call.
    pub async fn send_bytes(&mut self, kind: u8, header: &[u8], payload: Bytes) -> Result<(), WriteError> {
        self.queue_bytes(kind, header, payload)?;
        self.write_if_worth_it().await
    }

    /// As [`Self::send_bytes`], but never waits: for the caller that has several frames at hand
    /// and writes them with one [`Self::flush`]. The caller bounds what it queues.
    pub fn queue_bytes(&mut self, kind: u8, header: &[u8], payload: Bytes) -> Result<(), WriteError> {
        self.begin(kind, header, payload.len())?;
        if payload.len() <= CRUMB {
            self.append(&payload);
            return Ok(());
        }
        self.close_tail();
        self.waiting += payload.len();
        self.queue.push_back(payload);
        Ok(())
    }

    /// Bytes that wait to be written.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Hands over what fills whole records, and keeps what is left, less than 16 KiB, for [`Self::flush`] or more
    /// frames: on a slow path a record of a few bytes costs more time than it saves. Cancel-safe.
    pub async fn write_records(&mut self) -> Result<(), WriteError> {
        self.check()?;
        if self.waiting < RECORD {
            return Ok(());
        }
        while self.waiting >= RECORD {
            let written = self.write_some(&[], self.waiting / RECORD * RECORD).await;
            let written = self.outcome(written)?;
            self.take_off(written);
        }
        // Else encrypted bytes would wait in front of what is more urgent.
        let flushed = self.stream.flush().await;
        self.outcome(flushed)
    }

    /// Hands everything sent so far to the transport. Cancel-safe.
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        self.check()?;
        self.write_until(0, &[]).await?;
        let flushed = self.stream.flush().await;
        self.outcome(flushed)
    }

    /// Flushes and says goodbye: the peer sees the end of this direction, and that it is
    /// complete. The other direction goes on.
    pub async fn finish(mut self) -> Result<(), WriteError> {
        self.flush().await?;
        let finished = self.stream.shutdown().await;
        self.outcome(finished)
    }

    /// Gives memory back until there is something to send: for a connection that is idle and was flushed. Cancel-safe.
    pub async fn rest(&mut self) -> Result<(), WriteError> {
        if self.waiting == 0 {
            (self.queue, self.tail) = (VecDeque::new(), BytesMut::new());
        }
        self.flush().await
    }

    fn begin(&mut self, kind: u8, header: &[u8], payload_len: usize) -> Result<(), WriteError> {
        self.check()?;
        let head = encode_head(kind, header.len().saturating_add(payload_len))
            .map_err(|source| WriteError::Malformed { source })?;
        self.append(&head);
        self.append(header);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.waiting += bytes.len();
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queue.push_back(self.tail.split().freeze());
        }
    }

    fn check(&self) -> Result<(), WriteError> {
        if self.broken { Err(WriteError::Broken) } else { Ok(()) }
    }

    async fn write_if_worth_it(&mut self) -> Result<(), WriteError> {
        match self.waiting {
            WRITE_AT.. => self.write_until(CRUMB, &[]).await.map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Writes what waits, and `payload` behind it, until no more than `leave` bytes are left of
    /// both; returns what is left of `payload`.
    async fn write_until<'a>(&mut self, leave: usize, mut payload: &'a [u8]) -> Result<&'a [u8], WriteError> {
        while self.waiting + payload.len() > leave {
            let written = self.write_some(payload, usize::MAX).await;
            let written = self.outcome(written)?;
            let own = written.min(self.waiting);
            self.take_off(own);
            payload = &payload[written - own..];
        }
        Ok(payload)
    }

    /// One gathering write of at most `most` bytes; how many it took.
    async fn write_some(&mut self, payload: &[u8], mut most: usize) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let own = self.queue.iter().map(|bytes| &bytes[..]).chain([&self.tail[..], payload]);
        let mut count = 0;
        for (slot, bytes) in slices.iter_mut().zip(own.filter(|bytes| !bytes.is_empty())) {
            let bytes = &bytes[..bytes.len().min(most)];
            most -= bytes.len();
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        match self.stream.write_vectored(&slices[..count]).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    /// Forgets the first `count` bytes of what waits.
    fn take_off(&mut self, mut count: usize) {
        self.waiting -= count;
        while let Some(first) = self.queue.front_mut() {
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.queue.pop_front();
        }
        self.tail.advance(count);
    }

    fn outcome<T>(&mut self, result: io::Result<T>) -> Result<T, WriteError> {
        result.map_err(|error| {
            self.broken = true;
            explain(error)
        })
    }
}

fn explain(source: io::Error) -> WriteError {
    match source.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::WriteZero => WriteError::Lost { source },
        _ => WriteError::Io { source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameReader, MAX_FRAME};
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn small_frames_wait_to_be_flushed_and_leave_together() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut writer = FrameWriter::new(Box::pin(near));
        for n in 0..100 {
            writer.send(n, b"head", b"body").await.unwrap();
        }
        assert_eq!(writer.waiting(), 100 * 13);
        writer.flush().await.unwrap();
        assert_eq!(writer.waiting(), 0);
        let mut buffer = vec![0; 1 << 20];
        assert_eq!(far.read(&mut buffer).await.unwrap(), 100 * 13);
    }

    #[tokio::test]
    async fn whole_records_leave_and_the_rest_waits() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        // As encryption does, it keeps what it is handed until it is flushed.
        let mut writer = FrameWriter::new(Box::pin(tokio::io::BufWriter::with_capacity(1 << 20, near)));
        for payload in [RECORD - 5, 3 * RECORD] {
            writer.send_bytes(1, b"", vec![0; payload].into()).await.unwrap();
        }
        assert_eq!(writer.waiting(), 4 * RECORD + 5);
        writer.write_records().await.unwrap();
        assert_eq!(writer.waiting(), 5);
        let mut buffer = vec![0; 1 << 20];
        assert_eq!(far.read(&mut buffer).await.unwrap(), 4 * RECORD);
        writer.write_records().await.unwrap();
        assert_eq!(writer.waiting(), 5);
        writer.flush().await.unwrap();
        assert_eq!(far.read(&mut buffer).await.unwrap(), 5);
    }

    #[tokio::test]
    async fn what_has_come_together_is_written_unasked() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut writer = FrameWriter::new(Box::pin(near));
        while writer.waiting() + 1005 < WRITE_AT {
            writer.send(1, b"", &[0; 1000]).await.unwrap();
        }
        let waiting = writer.waiting() + 1005;
        writer.send(1, b"", &[0; 1000]).await.unwrap();
        assert!(writer.waiting() <= CRUMB);
        let mut buffer = vec![0; 1 << 20];
        assert_eq!(far.read(&mut buffer).await.unwrap(), waiting - writer.waiting());
    }

    #[tokio::test]
    async fn a_frame_over_the_limit_leaves_the_connection_well() {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (mut writer, mut reader) = (FrameWriter::new(Box::pin(near)), FrameReader::new(Box::new(far)));
        let error = writer.send(1, b"h", &vec![0; MAX_FRAME - 1]).await.unwrap_err();
        assert!(matches!(error, WriteError::Malformed { .. }));
        writer.send(2, b"", b"fine").await.unwrap();
        writer.finish().await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().kind, 2);
        assert!(reader.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_abandoned_large_payload_breaks_the_connection_rather_than_the_frames() {
        let (near, _far) = tokio::io::duplex(1024);
        let mut writer = FrameWriter::new(Box::pin(near));
        let stuck = tokio::time::timeout(Duration::from_millis(10), writer.send(1, b"", &[0; 100_000]));
        assert!(stuck.await.is_err());
        assert!(matches!(writer.send(1, b"", b"").await, Err(WriteError::Broken)));
        assert!(matches!(writer.flush().await, Err(WriteError::Broken)));
    }

    #[tokio::test]
    async fn an_abandoned_send_of_bytes_goes_on_where_it_was() {
        let (near, far) = tokio::io::duplex(1024);
        let (mut writer, mut reader) = (FrameWriter::new(Box::pin(near)), FrameReader::new(Box::new(far)));
        for kind in 0..3 {
            let send = writer.send_bytes(kind, b"head", Bytes::from(vec![kind; 300_000]));
            assert!(tokio::time::timeout(Duration::from_millis(10), send).await.is_err());
        }
        let writing = tokio::spawn(async move { writer.finish().await });
        for kind in 0..3 {
            let frame = reader.next().await.unwrap().unwrap();
            assert_eq!((frame.kind, &frame.body[..4], frame.body.len()), (kind, &b"head"[..], 300_004));
            assert!(frame.body[4..].iter().all(|&byte| byte == kind));
        }
        assert!(reader.next().await.unwrap().is_none());
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_left_is_lost() {
        let (near, far) = tokio::io::duplex(1024);
        let mut writer = FrameWriter::new(Box::pin(near));
        drop(far);
        writer.send(1, b"", b"x").await.unwrap();
        assert!(matches!(writer.flush().await, Err(WriteError::Lost { .. })));
        assert!(matches!(writer.flush().await, Err(WriteError::Broken)));
    }
}
