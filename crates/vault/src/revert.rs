//! A new version that is as an older one was. That is how a vault goes on after a member put what nobody can read: the list of entries, or an
//! entry's bytes. The version between stays, and says who wrote it.

use std::collections::BTreeMap;

use towpath_vault_format::update::MAX_UPDATE;
use towpath_vault_format::{Canonical, FileRoot, FileUpdate, Update, UpdateAction, VaultRoot};

use crate::client::{Offered, VaultClient, check_writer};
use crate::error::VaultClientError;
use crate::garbage::kept;
use crate::offer::TRIES;
use crate::put::removed;

/// Versions among which one is sought whose list of entries can be read.
const VERSIONS: u64 = 64;
/// The most runs of a file.
const RUNS: usize = 1 << 20;

/// What a reversal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevertedVault {
    /// The newest version.
    pub number: u64,
    /// It is as this one.
    pub like: u64,
    /// False: the newest version was so already.
    pub is_new: bool,
}

/// Makes a version that has what version `to` has; none: the newest one whose list of entries can be read.
pub fn revert(vault: &mut VaultClient, to: Option<u64>) -> Result<RevertedVault, VaultClientError> {
    check_writer(vault)?;
    for _ in 0..TRIES {
        let old = match to {
            None => newest_readable(vault)?,
            Some(number) => {
                let root = vault.root(Some(number))?;
                vault.catalogue(&root).map(|_| root)?
            }
        };
        let (number, like) = (vault.head.named().number, old.number);
        let update = update_to(vault, &old)?;
        if update.files.is_empty() {
            return Ok(RevertedVault { number, like, is_new: false });
        }
        if let Offered::Committed { .. } = vault.offer(&update)? {
            return Ok(RevertedVault { number: vault.head.named().number, like, is_new: true });
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}

/// The newest version whose list of entries can be read: this machine may have to fetch some.
fn newest_readable(vault: &mut VaultClient) -> Result<VaultRoot, VaultClientError> {
    let newest = vault.head.named().number;
    let kept = kept(vault, newest + 1, VERSIONS)?;
    let first = kept.last().copied().unwrap_or(newest);
    let roots: BTreeMap<u64, VaultRoot> = vault
        .versions(first)?
        .into_iter()
        .map(|version| (version.signed.root.number, version.signed.root))
        .collect();
    for root in kept.iter().filter_map(|number| roots.get(number)) {
        match vault.catalogue(root) {
            Ok(_) => return Ok(root.clone()),
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    Err(VaultClientError::NoneReadable { first, newest })
}

/// The update that makes the newest version as `old`. Blocks are on the server still, so it is steps alone.
fn update_to(vault: &mut VaultClient, old: &VaultRoot) -> Result<Update, VaultClientError> {
    let head = vault.head.signed.root.clone();
    let mut files = Vec::new();
    for file in old.files.iter().filter(|file| !is_alike(head.file(&file.file), file)) {
        let runs = vault.reader().tuples(file, 0..file.length, RUNS)?;
        let tuples = runs.into_iter().map(|(_, tuple)| tuple).collect();
        let actions = vec![UpdateAction::Replace { tuples }];
        files.push(FileUpdate { file: file.file, epoch: file.epoch, actions });
    }
    let epoch = vault.keys.epoch();
    let gone = head.files.iter().filter(|file| old.file(&file.file).is_none());
    files.extend(gone.map(|file| removed(file.file, epoch)));
    let update = vault.update_of(files)?;
    let (found, limit) = (update.to_bytes().len() as u64, MAX_UPDATE as u64);
    match found > limit {
        true => Err(VaultClientError::TooLarge { what: "bytes of steps back", found, limit }),
        false => Ok(update),
    }
}

/// True if a file has the same bytes: its epoch only says by which keys new blocks are written.
fn is_alike(newest: Option<&FileRoot>, old: &FileRoot) -> bool {
    newest.is_some_and(|newest| FileRoot { epoch: old.epoch, ..*newest } == *old)
}
