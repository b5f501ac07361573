//! Recipes: how to build an object from chunks, as a tree of hashes.
//!
//! A [`RecipeRoot`] names the object, the chunker's parameters and the top [`RecipeNode`]; leaves hold the
//! chunks' hashes and lengths in order, inner nodes hold their children's hashes and sums. Nodes
//! are cut by their content, so the shape depends on the sequence of chunks alone, two similar
//! objects share most nodes, and offsets are sums that no insertion rewrites. Layout, rules and
//! limits: `docs/formats/recipe.md`.
//!
//! | part | story |
//! |---|---|
//! | [`RecipeRoot`], [`RecipeNode`] | the two encodings |
//! | [`RecipeBuilder`] | chunks in, finished nodes out |
//! | [`walk`], [`seek`] | the chunks in order, with offsets, from any place |
//! | [`verify`] | whether the tree is the one that the builder makes |
//! | [`difference`] | what a new object has that an old one lacks |
//! | `shape` | the rule that closes nodes |
//! | `cursor` | the state of a walk: the subtrees still to be read |
//! | `fetch` | looks a node up and checks it against its place |
//!
//! A recipe is a *claim by its maker*. What is checked here is that nodes have the hashes asked
//! for and that the tree is well made; whether the chunks build the object is known only when
//! chunks are checked against their hashes and the object against its OID. A mismatch there
//! discards the bytes and blames the recipe's maker, not the source of the chunks.
//!
//! Memory: building and walking hold one open node of at most [`MAX_NODE_LEN`] bytes for each of
//! at most 10 levels, whatever the size; the difference is bounded by its caller. Time is
//! proportional to the size that a recipe claims, not to its nodes' bytes, since nodes and
//! chunks may repeat: compare [`RecipeRoot::size`] with what is acceptable first.

mod builder;
mod cursor;
mod difference;
mod error;
mod fetch;
mod hash;
mod node;
mod root;
mod shape;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
mod walk;

pub use builder::{BuildError, RecipeBuilder};
pub use difference::{DEFAULT_LIMIT, RecipeDifference, difference};
pub use error::RecipeError;
pub use hash::NodeHash;
pub use node::{Child, Entries, MAX_LEVEL, MAX_NODE_LEN, RecipeNode, Run};
pub use root::{MAX_ROOT_LEN, RecipeRoot};
pub use shape::{MAX_ENTRIES, MIN_ENTRIES};
pub use walk::{Descriptor, Extent, RecipeWalk, seek, verify, walk};

/// The version of roots and nodes that is written here, and the only one read.
pub const VERSION: u8 = 1;
/// The greatest size of an object, 16 TiB, as for pieces; part of the format.
pub const MAX_SIZE: u64 = 1 << 44;
