//! Blocks that come for a version: some are kept together, while the next ones come. So the disk and the network work at the same
//! time, and a block costs no change of threads.

use std::sync::Arc;

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_vault_format::Digest;

use crate::changing::ChangeResult;
use crate::error::VaultError;
use crate::folder::OpenVault;
use crate::vault::Vault;

/// Blocks are kept once they are so many bytes.
const TOGETHER: usize = 1 << 20;

/// A block that came.
#[derive(Debug)]
pub(crate) struct ArrivedBlock {
    pub(crate) hash: Digest,
    pub(crate) block: Bytes,
    /// Who sent it, if it came before its version.
    pub(crate) early: Option<NodeId>,
}

/// Blocks of one connection that are not kept yet.
#[derive(Debug, Default)]
pub(crate) struct ArrivingBlocks {
    waiting: Vec<ArrivedBlock>,
    len: usize,
    under_way: Option<ChangeResult<()>>,
}

impl ArrivedBlock {
    fn stage(self, vault: &mut Vault) -> Result<(), VaultError> {
        match self.early {
            Some(node) => vault.stage_early(&node, self.hash, self.block),
            None => vault.stage(self.hash, self.block),
        }
    }
}

impl ArrivingBlocks {
    /// Takes a block. An error is that of blocks before it; then all that wait are dropped.
    pub(crate) async fn add(
        &mut self,
        vault: &Arc<OpenVault>,
        arrived: ArrivedBlock,
    ) -> Result<(), VaultError> {
        self.len += arrived.block.len();
        self.waiting.push(arrived);
        if self.len < TOGETHER { Ok(()) } else { self.keep_waiting(vault).await }
    }

    /// Returns when all that were taken are kept.
    pub(crate) async fn settle(&mut self, vault: &Arc<OpenVault>) -> Result<(), VaultError> {
        self.keep_waiting(vault).await?;
        self.kept().await
    }

    async fn keep_waiting(&mut self, vault: &Arc<OpenVault>) -> Result<(), VaultError> {
        let blocks = std::mem::take(&mut self.waiting);
        self.len = 0;
        self.kept().await?;
        if blocks.is_empty() {
            return Ok(());
        }
        let stage = |vault: &mut Vault| blocks.into_iter().try_for_each(|arrived| arrived.stage(vault));
        self.under_way = Some(vault.in_turn(|vault| vault.keep(stage)).await);
        Ok(())
    }

    async fn kept(&mut self) -> Result<(), VaultError> {
        match self.under_way.take() {
            Some(under_way) => under_way.wait().await,
            None => Ok(()),
        }
    }
}
