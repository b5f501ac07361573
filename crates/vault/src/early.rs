//! New blocks that go to the server before their version, while others are made. Few blocks go with it instead.

use crate::error::VaultClientError;
use crate::network::PUSHED;
use crate::server::RemoteVault;

/// They go when they are so many bytes.
const TOGETHER: usize = 1 << 20;

/// Blocks that were not sent yet.
#[derive(Debug, Default)]
pub struct EarlyBlocks {
    blocks: Vec<Vec<u8>>,
    waiting: usize,
    has_begun: bool,
}

impl EarlyBlocks {
    /// Takes a block. Nothing is sent before they are more than what goes with a version.
    pub fn add(&mut self, server: &mut dyn RemoteVault, block: Vec<u8>) -> Result<(), VaultClientError> {
        self.waiting += block.len();
        self.blocks.push(block);
        self.has_begun |= self.waiting as u64 > PUSHED;
        if self.has_begun && self.waiting >= TOGETHER { self.send(server) } else { Ok(()) }
    }

    /// All blocks are made: what waits goes, if others went.
    pub fn finish(&mut self, server: &mut dyn RemoteVault) -> Result<(), VaultClientError> {
        if self.has_begun { self.send(server) } else { Ok(()) }
    }

    fn send(&mut self, server: &mut dyn RemoteVault) -> Result<(), VaultClientError> {
        self.waiting = 0;
        Ok(server.send_early(std::mem::take(&mut self.blocks))?)
    }
}
