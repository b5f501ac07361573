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
        send(server, self.after(block))
    }

    /// All blocks of a version are made: what waits goes, if others went, else with the version.
    pub fn finish(&mut self, server: &mut dyn RemoteVault) -> Result<(), VaultClientError> {
        send(server, self.last())
    }

    /// What is to be sent once a block is made.
    fn after(&mut self, block: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        self.waiting += block.len();
        self.blocks.push(block);
        self.has_begun |= self.waiting as u64 > PUSHED;
        (self.has_begun && self.waiting >= TOGETHER).then(|| self.take())
    }

    /// What is to be sent before a version.
    fn last(&mut self) -> Option<Vec<Vec<u8>>> {
        let left = self.take();
        self.has_begun.then_some(left)
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        self.waiting = 0;
        std::mem::take(&mut self.blocks)
    }
}

fn send(server: &mut dyn RemoteVault, blocks: Option<Vec<Vec<u8>>>) -> Result<(), VaultClientError> {
    Ok(blocks.map_or(Ok(()), |blocks| server.send_early(blocks))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_goes_once_before_its_version_or_with_it() {
        let mut early = EarlyBlocks::default();
        let block = || vec![7; 100 << 10];
        // A version of few blocks, one of many, one of few.
        for (blocks, sent) in [(20, 0), (60, 60), (5, 5)] {
            let mut went: Vec<_> = (0..blocks).flat_map(|_| early.after(block())).flatten().collect();
            went.extend(early.last().into_iter().flatten());
            assert_eq!(went.len(), sent, "{blocks} blocks");
        }
    }
}
