//! The log: ends that a crash tore, damage, and a disk that is full.

use std::io;
use std::sync::{Arc, Mutex};

use crate::error::VaultError;
use crate::log::{LogFile, LogMedium, RecordLog};

/// A disk in memory, which holds so many bytes.
#[derive(Debug, Clone)]
struct MemoryDisk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
    sync_fails: bool,
}

impl MemoryDisk {
    fn with(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(Mutex::new(bytes)), room: usize::MAX, sync_fails: false }
    }
}

impl LogMedium for MemoryDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let held = self.bytes.lock().unwrap();
        let found = held.get(at as usize..at as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut held = self.bytes.lock().unwrap();
        let fit = bytes.len().min(self.room - held.len());
        held.extend_from_slice(&bytes[..fit]);
        if fit < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.sync_fails { Err(io::Error::other("the disk is gone")) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(len as usize);
        Ok(())
    }
}

fn records() -> Vec<Vec<u8>> {
    (0..6u8).map(|number| vec![number + 1; 7 + 40 * usize::from(number)]).collect()
}

fn written() -> Vec<u8> {
    let disk = MemoryDisk::with(Vec::new());
    let mut log = RecordLog::open(Box::new(disk.clone()), |_, _| Ok(())).unwrap();
    for record in records() {
        let at = log.append(&record).unwrap();
        assert_eq!(log.read(at, record.len()).unwrap(), record);
    }
    disk.bytes.lock().unwrap().clone()
}

fn read(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, VaultError> {
    let (disk, mut found) = (MemoryDisk::with(bytes), Vec::new());
    let mut log = RecordLog::open(Box::new(disk.clone()), |_, record| {
        found.push(record.to_vec());
        Ok(())
    })?;
    // What was cut off is no hindrance for what comes.
    log.append(b"one more").unwrap();
    let mut again = 0;
    RecordLog::open(Box::new(disk), |_, _| {
        again += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(again, found.len() + 1);
    Ok(found)
}

#[test]
fn a_log_that_ends_anywhere_has_the_records_that_are_whole() {
    let bytes = written();
    assert_eq!(read(bytes.clone()).unwrap(), records());
    let mut ends = vec![16];
    ends.extend(records().iter().scan(16, |end, record| {
        *end += 28 + record.len();
        Some(*end)
    }));
    for len in 0..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= len).count().saturating_sub(1);
        let found = read(bytes[..len].to_vec()).unwrap();
        assert_eq!(found, records()[..whole], "cut at {len}");
        // A file may have its length before it has its bytes.
        let mut zeros = bytes[..len].to_vec();
        let end = ends.iter().copied().find(|end| *end > len).unwrap_or(len);
        zeros.resize(end.min(len + 100), 0);
        assert_eq!(read(zeros).unwrap().len(), whole, "zeros behind {len}");
    }
}

#[test]
fn damage_before_the_end_is_named_and_nothing_is_cut() {
    let bytes = written();
    // The second record's body, with others behind it.
    let mut damaged = bytes.clone();
    damaged[16 + 28 + 7 + 28 + 5] ^= 1;
    assert!(matches!(read(damaged), Err(VaultError::Damaged { at: 51, .. })));
    let mut foreign = bytes.clone();
    foreign[3] ^= 1;
    assert!(matches!(read(foreign), Err(VaultError::Damaged { at: 0, .. })));
    // Records that changed places are where none was written.
    let (first, second) = (16..16 + 28 + 7, 51..51 + 28 + 47);
    let swapped = [&bytes[..16], &bytes[second], &bytes[first], &bytes[16 + 35 + 75..]].concat();
    let found = read(swapped);
    assert!(found.is_err() || found.unwrap().is_empty());
}

#[test]
fn a_full_disk_takes_nothing_back_that_was_there() {
    let len = written().len();
    for room in 0..=len {
        let disk = MemoryDisk { room, ..MemoryDisk::with(Vec::new()) };
        let mut log = RecordLog::open(Box::new(disk.clone()), |_, _| Ok(())).unwrap();
        let kept = records().iter().take_while(|record| log.append(record).is_ok()).count();
        let bytes = disk.bytes.lock().unwrap().clone();
        assert_eq!(read(bytes).unwrap(), records()[..kept], "room for {room}");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_promised_any_more() {
    let disk = MemoryDisk { sync_fails: true, ..MemoryDisk::with(Vec::new()) };
    let mut log = RecordLog::open(Box::new(disk), |_, _| Ok(())).unwrap();
    assert!(matches!(log.append(b"one"), Err(VaultError::Log(_))));
    assert!(matches!(log.append(b"two"), Err(VaultError::LogFailed)));
}

#[test]
fn a_file_is_made_by_its_first_record_and_is_one_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let open = || RecordLog::open(Box::new(LogFile::at(&path).unwrap()), |_, _| Ok(()));
    let mut log = open().unwrap();
    assert!(!path.exists() && log.is_empty());
    log.append(b"one").unwrap();
    assert!(LogFile::at(&path).is_err(), "it is in use");
    drop(log);
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, b"torn"))
        .unwrap();
    assert_eq!(open().unwrap().len(), len);
    let kept = std::fs::read(path.with_extension(format!("cut-{len}"))).unwrap();
    assert_eq!(kept, b"torn", "what is cut off is kept for people");
}
