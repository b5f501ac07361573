//! The log: one file of records, each durable before anybody is told of it. It is what puts versions in order.
//!
//! At most one record is under way, so after a crash only the last one can be torn; that is cut off and kept beside the log. A
//! record that is wrong with others behind it is damage, and then the vault is not opened. Layout: `docs/formats/vault.md`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::VaultError;

/// First bytes of a log.
const MAGIC: &[u8; 16] = b"tow-vault-log 1\n";
/// Bytes before a record: its length, a hash of the length and of where it is, a hash of the record.
const HEAD: usize = 4 + 8 + 16;
/// How the name of a log ends, and that of one which is to take its place.
const LOG: &str = "log";
const NEW: &str = "new";
/// The most bytes of a record.
pub const MAX_RECORD: usize = 24 << 20;

/// The seam below the log: where its bytes lie. An append may be cut short by a crash anywhere; after `sync` it is there.
pub trait LogMedium: Send + Sync + fmt::Debug {
    /// Bytes that there are.
    fn len(&self) -> io::Result<u64>;

    /// True if there are none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads exactly so many bytes.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was added durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts off what is behind `len`, durably. What is cut may be kept elsewhere.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// An empty place beside this one, for a log that is to take its place.
    fn fresh(&self) -> io::Result<Box<dyn LogMedium>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the place of the one that this is beside, at once and durably. All that was added is durable before.
    fn put_in_place(self: Box<Self>) -> io::Result<Box<dyn LogMedium>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A log in a file, which is made when the first bytes come.
#[derive(Debug)]
pub struct LogFile {
    file: Option<File>,
    path: PathBuf,
}

impl LogFile {
    /// The log at `path`, for this program alone.
    pub fn at(path: &Path) -> io::Result<Self> {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => Some(alone(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { file, path: path.to_owned() })
    }

    /// Makes the file; its name is durable then.
    fn make(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = alone(options.read(true).append(true).create_new(true).mode(0o600).open(&self.path)?)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(file)
    }

    fn there(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn alone(file: File) -> io::Result<File> {
    file.try_lock().map_err(|_| io::Error::other("another program has it open"))?;
    Ok(file)
}

impl LogMedium for LogFile {
    fn len(&self) -> io::Result<u64> {
        self.file.as_ref().map_or(Ok(0), |file| file.metadata().map(|found| found.len()))
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match bytes {
            [] => Ok(()),
            bytes => self.there()?.read_exact_at(bytes, at),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(self.make()?);
        }
        let mut file = self.there()?;
        file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.there()?.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let mut torn = vec![0; self.len()?.saturating_sub(len) as usize];
        self.read_at(len, &mut torn)?;
        if !torn.is_empty() {
            // For people; that it can't be kept is no reason not to go on.
            let _ = std::fs::write(self.path.with_extension(format!("cut-{len}")), &torn);
        }
        self.there()?.set_len(len)?;
        self.there()?.sync_all()
    }

    fn fresh(&self) -> io::Result<Box<dyn LogMedium>> {
        let path = self.path.with_extension(NEW);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Box::new(Self { file: None, path })),
        }
    }

    fn put_in_place(self: Box<Self>) -> io::Result<Box<dyn LogMedium>> {
        let path = self.path.with_extension(LOG);
        std::fs::rename(&self.path, &path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Box::new(Self { path, ..*self }))
    }
}

/// A log of records.
#[derive(Debug)]
pub struct RecordLog {
    medium: Box<dyn LogMedium>,
    /// Bytes that are durable.
    len: u64,
    has_failed: bool,
}

impl RecordLog {
    /// Opens a log and gives each record, with where it begins, to `take`. A torn end is cut off.
    pub fn open(
        medium: Box<dyn LogMedium>,
        take: impl FnMut(u64, &[u8]) -> Result<(), VaultError>,
    ) -> Result<Self, VaultError> {
        let mut log = Self::over(medium);
        let there = log.medium.len().map_err(VaultError::Log)?;
        if !log.is_begun(there)? {
            return Ok(log);
        }
        log.len = read_records(&*log.medium, there, take)?;
        if log.len < there {
            log.medium.cut(log.len).map_err(VaultError::Log)?;
        }
        Ok(log)
    }

    /// A log that is empty.
    pub(crate) const fn over(medium: Box<dyn LogMedium>) -> Self {
        Self { medium, len: 0, has_failed: false }
    }

    /// The record behind so many bytes of the log, and where it begins; `None`: there is no further one.
    pub(crate) fn record_behind(&self, end: u64) -> Result<Option<(u64, Vec<u8>)>, VaultError> {
        let end = end.max(MAGIC.len() as u64);
        if end >= self.len {
            return Ok(None);
        }
        let record = record_at(&*self.medium, end, self.len)?;
        Ok(record.map(|record| (end + HEAD as u64, record)))
    }

    pub(crate) fn medium(&self) -> &dyn LogMedium {
        &*self.medium
    }

    pub(crate) fn into_medium(self) -> Box<dyn LogMedium> {
        self.medium
    }

    /// Takes no more records.
    pub(crate) const fn stop(&mut self) {
        self.has_failed = true;
    }

    pub(crate) const fn check(&self) -> Result<(), VaultError> {
        if self.has_failed { Err(VaultError::LogFailed) } else { Ok(()) }
    }

    /// True if the log's first bytes are there. What a crash left of the very first record is cut off.
    fn is_begun(&mut self, there: u64) -> Result<bool, VaultError> {
        let mut found = vec![0; MAGIC.len().min(there as usize)];
        self.medium.read_at(0, &mut found).map_err(VaultError::Log)?;
        if found == MAGIC {
            return Ok(true);
        }
        let agreed = found.iter().zip(MAGIC).take_while(|(found, magic)| found == magic).count();
        let is_torn = found[agreed..].iter().all(|byte| *byte == 0);
        if there > (MAGIC.len() + HEAD + MAX_RECORD) as u64 || !is_torn {
            return Err(VaultError::Damaged { at: 0, why: "this is no log of a vault".into() });
        }
        if there > 0 {
            self.medium.cut(0).map_err(VaultError::Log)?;
        }
        Ok(false)
    }

    /// Adds a record. When this returns where it begins, it is durable. If it fails, nothing was added, or the log takes no more.
    pub fn append(&mut self, record: &[u8]) -> Result<u64, VaultError> {
        let before = self.len;
        let at = self.add(record)?;
        if let Err(error) = self.medium.sync() {
            // Nobody knows what is durable now: only what is read again after a start counts.
            (self.len, self.has_failed) = (before, true);
            return Err(VaultError::Log(error));
        }
        Ok(at)
    }

    /// Adds a record that need not be durable yet.
    pub(crate) fn add(&mut self, record: &[u8]) -> Result<u64, VaultError> {
        self.check()?;
        if record.len() > MAX_RECORD {
            return Err(VaultError::Log(io::ErrorKind::FileTooLarge.into()));
        }
        let magic = if self.len == 0 { &MAGIC[..] } else { &[] };
        let (at, len) = (self.len + magic.len() as u64, (record.len() as u32).to_le_bytes());
        let framed = [magic, &len, &head_check(at, &len), &check(record), record].concat();
        if let Err(error) = self.medium.append(&framed) {
            // What is there of it is taken back. If that fails, too, the next start cuts it off.
            self.has_failed = self.medium.cut(self.len).is_err();
            return Err(VaultError::Log(error));
        }
        self.len += framed.len() as u64;
        Ok(at + HEAD as u64)
    }

    /// Reads bytes of a record.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, VaultError> {
        let mut bytes = vec![0; len];
        self.medium.read_at(at, &mut bytes).map_err(VaultError::Log)?;
        Ok(bytes)
    }

    /// Bytes of all records.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True if there is no record.
    pub const fn is_empty(&self) -> bool {
        self.len <= MAGIC.len() as u64
    }
}

/// Reads the records of a log with so many bytes. Where the last whole one ends.
fn read_records(
    medium: &dyn LogMedium,
    there: u64,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), VaultError>,
) -> Result<u64, VaultError> {
    let mut end = MAGIC.len() as u64;
    while end < there {
        let Some(record) = record_at(medium, end, there)? else { break };
        let at = end + HEAD as u64;
        take(at, &record)?;
        end = at + record.len() as u64;
    }
    Ok(end)
}

/// The record at `at`; `None` if it is torn.
fn record_at(medium: &dyn LogMedium, at: u64, there: u64) -> Result<Option<Vec<u8>>, VaultError> {
    let left = there - at;
    let most = (HEAD + MAX_RECORD) as u64;
    let torn = |why: &str| match left <= most {
        true => Ok(None),
        false => Err(VaultError::Damaged { at, why: why.into() }),
    };
    let mut head = [0; HEAD];
    if left < HEAD as u64 {
        return Ok(None);
    }
    medium.read_at(at, &mut head).map_err(VaultError::Log)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if head[4..12] != head_check(at, &head[..4]) || len > MAX_RECORD {
        return torn("a record's length is wrong");
    }
    let end = HEAD as u64 + len as u64;
    if end > left {
        return Ok(None);
    }
    let mut record = vec![0; len];
    medium.read_at(at + HEAD as u64, &mut record).map_err(VaultError::Log)?;
    match head[12..] == check(&record) {
        true => Ok(Some(record)),
        false if end == left => Ok(None),
        false => Err(VaultError::Damaged { at, why: "a record's bytes are wrong".into() }),
    }
}

/// Hash of a record's length and place: so a record that is found is one that was written there.
fn head_check(at: u64, len: &[u8]) -> [u8; 8] {
    let mut check = [0; 8];
    let hash = blake3::hash(&[&at.to_le_bytes()[..], len].concat());
    check.copy_from_slice(&hash.as_bytes()[..8]);
    check
}

fn check(record: &[u8]) -> [u8; 16] {
    let mut check = [0; 16];
    check.copy_from_slice(&blake3::hash(record).as_bytes()[..16]);
    check
}
