//! Tickets that commands serve while they run, as `tow share` does: a file for each in the state folder, which its process holds a
//! lock on. So one that was killed leaves none that counts.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

/// A longer file is none of ours.
const MAX_LEN: u64 = 64 << 10;

/// A ticket that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketRecord {
    /// Its text.
    pub ticket: String,
    /// What is served: paths, made printable.
    pub path: String,
    /// Beginning, in seconds since 1970.
    pub since: u64,
    /// It came from elsewhere, and is served to others: `tow get --stay`.
    pub is_passed_on: bool,
}

/// The folder of such records.
#[derive(Debug, Clone)]
pub struct RunningTickets {
    folder: PathBuf,
}

/// The record of one, until this is dropped.
#[derive(Debug)]
pub struct RunningTicket {
    place: PathBuf,
    _locked: File,
}

impl Drop for RunningTicket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.place);
    }
}

impl RunningTickets {
    /// Records below the folder `state`.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join("running") }
    }

    /// Records a ticket that this process serves from now on.
    pub fn begin(&self, record: &TicketRecord) -> std::io::Result<RunningTicket> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let name = format!("{}-{}.json", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let place = self.folder.join(name);
        let temporary = place.with_extension("tmp");
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        // Before anybody sees it.
        file.lock()?;
        let TicketRecord { ticket, path, since, is_passed_on } = record;
        let record = json!({ "ticket": ticket, "path": path, "since": since, "passed_on": is_passed_on });
        file.write_all(record.to_string().as_bytes())?;
        fs::rename(&temporary, &place)?;
        Ok(RunningTicket { place, _locked: file })
    }

    /// Those whose process runs, the oldest first. Others are removed.
    pub fn all(&self) -> Vec<TicketRecord> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let records = files.filter(|place| place.extension().is_some_and(|end| end == "json"));
        let mut all: Vec<_> = records.filter_map(|place| running(&place)).collect();
        all.sort_by_key(|record| record.since);
        all
    }
}

fn running(place: &Path) -> Option<TicketRecord> {
    let file = File::open(place).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        let _ = fs::remove_file(place);
        return None;
    }
    if file.metadata().ok()?.len() > MAX_LEN {
        return None;
    }
    let record: Value = serde_json::from_slice(&fs::read(place).ok()?).ok()?;
    let word = |name| Some(record.get(name)?.as_str()?.to_owned());
    Some(TicketRecord {
        ticket: word("ticket")?,
        path: word("path")?,
        since: record.get("since")?.as_u64()?,
        is_passed_on: record.get("passed_on")?.as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_listed_for_as_long_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let running = RunningTickets::new(folder.path());
        assert!(running.all().is_empty());
        let record =
            |since| TicketRecord { ticket: "tow:x".into(), path: "/a".into(), since, is_passed_on: false };
        let second = running.begin(&record(2)).unwrap();
        let first = running.begin(&record(1)).unwrap();
        assert_eq!(running.all(), [record(1), record(2)]);
        drop(first);
        assert_eq!(running.all(), [record(2)]);
        // One whose process was killed has no lock.
        fs::copy(&second.place, running.folder.join("1-1.json")).unwrap();
        fs::write(running.folder.join("2-2.json"), "nonsense").unwrap();
        assert_eq!(running.all(), [record(2)]);
        drop(second);
        assert_eq!(fs::read_dir(&running.folder).unwrap().count(), 0, "nothing is left");
    }
}
