//! Admission of transfers: limits on how many there are, on their memory and on the disk they
//! write to. A transfer that is one too many is refused with words; those under way do not notice.

use std::path::Path;
use std::sync::{Arc, Mutex};

use towpath_api::{ApiError, ErrorKind};
use towpath_files::display_name;
use towpath_transfer::SessionConfig;

use crate::metrics::{Direction, Metrics};
use towpath_config::{Limits, Live};
use towpath_content::lock::lock;

/// Most memory that a transfer holds.
fn memory_of(direction: Direction) -> u64 {
    match direction {
        Direction::Get | Direction::Copy => u64::from(SessionConfig::default().buffer_bytes),
        // It is read and hashed in one buffer of its own.
        Direction::Put => 0,
    }
}

/// The transfers of a service.
#[derive(Debug, Default)]
pub struct Admission {
    config: Live,
    counts: Arc<Mutex<AdmittedCounts>>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct AdmittedCounts {
    transfers: u64,
    copies: u64,
    memory: u64,
    is_ending: bool,
}

/// A transfer that was let begin. If it is dropped before it is done, it failed.
#[derive(Debug)]
pub struct Admitted {
    counts: Arc<Mutex<AdmittedCounts>>,
    metrics: Arc<Metrics>,
    direction: Direction,
    is_done: bool,
}

impl AdmittedCounts {
    /// Reason why a transfer in this direction can't begin.
    fn obstacle(&self, limits: &Limits, direction: Direction) -> Option<(String, &'static str)> {
        if self.is_ending {
            return Some(("the service is ending".into(), "try again when it is back"));
        }
        let later = "try again when one has ended, or raise the limit in the configuration";
        if self.transfers >= limits.transfers.0 {
            let message =
                format!("{} transfers are under way, as many as may be (limits.transfers)", self.transfers);
            return Some((message, later));
        }
        if direction == Direction::Copy && self.copies >= limits.copies.0 {
            let message = format!("{} copies are under way, as many as may be (limits.copies)", self.copies);
            return Some((message, later));
        }
        if self.memory.saturating_add(memory_of(direction)) > limits.memory.0 {
            let message = format!("transfers hold {} MiB of memory (limits.memory)", self.memory >> 20);
            return Some((message, later));
        }
        None
    }
}

impl Admission {
    /// Obeys what `config` says at the moment.
    pub fn new(config: Live, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics, counts: Arc::default() }
    }

    /// Lets a transfer begin that writes to `place`.
    pub fn begin(&self, direction: Direction, directory: &Path) -> Result<Admitted, ApiError> {
        let limits = &self.config.get().limits;
        let admitted = check_disk(directory, limits.disk_free.0).and_then(|()| self.count(direction, limits));
        self.noted(direction, admitted)
    }

    /// Lets a transfer begin that writes nothing, or of which it is not known yet where: a put whose bytes stay
    /// where they are, or a copy.
    pub fn begin_anywhere(&self, direction: Direction) -> Result<Admitted, ApiError> {
        self.noted(direction, self.count(direction, &self.config.get().limits))
    }

    /// Looks whether the disk that `directory` lies on has room for a transfer.
    pub fn check_disk(&self, directory: &Path) -> Result<(), ApiError> {
        check_disk(directory, self.config.get().limits.disk_free.0)
    }

    fn noted(
        &self,
        direction: Direction,
        admitted: Result<Admitted, ApiError>,
    ) -> Result<Admitted, ApiError> {
        if admitted.is_err() {
            self.metrics.refused(direction);
        }
        admitted
    }

    fn count(&self, direction: Direction, limits: &Limits) -> Result<Admitted, ApiError> {
        let mut counts = lock(&self.counts);
        if let Some((message, hint)) = counts.obstacle(limits, direction) {
            return Err(ApiError::new(ErrorKind::Busy, message).hint(hint));
        }
        counts.transfers += 1;
        counts.copies += u64::from(direction == Direction::Copy);
        counts.memory += memory_of(direction);
        drop(counts);
        self.metrics.begun(direction);
        let (counts, metrics) = (Arc::clone(&self.counts), Arc::clone(&self.metrics));
        Ok(Admitted { counts, metrics, direction, is_done: false })
    }

    /// Transfers under way.
    pub fn transfers(&self) -> u64 {
        lock(&self.counts).transfers
    }

    /// Copies among them.
    pub fn copies(&self) -> u64 {
        lock(&self.counts).copies
    }

    /// Bytes of memory that they may hold.
    pub fn memory(&self) -> u64 {
        lock(&self.counts).memory
    }

    /// From now on no transfer begins.
    pub fn end(&self) {
        lock(&self.counts).is_ending = true;
    }
}

impl Admitted {
    /// It came to its end.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.transfers -= 1;
        counts.copies -= u64::from(self.direction == Direction::Copy);
        counts.memory -= memory_of(self.direction);
        drop(counts);
        self.metrics.ended(self.direction, self.is_done);
    }
}

/// The disk that `place`, or the nearest folder above it that is there, lies on.
fn check_disk(directory: &Path, wanted: u64) -> Result<(), ApiError> {
    let there = directory.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok());
    // A path that can't be looked at can't be written to either, and whoever tries says so better.
    let Some(disk) = there else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= wanted {
        return Ok(());
    }
    let name = display_name(directory.as_os_str().as_encoded_bytes());
    let message =
        format!("{} MiB are free where {name} goes, and {} MiB must stay free", free >> 20, wanted >> 20);
    Err(ApiError::new(ErrorKind::NoSpace, message).hint("free some space, or change limits.disk_free"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_config::{Bytes, Config, Count};

    fn admission(change: impl FnOnce(&mut Limits)) -> (Admission, Live) {
        let mut config = Config::default();
        config.limits.disk_free = Bytes(0);
        change(&mut config.limits);
        let live = Live::new(config);
        (Admission::new(live.clone(), Arc::default()), live)
    }

    fn get(admission: &Admission) -> Result<Admitted, ApiError> {
        admission.begin(Direction::Get, Path::new("/"))
    }

    #[test]
    fn a_transfer_too_many_is_refused_until_one_has_ended() {
        let (admission, live) = admission(|limits| limits.transfers = Count(2));
        let first = get(&admission).unwrap();
        let _second = admission.begin(Direction::Put, Path::new("/")).unwrap();
        let error = get(&admission).unwrap_err();
        assert!(error.message.contains("limits.transfers"), "{error}");
        first.done();
        let _third = get(&admission).unwrap();
        live.set(Config::default());
        assert!(get(&admission).is_ok(), "a new limit holds at once");
        assert_eq!(admission.transfers(), 2);
    }

    #[test]
    fn memory_is_shared_by_gets() {
        let (admission, _) = admission(|limits| limits.memory = Bytes(70 << 20));
        let gets = [get(&admission).unwrap(), get(&admission).unwrap()];
        assert_eq!(admission.memory(), 64 << 20);
        assert!(get(&admission).unwrap_err().message.contains("limits.memory"));
        assert!(admission.begin(Direction::Put, Path::new("/")).is_ok(), "it needs none");
        drop(gets);
        assert_eq!(admission.memory(), 0);
    }

    #[test]
    fn a_disk_that_would_be_too_full_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("not/there/yet");
        let (few, _) = admission(|limits| limits.disk_free = Bytes(1));
        assert!(few.begin(Direction::Get, &directory).is_ok());
        let (all, _) = admission(|limits| limits.disk_free = Bytes(u64::MAX));
        let error = all.begin(Direction::Get, &directory).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    }

    #[test]
    fn copies_have_a_limit_of_their_own() {
        let (admission, _) = admission(|limits| limits.copies = Count(1));
        let copy = || admission.begin_anywhere(Direction::Copy);
        let first = copy().unwrap();
        assert!(copy().unwrap_err().message.contains("limits.copies"));
        assert!(get(&admission).is_ok());
        drop(first);
        assert_eq!(admission.copies(), 0);
        assert!(copy().is_ok());
    }

    #[test]
    fn nothing_begins_at_the_end() {
        let (admission, _) = admission(|_| ());
        let under_way = get(&admission).unwrap();
        admission.end();
        assert!(get(&admission).unwrap_err().message.contains("ending"));
        assert_eq!(admission.transfers(), 1);
        under_way.done();
    }
}
