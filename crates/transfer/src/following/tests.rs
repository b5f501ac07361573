use std::sync::atomic::{AtomicU64, Ordering};

use towpath_store::doubles::noise;

use super::*;

const PIECE: usize = 256 << 10;

/// An older version in memory, and how many bytes of it were read.
struct Bytes(Vec<u8>, AtomicU64);

impl Bytes {
    fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into(), AtomicU64::new(0))
    }
}

impl BaseReader for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let part = self.0.get(from..from + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

/// Follows `new` through `older`, piece by piece: what was missing of each, `None` for all. What was found has to
/// be right, but where something was changed between two samples: then the piece's value tells, and all of it is
/// missing.
fn follow(new: &[u8], older: &Bytes) -> Vec<Option<Range<u64>>> {
    let mut following = Following::default();
    let pieces = new.chunks(PIECE).enumerate().map(|(index, piece)| {
        let (start, mut samples) = ((index * PIECE) as u64, Vec::new());
        sample(piece, &mut samples);
        assert_eq!(samples.len(), sample_count(piece.len() as u64) * SAMPLE_LEN);
        let mut buf = vec![0xee; piece.len()];
        let piece_match = following.find(start, &samples, older, &mut buf)?;
        if piece_match.missing.is_empty() && buf != piece {
            return None;
        }
        let missing = piece_match.missing.start as usize..piece_match.missing.end as usize;
        let mut made = vec![0xdd; piece.len()];
        made[missing.clone()].copy_from_slice(&piece[missing]);
        piece_match.read(start, older, &mut made).unwrap();
        (made == piece).then_some(piece_match.missing)
    });
    pieces.collect()
}

/// Number of bytes missing in each piece.
fn missing(new: &[u8], older: &[u8]) -> Vec<usize> {
    let lens = new.chunks(PIECE).map(<[u8]>::len);
    let found = follow(new, &Bytes::new(older));
    lens.zip(found).map(|(len, part)| part.map_or(len, |part| (part.end - part.start) as usize)).collect()
}

#[test]
fn what_is_the_same_is_found_in_its_place_and_only_there() {
    let data = noise(1, 3 * PIECE + 100);
    assert_eq!(missing(&data, &data), [0; 4]);
    let mut following = Following::default();
    let (mut samples, mut buf) = (Vec::new(), vec![0; PIECE]);
    sample(&data[..PIECE], &mut samples);
    let whole = following.find(0, &samples, &Bytes::new(data.clone()), &mut buf).unwrap();
    assert!(whole.is_in_place());
    let moved = [&[7; 33][..], &data].concat();
    let shifted = following.find(0, &samples, &Bytes::new(moved), &mut buf).unwrap();
    assert!(shifted.missing.is_empty() && !shifted.is_in_place());
}

/// The regression that this module is for: behind an insertion nothing lay in its place any more, and all of a file was
/// cut and hashed to find it.
#[test]
fn behind_what_was_inserted_removed_or_replaced_all_is_found_again() {
    let (old, new) = (noise(1, 8 * PIECE), noise(2, 20_000));
    let at = 2 * PIECE + 100_000;
    let most = |len: usize| len + 2 * EVERY as usize;
    for (name, inserted, removed) in
        [("inserted", 12_345, 0), ("removed", 0, 12_345), ("replaced", 11_000, 11_000), ("both", 20_000, 333)]
    {
        let edited = [&old[..at], &new[..inserted], &old[at + removed..]].concat();
        let missing = missing(&edited, &old);
        assert!(missing[2] > 0 && missing[2] < most(inserted), "{name}: {missing:?}");
        let others: usize = missing.iter().sum::<usize>() - missing[2];
        assert_eq!(others, 0, "{name}: {missing:?}");
    }
}

#[test]
fn changes_across_the_border_of_pieces_and_several_in_a_row_are_followed() {
    let (old, new) = (noise(1, 12 * PIECE), noise(2, 30_000));
    let at = 3 * PIECE - 2 * EVERY as usize + 100;
    let across = [&old[..at], &new[..20_000], &old[at..]].concat();
    let found = missing(&across, &old);
    assert!(found[2] + found[3] < 20_000 + 3 * EVERY as usize, "{found:?}");
    assert_eq!(found[..2].iter().chain(&found[4..]).sum::<usize>(), 0, "{found:?}");

    let mut edited = Vec::new();
    for (number, run) in old.chunks(400_000).enumerate() {
        let skipped = if number % 3 == 0 { 9000 } else { 0 };
        edited.extend_from_slice(&new[..if number % 2 == 0 { 14_000 } else { 0 }]);
        edited.extend_from_slice(&run[skipped.min(run.len())..]);
    }
    let found: usize = missing(&edited, &old).iter().sum();
    assert!(found < edited.len() / 4, "{found} of {}", edited.len());
}

#[test]
fn where_nothing_is_alike_nothing_is_found_and_searching_ends() {
    let (data, older) = (noise(1, 40 * PIECE), Bytes::new(noise(2, 40 * PIECE)));
    assert_eq!(follow(&data, &older), vec![None; 40]);
    let (read, size) = (older.1.load(Ordering::Relaxed), older.size());
    assert!(read < (SEARCHED + 3) * size + 2 * FARTHEST, "{read} of {size}");
}

#[test]
fn a_sample_that_occurs_more_than_once_tells_nothing() {
    let (front, zeros) = (noise(1, PIECE), vec![0; 2 * PIECE]);
    let older = [&front[..], &zeros, &front].concat();
    let newer = [&front[..], &[9; 777], &zeros, &front].concat();
    let found = missing(&newer, &older);
    assert_eq!(found[0], 0);
    assert!(found.iter().sum::<usize>() <= 3 * PIECE + 777, "{found:?}");
}

#[test]
fn an_older_version_that_is_shorter_longer_or_empty() {
    let data = noise(1, 3 * PIECE);
    assert_eq!(missing(&data, &data[..2 * PIECE + 1000]), [0, 0, PIECE - SAMPLE_LEN]);
    assert_eq!(missing(&data[..2 * PIECE + 5], &data), [0, 0, 5], "too short for a sample");
    assert_eq!(missing(&data, &[]), [PIECE; 3]);
    let cut = missing(&data, &data[50_000..]);
    assert!(cut[0] >= 50_000 && cut[0] < 50_000 + EVERY as usize && cut[1..] == [0, 0], "{cut:?}");
}

#[test]
fn samples_are_taken_in_their_order_and_of_whole_pieces() {
    let data = noise(1, 2 * PIECE + 9000);
    let mut all = Vec::new();
    data.chunks(PIECE).for_each(|piece| sample(piece, &mut all));
    let per_piece = PIECE / EVERY as usize * SAMPLE_LEN;
    assert_eq!(all.len(), 2 * per_piece + 2 * SAMPLE_LEN);
    let empty = || Samples::new(Layout::of(data.len() as u64).unwrap());
    let mut samples = empty();
    assert!(samples.learn(0, &all[..per_piece]) && samples.learn(1, &all[per_piece..]));
    assert_eq!(samples.pieces(), 3);
    assert_eq!(samples.of(1), Some(&all[per_piece..2 * per_piece]));
    assert_eq!(samples.of(2), Some(&all[2 * per_piece..]));
    assert_eq!(samples.of(3), None);
    for (first, bytes) in [
        (1, &all[..per_piece]),
        (0, &all[..per_piece - 1]),
        (0, &[all.as_slice(), &all].concat()[..]),
        (u64::MAX, &all[..per_piece]),
    ] {
        let mut samples = empty();
        assert!(!samples.learn(first, bytes) && samples.pieces() == 0 && samples.of(0).is_none(), "{first}");
    }
}
