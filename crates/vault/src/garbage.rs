//! Garbage: versions that are dropped by the deleter's word, and files that no entry names. A server can't say that a version was
//! dropped: it has to show the word.

use std::collections::HashSet;

use towpath_vault_format::{DropStatement, DroppedRange, FileId};
use towpath_vault_protocol::VaultUsage;

use crate::client::{Offered, VaultClient};
use crate::error::VaultClientError;
use crate::put::{TRIES, removed};

/// The most statements of a vault that are read.
const MAX_STATEMENTS: usize = 1 << 20;

/// What a vault has, and could be without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage {
    /// Versions that it has.
    pub versions: u64,
    /// Of them the older ones that would go.
    pub older: u64,
    /// Files of the newest version that no entry names: puts that were cut short left them.
    pub nameless: u64,
    /// Bytes of their plaintext.
    pub nameless_bytes: u64,
    /// On the server, all of it and what is needed by no version that stays. Nameless files of the newest version are needed.
    pub usage: VaultUsage,
}

/// What a collection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collected {
    /// Versions that were dropped.
    pub dropped: u64,
    /// Files without a name that were taken out of the newest version.
    pub nameless: u64,
    /// Bytes on the server before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
}

impl VaultClient {
    /// Numbers of the versions before number `before` that were not dropped, the newest first, `most` of them at most. For each
    /// gap there is a deleter's word, else it is an error.
    pub fn kept(&mut self, before: u64, most: u64) -> Result<Vec<u64>, VaultClientError> {
        let before = before.min(self.head.named().number.saturating_add(1));
        let (mut kept, mut end) = (Vec::new(), before);
        while (kept.len() as u64) < most && end > 0 {
            let some = self.server.kept(end, most - kept.len() as u64)?;
            // They fall, so this ends.
            let falls = some.iter().zip(std::iter::once(&end).chain(&some)).all(|(next, last)| next < last);
            end = some.last().copied().filter(|_| falls).unwrap_or(0);
            kept.extend(some.into_iter().filter(|_| falls));
        }
        let end = if (kept.len() as u64) < most { 0 } else { end };
        let there: HashSet<u64> = kept.iter().copied().collect();
        let newest = self.head.named().number;
        let is_gap = |number: &u64| *number != newest && !there.contains(number);
        let gaps: Vec<u64> = (end..before).filter(is_gap).collect();
        if !gaps.is_empty() {
            let statements = self.statements()?;
            let is_dropped = |number: u64| statements.iter().any(|statement| statement.covers(number));
            if let Some(number) = gaps.into_iter().find(|number| !is_dropped(*number)) {
                return Err(VaultClientError::Hidden { number });
            }
        }
        Ok(kept)
    }

    /// All words by which versions were dropped, each the deleter's.
    fn statements(&mut self) -> Result<Vec<DropStatement>, VaultClientError> {
        let mut statements: Vec<DropStatement> = Vec::new();
        while statements.len() < MAX_STATEMENTS {
            let some = self.server.statements(statements.len() as u64)?;
            if some.is_empty() {
                break;
            }
            statements.extend(some);
        }
        let members = &self.head.members.members;
        match statements.iter().zip(0..).all(|(it, number)| it.number == number && it.is_valid(members)) {
            true => Ok(statements),
            false => {
                let why = "one is not by who may drop versions";
                Err(VaultClientError::record_of("the words by which versions were dropped", why))
            }
        }
    }

    /// What could go if the newest `keep` versions stayed; the newest always does.
    pub fn garbage(&mut self, keep: u64) -> Result<Garbage, VaultClientError> {
        let kept = self.kept(u64::MAX, u64::MAX)?;
        let dropped = older_than(&kept, keep);
        let older = kept.iter().filter(|number| dropped.iter().any(|range| range.covers(**number)));
        let older = older.count() as u64;
        let nameless = self.nameless()?;
        let bytes = nameless.iter().map(|file| self.file_root(*file).length).sum();
        Ok(Garbage {
            versions: kept.len() as u64,
            older,
            nameless: nameless.len() as u64,
            nameless_bytes: bytes,
            usage: self.server.usage(&dropped)?,
        })
    }

    /// Drops all but the newest `keep` versions, takes nameless files out of the newest one, and waits until the server has given
    /// back what no version needs.
    pub fn collect_garbage(&mut self, keep: u64) -> Result<Collected, VaultClientError> {
        let deleter = self.keys.deleter.clone().ok_or(VaultClientError::NotADeleter)?;
        let before = self.server.usage(&[])?.stored;
        let nameless = self.remove_nameless()?;
        let kept = self.kept(u64::MAX, u64::MAX)?;
        let dropped = older_than(&kept, keep);
        let number = self.statements()?.len() as u64;
        let goes = kept.iter().filter(|number| dropped.iter().any(|range| range.covers(**number)));
        let goes = goes.count() as u64;
        let node = deleter.identity().node_id();
        let statement =
            DropStatement { vault: self.keys.vault, number, dropped, deleter: node, signature: [0; 64] };
        self.server.drop_versions(&statement.sign(|message| deleter.identity().sign(message)))?;
        let after = self.server.usage(&[])?.stored;
        Ok(Collected { dropped: goes, nameless, before, after })
    }

    /// Files of the newest version that no entry names.
    fn nameless(&mut self) -> Result<Vec<FileId>, VaultClientError> {
        let root = self.head.signed.root.clone();
        let named: HashSet<FileId> = self.catalogue(&root)?.files().collect();
        let files = root.files.iter().map(|file| file.file).filter(|file| *file != FileId::CATALOGUE);
        Ok(files.filter(|file| !named.contains(file)).collect())
    }

    /// Makes a version without them, if there are any. How many there were.
    fn remove_nameless(&mut self) -> Result<u64, VaultClientError> {
        for _ in 0..TRIES {
            let nameless = self.nameless()?;
            if nameless.is_empty() {
                return Ok(0);
            }
            let epoch = self.keys.epoch();
            let files: Vec<_> = nameless.iter().map(|file| removed(*file, epoch)).collect();
            if let Offered::Committed { .. } = self.commit_stage(files, &mut Default::default())? {
                return Ok(nameless.len() as u64);
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }
}

/// The versions below the newest `keep`, of those that are there, the newest first.
fn older_than(kept: &[u64], keep: u64) -> Vec<DroppedRange> {
    let index = usize::try_from(keep.max(1)).unwrap_or(usize::MAX);
    kept.get(index).map(|last| DroppedRange { first: 0, last: *last }).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_one_always_does() {
        let kept = [9, 8, 6, 2];
        let last = |keep| older_than(&kept, keep).first().map(|range| range.last);
        assert_eq!([last(0), last(1), last(2), last(3)], [Some(8), Some(8), Some(6), Some(2)]);
        assert_eq!([last(4), last(u64::MAX)], [None, None]);
        assert_eq!(older_than(&[], 1), []);
    }
}
