//! Chunks of files: cut and hashed in one pass, on all cores.
//!
//! A window of the file is read in blocks, by all cores. Then it is cut: each core follows the chain of
//! chunks from the begin of a segment, hashing each chunk while it is warm. The chain from a segment's
//! begin usually meets the one that comes from the file's begin within a few chunks; up to there
//! the latter is cut anew, from there on the former holds. So the chunks are exactly those of a
//! chunker that goes from the begin to the end, and what lies behind the last one whose end shows goes
//! before the next window. Windows begin small and grow while they are read quickly: whoever waits for the
//! first chunks of a slow disk, or wants no more of them, does not wait for 8 MiB.
//!
//! Memory: a window of 8 MiB and one chunk of the greatest length.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use towpath_content::chunking::{ChunkHash, Cutter, Parameters};
use towpath_content::pieces::{self, Layout, Value};
use towpath_content::recipe::Descriptor;

use crate::error::StoreError;
use crate::hashing::{ALIGN, Before, Hashed, LIVE_PIECE, TOO_LARGE, hash_range, read_ahead};
use crate::stamp::Stamp;

/// Bytes a core reads at a time, unless it hashes larger pieces for the file's name.
const BLOCK: usize = LIVE_PIECE as usize;
/// Bytes of the first window, and of the longest.
const FIRST_WINDOW: u64 = 1 << 20;
const MOST_WINDOW: u64 = 8 << 20;
/// So many times as long is the next window if one was read and hashed this quickly.
const GROWTH: u64 = 4;
const QUICK: Duration = Duration::from_millis(50);
/// Least bytes of a segment.
const SEGMENT: usize = 1 << 20;
/// Least segment in greatest chunks: some 64 of average length, of which a few are cut in vain.
const SEGMENT_CHUNKS: usize = 16;
/// Chunks that were given are hashed so many at a time.
const BATCH: usize = 256;

/// The stamp under which a file was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutScan {
    /// The stamp, the same before and after.
    pub stamp: Stamp,
    /// True if the stamp was settled when the content was read.
    pub settled: bool,
}

/// Takes chunks in order; an error ends the pass.
pub(crate) type Take<'a> = dyn FnMut(&[Descriptor]) -> io::Result<()> + 'a;

/// Takes chunks in order with their bytes, which lie end to end; an error ends the pass.
pub type TakeBytes<'a> = dyn FnMut(&[Descriptor], &[u8]) -> io::Result<()> + 'a;

/// Cuts an open file with `parameters` and hands its chunks to `take`, in order, some 8 MiB of them
/// at a time, with their bytes as they were hashed; `path` is for messages.
///
/// The stamp is compared before and after. If the file was changed meanwhile, what `take` was given
/// says nothing of it.
pub fn cut_open_file(
    file: &File,
    path: &Path,
    parameters: &Parameters,
    take: &mut TakeBytes<'_>,
) -> Result<CutScan, StoreError> {
    let before = Before::of(file, path)?;
    cut_since(&before, file, path, parameters, None, take)?;
    Ok(CutScan { stamp: before.stamp, settled: before.settled })
}

/// As [`cut_open_file`], and the content's name and the values of its pieces too; each byte is read once.
pub fn cut_and_hash_open_file(
    file: &File,
    path: &Path,
    parameters: &Parameters,
    take: &mut TakeBytes<'_>,
) -> Result<Hashed, StoreError> {
    let before = Before::of(file, path)?;
    let mut values = Vec::new();
    cut_since(&before, file, path, parameters, Some(&mut values), take)?;
    let oid = pieces::oid_of(&values);
    let values = (values.len() > 1).then_some(values);
    Ok(Hashed { oid, stamp: before.stamp, settled: before.settled, values })
}

fn cut_since(
    before: &Before,
    file: &File,
    path: &Path,
    parameters: &Parameters,
    values: Option<&mut Vec<Value>>,
    take: &mut TakeBytes<'_>,
) -> Result<(), StoreError> {
    let cutter = parameters.cutter().map_err(|_| NO_CUTTER)?;
    let layout = Layout::of(before.stamp.size).map_err(|_| TOO_LARGE)?;
    let cut = cut_file(file, &layout, &cutter, values, take);
    cut.map_err(|error| before.explain(error, file, path))?;
    before.check(file, path)
}

const NO_CUTTER: StoreError = StoreError::Refused { why: "no file can be cut with such parameters" };

/// Cuts a file that has the size of `layout`; `values` gets those of its pieces.
pub(crate) fn cut_file(
    file: &File,
    layout: &Layout,
    cutter: &Cutter,
    mut values: Option<&mut Vec<Value>>,
    take: &mut TakeBytes<'_>,
) -> io::Result<()> {
    let size = layout.size();
    let (mut start, mut len) = (0, FIRST_WINDOW.max(layout.piece_len()));
    let mut window = CutWindow::new(size, cutter.max_len(), MOST_WINDOW.max(len));
    while start < size {
        let (end, begun) = (size.min(start + len), Instant::now());
        read_ahead(file, end..size.min(end + len));
        window.fill(file, start..end, values.as_deref_mut().map(|values| (layout, values)))?;
        let (chunks, bytes) = window.cut(cutter, end == size);
        if !chunks.is_empty() {
            take(&chunks, bytes)?;
        }
        (start, len) = (end, next_window(len, begun.elapsed()));
    }
    Ok(())
}

/// Bytes of the next window, after one that took so long.
fn next_window(len: u64, took: Duration) -> u64 {
    if took < QUICK { (len * GROWTH).min(MOST_WINDOW).max(len) } else { len }
}

/// Hashes the chunks of a file whose lengths somebody gave.
pub(crate) fn hash_given(file: &File, lengths: &[u32], take: &mut Take<'_>) -> io::Result<()> {
    let mut offset = 0;
    for lengths in lengths.chunks(BATCH) {
        let chunks: Vec<_> =
            lengths.iter().scan(&mut offset, |offset, len| Some(place(offset, *len))).collect();
        let hash = |(offset, len): (u64, u32)| {
            let mut hasher = blake3::Hasher::new();
            hash_range(file, offset..offset + u64::from(len), &mut hasher)?;
            Ok(Descriptor { hash: ChunkHash(*hasher.finalize().as_bytes()), len, offset })
        };
        take(&chunks.into_par_iter().map(hash).collect::<io::Result<Vec<_>>>()?)?;
    }
    Ok(())
}

fn place(offset: &mut u64, len: u32) -> (u64, u32) {
    let at = *offset;
    *offset += u64::from(len);
    (at, len)
}

/// Part of a file in memory.
struct CutWindow {
    memory: Vec<u8>,
    /// Start of a window in memory; before it is room for the rest of the one before.
    front: usize,
    /// The bytes that are to be cut.
    bytes: Range<usize>,
    /// Their position in the file.
    offset: u64,
}

impl CutWindow {
    /// No window is longer than `longest`.
    fn new(size: u64, max_len: usize, longest: u64) -> Self {
        let room = if size > FIRST_WINDOW { max_len.next_multiple_of(ALIGN) } else { 0 };
        let memory = vec![0; room + ALIGN + size.min(longest) as usize];
        let front = room + memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { memory, front, bytes: front..front, offset: 0 }
    }

    /// Reads the next `range` of the file behind what is left.
    fn fill(
        &mut self,
        file: &File,
        range: Range<u64>,
        values: Option<(&Layout, &mut Vec<Value>)>,
    ) -> io::Result<()> {
        let left = self.bytes.len();
        self.memory.copy_within(self.bytes.clone(), self.front - left);
        self.bytes = self.front - left..self.front + (range.end - range.start) as usize;
        let layout = values.as_ref().map(|(layout, _)| **layout);
        let block = layout.map_or(BLOCK, |layout| layout.piece_len() as usize);
        let read = |(number, bytes): (usize, &mut [u8])| {
            let at = range.start + (number * block) as u64;
            file.read_exact_at(bytes, at)?;
            Ok(layout.map(|layout| layout.value(at / layout.piece_len(), bytes)))
        };
        let memory = &mut self.memory[self.front..self.bytes.end];
        let found: Vec<Option<Value>> = if memory.len() <= block {
            memory.chunks_mut(block).enumerate().map(read).collect::<io::Result<_>>()?
        } else {
            memory.par_chunks_mut(block).enumerate().map(read).collect::<io::Result<_>>()?
        };
        if let Some((_, values)) = values {
            values.extend(found.into_iter().flatten());
        }
        Ok(())
    }

    /// Takes off the chunks whose ends show, with their bytes.
    fn cut(&mut self, cutter: &Cutter, is_end: bool) -> (Vec<Descriptor>, &[u8]) {
        let bytes = &self.memory[self.bytes.clone()];
        let chunks = cut_window(cutter, bytes, self.offset, is_end);
        let cut = chunks.last().map_or(0, |last| last.offset + u64::from(last.len) - self.offset);
        self.bytes.start += cut as usize;
        self.offset += cut;
        (chunks, &bytes[..cut as usize])
    }
}

/// A chunk of a window.
#[derive(Debug, Clone, Copy)]
struct CutFound {
    start: usize,
    end: usize,
    /// Unless it is still to be hashed.
    hash: Option<ChunkHash>,
}

/// All chunks of `bytes` whose ends show; they lie at `offset` of the file, where a chunk begins.
fn cut_window(cutter: &Cutter, bytes: &[u8], offset: u64, is_end: bool) -> Vec<Descriptor> {
    let segment = SEGMENT.max(SEGMENT_CHUNKS * cutter.max_len());
    let found = if bytes.len() <= segment {
        join(cutter, bytes, &[], is_end)
    } else {
        let starts: Vec<_> = (0..bytes.len()).step_by(segment).collect();
        let follow = |start| follow(cutter, bytes, offset, start..start + segment, is_end);
        let chains: Vec<_> = starts.into_par_iter().map(follow).collect();
        join(cutter, bytes, &chains, is_end)
    };
    let describe = |chunk: CutFound| {
        let hash = chunk.hash.unwrap_or_else(|| ChunkHash::of(&bytes[chunk.start..chunk.end]));
        Descriptor { hash, len: (chunk.end - chunk.start) as u32, offset: offset + chunk.start as u64 }
    };
    if bytes.len() <= BLOCK {
        return found.into_iter().map(describe).collect();
    }
    found.into_par_iter().with_min_len(4).map(describe).collect()
}

/// The chain of chunks from the begin of a segment.
fn follow(cutter: &Cutter, bytes: &[u8], offset: u64, segment: Range<usize>, is_end: bool) -> Vec<CutFound> {
    let start = if segment.start == 0 {
        0
    } else {
        (cutter.likely_start(offset + segment.start as u64) - offset) as usize
    };
    let mut chain = Vec::new();
    cutter.chain(bytes, start, segment.end, is_end, |start, end| {
        let hash = Some(ChunkHash::of(&bytes[start..end]));
        chain.push(CutFound { start, end, hash });
    });
    chain
}

/// The chain from the begin of `bytes`, with the help of those that were followed from other places.
fn join(cutter: &Cutter, bytes: &[u8], chains: &[Vec<CutFound>], is_end: bool) -> Vec<CutFound> {
    let (mut joined, mut at, mut chains) = (Vec::new(), 0, chains.iter());
    let mut chain: &[CutFound] = &[];
    loop {
        while chain.last().is_none_or(|last| last.start < at) {
            match chains.next() {
                Some(next) => chain = next,
                None => break,
            }
        }
        match chain.binary_search_by_key(&at, |chunk| chunk.start) {
            Ok(met) => joined.extend_from_slice(&chain[met..]),
            Err(_) => match cutter.end_of(bytes, at, is_end) {
                Some(end) => joined.push(CutFound { start: at, end, hash: None }),
                None => return joined,
            },
        }
        at = joined.last().map_or(at, |last| last.end);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use towpath_content::Oid;
    use towpath_content::chunking::Parameters::{Fixed, Gear, Rabin};

    use super::*;
    use crate::doubles::noise;
    use crate::hashing::hash_open_file;

    /// Chunks that a chunker finds that goes from the begin to the end.
    fn sequential(parameters: &Parameters, data: &[u8]) -> Vec<Descriptor> {
        let (mut chunker, mut rest) = (parameters.chunker().unwrap(), data);
        let (mut found, mut offset) = (Vec::new(), 0);
        let mut push = |chunk: &[u8]| {
            found.push(Descriptor { hash: ChunkHash::of(chunk), len: chunk.len() as u32, offset });
            offset += chunk.len() as u64;
        };
        while let Some(chunk) = chunker.cut(&mut rest) {
            push(chunk);
        }
        while let Some(chunk) = chunker.finish() {
            push(chunk);
        }
        found
    }

    /// Segments of any size, so that small data have many.
    fn in_segments(
        parameters: &Parameters,
        data: &[u8],
        segment: usize,
        is_end: bool,
    ) -> Vec<(usize, usize)> {
        let cutter = parameters.cutter().unwrap();
        let follow = |start| follow(&cutter, data, 0, start..start + segment, is_end);
        let chains: Vec<_> = (0..data.len()).step_by(segment).map(follow).collect();
        join(&cutter, data, &chains, is_end).iter().map(|chunk| (chunk.start, chunk.end)).collect()
    }

    fn file_of(data: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(data).unwrap();
        file
    }

    /// Noise, runs of one byte, and runs that repeat, in which chains may never meet.
    fn data() -> impl Strategy<Value = Vec<u8>> {
        let stretch = prop_oneof![
            (any::<u64>(), 0usize..9000).prop_map(|(seed, len)| noise(seed, len)),
            (any::<u8>(), 0usize..9000).prop_map(|(byte, len)| vec![byte; len]),
            (any::<u64>(), 1usize..700, 1usize..20).prop_map(|(seed, len, n)| noise(seed, len).repeat(n)),
        ];
        prop::collection::vec(stretch, 0..5).prop_map(|stretches| stretches.concat())
    }

    fn small() -> impl Strategy<Value = Parameters> {
        prop::sample::select(vec![
            Gear { min: 64, avg: 256, max: 1024 },
            Rabin { min: 64, avg: 256, max: 1024 },
            Fixed { len: 100 },
        ])
    }

    proptest! {
        #[test]
        fn chains_from_many_places_join_to_the_one_from_the_begin(
            data in data(), parameters in small(), segment in 1usize..5000, front in 0usize..30_000,
        ) {
            let expected: Vec<_> = sequential(&parameters, &data).iter().map(|chunk| {
                (chunk.offset as usize, (chunk.offset + u64::from(chunk.len)) as usize)
            }).collect();
            prop_assert_eq!(&in_segments(&parameters, &data, segment, true), &expected);
            let front = &data[..front.min(data.len())];
            let early = in_segments(&parameters, front, segment, false);
            prop_assert_eq!(&early[..], &expected[..early.len()]);
            let rest = front.len() - early.last().map_or(0, |last| last.1);
            prop_assert!(rest < parameters.max_len() as usize, "all that shows was found");
        }
    }

    #[test]
    fn a_file_is_cut_as_its_bytes_are_and_named_in_the_same_pass() {
        const MIB: usize = 1 << 20;
        let small = Gear { min: 64, avg: 256, max: 1024 };
        let mixed =
            [noise(1, 9 * MIB + 7), vec![0; 5 * MIB + 3], noise(2, 700).repeat(6000), noise(3, 17 * MIB)];
        let cases = [
            (small, Vec::new()),
            (small, noise(1, 1)),
            (Parameters::DEFAULT, noise(1, 300_000)),
            (Parameters::DEFAULT, noise(1, 16 * MIB)),
            (Parameters::DEFAULT, mixed.concat()),
            (small, noise(1, 3 * MIB + 1)),
            (Rabin { min: 2048, avg: 8192, max: 65536 }, mixed.concat()),
            (Fixed { len: 100_000 }, mixed.concat()),
            (Gear { min: 1 << 20, avg: 4 << 20, max: 16 << 20 }, mixed.concat()),
            (Fixed { len: 1 << 24 }, mixed.concat()),
        ];
        for (parameters, data) in cases {
            let (file, expected) = (file_of(&data), sequential(&parameters, &data));
            let mut found = Vec::new();
            let mut take = |chunks: &[Descriptor], bytes: &[u8]| {
                assert_eq!(bytes.len() as u64, chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>());
                assert_eq!(ChunkHash::of(&bytes[..chunks[0].len as usize]), chunks[0].hash);
                found.extend_from_slice(chunks);
                Ok(())
            };
            let hashed = cut_and_hash_open_file(file.as_file(), file.path(), &parameters, &mut take).unwrap();
            let what = format!("{parameters:?} of {} bytes", data.len());
            assert!(found == expected, "{what}");
            let alone = hash_open_file(file.as_file(), file.path()).unwrap();
            assert_eq!((hashed.oid, &hashed.values), (Oid::of(&data), &alone.values), "{what}");
            found = Vec::new();
            let mut take = |chunks: &[Descriptor], _: &[u8]| {
                found.extend_from_slice(chunks);
                Ok(())
            };
            cut_open_file(file.as_file(), file.path(), &parameters, &mut take).unwrap();
            assert!(found == expected, "{what}, not named");
        }
    }

    #[test]
    fn windows_grow_while_they_are_quick() {
        let (quick, slow) = (Duration::from_millis(1), Duration::from_secs(1));
        let lens = [quick, slow, quick, quick, quick].into_iter().scan(FIRST_WINDOW, |len, took| {
            *len = next_window(*len, took);
            Some(*len >> 20)
        });
        assert_eq!(lens.collect::<Vec<_>>(), [4, 4, 8, 8, 8]);
        assert_eq!(next_window(64 << 20, quick), 64 << 20, "a piece is as long");
    }

    #[test]
    fn given_chunks_are_hashed_where_they_lie() {
        let data = noise(1, 3_000_000);
        let lengths: Vec<u32> = (0..1000).map(|i| 1 + i * 5).chain([502_500 - 1000]).collect();
        let total: u32 = lengths.iter().sum();
        let mut at = 0;
        let mut take = |chunks: &[Descriptor]| {
            for chunk in chunks {
                assert_eq!(chunk.offset, at);
                at += u64::from(chunk.len);
                assert_eq!(chunk.hash, ChunkHash::of(&data[chunk.offset as usize..at as usize]));
            }
            Ok(())
        };
        hash_given(file_of(&data).as_file(), &lengths, &mut take).unwrap();
        assert_eq!(at, u64::from(total));
    }

    #[test]
    fn a_pass_ends_when_its_taker_fails_and_when_the_file_changes() {
        let file = file_of(&noise(1, 40 << 20));
        let cut =
            |take: &mut TakeBytes<'_>| cut_open_file(file.as_file(), file.path(), &Parameters::DEFAULT, take);
        let mut calls = 0;
        let failed = cut(&mut |_, _| {
            calls += 1;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(matches!(failed, Err(StoreError::Io { .. })) && calls == 1);
        let changed = cut(&mut |_, _| file.as_file().set_len(20 << 20));
        assert!(matches!(changed, Err(StoreError::SourceChanged { .. })), "{changed:?}");
        let given = cut_open_file(file.as_file(), file.path(), &Parameters::Given, &mut |_, _| Ok(()));
        assert!(matches!(given, Err(StoreError::Refused { .. })));
    }
}
