//! Recipes as their makers claim them: the chunks that make up an object, and the check of a recipe
//! while its parts come. Pure.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use thiserror::Error;
use towpath_content::chunking::{self, MAX_CHUNK_LEN};
use towpath_content::recipe::{self, NodeHash, RecipeError, RecipeRoot, RecipeWalk};
use towpath_content::{DecodeError, Oid};

use crate::source::RecipePart;
use crate::source_id::SourceId;
use crate::want::WantId;

/// The most chunks of a recipe that is used, twice what most objects have at most: chunks grow with
/// the object. Only content that is made for it has more.
pub const MAX_CHUNKS: usize = 2 * chunking::MAX_CHUNKS as usize;

/// A chunk of a recipe, with its place in the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeChunk {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// Its bytes.
    pub len: u32,
    /// Begin in the object.
    pub offset: u64,
}

impl RecipeChunk {
    /// A want for it.
    pub const fn id(&self) -> WantId {
        WantId::Chunk { hash: self.hash, len: self.len }
    }
}

/// A claim of how an object is built from chunks, and who made it.
#[derive(Debug, Clone)]
pub struct RecipeClaim {
    /// The chunks, in order and without gaps.
    pub chunks: Vec<RecipeChunk>,
    /// Maker, to blame if they do not make up the object.
    pub maker: SourceId,
}

impl RecipeClaim {
    /// One chunk that is all of an object of `size` bytes, by its name: nobody has to claim that. None if no chunk is so long.
    pub fn whole(oid: &Oid, size: u64) -> Option<Self> {
        let (hash, len) = (*oid.digest(), u32::try_from(size).ok().filter(|len| *len <= MAX_CHUNK_LEN)?);
        let chunks = vec![RecipeChunk { hash, len, offset: 0 }];
        (!oid.is_live()).then(|| Self { chunks, maker: SourceId::this_machine() })
    }

    /// True if it is one chunk that is all of the object.
    pub fn is_whole(&self, oid: &Oid) -> bool {
        matches!(&self.chunks[..], [chunk] if chunk.id().is_chunk_of_all(oid))
    }

    /// True if the chunks could make up an object of `size` bytes: without gaps, none empty, none
    /// longer than any chunk may be.
    pub fn builds(&self, size: u64) -> bool {
        let mut end = 0;
        for chunk in &self.chunks {
            if chunk.offset != end || chunk.len == 0 || chunk.len > MAX_CHUNK_LEN {
                return false;
            }
            end += u64::from(chunk.len);
        }
        end == size
    }
}

/// Reason why a recipe is not used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongRecipe {
    /// The root is missing, malformed or comes twice.
    #[error("sent a recipe without a valid root")]
    Root(#[source] Option<DecodeError>),
    /// It is the recipe of something else.
    #[error("sent the recipe of another object")]
    OtherObject,
    /// A node is not the one that comes next.
    #[error("sent a wrong recipe: {0}")]
    Node(#[from] RecipeError<Infallible>),
    /// It has more than [`MAX_CHUNKS`].
    #[error("sent a recipe of more than {MAX_CHUNKS} chunks")]
    TooManyChunks,
    /// Nodes are missing at its end.
    #[error("sent only part of a recipe")]
    Incomplete,
    /// Something follows its end, or comes with nothing in it.
    #[error("sent what does not belong to the recipe")]
    Surplus,
}

impl WrongRecipe {
    /// True if its maker is to blame.
    pub const fn blames_maker(&self) -> bool {
        !matches!(self, Self::TooManyChunks)
    }
}

/// Reads the recipe of one object from its parts, and checks each node as it comes. Holds the
/// chunks so far and the nodes on the way down to the current one.
pub struct RecipeReader {
    oid: Oid,
    size: u64,
    reading: Option<ClaimReading>,
    chunks: Vec<RecipeChunk>,
    is_whole: bool,
}

type Lookup = Box<dyn FnMut(&NodeHash) -> Result<Option<Vec<u8>>, Infallible> + Send>;

struct ClaimReading {
    maker: SourceId,
    walk: RecipeWalk<Lookup>,
    /// Nodes that the walk looks up: whatever it needs next must come next.
    nodes: Arc<Mutex<VecDeque<Bytes>>>,
}

impl RecipeReader {
    /// Nothing has come yet of the recipe of `oid`, which has `size` bytes.
    pub const fn new(oid: Oid, size: u64) -> Self {
        Self { oid, size, reading: None, chunks: Vec::new(), is_whole: false }
    }

    /// Takes the next part.
    pub fn take(&mut self, part: RecipePart) -> Result<(), WrongRecipe> {
        let RecipePart { maker, root, nodes } = part;
        match (root, &self.reading) {
            (Some(root), None) => self.reading = Some(self.begin(maker, &root)?),
            (None, Some(_)) if nodes.is_empty() => return Err(WrongRecipe::Surplus),
            (None, Some(_)) => {}
            (Some(_), Some(_)) | (None, None) => return Err(WrongRecipe::Root(None)),
        }
        nodes.into_iter().try_for_each(|node| self.node(node))
    }

    fn begin(&self, maker: SourceId, root: &[u8]) -> Result<ClaimReading, WrongRecipe> {
        let root = RecipeRoot::from_bytes(root).map_err(|why| WrongRecipe::Root(Some(why)))?;
        if (root.object, root.size) != (self.oid, self.size) {
            return Err(WrongRecipe::OtherObject);
        }
        let nodes = Arc::new(Mutex::new(VecDeque::new()));
        let source = Arc::clone(&nodes);
        let next = move || source.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let lookup: Lookup = Box::new(move |_| Ok(next().map(Vec::from)));
        Ok(ClaimReading { maker, walk: recipe::walk(&root, lookup), nodes })
    }

    fn node(&mut self, node: Bytes) -> Result<(), WrongRecipe> {
        let Some(reading) = self.reading.as_mut().filter(|_| !self.is_whole) else {
            return Err(WrongRecipe::Surplus);
        };
        reading.nodes.lock().unwrap_or_else(PoisonError::into_inner).push_back(node);
        loop {
            let extent = match reading.walk.next() {
                Some(Ok(extent)) => extent,
                Some(Err(RecipeError::Missing(_))) => return Ok(()),
                Some(Err(why)) => return Err(why.into()),
                None => break,
            };
            // A run may claim any number of repeats.
            if extent.run.repeat > (MAX_CHUNKS - self.chunks.len()) as u64 {
                return Err(WrongRecipe::TooManyChunks);
            }
            self.chunks.extend(extent.descriptors().map(|chunk| RecipeChunk {
                hash: chunk.hash.0,
                len: chunk.len,
                offset: chunk.offset,
            }));
        }
        self.is_whole = true;
        Ok(())
    }

    /// No further part comes. Returns the recipe, if there was one.
    pub fn finish(self) -> Result<Option<RecipeClaim>, WrongRecipe> {
        match (self.reading, self.is_whole) {
            (None, _) => Ok(None),
            (Some(_), false) => Err(WrongRecipe::Incomplete),
            (Some(reading), true) => Ok(Some(RecipeClaim { chunks: self.chunks, maker: reading.maker })),
        }
    }

    /// Source that sent it, as far as anything has come.
    pub fn maker(&self) -> Option<&SourceId> {
        self.reading.as_ref().map(|reading| &reading.maker)
    }
}

#[cfg(test)]
mod tests;
