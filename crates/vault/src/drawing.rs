//! Reading from whoever holds a vault's nodes and blocks: they come from several holders at once, of which the server may be one. Versions come
//! from the server alone, and go there alone.
//!
//! Nothing that a holder gives has to be believed: an object has the hash that a proved root leads to.

use tokio::runtime::Handle;

use crate::client::VaultClient;
use crate::error::VaultClientError;
use crate::holders::ObjectHolders;
use crate::local::{LocalVault, kept_holders};

pub use crate::local::keep_holders;
pub use towpath_vault_holders::{HolderFault, HolderPlace, HolderPool, HolderReport, HolderStanding};

/// Who has a vault's blocks, as far as this machine knows, each as `NODE@HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHolders {
    /// The vault's server.
    pub server: Option<String>,
    /// Others.
    pub others: Vec<String>,
}

impl KnownHolders {
    /// Those of the vault in a folder.
    pub fn of(folder: &LocalVault) -> Result<Self, VaultClientError> {
        Ok(Self { server: folder.server()?, others: kept_holders(folder)? })
    }

    /// Those of an open vault.
    pub fn of_vault(vault: &VaultClient) -> Result<Self, VaultClientError> {
        Self::of(&vault.folder)
    }
}

/// From now on nodes and blocks come from these holders; what none of them gives from the server, if `asks_server`. Beside another process
/// of this machine nothing changes: what that one has is read there.
pub fn draw_from(
    vault: &mut VaultClient,
    runtime: Handle,
    places: Vec<HolderPlace>,
    asks_server: bool,
) -> Result<(), VaultClientError> {
    if vault.folder.is_beside() || places.is_empty() {
        return Ok(());
    }
    let member = vault.keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?.identity().clone();
    let pool = HolderPool::new(runtime, member, vault.keys.vault, places);
    vault.holders = Some(ObjectHolders { pool, asks_server });
    Ok(())
}

/// What became of each holder so far; nothing if none was asked.
pub fn holder_reports(vault: &VaultClient) -> Vec<HolderReport> {
    vault.holders.as_ref().map_or_else(Vec::new, |holders| holders.pool.reports())
}
