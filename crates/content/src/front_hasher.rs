//! Hashing of an object whose bytes come from its front on: the values of its pieces, and its OID, without reading it once
//! more.

use blake3::hazmat::HasherExt;

use crate::Oid;
use crate::pieces::{Layout, Value, oid_of};

/// Hasher of one object. Pure, and keeps no bytes.
#[derive(Debug, Clone)]
pub struct FrontHasher {
    layout: Layout,
    values: Vec<Value>,
    /// Of the piece that is not complete.
    piece: blake3::Hasher,
    hashed: u64,
}

impl FrontHasher {
    /// Nothing of an object of this layout has come.
    pub fn new(layout: Layout) -> Self {
        Self { layout, values: Vec::new(), piece: blake3::Hasher::new(), hashed: 0 }
    }

    /// Takes the bytes from `offset` on; false if they are not the next ones, or too many: then nothing was done.
    pub fn update(&mut self, offset: u64, mut bytes: &[u8]) -> bool {
        let end = offset.checked_add(bytes.len() as u64);
        if offset != self.hashed || end.is_none_or(|end| end > self.layout.size()) {
            return false;
        }
        while !bytes.is_empty() {
            let piece = self.layout.range(self.values.len() as u64);
            let left = usize::try_from(piece.end - self.hashed).unwrap_or(usize::MAX);
            let (next, rest) = bytes.split_at(left.min(bytes.len()));
            self.piece.update(next);
            self.hashed += next.len() as u64;
            bytes = rest;
            if self.hashed == piece.end && self.layout.count() > 1 {
                self.next_piece();
            }
        }
        true
    }

    /// The OID, and the values of all pieces; none before all bytes have come.
    pub fn finish(mut self) -> Option<(Oid, Vec<Value>)> {
        if self.hashed != self.layout.size() {
            return None;
        }
        if self.layout.count() == 1 {
            self.values.push(*self.piece.finalize().as_bytes());
        }
        Some((oid_of(&self.values), self.values))
    }

    fn next_piece(&mut self) {
        self.values.push(self.piece.finalize_non_root());
        self.piece = blake3::Hasher::new();
        // Behind the last piece there is none, and it may end anywhere.
        if self.hashed < self.layout.size() {
            self.piece.set_input_offset(self.hashed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::MIN_LOG2;

    const PIECE: usize = 1 << MIN_LOG2;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 251 + at) as u8).collect()
    }

    #[test]
    fn parts_of_any_length_make_the_same_values_as_the_whole() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 77] {
            let (content, layout) = (bytes(len), Layout::of(len as u64).unwrap());
            let whole = layout.range(0).end as usize;
            for part in [1000, PIECE - 1, PIECE, 2 * PIECE + 5] {
                let mut hasher = FrontHasher::new(layout);
                for (index, next) in content.chunks(part).enumerate() {
                    assert!(hasher.update((index * part) as u64, next));
                }
                let (oid, values) = hasher.finish().unwrap();
                assert_eq!(oid, Oid::of(&content), "{len} bytes in parts of {part}");
                assert_eq!(values.len() as u64, layout.count());
                assert_eq!(values[0], layout.value(0, &content[..whole]));
            }
        }
    }

    #[test]
    fn what_is_out_of_order_or_too_much_is_left_alone() {
        let content = bytes(PIECE + 10);
        let mut hasher = FrontHasher::new(Layout::of(content.len() as u64).unwrap());
        assert!(!hasher.update(1, &content[1..]) && !hasher.update(u64::MAX, b"xy"));
        assert!(hasher.update(0, &content[..10]));
        assert!(hasher.clone().finish().is_none(), "not all has come");
        assert!(!hasher.update(0, &content[..10]), "again");
        assert!(!hasher.update(10, &content), "more than there are");
        assert!(hasher.update(10, &content[10..]));
        assert_eq!(hasher.finish().unwrap().0, Oid::of(&content));
    }
}
