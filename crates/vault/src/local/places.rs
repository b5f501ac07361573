//! Where the blobs of a cache lie: a table in a file, of which those parts are read that are asked for. So opening a cache takes
//! the same time however much is in it.
//!
//! ```text
//!   head │ bucket 0 │ bucket 1 │ … │ bucket 2^n - 1      4096 bytes each
//! ```
//!
//! A blob is in the bucket that the low bits of its hash name. Where a bucket is full, the table gets twice as many. Nothing in it
//! has to be right: blobs are compared with their hash when they are read, so what is wrong or lost costs a fetch. The
//! head is written last and says up to where the packs are in the table: what came after it is read from them again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use towpath_content::codec::{Reader, Writer};
use towpath_vault_format::Digest;

/// Bytes of a bucket in the file, and of its head.
const PAGE: usize = 4096;
/// Bytes of a blob's line.
const LINE: usize = 28;
/// Lines of a bucket, at most.
const MOST: usize = (PAGE - 2) / LINE;
/// Buckets, at most: more than a million blobs.
const MOST_BUCKETS: usize = 1 << 13;
/// Lines for which memory is taken at once.
const SOME: usize = 16;
/// Buckets that are looked at to see whether the table is full.
const SAMPLE: usize = 16;
const MAGIC: &[u8; 16] = b"tow-vault-places";

/// Half of a hash: a blob's whole hash is checked when it is read.
type BlobKey = [u8; 16];

/// Where a blob lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobPlace {
    /// Number of its pack.
    pub(super) pack: u32,
    /// Where it begins there.
    pub(super) at: u32,
    /// Its bytes.
    pub(super) length: u32,
}

/// A place in the packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PackEnd {
    /// Number of the pack.
    pub(super) pack: u32,
    /// Bytes of it.
    pub(super) at: u64,
}

/// The table.
#[derive(Debug)]
pub(super) struct PlaceTable {
    path: PathBuf,
    /// None: there is none, or it has fewer buckets.
    file: Option<File>,
    buckets: Vec<OnceLock<Bucket>>,
    /// All blobs before it are in the table.
    covered: PackEnd,
}

#[derive(Debug, Default)]
struct Bucket {
    lines: Vec<PlaceLine>,
    is_changed: bool,
}

#[derive(Debug, Clone, Copy)]
struct PlaceLine {
    hash: BlobKey,
    place: BlobPlace,
}

impl PlaceTable {
    /// The table at `path`; an empty one if there is none, or it is damaged.
    pub(super) fn open(path: &Path) -> Self {
        let found = OpenOptions::new().read(true).write(true).open(path).ok();
        let found = found.and_then(|file| Some((read_head(&file)?, file)));
        match found {
            None => Self::empty(path),
            Some(((buckets, covered), file)) => {
                let buckets = (0..buckets).map(|_| OnceLock::new()).collect();
                Self { path: path.to_owned(), file: Some(file), buckets, covered }
            }
        }
    }

    /// One without blobs, which takes the place of what is at `path`.
    pub(super) fn empty(path: &Path) -> Self {
        let buckets = vec![OnceLock::new()];
        Self { path: path.to_owned(), file: None, buckets, covered: PackEnd::default() }
    }

    /// All blobs before it are in the table.
    pub(super) const fn covered(&self) -> PackEnd {
        self.covered
    }

    /// Where a blob seems to lie, in pack `oldest` or a later one.
    pub(super) fn get(&self, hash: &Digest, oldest: u32) -> Option<BlobPlace> {
        let hash = short(hash);
        let lines = &self.bucket(self.number_of(&hash)).lines;
        let found = lines.iter().find(|line| line.hash == hash && line.place.pack >= oldest);
        found.map(|line| line.place)
    }

    /// Notes where a blob lies. Those in packs before `oldest` make room first.
    pub(super) fn insert(&mut self, hash: &Digest, place: BlobPlace, oldest: u32) {
        let line = PlaceLine { hash: short(hash), place };
        let number = self.number_of(&line.hash);
        let mut bucket = self.take(number);
        bucket.set(line);
        if bucket.lines.len() > MOST {
            bucket.lines.retain(|line| line.place.pack >= oldest);
        }
        let is_full = bucket.lines.len() > MOST;
        self.buckets[number] = bucket.into();
        match is_full {
            true if self.buckets.len() < MOST_BUCKETS && self.are_full(number, oldest) => self.grow(),
            // Somebody chose hashes that lie together.
            true => self.buckets[number] = self.take(number).trimmed().into(),
            false => {}
        }
    }

    /// Writes what changed. The packs are written up to `covered`.
    pub(super) fn flush(&mut self, covered: PackEnd) -> io::Result<()> {
        let mut read = self.buckets.iter().filter_map(OnceLock::get);
        if covered == self.covered && !read.any(|bucket| bucket.is_changed) {
            return Ok(());
        }
        match self.file.take() {
            Some(file) => {
                let written = self.write_to(&file, covered);
                self.file = Some(file);
                written?;
            }
            None => {
                let new = self.path.with_extension("new");
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(true).mode(0o600);
                let file = options.open(&new)?;
                self.write_to(&file, covered)?;
                std::fs::rename(new, &self.path)?;
                self.file = Some(file);
            }
        }
        self.covered = covered;
        Ok(())
    }

    /// Writes to a file that lacks what changed.
    fn write_to(&mut self, file: &File, covered: PackEnd) -> io::Result<()> {
        file.set_len(place_of(self.buckets.len()))?;
        for (number, bucket) in self.buckets.iter().enumerate() {
            let Some(bucket) = bucket.get().filter(|bucket| bucket.is_changed) else { continue };
            file.write_all_at(&bucket.to_page(), place_of(number))?;
        }
        file.write_all_at(&head(self.buckets.len(), covered), 0)?;
        self.buckets.iter_mut().filter_map(OnceLock::get_mut).for_each(|bucket| bucket.is_changed = false);
        Ok(())
    }

    fn number_of(&self, hash: &BlobKey) -> usize {
        // There are 2^n of them.
        usize::from(u16::from_le_bytes([hash[0], hash[1]])) & (self.buckets.len() - 1)
    }

    fn bucket(&self, number: usize) -> &Bucket {
        self.buckets[number].get_or_init(|| self.read(number))
    }

    /// A bucket that is put back changed.
    fn take(&mut self, number: usize) -> Bucket {
        let bucket = self.buckets[number].take().unwrap_or_else(|| self.read(number));
        Bucket { is_changed: true, ..bucket }
    }

    fn read(&self, number: usize) -> Bucket {
        let mut page = [0; PAGE];
        let read = self.file.as_ref().map(|file| file.read_exact_at(&mut page, place_of(number)));
        match read {
            Some(Ok(())) => Bucket::of_page(&page),
            _ => Bucket::default(),
        }
    }

    /// True if this bucket is full because all are, as far as some tell.
    fn are_full(&self, number: usize, oldest: u32) -> bool {
        let some = SAMPLE.min(self.buckets.len());
        let others = (0..some).map(|step| (number + step) & (self.buckets.len() - 1));
        let is_there = |line: &&PlaceLine| line.place.pack >= oldest;
        let lines = |number: usize| self.bucket(number).lines.iter().filter(is_there).count();
        others.map(lines).sum::<usize>() > some * MOST / 2
    }

    /// Makes two buckets of each.
    fn grow(&mut self) {
        let count = self.buckets.len();
        let mut second = Vec::with_capacity(count);
        for number in 0..count {
            let bucket = self.take(number);
            let bit =
                |line: &PlaceLine| usize::from(u16::from_le_bytes([line.hash[0], line.hash[1]])) & count;
            let (go, stay) = bucket.lines.into_iter().partition(|line| bit(line) > 0);
            self.buckets[number] = Bucket { lines: stay, is_changed: true }.trimmed().into();
            second.push(Bucket { lines: go, is_changed: true }.trimmed().into());
        }
        self.buckets.append(&mut second);
        self.file = None;
    }
}

impl Bucket {
    fn set(&mut self, line: PlaceLine) {
        match self.lines.iter_mut().find(|found| found.hash == line.hash) {
            Some(found) => *found = line,
            None => {
                if self.lines.len() == self.lines.capacity() {
                    self.lines.reserve_exact(SOME);
                }
                self.lines.push(line);
            }
        }
    }

    /// Without the older half, if there are too many lines.
    fn trimmed(mut self) -> Self {
        if self.lines.len() > MOST {
            self.lines.sort_unstable_by_key(|line| (line.place.pack, line.place.at));
            self.lines.drain(..MOST / 2);
        }
        self
    }

    fn to_page(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(PAGE);
        out.raw(&(self.lines.len() as u16).to_le_bytes());
        for PlaceLine { hash, place: BlobPlace { pack, at, length } } in &self.lines {
            out.raw(hash);
            for number in [pack, at, length] {
                out.raw(&number.to_le_bytes());
            }
        }
        let mut page = out.into_bytes();
        page.resize(PAGE, 0);
        page
    }

    /// That of a page; one that makes no sense has no lines.
    fn of_page(page: &[u8; PAGE]) -> Self {
        let count = usize::from(u16::from_le_bytes([page[0], page[1]]));
        let lines = page[2..].as_chunks::<LINE>().0.iter().take(if count > MOST { 0 } else { count });
        Self { lines: lines.map(PlaceLine::of_bytes).collect(), is_changed: false }
    }
}

impl PlaceLine {
    fn of_bytes(bytes: &[u8; LINE]) -> Self {
        let mut hash = [0; 16];
        hash.copy_from_slice(&bytes[..16]);
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { hash, place: BlobPlace { pack: number(16), at: number(20), length: number(24) } }
    }
}

fn short(hash: &Digest) -> BlobKey {
    let mut short = BlobKey::default();
    short.copy_from_slice(&hash.0[..16]);
    short
}

/// Where a bucket begins in the file; that behind the last is its end.
const fn place_of(number: usize) -> u64 {
    (PAGE + PAGE * number) as u64
}

/// Magic, number of buckets, what is covered, and a hash of all that.
fn head(buckets: usize, covered: PackEnd) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    out.raw(MAGIC).raw(&(buckets as u32).to_le_bytes());
    out.raw(&covered.pack.to_le_bytes()).raw(&covered.at.to_le_bytes());
    let mut head = out.into_bytes();
    let check = Digest::of(&head);
    head.extend_from_slice(&check.0);
    head
}

/// The number of buckets and what is covered, if that is what the file says.
fn read_head(file: &File) -> Option<(usize, PackEnd)> {
    let mut found = [0; 16 + 4 + 4 + 8 + 32];
    file.read_exact_at(&mut found, 0).ok()?;
    let mut reader = Reader::new(&found[16..32]);
    let buckets = u32::from_le_bytes(reader.array("buckets").ok()?) as usize;
    let pack = u32::from_le_bytes(reader.array("pack").ok()?);
    let covered = PackEnd { pack, at: u64::from_le_bytes(reader.array("place").ok()?) };
    let is_one = buckets.is_power_of_two() && buckets <= MOST_BUCKETS && found[..] == head(buckets, covered);
    is_one.then_some((buckets, covered))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn name(number: u32) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    fn place(number: u32) -> BlobPlace {
        BlobPlace { pack: number / 1000, at: number % 1000, length: number }
    }

    fn table() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("places");
        (folder, path)
    }

    #[test]
    fn it_is_a_table_however_many_come_and_over_openings() {
        let (_folder, path) = table();
        let mut known = HashMap::new();
        let end = PackEnd { pack: 30, at: 77 };
        for round in 0..30 {
            let mut places = PlaceTable::open(&path);
            assert_eq!(places.covered(), if round == 0 { PackEnd::default() } else { end });
            for number in round * 1000..(round + 1) * 1000 {
                // Every third was there before.
                let hash = name(number - number % 3 * (number % 2));
                places.insert(&hash, place(number), 0);
                known.insert(hash, place(number));
            }
            places.flush(end).unwrap();
        }
        let places = PlaceTable::open(&path);
        assert!(known.iter().all(|(hash, place)| places.get(hash, 0) == Some(*place)));
        assert_eq!(places.get(&name(u32::MAX), 0), None);
        assert!(known.iter().all(|(hash, place)| places.get(hash, 15).is_some() == (place.pack >= 15)));
        let most = known.len() / (MOST / 4);
        assert!(places.buckets.len() <= most, "{} buckets", places.buckets.len());
    }

    #[test]
    fn few_buckets_are_read_and_written_for_few_blobs() {
        let (_folder, path) = table();
        let mut places = PlaceTable::open(&path);
        (0..30_000).for_each(|number| places.insert(&name(number), place(number), 0));
        places.flush(PackEnd::default()).unwrap();
        let mut places = PlaceTable::open(&path);
        (0..5).for_each(|number| assert!(places.get(&name(number), 0).is_some()));
        (0..5).for_each(|number| places.insert(&name(number), place(1), 0));
        assert!((1..=5).contains(&places.buckets.iter().filter_map(OnceLock::get).count()));
        assert!(places.buckets.len() > 100);
    }

    #[test]
    fn what_went_makes_room_and_hashes_that_lie_together_take_no_more() {
        let (_folder, path) = table();
        let mut places = PlaceTable::empty(&path);
        for number in 0..100_000 {
            places.insert(&name(number), place(number), (number / 1000).saturating_sub(5));
        }
        assert!(places.buckets.len() <= 128, "{} buckets for 6,000 blobs", places.buckets.len());
        assert!((95_000..100_000).all(|number| places.get(&name(number), 0).is_some()));
        let count = places.buckets.len();
        let chosen = |number: u32| {
            let mut hash = name(number);
            hash.0[..2].fill(0);
            hash
        };
        (100_000..200_000).for_each(|number| places.insert(&chosen(number), place(number), 95));
        assert!(places.buckets.len() <= 2 * count, "{} buckets", places.buckets.len());
        assert!((199_950..200_000).all(|number| places.get(&chosen(number), 0).is_some()), "the newest stay");
    }

    #[test]
    fn a_damaged_table_is_an_empty_one_or_lies() {
        let (_folder, path) = table();
        let mut places = PlaceTable::empty(&path);
        places.insert(&name(1), place(1), 0);
        places.flush(PackEnd { pack: 3, at: 4 }).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..64 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            let places = PlaceTable::open(&path);
            assert_eq!((places.covered(), places.get(&name(1), 0)), (PackEnd::default(), None));
        }
        let wild = [&whole[..PAGE], &[0xff; PAGE][..]].concat();
        std::fs::write(&path, wild).unwrap();
        assert_eq!(PlaceTable::open(&path).get(&name(1), 0), None);
        std::fs::write(&path, &whole[..PAGE]).unwrap();
        assert_eq!(PlaceTable::open(&path).get(&name(1), 0), None);
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(PlaceTable::open(&path).get(&name(1), 0), Some(place(1)));
    }
}
