//! Samples of an object that a sender tells, and an older version in which its pieces are looked for by them.

use std::io;

use towpath_content::pieces::Layout;
use towpath_transfer::following::{
    BaseReader, Following, PieceMatch, SAMPLE_LEN, Samples, sample, sample_count,
};

use crate::input::{Source, Written, noise};

/// Bytes of the object and of its older version, at most: two pieces and a rest.
const LONGEST: u64 = 600 << 10;
/// Runs that are inserted into the older version, at most.
const MOST_EDITS: usize = 8;

/// An older version in memory, which can't be read from some byte on.
struct Kept {
    bytes: Vec<u8>,
    broken_at: u64,
}

impl BaseReader for Kept {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = from.checked_add(buf.len()).and_then(|to| self.bytes.get(from..to));
        let bytes = bytes.filter(|_| offset + buf.len() as u64 <= self.broken_at);
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Size and older version, then samples in runs: each with the piece that it says it begins at. A number above all
/// pieces stands for the one that comes next.
pub fn samples(data: &[u8]) {
    let mut source = Source::new(data);
    let size = source.below(LONGEST);
    let older = older(&mut source);
    let layout = Layout::of(size).expect("a small object");
    let mut samples = Samples::new(layout);
    while !source.is_empty() {
        let (first, run) = (source.number(), source.run());
        let (first, before) =
            (if first > layout.count() { samples.pieces() } else { first }, samples.pieces());
        let is_taken = samples.learn(first, run);
        assert!(samples.pieces() >= before && samples.pieces() <= layout.count());
        assert!(is_taken || samples.pieces() == before);
    }
    let mut following = Following::default();
    for index in 0..layout.count() {
        let Some(sent) = samples.of(index) else {
            assert!(index >= samples.pieces());
            continue;
        };
        let range = layout.range(index);
        assert_eq!(sent.len(), sample_count(range.end - range.start) * SAMPLE_LEN);
        let mut piece = vec![0; (range.end - range.start) as usize];
        if let Some(piece_match) = following.find(range.start, sent, &older, &mut piece) {
            is_made_so(&piece_match, range.start, &older, &piece);
        }
    }
}

/// Checks that what is said to be missing lies in the piece, and that the piece was read where nothing is.
fn is_made_so(piece_match: &PieceMatch, start: u64, older: &Kept, piece: &[u8]) {
    let missing = &piece_match.missing;
    assert!(missing.start <= missing.end && missing.end <= piece.len() as u64);
    let mut made = piece.to_vec();
    let is_read = piece_match.read(start, older, &mut made).is_ok();
    if missing.is_empty() {
        assert!(is_read && made == piece);
        assert!(!piece_match.is_in_place() || older.bytes[start as usize..].starts_with(piece));
    }
}

/// Noise with runs of other bytes in it.
fn older(source: &mut Source<'_>) -> Kept {
    let mut bytes = noise(source.below(LONGEST) as usize).to_vec();
    let broken_at = source.number();
    for _ in 0..source.below(MOST_EDITS as u64) {
        let at = source.below(bytes.len() as u64 + 1) as usize;
        let run = source.run();
        bytes.splice(at..at, run.iter().copied());
    }
    Kept { bytes, broken_at }
}

/// The object is noise; its older version has other runs in it, or is shorter.
pub fn seeds() -> Vec<Vec<u8>> {
    let object = noise((LONGEST - 1) as usize);
    let layout = Layout::of(object.len() as u64).expect("a small object");
    let sent = |head: Written| {
        let runs = (0..layout.count()).fold(head, |written, index| {
            let (range, mut samples) = (layout.range(index), Vec::new());
            sample(&object[range.start as usize..range.end as usize], &mut samples);
            written.number(u64::MAX).run(&samples)
        });
        runs.done()
    };
    let head = |len: u64| Written::default().number(LONGEST - 1).number(len).number(u64::MAX);
    let edited =
        head(LONGEST - 1).number(2).number(100_000).run(b"some inserted").number(400_000).run(&[7; 500]);
    vec![sent(head(LONGEST - 1).number(0)), sent(head(300_000).number(0)), sent(edited)]
}
