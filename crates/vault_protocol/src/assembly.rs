//! Long messages: pieces in frames of the kind [`MORE`], the last in a frame of the message's own kind.

use bytes::{Bytes, BytesMut};
use towpath_content::DecodeError;
use towpath_link::Frame;
use towpath_vault_format::update::MAX_UPDATE;

/// Kind of a frame whose body goes on in the next one.
pub const MORE: u8 = 0;
/// The most bytes of a message: a proposal with the largest update.
pub const MAX_MESSAGE: usize = MAX_UPDATE + 4096;
/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// Cuts a message into frames: kind and body of each.
pub fn frames(kind: u8, mut body: Bytes) -> Vec<(u8, Bytes)> {
    let mut frames = Vec::with_capacity(1 + body.len() / PIECE);
    while body.len() > PIECE {
        frames.push((MORE, body.split_to(PIECE)));
    }
    frames.push((kind, body));
    frames
}

/// Puts messages together.
#[derive(Debug, Default)]
pub struct Assembly {
    begun: BytesMut,
}

impl Assembly {
    /// Takes a frame; the message's kind and body if it is whole. Its memory grows with what really came.
    pub fn take(&mut self, frame: Frame) -> Result<Option<(u8, Bytes)>, DecodeError> {
        let found = self.begun.len() + frame.body.len();
        if found > MAX_MESSAGE {
            let (found, limit) = (found as u64, MAX_MESSAGE as u64);
            return Err(DecodeError::TooLarge { field: "message", found, limit });
        }
        match (frame.kind, self.begun.is_empty()) {
            (MORE, _) => {
                self.begun.extend_from_slice(&frame.body);
                Ok(None)
            }
            (kind, true) => Ok(Some((kind, frame.body))),
            (kind, false) => {
                self.begun.extend_from_slice(&frame.body);
                Ok(Some((kind, std::mem::take(&mut self.begun).freeze())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(kind: u8, body: &Bytes) -> Option<(u8, Bytes)> {
        let (mut assembly, mut whole) = (Assembly::default(), None);
        for (kind, body) in frames(kind, body.clone()) {
            assert!(whole.is_none() && body.len() <= PIECE);
            whole = assembly.take(Frame { kind, body }).unwrap();
        }
        assert!(assembly.begun.is_empty());
        whole
    }

    #[test]
    fn messages_of_any_length_come_back() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, MAX_MESSAGE] {
            let body = Bytes::from((0..len).map(|at| (at / 7) as u8).collect::<Vec<_>>());
            assert_eq!(again(9, &body), Some((9, body)));
        }
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut assembly = Assembly::default();
        let piece = || Frame { kind: MORE, body: Bytes::from(vec![0; PIECE]) };
        let taken = (0..100).take_while(|_| assembly.take(piece()).is_ok()).count();
        assert_eq!(taken, MAX_MESSAGE / PIECE);
    }
}
