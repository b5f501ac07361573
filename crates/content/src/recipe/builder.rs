//! Builds a recipe from chunks in order.
//!
//! Each level has one open node. An entry that closes it sends the node out and its name to the
//! level above, so nothing is held but the open nodes and the current run.

use thiserror::Error;

use super::{Child, Entries, MAX_SIZE, NodeHash, RecipeNode, RecipeRoot, Run, root};
use crate::chunking::{ChunkHash, Parameters};
use crate::codec::{DecodeError, invalid};
use crate::oid::Oid;

/// Reason why a recipe was not built. The builder is of no use afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError<E> {
    /// A finished node was not taken.
    #[error("a finished node of the recipe could not be kept")]
    Emit(#[source] E),
    /// The chunks are none that the parameters' chunker makes, or over a limit.
    #[error("the chunks do not make a recipe")]
    Refused(#[source] DecodeError),
}

/// Takes an object's chunks in order and hands out finished nodes, children before parents.
///
/// `emit` gets each node's name and bytes. Equal nodes may come more than once.
#[derive(Debug)]
pub struct RecipeBuilder<F> {
    parameters: Parameters,
    size: u64,
    /// The current run; it may still grow.
    run: Option<Run>,
    /// The open node of each level, leaves first.
    levels: Vec<RecipeLevel>,
    emit: F,
}

#[derive(Debug)]
struct RecipeLevel {
    open: Entries,
    /// True if a node of this level was sent out already, so that there is a level above.
    is_split: bool,
}

impl RecipeLevel {
    /// Takes the open node's entries.
    fn take(&mut self) -> Entries {
        match &mut self.open {
            Entries::Runs(runs) => Entries::Runs(std::mem::take(runs)),
            Entries::Children(children) => Entries::Children(std::mem::take(children)),
        }
    }

    /// The only child, if the level below is the one with the top node.
    fn only_child(&self) -> Option<NodeHash> {
        match &self.open {
            Entries::Children(children) if children.len() == 1 => Some(children[0].hash),
            _ => None,
        }
    }
}

impl<E, F: FnMut(NodeHash, Vec<u8>) -> Result<(), E>> RecipeBuilder<F> {
    /// Starts the recipe of an object that is cut with `parameters`.
    pub fn new(parameters: Parameters, emit: F) -> Result<Self, DecodeError> {
        parameters.check()?;
        let leaves = RecipeLevel { open: Entries::Runs(Vec::new()), is_split: false };
        Ok(Self { parameters, size: 0, run: None, levels: vec![leaves], emit })
    }

    /// Bytes of the object so far.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends a chunk of `len` bytes.
    pub fn push(&mut self, hash: ChunkHash, len: u32) -> Result<(), BuildError<E>> {
        self.push_run(Run { hash, len, repeat: 1 })
    }

    /// Appends a chunk as many times as `run` says, at the cost of one.
    pub fn push_run(&mut self, run: Run) -> Result<(), BuildError<E>> {
        self.size = self.check(&run).map_err(BuildError::Refused)?;
        match &mut self.run {
            Some(current) if current.hash == run.hash => current.repeat += run.repeat,
            _ => {
                if let Some(whole) = self.run.replace(run) {
                    self.add_run(whole)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the recipe: `object` is the OID that the maker found. The top node was emitted last.
    pub fn finish(mut self, object: Oid) -> Result<RecipeRoot, BuildError<E>> {
        root::check_object(&object).map_err(BuildError::Refused)?;
        if let Some(run) = self.run.take() {
            self.add_run(run)?;
        }
        let top = self.close_all()?;
        Ok(RecipeRoot { parameters: self.parameters, size: self.size, object, top })
    }

    /// The object's size with `run`, if that may follow.
    fn check(&self, run: &Run) -> Result<u64, DecodeError> {
        if let Some(last) = &self.run {
            check_len(self.parameters.allows(last.len, false))?;
            if last.hash == run.hash && last.len != run.len {
                return Err(invalid("chunk length", "differs for one hash"));
            }
        }
        check_len(run.repeat > 0 && self.parameters.allows(run.len, run.repeat == 1))?;
        let size = run.repeat.checked_mul(run.len.into()).and_then(|bytes| bytes.checked_add(self.size));
        let found = size.unwrap_or(u64::MAX);
        if found > MAX_SIZE {
            return Err(DecodeError::TooLarge { field: "object size", found, limit: MAX_SIZE });
        }
        Ok(found)
    }

    fn add_run(&mut self, run: Run) -> Result<(), BuildError<E>> {
        if let Some(RecipeLevel { open: Entries::Runs(runs), .. }) = self.levels.first_mut() {
            runs.push(run);
        }
        self.close_if_complete(0)
    }

    fn add_child(&mut self, level: usize, child: Child) -> Result<(), BuildError<E>> {
        match self.levels.get_mut(level) {
            Some(RecipeLevel { open: Entries::Children(children), .. }) => children.push(child),
            _ => self.levels.push(RecipeLevel { open: Entries::Children(vec![child]), is_split: false }),
        }
        self.close_if_complete(level)
    }

    fn close_if_complete(&mut self, level: usize) -> Result<(), BuildError<E>> {
        if self.levels[level].open.are_complete() { self.close(level) } else { Ok(()) }
    }

    /// Closes the open node of `level`, of which there will be more than one.
    fn close(&mut self, level: usize) -> Result<(), BuildError<E>> {
        let child = self.send(level)?;
        self.levels[level].is_split = true;
        self.add_child(level + 1, child)
    }

    /// Sends out the open node of `level`.
    fn send(&mut self, level: usize) -> Result<Child, BuildError<E>> {
        let node = RecipeNode::new(level as u8, self.levels[level].take()).map_err(BuildError::Refused)?;
        let bytes = node.to_bytes();
        let child = node.as_child(&bytes);
        (self.emit)(child.hash, bytes).map_err(BuildError::Emit)?;
        Ok(child)
    }

    /// Closes what is open, level by level, up to the one that has a single node.
    fn close_all(&mut self) -> Result<NodeHash, BuildError<E>> {
        let mut level = 0;
        while self.levels[level].is_split {
            if !self.levels[level].open.is_empty() {
                self.close(level)?;
            }
            level += 1;
        }
        match self.levels[level].only_child() {
            Some(top) => Ok(top),
            None => self.send(level).map(|top| top.hash),
        }
    }
}

const fn check_len(is_allowed: bool) -> Result<(), DecodeError> {
    if is_allowed {
        return Ok(());
    }
    Err(invalid("chunk length", "is none that the parameters allow here"))
}
