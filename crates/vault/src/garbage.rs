//! Garbage: versions that are dropped by the deleter's word, and files that no entry names. A server can't say that a version was
//! dropped: it has to show the word.

use std::collections::HashSet;

use towpath_vault_format::{DropStatement, DroppedRange, FileId};
use towpath_vault_protocol::VaultUsage;

use crate::client::{Offered, VaultClient};
use crate::error::VaultClientError;
use crate::history;
use crate::keys::SigningKey;
use crate::offer::TRIES;
use crate::put::{entry_update, removed};

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
pub struct CollectedGarbage {
    /// Versions that were dropped.
    pub dropped: u64,
    /// Files without a name that were taken out of the newest version.
    pub nameless: u64,
    /// Bytes on the server before.
    pub before: u64,
    /// Bytes after; none: the server was not done with it when this client had waited long enough.
    pub after: Option<u64>,
}

/// Numbers of the versions before number `before` that were not dropped, the newest first, `most` of them at most. For each gap
/// there is a deleter's word, else it is an error.
pub fn kept(vault: &mut VaultClient, before: u64, most: u64) -> Result<Vec<u64>, VaultClientError> {
    history::kept(vault.server.as_mut(), &vault.head, before, most)
}

/// What could go if the newest `keep` versions stayed; the newest always does.
pub fn garbage(vault: &mut VaultClient, keep: u64) -> Result<Garbage, VaultClientError> {
    let there = kept(vault, u64::MAX, u64::MAX)?;
    let dropped = older_than(&there, keep);
    let files = nameless(vault)?;
    Ok(Garbage {
        versions: there.len() as u64,
        older: covered(&there, &dropped),
        nameless: files.len() as u64,
        nameless_bytes: files.iter().map(|file| vault.file_root(*file).length).sum(),
        usage: vault.server.usage(&dropped)?,
    })
}

/// Drops all but the newest `keep` versions, takes nameless files out of the newest one, and waits until the server has given
/// back what no version needs.
pub fn collect(vault: &mut VaultClient, keep: u64) -> Result<CollectedGarbage, VaultClientError> {
    let deleter = vault.keys.deleter.clone().ok_or(VaultClientError::NotADeleter)?;
    let before = vault.server.usage(&[])?.stored;
    let nameless = remove_nameless(vault)?;
    let there = kept(vault, u64::MAX, u64::MAX)?;
    let dropped = older_than(&there, keep);
    let gone = covered(&there, &dropped);
    let statement = statement(vault, dropped, &deleter)?;
    vault.server.drop_versions(&statement)?;
    // The word counts already, whatever becomes of the connection.
    let after = vault.server.usage(&[]).ok().map(|usage| usage.stored);
    Ok(CollectedGarbage { dropped: gone, nameless, before, after })
}

/// The deleter's word that these versions may go.
fn statement(
    vault: &mut VaultClient,
    dropped: Vec<DroppedRange>,
    deleter: &SigningKey,
) -> Result<DropStatement, VaultClientError> {
    let said = history::statements(vault.server.as_mut(), &vault.head.members.members)?;
    let statement = DropStatement {
        vault: vault.keys.vault,
        number: said.len() as u64,
        dropped,
        deleter: deleter.identity().node_id(),
        signature: [0; 64],
    };
    Ok(statement.sign(|message| deleter.identity().sign(message)))
}

/// Files of the newest version that no entry names.
fn nameless(vault: &mut VaultClient) -> Result<Vec<FileId>, VaultClientError> {
    let root = vault.head.signed.root.clone();
    let named: HashSet<FileId> = vault.catalogue(&root)?.files().collect();
    let files = root.files.iter().map(|file| file.file).filter(|file| *file != FileId::CATALOGUE);
    Ok(files.filter(|file| !named.contains(file)).collect())
}

/// Makes a version without them, if there are any. How many there were.
fn remove_nameless(vault: &mut VaultClient) -> Result<u64, VaultClientError> {
    for _ in 0..TRIES {
        let nameless = nameless(vault)?;
        if nameless.is_empty() {
            return Ok(0);
        }
        let epoch = vault.keys.epoch();
        let files: Vec<_> = nameless.iter().map(|file| removed(*file, epoch)).collect();
        let update = entry_update(vault, &[], files)?;
        if let Offered::Committed { .. } = vault.offer(&update)? {
            return Ok(nameless.len() as u64);
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}

/// How many of these versions are dropped.
fn covered(there: &[u64], dropped: &[DroppedRange]) -> u64 {
    there.iter().filter(|number| dropped.iter().any(|range| range.covers(**number))).count() as u64
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
