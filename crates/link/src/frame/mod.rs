//! Frames: a kind and a body, with the length in front. Layout: `docs/formats/link.md`.
//!
//! The codec here does no I/O. [`FrameReader`] and [`FrameWriter`] put it on a byte stream and
//! see to it that payload is moved as seldom as possible.

mod reader;
mod writer;

use bytes::{Buf, Bytes};
use thiserror::Error;

pub use reader::{FrameReader, ReadError};
pub use writer::{FrameWriter, WriteError};

/// The most that a frame's kind and body may have together: a piece of 1 MiB and its proofs.
pub const MAX_FRAME: usize = (1 << 20) + (64 << 10);
/// Bytes before the body: the length and the kind.
pub const HEAD_LEN: usize = LENGTH_LEN + 1;
const LENGTH_LEN: usize = 4;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the body; given a meaning above this crate.
    pub kind: u8,
    /// The body. It may share its memory with neighbouring frames (up to 304 KiB), so copy small
    /// bodies that are kept for long.
    pub body: Bytes,
}

/// Reason why a length is not a frame's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Longer than any frame may be.
    #[error("a frame of {length} bytes, over the limit of {limit}")]
    Oversized {
        /// The length announced or asked for.
        length: u64,
        /// [`MAX_FRAME`].
        limit: u64,
    },
    /// Without even a kind.
    #[error("a frame of no bytes")]
    Empty,
}

/// Contents at the front of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMeasure {
    /// A whole frame of so many bytes, head included.
    Whole(usize),
    /// At least so many more bytes must come before there is a frame. Never zero.
    Missing(usize),
}

/// Encodes what comes before a body of `body_len` bytes.
pub fn encode_head(kind: u8, body_len: usize) -> Result<[u8; HEAD_LEN], FrameError> {
    let length = check_length(body_len as u64 + 1)?;
    let [a, b, c, d] = length.to_le_bytes();
    Ok([a, b, c, d, kind])
}

/// Measures whether there is a whole frame at the front of `buffer`.
pub fn measure(buffer: &[u8]) -> Result<ReadMeasure, FrameError> {
    let Some(&[a, b, c, d]) = buffer.first_chunk::<LENGTH_LEN>() else {
        return Ok(ReadMeasure::Missing(LENGTH_LEN - buffer.len()));
    };
    let length = check_length(u64::from(u32::from_le_bytes([a, b, c, d])))?;
    let whole = LENGTH_LEN + length as usize;
    match whole.checked_sub(buffer.len()) {
        Some(missing @ 1..) => Ok(ReadMeasure::Missing(missing)),
        _ => Ok(ReadMeasure::Whole(whole)),
    }
}

/// Takes a frame off the front of `buffer`; `None` if there is no whole one. Never allocates.
pub fn decode(buffer: &mut Bytes) -> Result<Option<Frame>, FrameError> {
    let ReadMeasure::Whole(whole) = measure(buffer)? else { return Ok(None) };
    let mut frame = buffer.split_to(whole);
    frame.advance(LENGTH_LEN);
    let kind = frame.get_u8();
    Ok(Some(Frame { kind, body: frame }))
}

fn check_length(length: u64) -> Result<u32, FrameError> {
    match length {
        0 => Err(FrameError::Empty),
        1..=LIMIT => Ok(length as u32),
        _ => Err(FrameError::Oversized { length, limit: LIMIT }),
    }
}

const LIMIT: u64 = MAX_FRAME as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(kind: u8, body: &[u8]) -> Vec<u8> {
        [&encode_head(kind, body.len()).unwrap()[..], body].concat()
    }

    #[test]
    fn the_test_vectors_of_the_format() {
        assert_eq!(encode(7, b""), [1, 0, 0, 0, 7]);
        assert_eq!(encode(1, b"hello"), *b"\x06\0\0\0\x01hello");
        assert_eq!(encode(255, &[0xaa; 300])[..6], [0x2d, 1, 0, 0, 0xff, 0xaa]);
    }

    #[test]
    fn lengths_at_the_limit_and_one_beyond() {
        assert!(encode_head(0, MAX_FRAME - 1).is_ok());
        let error = FrameError::Oversized { length: LIMIT + 1, limit: LIMIT };
        assert_eq!(encode_head(0, MAX_FRAME), Err(error));
        assert_eq!(measure(&(LIMIT as u32 + 1).to_le_bytes()), Err(error));
        assert_eq!(measure(&(LIMIT as u32).to_le_bytes()), Ok(ReadMeasure::Missing(MAX_FRAME)));
    }

    #[test]
    fn an_impossible_length_is_no_frame() {
        for (length, error) in [
            (u32::MAX, FrameError::Oversized { length: u64::from(u32::MAX), limit: LIMIT }),
            (0, FrameError::Empty),
        ] {
            let mut buffer = Bytes::copy_from_slice(&length.to_le_bytes());
            assert_eq!(measure(&buffer), Err(error));
            assert_eq!(decode(&mut buffer), Err(error));
        }
    }

    proptest! {
        #[test]
        fn frames_come_back_in_their_order(
            frames in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..600)), 0..20),
        ) {
            let stream: Vec<u8> = frames.iter().flat_map(|(kind, body)| encode(*kind, body)).collect();
            let (mut buffer, mut found) = (Bytes::from(stream), Vec::new());
            while let Some(frame) = decode(&mut buffer).unwrap() {
                found.push((frame.kind, frame.body.to_vec()));
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn what_is_missing_is_exactly_what_is_missing(body in proptest::collection::vec(any::<u8>(), 0..600), at: prop::sample::Index) {
            let stream = encode(9, &body);
            let at = at.index(stream.len());
            let mut buffer = Bytes::copy_from_slice(&stream[..at]);
            let missing = if at < LENGTH_LEN { LENGTH_LEN - at } else { stream.len() - at };
            prop_assert_eq!(measure(&buffer), Ok(ReadMeasure::Missing(missing)));
            prop_assert_eq!(decode(&mut buffer), Ok(None));
            prop_assert_eq!(buffer.len(), at);
        }

        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes: Vec<u8>) {
            let mut buffer = Bytes::from(bytes.clone());
            while let Ok(Some(frame)) = decode(&mut buffer) {
                prop_assert!(frame.body.len() < bytes.len());
            }
        }
    }
}
