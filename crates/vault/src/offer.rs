//! Offers of changes that others' versions do not touch: where the vault moved on meanwhile, the same goes on the newest version.

use towpath_vault_format::{Digest, FileUpdate, NewBlock, Update};

use crate::client::{Offered, VaultClient, offer_entry};
use crate::error::VaultClientError;
use crate::plan::digest_of;

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
        if !files.iter().all(|change| is_base(vault, change) && change.epoch == vault.keys.epoch()) {
            return Ok(None);
        }
        let update = Update { blocks: blocks.to_vec(), ..vault.update_of(files.clone())? };
        if let Offered::Committed { bytes } = offer_entry(vault, &update, None)? {
            return Ok(Some(bytes));
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}

/// True if the newest version has the file that the change is based on.
pub fn is_base(vault: &VaultClient, change: &FileUpdate) -> bool {
    vault.head.signed.root.file(&change.file).map_or(Digest::NONE, digest_of) == change.base
}
