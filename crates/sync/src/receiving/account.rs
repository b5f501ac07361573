//! What a receiving side has done so far.

use std::sync::Mutex;

use towpath_api::copy::CopySummary;
use towpath_content::lock::lock;

/// See the head of this module.
#[derive(Default)]
pub struct CopyAccount {
    state: Mutex<AccountState>,
}

#[derive(Default)]
struct AccountState {
    summary: CopySummary,
    done: FilesDone,
}

/// Files that are requested, and in place.
#[derive(Debug, Default, Clone, Copy)]
pub struct FilesDone {
    /// Bytes of files that were requested.
    pub bytes_requested: u64,
    /// Bytes of files that are in place.
    pub bytes: u64,
    /// Files in place.
    pub files: u64,
}

impl CopyAccount {
    /// Counts.
    pub fn count(&self, count: impl FnOnce(&mut CopySummary)) {
        count(&mut lock(&self.state).summary);
    }

    /// A file of so many bytes was transferred.
    pub fn transferred(&self, size: u64) {
        self.count(|counts| {
            counts.transferred += 1;
            counts.transferred_size += size;
        });
    }

    /// A file of so many bytes was requested.
    pub fn requested(&self, size: u64) {
        lock(&self.state).done.bytes_requested += size;
    }

    /// A file of so many bytes has its name, or will not get it.
    pub fn named(&self, size: u64) {
        let done = &mut lock(&self.state).done;
        (done.bytes, done.files) = (done.bytes + size, done.files + 1);
    }

    /// How far files are.
    pub fn done(&self) -> FilesDone {
        lock(&self.state).done
    }

    /// Summary of what was done so far.
    pub fn summary(&self) -> CopySummary {
        lock(&self.state).summary.clone()
    }
}
