//! Nodes and blocks by hash, in packs: files to which they are appended one after the other. What is read is compared with
//! its hash, so a damaged pack costs a fetch and nothing else.
//!
//! Records: 32 bytes hash, 4 bytes length, the bytes. A table beside the packs says where they lie. When the cache is opened, what came behind
//! that was written is read from the packs, and a torn tail is cut. The oldest packs go when there are too many bytes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use towpath_vault_format::Digest;

use super::places::{BlobPlace, PackEnd, PlaceTable};

/// Bytes of a pack after which the next is begun.
const PACK: u64 = 64 << 20;
/// So many bytes wait in memory before they are written.
const TAIL: usize = 256 << 10;
/// No node or block is longer.
const MAX_BLOB: u32 = 2 << 20;
const HEADER: usize = 36;
/// The table of places.
const PLACES: &str = "places";

/// A cache in a folder.
#[derive(Debug)]
pub struct BlobCache {
    folder: PathBuf,
    limit: u64,
    packs: Vec<Pack>,
    places: PlaceTable,
}

#[derive(Debug)]
struct Pack {
    number: u32,
    file: File,
    length: u64,
    /// The last bytes of it, which are not written yet.
    tail: Vec<u8>,
}

impl BlobCache {
    /// The cache in `folder`, which is made if it is not there. It has about `limit` bytes at most: the oldest go first.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let places = PlaceTable::open(&folder.join(PLACES));
        let mut cache = Self { folder: folder.to_path_buf(), limit, packs: Vec::new(), places };
        let mut numbers: Vec<u32> = std::fs::read_dir(folder)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("pack-")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let file = open(&cache.path(number))?;
            let length = file.metadata()?.len();
            cache.packs.push(Pack { number, file, length, tail: Vec::new() });
        }
        cache.read_new()?;
        cache.drop_oldest()?;
        Ok(cache)
    }

    /// Bytes that it has at most, about.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes that have this hash, if they are here.
    pub fn get(&self, hash: &Digest) -> Option<Vec<u8>> {
        let BlobPlace { pack, at, length } = self.place(hash)?;
        let pack = self.packs.iter().rev().find(|found| found.number == pack)?;
        let bytes = pack.read(at.into(), length as usize)?;
        (Digest::of(&bytes) == *hash).then_some(bytes)
    }

    /// True if they seem to be here.
    pub fn has(&self, hash: &Digest) -> bool {
        self.place(hash).is_some()
    }

    fn place(&self, hash: &Digest) -> Option<BlobPlace> {
        self.places.get(hash, self.oldest())
    }

    fn oldest(&self) -> u32 {
        self.packs.first().map_or(0, |pack| pack.number)
    }

    /// Adds bytes, unless they are here. After a crash they may be lost.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<Digest> {
        let hash = Digest::of(bytes);
        self.add_named(hash, bytes).map(|()| hash)
    }

    /// The same for bytes whose hash is known to be this one.
    pub fn add_named(&mut self, hash: Digest, bytes: &[u8]) -> io::Result<()> {
        if self.get(&hash).is_some() {
            return Ok(());
        }
        if self.packs.last().is_none_or(|pack| pack.length >= PACK) {
            self.begin_pack()?;
        }
        let oldest = self.oldest();
        let Some(pack) = self.packs.last_mut() else { return Ok(()) };
        let at = (pack.length + HEADER as u64) as u32;
        pack.add(&hash, bytes)?;
        let place = BlobPlace { pack: pack.number, at, length: bytes.len() as u32 };
        self.places.insert(&hash, place, oldest);
        Ok(())
    }

    /// Writes what waits in memory. After a crash it may be lost.
    fn flush(&mut self) -> io::Result<()> {
        self.packs.last_mut().map_or(Ok(()), Pack::flush)
    }

    /// Writes all that is needed to find it again at once.
    fn settle(&mut self) -> io::Result<()> {
        self.flush()?;
        let end = self.packs.last().map(|pack| PackEnd { pack: pack.number, at: pack.length });
        end.map_or(Ok(()), |end| self.places.flush(end))
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("pack-{number}"))
    }

    fn begin_pack(&mut self) -> io::Result<()> {
        self.flush()?;
        self.drop_oldest()?;
        let number = self.packs.last().map_or(0, |pack| pack.number + 1);
        let file = open(&self.path(number))?;
        self.packs.push(Pack { number, file, length: 0, tail: Vec::new() });
        Ok(())
    }

    /// Reads what the table of places lacks: all, if it is of other packs.
    fn read_new(&mut self) -> io::Result<()> {
        let end = self.places.covered();
        let is_there = |pack: &Pack| pack.number == end.pack && pack.length >= end.at;
        let known = self.packs.iter().position(is_there);
        if known.is_none() {
            self.places = PlaceTable::empty(&self.folder.join(PLACES));
        }
        for index in known.unwrap_or(0)..self.packs.len() {
            let from = if known == Some(index) { end.at } else { 0 };
            self.read_pack(index, from)?;
        }
        Ok(())
    }

    /// Reads where the blobs of a pack lie from `at` on, and cuts off what is none.
    fn read_pack(&mut self, index: usize, mut at: u64) -> io::Result<()> {
        let oldest = self.oldest();
        let pack = &mut self.packs[index];
        let mut header = [0; HEADER];
        while at + HEADER as u64 <= pack.length {
            pack.file.read_exact_at(&mut header, at)?;
            let (hash, length) = header.split_at(32);
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            let next = at + HEADER as u64 + u64::from(length);
            if length > MAX_BLOB || next > pack.length || next > u64::from(u32::MAX) {
                break;
            }
            let mut digest = Digest::NONE;
            digest.0.copy_from_slice(hash);
            let place = BlobPlace { pack: pack.number, at: at as u32 + HEADER as u32, length };
            self.places.insert(&digest, place, oldest);
            at = next;
        }
        if at < pack.length {
            pack.file.set_len(at)?;
            pack.length = at;
        }
        Ok(())
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let mut length: u64 = self.packs.iter().map(|pack| pack.length).sum();
        let mut dropped = 0;
        while length > self.limit && dropped < self.packs.len() {
            let Pack { number, length: gone, .. } = self.packs[dropped];
            std::fs::remove_file(self.path(number))?;
            length -= gone;
            dropped += 1;
        }
        self.packs.drain(..dropped);
        Ok(())
    }
}

impl Pack {
    fn add(&mut self, hash: &Digest, bytes: &[u8]) -> io::Result<()> {
        let record = (HEADER + bytes.len()) as u64;
        self.tail.extend_from_slice(&hash.0);
        self.tail.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.tail.extend_from_slice(bytes);
        self.length += record;
        if self.tail.len() < TAIL {
            return Ok(());
        }
        let flushed = self.flush();
        if flushed.is_err() {
            // What is in the index stays in memory; this is not, and goes.
            self.tail.truncate(self.tail.len() - record as usize);
            self.length -= record;
        }
        flushed
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.tail, self.length - self.tail.len() as u64)?;
        self.tail.clear();
        Ok(())
    }

    fn read(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        let written = self.length - self.tail.len() as u64;
        match at.checked_sub(written) {
            Some(from) => self.tail.get(from as usize..)?.get(..length).map(<[u8]>::to_vec),
            None => {
                let mut bytes = vec![0; length];
                self.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Drop for BlobCache {
    fn drop(&mut self) {
        // What is lost is fetched again.
        let _ = self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(folder: &tempfile::TempDir) -> BlobCache {
        BlobCache::open(folder.path(), 1 << 20).unwrap()
    }

    #[test]
    fn what_was_added_is_there_after_opening_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = opened(&folder);
        let hashes: Vec<_> = (0..100u32).map(|n| cache.add(&n.to_le_bytes()).unwrap()).collect();
        assert_eq!(cache.get(&hashes[7]).unwrap(), 7u32.to_le_bytes(), "also before it is written");
        drop(cache);
        let mut cache = opened(&folder);
        assert!(hashes.iter().all(|hash| cache.has(hash) && cache.get(hash).is_some()));
        assert_eq!(cache.get(&Digest([1; 32])), None);
        let length = cache.packs[0].length;
        cache.add(&7u32.to_le_bytes()).unwrap();
        assert_eq!(cache.packs[0].length, length, "added once");
    }

    #[test]
    fn a_torn_tail_is_cut_and_a_changed_byte_is_not_given() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = {
            let mut cache = opened(&folder);
            (cache.add(b"first").unwrap(), cache.add(b"second").unwrap())
        };
        let path = folder.path().join("pack-0");
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let mut cache = opened(&folder);
        assert_eq!((cache.get(&one).as_deref(), cache.get(&two)), (Some(&b"first"[..]), None));
        cache.add(b"second").unwrap();
        drop(cache);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        let mut changed = whole;
        changed[HEADER] ^= 1;
        std::fs::write(&path, changed).unwrap();
        assert_eq!(opened(&folder).get(&one), None);
        assert_eq!(opened(&folder).add(b"first").unwrap(), one, "and may be added again");
    }

    #[test]
    fn what_a_killed_process_added_is_found_and_the_packs_are_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = opened(&folder);
        let one = cache.add(b"first").unwrap();
        drop(cache);
        let mut cache = opened(&folder);
        let two = cache.add(b"second").unwrap();
        cache.flush().unwrap();
        // It never comes to write the table of places.
        std::mem::forget(cache);
        let is_there = |names: [&Digest; 2]| {
            let cache = opened(&folder);
            names.map(|name| cache.get(name).is_some())
        };
        assert_eq!(is_there([&one, &two]), [true, true]);
        let path = folder.path().join("pack-0");
        let mut damaged = std::fs::read(&path).unwrap();
        damaged[..HEADER].fill(0xff);
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(is_there([&one, &two]), [true, true], "by the table alone");
        std::fs::remove_file(folder.path().join(PLACES)).unwrap();
        assert_eq!(is_there([&one, &two]), [false, false], "what can't be read is cut off");
        assert!(std::fs::read(&path).unwrap().is_empty());
    }

    #[test]
    fn a_table_of_other_packs_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let one = opened(&folder).add(&[1; 1000]).unwrap();
        std::fs::remove_file(folder.path().join("pack-0")).unwrap();
        let mut cache = opened(&folder);
        assert!(!cache.has(&one) && cache.get(&one).is_none());
        let two = cache.add(&[2; 2000]).unwrap();
        drop(cache);
        let cache = opened(&folder);
        assert_eq!((cache.has(&one), cache.get(&two)), (false, Some(vec![2; 2000])));
    }

    #[test]
    fn the_oldest_packs_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = BlobCache::open(folder.path(), 1 << 20).unwrap();
        let old = cache.add(&[1; 1000]).unwrap();
        cache.begin_pack().unwrap();
        let new = cache.add(&[2; 1000]).unwrap();
        drop(cache);
        let cache = BlobCache::open(folder.path(), 1500).unwrap();
        assert_eq!((cache.has(&old), cache.has(&new)), (false, true));
    }

    #[test]
    fn it_stays_below_its_limit_while_more_comes() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = BlobCache::open(folder.path(), 3 * PACK).unwrap();
        let blobs = (0..400u32).map(|seed| {
            let mut blob = vec![0; 1 << 20];
            blob[..4].copy_from_slice(&seed.to_le_bytes());
            cache.add(&blob).unwrap()
        });
        let blobs: Vec<Digest> = blobs.collect();
        let kept = blobs.iter().filter(|name| cache.get(name).is_some()).count();
        assert!((128..=256).contains(&kept), "{kept}");
        assert!(blobs[400 - kept..].iter().all(|name| cache.has(name)), "the newest stay");
        let on_disk =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(on_disk.sum::<u64>() <= 4 * PACK);
    }
}
