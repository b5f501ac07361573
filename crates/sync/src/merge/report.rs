//! Entries as people are told of them, and counted.

use std::sync::Arc;

use towpath_api::copy::{CopyEvent, Dropped};
use towpath_content::tree::{Entry, Kind};
use towpath_files::RelPath;

use crate::decide::Changes;
use crate::events::shown_time;
use crate::receiving::{Receiving, add};

/// Tells and counts entries.
pub(super) struct EntryReport {
    receiving: Arc<Receiving>,
}

impl EntryReport {
    /// Of nothing so far.
    pub(super) fn new(receiving: &Arc<Receiving>) -> Self {
        Self { receiving: Arc::clone(receiving) }
    }

    /// The sender has a directory.
    pub(super) fn dir(&self, entry: &Entry) {
        self.receiving.account.count(|counts| add(&mut counts.seen, &entry.kind));
    }

    /// The sender has something else.
    pub(super) fn leaf(&self, entry: &Entry) {
        self.receiving.account.count(|counts| {
            add(&mut counts.seen, &entry.kind);
            counts.total_size += size(&entry.kind);
        });
    }

    /// The destination did not have an entry.
    pub(super) fn created(&self, entry: &Entry) {
        self.receiving.account.count(|counts| add(&mut counts.created, &entry.kind));
    }

    /// Metadata were taken off an entry.
    pub(super) fn dropped(&self, dropped: &Dropped) {
        if !dropped.is_none() {
            self.receiving.account.count(|counts| {
                counts.dropped.special_bits += dropped.special_bits;
                counts.dropped.privileged_xattrs += dropped.privileged_xattrs;
            });
        }
    }

    /// An entry becomes another one; `update` is the first of rsync's letters.
    pub(super) fn changed(&self, entry: &Entry, shown: &RelPath, changes: Changes, update: u8) {
        let target = match &entry.kind {
            Kind::Symlink { target } => Some(target.clone()),
            _ => None,
        };
        self.receiving.report(CopyEvent::Item {
            changes: changes.letters(update, &entry.kind, self.receiving.options.preserve.times),
            path: shown_path(shown, &entry.kind),
            target,
            size: size(&entry.kind),
            modified: shown_time(entry.metadata.modified),
        });
    }

    /// An entry is as it should be.
    pub(super) fn unchanged(&self, entry: &Entry, shown: &RelPath) {
        if self.receiving.options.report_unchanged {
            self.changed(entry, shown, Changes::default(), b'.');
        }
    }
}

/// Bytes of content, as rsync counts them: a link's is its target.
pub(super) fn size(kind: &Kind) -> u64 {
    match kind {
        Kind::File { size, .. } => *size,
        Kind::Symlink { target } => target.len() as u64,
        _ => 0,
    }
}

fn shown_path(shown: &RelPath, kind: &Kind) -> Vec<u8> {
    let mut path = shown.as_bytes().to_vec();
    if *kind == Kind::Directory {
        if path.is_empty() {
            path.push(b'.');
        }
        path.push(b'/');
    }
    path
}
