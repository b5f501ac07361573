//! Reading frames off a byte stream, in big gulps.
//!
//! Small frames are read many at once and share the gulp's memory. As soon as the length of a
//! large frame is known, it is read to its end and no further, into memory that holds all of it, so
//! all but the part that came along with its length is written once, where it stays.

use std::io;
use std::pin::Pin;

use bytes::{BufMut, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::memory::Memory;
use super::{Decoded, Frame, FrameError, decode};

/// Memory for frames: a payload of 256 KiB with its headers, or many small frames.
const GULP: usize = (256 + 16) * 1024;
/// What is read at once while it is not known to belong to one large frame.
const READ: usize = 64 * 1024;
/// Below this much free space a new gulp's memory is taken rather than reading in crumbs.
const SMALLEST_READ: usize = 32 * 1024;

/// The receiving half of a connection.
pub struct FrameReader {
    stream: Pin<Box<dyn AsyncRead + Send>>,
    buffer: BytesMut,
    memory: Memory,
    received: u64,
}

/// Why there is no next frame.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The peer sent a length that no frame has. Nothing after it can be understood.
    #[error("the other end sent {source}")]
    Malformed {
        /// What is wrong with it.
        source: FrameError,
    },
    /// The stream ended without a goodbye: inside a frame (`missing` bytes of it), or between
    /// two on a transport that knows a proper end.
    #[error("the connection was cut off")]
    CutOff {
        /// Bytes of a begun frame that did not come; 0 between frames.
        missing: usize,
    },
    /// The peer is gone: its system reset the connection, or keepalive found nobody.
    #[error("the other end is gone")]
    Lost {
        /// What the system said.
        source: io::Error,
    },
    /// What came is not what the peer encrypted, or the peer refused us with an alert.
    #[error("TLS: {source}")]
    Tls {
        /// What the TLS library found.
        source: rustls::Error,
    },
    /// Anything else the system reports.
    #[error("reading from the connection failed")]
    Io {
        /// What the system said.
        source: io::Error,
    },
}

impl FrameReader {
    /// Reads frames off `stream`.
    pub fn new(stream: Pin<Box<dyn AsyncRead + Send>>) -> Self {
        Self { stream, buffer: BytesMut::new(), memory: Memory::default(), received: 0 }
    }

    /// The next frame, or `None` after the peer finished its direction.
    ///
    /// Cancel-safe: when the future is dropped, no byte is lost, and the next call goes on from
    /// there. After an error every call fails.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            let missing = match decode(&mut self.buffer) {
                Ok(Decoded::Frame(frame)) => return Ok(Some(frame)),
                Ok(Decoded::Missing(missing)) => missing,
                Err(source) => return Err(ReadError::Malformed { source }),
            };
            let room = self.make_room(missing);
            // Nothing is taken from the stream unless it is in the buffer, so cancelling is safe.
            match self.stream.read_buf(&mut (&mut self.buffer).limit(room)).await {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(ReadError::CutOff { missing }),
                Ok(count) => self.received += count as u64,
                Err(error) => return Err(explain(error, missing, self.buffer.is_empty())),
            }
        }
    }

    /// Bytes read so far, also of a frame that is not whole yet: whether the peer is alive shows
    /// here even when a frame takes minutes.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Makes room for the `missing` bytes, and says how many may be read.
    fn make_room(&mut self, missing: usize) -> usize {
        let (begun, free) = (self.buffer.len(), self.buffer.capacity() - self.buffer.len());
        if begun + missing > READ {
            if free < missing {
                self.renew(begun + missing);
            }
            return missing;
        }
        if free < missing.max(SMALLEST_READ) {
            self.renew(GULP);
        }
        READ.min(self.buffer.capacity() - begun)
    }

    /// Goes on in other memory, with room for at least `size` bytes.
    fn renew(&mut self, size: usize) {
        let mut fresh = self.memory.take(size.max(GULP));
        fresh.extend_from_slice(&self.buffer);
        let used = std::mem::replace(&mut self.buffer, fresh);
        if used.capacity() > 0 {
            self.memory.give_back(used);
        }
    }
}

fn explain(error: io::Error, missing: usize, between_frames: bool) -> ReadError {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return ReadError::Tls { source: tls.clone() };
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof if between_frames => ReadError::CutOff { missing: 0 },
        io::ErrorKind::UnexpectedEof => ReadError::CutOff { missing },
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => ReadError::Lost { source: error },
        _ => ReadError::Io { source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{MAX_FRAME, encode_head};
    use tokio::io::AsyncWriteExt;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        [&encode_head(kind, body.len()).unwrap()[..], body].concat()
    }

    #[tokio::test]
    async fn an_oversized_length_is_refused_before_memory_is_taken() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(Box::pin(far));
        near.write_all(&[0xff; 4]).await.unwrap();
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, ReadError::Malformed { source: FrameError::Oversized { .. } }));
        assert!(reader.buffer.capacity() <= GULP);
        assert!(reader.next().await.is_err(), "stays failed");
    }

    #[tokio::test]
    async fn a_cut_inside_a_frame_is_not_an_end() {
        let whole = frame(1, b"hello");
        for at in 0..=whole.len() {
            let (mut near, far) = tokio::io::duplex(64);
            let mut reader = FrameReader::new(Box::pin(far));
            near.write_all(&whole[..at]).await.unwrap();
            drop(near);
            match reader.next().await {
                Ok(None) => assert_eq!(at, 0),
                Ok(Some(frame)) => assert_eq!((at, &frame.body[..]), (whole.len(), &b"hello"[..])),
                Err(ReadError::CutOff { missing }) => assert!(missing > 0, "cut at {at}"),
                Err(error) => panic!("cut at {at}: {error}"),
            }
        }
    }

    #[tokio::test]
    async fn dropping_the_future_loses_nothing() {
        let (mut near, far) = tokio::io::duplex(7);
        let mut reader = FrameReader::new(Box::pin(far));
        let stream: Vec<u8> = (0..50).flat_map(|n| frame(n, &vec![n; usize::from(n) * 13])).collect();
        let feeding = tokio::spawn(async move {
            for part in stream.chunks(3) {
                near.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        for n in 0..50u8 {
            let found = loop {
                tokio::select! {
                    biased;
                    found = reader.next() => break found.unwrap().unwrap(),
                    () = tokio::task::yield_now() => {}
                }
            };
            assert_eq!((found.kind, found.body.len()), (n, usize::from(n) * 13));
            assert!(found.body.iter().all(|&byte| byte == n));
        }
        feeding.await.unwrap();
    }

    #[tokio::test]
    async fn memory_stays_near_a_gulp_or_one_frame() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let mut reader = FrameReader::new(Box::pin(far));
        let feeding = tokio::spawn(async move {
            for len in [10, MAX_FRAME - 1, 100, 300_000, 0, MAX_FRAME - 1] {
                near.write_all(&frame(1, &vec![5; len])).await.unwrap();
            }
        });
        while let Some(frame) = reader.next().await.unwrap() {
            assert!(frame.body.len() < MAX_FRAME);
            assert!(reader.buffer.capacity() <= GULP + MAX_FRAME + 4, "{}", reader.buffer.capacity());
        }
        feeding.await.unwrap();
    }
}
