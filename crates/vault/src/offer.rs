//! Offers of changes that others' versions do not touch: where the vault moved on meanwhile, the same goes on the newest version.

use towpath_vault_format::{FileUpdate, NewBlock, Update};

use crate::client::{Offered, VaultClient, offer_entry};
use crate::error::VaultClientError;

/// Times that a change is offered while others write, before it is given up.
pub const TRIES: u32 = 16;

/// Commits changes of files whose bases are said, and these new blocks of them. The bytes that it cost; `None`: others changed the files, or
/// the vault's keys.
pub fn offer_on_newest(
    vault: &mut VaultClient,
    files: Vec<FileUpdate>,
    blocks: &[NewBlock],
) -> Result<Option<u64>, VaultClientError> {
    for _ in 0..TRIES {
        let root = &vault.head.signed.root;
        let is_it = |change: &FileUpdate| {
            root.base_of(&change.file) == change.base && change.epoch == vault.keys.epoch()
        };
        if !files.iter().all(is_it) {
            return Ok(None);
        }
        let update = Update { blocks: blocks.to_vec(), ..vault.update_of(files.clone())? };
        if let Offered::Committed { bytes } = offer_entry(vault, &update, None)? {
            return Ok(Some(bytes));
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}
