//! Offers of changes that others' versions do not touch: where the vault moved on meanwhile, the same goes on the newest version.

use towpath_vault_format::{Digest, FileUpdate, NewBlock, Update};

use crate::client::{Offered, VaultClient, offer_entry};
use crate::error::VaultClientError;

/// Times that a change is offered while others write, before it is given up.
pub const TRIES: u32 = 16;

/// Commits changes of files, each with the hash of the root that it starts from, and these new blocks of them. The bytes that it cost; `None`: others changed the files, or
/// the vault's keys.
pub fn offer_on_newest(
    vault: &mut VaultClient,
    files: Vec<(FileUpdate, Digest)>,
    blocks: &[NewBlock],
) -> Result<Option<u64>, VaultClientError> {
    for _ in 0..TRIES {
        let root = &vault.head.signed.root;
        let is_it = |(change, base): &(FileUpdate, Digest)| {
            root.base_of(&change.file) == *base && change.epoch == vault.keys.epoch()
        };
        if !files.iter().all(is_it) {
            return Ok(None);
        }
        let changes = files.iter().map(|(change, _)| change.clone()).collect();
        let update = Update { blocks: blocks.to_vec(), ..vault.update_of(changes)? };
        if let Offered::Committed { bytes } = offer_entry(vault, &update, None)? {
            return Ok(Some(bytes));
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}
