//! Frames of data: a header of fixed length, then the payload.

use bytes::{Buf, Bytes};
use towpath_content::DecodeError;
use towpath_content::codec::invalid;

/// Bytes of a data frame's header.
pub const DATA_HEADER: usize = 21;
pub use towpath_processors::MAX_PAYLOAD;

/// The header of a data frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Request number.
    pub request: u32,
    /// Index of the want.
    pub want: u32,
    /// Number of the piece in the want's run.
    pub piece: u32,
    /// Offset of the payload in the piece.
    pub offset: u32,
    /// Bytes to keep outstanding; 0 for no opinion.
    pub suggested: u32,
    /// The whole piece is zeros; no payload.
    pub zeros: bool,
    /// Encoding of the payload: 0 none, 1 one zstd frame, others as the [`Hello`](super::Hello) of its sender
    /// says.
    pub encoding: u8,
}

impl DataHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; DATA_HEADER] {
        let mut out = [0; DATA_HEADER];
        let numbers = [self.request, self.want, self.piece, self.offset, self.suggested];
        for (slot, number) in out.chunks_exact_mut(4).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        out[20] = u8::from(self.zeros) | self.encoding << 1;
        out
    }

    /// Splits a frame body into header and payload.
    pub fn decode(mut body: Bytes) -> Result<(Self, Bytes), DecodeError> {
        if body.len() < DATA_HEADER {
            return Err(invalid("data frame", "is shorter than its header"));
        }
        let payload = body.split_off(DATA_HEADER);
        let number = |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let (zeros, encoding) = match (body[20] & 1, body[20] >> 1, payload.is_empty()) {
            (0, 0, _) => (false, 0),
            (1, 0, true) => (true, 0),
            (0, encoding, false) => (false, encoding),
            _ => return Err(invalid("data frame", "has unknown flags")),
        };
        if payload.len() > MAX_PAYLOAD {
            let (found, limit) = (payload.len() as u64, MAX_PAYLOAD as u64);
            return Err(DecodeError::TooLarge { field: "data frame", found, limit });
        }
        let (request, want, piece) = (number(0), number(4), number(8));
        Ok((
            Self { request, want, piece, offset: number(12), suggested: number(16), zeros, encoding },
            payload,
        ))
    }
}

/// An encoded payload behind how many bytes it encodes, for a peer with [`PARTS`](super::PARTS).
pub fn with_len(len: usize, encoded: &[u8]) -> Bytes {
    [&(len as u32).to_le_bytes(), encoded].concat().into()
}

/// Number of bytes that a payload of [`with_len`] encodes, and the rest of it.
pub fn split_len(mut payload: Bytes) -> Result<(usize, Bytes), DecodeError> {
    match payload.try_get_u32_le() {
        Ok(len) if len > 0 => Ok((len as usize, payload)),
        _ => Err(invalid("encoded payload", "does not tell its length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_headers_come_back() {
        let header =
            DataHeader { request: 1, want: 2, piece: 3, offset: 4, suggested: 5, zeros: false, encoding: 0 };
        let body = [&header.encode()[..], b"payload"].concat();
        assert_eq!(DataHeader::decode(body.into()), Ok((header, Bytes::from_static(b"payload"))));
        let zstd = DataHeader { encoding: 1, ..header };
        let body = [&zstd.encode()[..], b"payload"].concat();
        assert_eq!(DataHeader::decode(body.into()), Ok((zstd, Bytes::from_static(b"payload"))));
        let zeros = DataHeader { zeros: true, ..header };
        assert_eq!(DataHeader::decode(zeros.encode().to_vec().into()), Ok((zeros, Bytes::new())));
    }

    #[test]
    fn odd_data_frames_are_refused() {
        let header =
            DataHeader { request: 1, want: 2, piece: 3, offset: 4, suggested: 5, zeros: true, encoding: 0 };
        assert!(DataHeader::decode(Bytes::from_static(b"short")).is_err());
        assert!(
            DataHeader::decode([&header.encode()[..], b"x"].concat().into()).is_err(),
            "zeros with payload"
        );
        for odd in [2, 3, 4, 255] {
            let mut flags = header.encode();
            flags[20] = odd;
            assert!(DataHeader::decode(flags.to_vec().into()).is_err(), "flags {odd} without payload");
        }
    }
}
