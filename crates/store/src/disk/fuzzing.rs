//! Doors for the fuzz targets in `fuzz/`: files of a store that something damaged. Nothing else asks for the feature
//! `fuzzing`.

use std::fs::File;
use std::path::Path;

use towpath_content::recipe::{NodeHash, RecipeRoot};

use super::chunk_index::fuzzing;
use super::recipes::{KeptRecipe, RecipeTable};

pub use fuzzing::{chunk_entries, encode_entries};

/// The file of a recipe with these nodes.
pub fn write_recipe(root: &RecipeRoot, nodes: &[Vec<u8>]) -> Vec<u8> {
    let (mut bytes, mut table) = (Vec::new(), RecipeTable::default());
    for node in nodes {
        if table.add(NodeHash::of(node), node.len()) {
            bytes.extend_from_slice(node);
        }
    }
    bytes.extend(table.finish(root));
    bytes
}

/// The recipe in a file, if all of it is as it should be.
pub fn read_recipe(file: File) -> Option<RecipeRoot> {
    KeptRecipe::open(file, Path::new("a recipe")).and_then(KeptRecipe::checked).ok().map(|kept| kept.root)
}
