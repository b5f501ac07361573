//! Files with holes: where the data lie, and writing without filling the holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use towpath_content::tree::Extent;

/// Aligned runs of this many zero bytes become holes: the block size of the usual file systems.
pub const HOLE_BLOCK: usize = 4096;

/// Positions of the data of a file of `size` bytes, if it has holes and at most `limit` runs of data.
///
/// `None` means "send all bytes": no holes, too many runs, or a file system that cannot tell. The
/// answer saves time and space and is no promise: the file may change while it is looked at.
/// Moves the file's position.
pub fn data_extents(file: &File, size: u64, limit: usize) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    for range in DataRanges::new(file, size) {
        let range = range.ok()?;
        if extents.len() == limit {
            return None;
        }
        extents.push(Extent { offset: range.start, len: range.end - range.start });
    }
    let whole = [Extent { offset: 0, len: size }];
    (size > 0 && extents != whole).then_some(extents)
}

/// The runs of a file that may hold data, ascending and apart. Moves the file's position.
#[derive(Debug)]
pub(crate) struct DataRanges<'a> {
    file: &'a File,
    at: u64,
    size: u64,
}

impl<'a> DataRanges<'a> {
    pub(crate) const fn new(file: &'a File, size: u64) -> Self {
        Self { file, at: 0, size }
    }

    fn find(&mut self) -> Result<Option<Range<u64>>, Errno> {
        let Some(start) = next_data(self.file, self.at)?.filter(|&start| start < self.size) else {
            return Ok(None);
        };
        let end = seek(self.file, SeekFrom::Hole(start))?.min(self.size);
        Ok((end > start).then_some(start..end))
    }
}

impl Iterator for DataRanges<'_> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.size {
            return None;
        }
        let found = self.find();
        self.at = found.as_ref().ok().and_then(|range| range.as_ref().map(|r| r.end)).unwrap_or(self.size);
        found.map_err(io::Error::from).transpose()
    }
}

/// The first byte of data at or after `at`; `None` if only a hole follows.
fn next_data(file: &File, at: u64) -> Result<Option<u64>, Errno> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes `bytes` at `offset`, leaving holes where whole aligned blocks are zero.
pub(crate) fn write_sparse(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let (zero, len) = first_run(at, &bytes[done..]);
        let run = &bytes[done..done + len];
        if zero {
            make_hole(file, at, run)?
        } else {
            file.write_all_at(run, at)?
        }
        done += len;
    }
    Ok(())
}

/// The first run of blocks that are all zero, or all not, and whether they are zero. A block cut
/// short by an end of `bytes` counts as data.
fn first_run(offset: u64, bytes: &[u8]) -> (bool, usize) {
    let lead = (offset.next_multiple_of(HOLE_BLOCK as u64) - offset) as usize;
    let (lead, rest) = bytes.split_at(lead.min(bytes.len()));
    let zero = lead.is_empty() && rest.chunks(HOLE_BLOCK).next().is_some_and(is_hole_block);
    let same = rest.chunks(HOLE_BLOCK).take_while(|block| is_hole_block(block) == zero);
    (zero, lead.len() + same.map(<[u8]>::len).sum::<usize>())
}

fn is_hole_block(block: &[u8]) -> bool {
    block.len() == HOLE_BLOCK && block.iter().all(|&b| b == 0)
}

/// Makes the file read as zeros here, whatever an earlier write left: a hole that is there stays,
/// data are punched out, and where neither can be done the zeros are written.
fn make_hole(file: &File, offset: u64, zeros: &[u8]) -> io::Result<()> {
    let len = zeros.len() as u64;
    if matches!(next_data(file, offset), Ok(data) if data.is_none_or(|start| start >= offset + len)) {
        return Ok(());
    }
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, how, offset, len) {
        Ok(()) => Ok(()),
        Err(_) => file.write_all_at(zeros, offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;

    const MIB: u64 = 1 << 20;

    fn empty(size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        file
    }

    #[test]
    fn the_data_between_holes_are_found() {
        let file = empty(8 * MIB);
        file.write_all_at(b"data", 2 * MIB).unwrap();
        file.write_all_at(b"more", 6 * MIB).unwrap();
        let found = data_extents(&file, 8 * MIB, 10).unwrap();
        assert_eq!(found.iter().map(|e| e.offset).collect::<Vec<_>>(), [2 * MIB, 6 * MIB]);
        assert!(found.iter().all(|e| e.len >= 4 && e.len < MIB));
        assert_eq!(data_extents(&file, 8 * MIB, 2).map(|e| e.len()), Some(2));
        assert_eq!(data_extents(&file, 8 * MIB, 1), None);
    }

    #[test]
    fn a_file_of_nothing_but_a_hole_has_no_extents() {
        assert_eq!(data_extents(&empty(MIB), MIB, 10), Some(vec![]));
    }

    #[test]
    fn a_file_without_holes_has_no_list() {
        let file = empty(0);
        assert_eq!(data_extents(&file, 0, 10), None);
        file.write_all_at(&[7; 10_000], 0).unwrap();
        assert_eq!(data_extents(&file, 10_000, 10), None);
    }

    #[test]
    fn zero_blocks_stay_holes() {
        let file = empty(16 * MIB);
        let mut bytes = vec![0; MIB as usize];
        bytes[HOLE_BLOCK * 3] = 1;
        for at in 0..16 {
            write_sparse(&file, at * MIB, &bytes).unwrap();
        }
        let blocks = file.metadata().unwrap().blocks();
        assert!(blocks > 0 && blocks * 512 <= 16 * 64 * 1024, "{blocks} blocks");
    }

    #[test]
    fn zeros_replace_what_an_earlier_write_left() {
        let file = empty(MIB);
        file.write_all_at(&[7; 64 * 1024], 0).unwrap();
        write_sparse(&file, 0, &[0; 64 * 1024]).unwrap();
        let mut read = vec![9; 64 * 1024];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, vec![0; 64 * 1024]);
    }

    proptest! {
        #[test]
        fn what_is_written_with_holes_reads_back(
            writes in prop::collection::vec((0u64..40_000, prop::collection::vec((0u8..2, 1usize..9000), 0..6)), 1..6)
        ) {
            let file = empty(100_000);
            let mut wanted = vec![0; 100_000];
            for (offset, runs) in writes {
                let bytes: Vec<u8> = runs.iter().flat_map(|&(byte, len)| vec![byte; len]).collect();
                write_sparse(&file, offset, &bytes).unwrap();
                wanted[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            let mut read = vec![9; 100_000];
            file.read_exact_at(&mut read, 0).unwrap();
            prop_assert_eq!(read, wanted);
        }
    }
}
