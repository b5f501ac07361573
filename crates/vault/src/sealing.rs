//! Whole blocks, packed and encrypted on other threads, and given back in the order in which their contents went in.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use towpath_vault_format::BlockId;

use crate::block::{BlockKind, BlockSealer, SealedBlock};
use crate::error::VaultClientError;
use crate::keys::random;

/// Contents that wait for one thread, and blocks that it made and nobody took, at most.
const WAITING: usize = 64;
/// Threads, at most: cutting and sending, on one more, keep no more of them busy.
const MOST: usize = 6;

/// Threads that seal.
#[derive(Debug)]
pub struct SealingCrew {
    workers: Vec<SealingWorker>,
    went_in: usize,
    came_out: usize,
}

#[derive(Debug)]
struct SealingWorker {
    contents: Option<SyncSender<Vec<u8>>>,
    blocks: Receiver<Result<SealedBlock, VaultClientError>>,
    thread: Option<JoinHandle<()>>,
}

impl SealingCrew {
    /// A crew that seals as `sealer` does.
    pub fn new(sealer: impl Fn() -> Result<BlockSealer, VaultClientError>) -> Result<Self, VaultClientError> {
        let count =
            std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).clamp(1, MOST);
        let workers = (0..count).map(|_| sealer().map(SealingWorker::new)).collect::<Result<_, _>>()?;
        Ok(Self { workers, went_in: 0, came_out: 0 })
    }

    /// Blocks under way.
    pub const fn under_way(&self) -> usize {
        self.went_in - self.came_out
    }

    /// True if a block has to be taken before a content may go in.
    pub const fn is_full(&self) -> bool {
        self.under_way() >= WAITING * self.workers.len()
    }

    /// Takes a content. One may go in if the crew is not full.
    pub fn seal(&mut self, content: Vec<u8>) {
        let worker = &self.workers[self.went_in % self.workers.len()];
        self.went_in += 1;
        // A thread that died gives no blocks, which whoever asks for the next one is told.
        let _ = worker.contents.as_ref().map(|contents| contents.send(content));
    }

    /// The next block; one must be under way.
    pub fn next(&mut self) -> Result<SealedBlock, VaultClientError> {
        let worker = &self.workers[self.came_out % self.workers.len()];
        self.came_out += 1;
        let died = |_| VaultClientError::Record { what: "a new block", why: "a thread died".into() };
        worker.blocks.recv().map_err(died)?
    }
}

impl SealingWorker {
    fn new(mut sealer: BlockSealer) -> Self {
        let (contents, waiting) = sync_channel::<Vec<u8>>(WAITING);
        let (made, blocks) = sync_channel(WAITING);
        let work = move || {
            for content in waiting {
                if made.send(sealed(&mut sealer, &content)).is_err() {
                    break;
                }
            }
        };
        Self { contents: Some(contents), blocks, thread: Some(std::thread::spawn(work)) }
    }
}

fn sealed(sealer: &mut BlockSealer, content: &[u8]) -> Result<SealedBlock, VaultClientError> {
    let sealed = sealer.seal(BlockId(random()?), BlockKind::Whole, content);
    sealed.map_err(|error| VaultClientError::Record { what: "a new block", why: error.to_string() })
}

/// Ends the thread.
impl Drop for SealingWorker {
    fn drop(&mut self) {
        self.contents = None;
        while self.blocks.recv().is_ok() {}
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
