//! Makes the `.tow` of a file: reads it once, and writes down what others need to fetch it from a plain web server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::path::Path;

use towpath_content::Oid;
use towpath_content::chunking::Parameters;
use towpath_content::delta::blocks::{BlockShape, BlockSummer};
use towpath_content::published::{PublishedHead, SectionKind, TowSection, recipe_to_bytes, values_to_bytes};
use towpath_content::recipe::{self, Descriptor, NodeHash, RecipeBuilder, RecipeRoot};
use towpath_store::{About, StoreError, cut_and_hash_open_file};

/// Smaller files have neither recipe nor sums of blocks: they would hardly save what they take.
const LEAST_FOR_HELP: u64 = 256 << 10;

/// The `.tow` of a file, and what is in it.
#[derive(Debug)]
pub struct PublishedFile {
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// Its head.
    pub head: PublishedHead,
}

/// Describes the open file at `path`; `about` is what people call it, `places` are URLs that it can be fetched from.
///
/// A file that changes meanwhile is an error.
pub fn publish(
    file: &File,
    path: &Path,
    about: About,
    places: Vec<String>,
) -> Result<PublishedFile, StoreError> {
    let failed = |source| StoreError::Io { what: format!("read {}", path.display()), source };
    let size = file.metadata().map_err(failed)?.len();
    let parameters = Parameters::for_size(size).unwrap_or(Parameters::Given);
    let mut chunks: Vec<Descriptor> = Vec::new();
    let (large, small) = BlockShape::for_size(size);
    let mut blocks = (BlockSummer::new(large), BlockSummer::new(small));
    let hashed = cut_and_hash_open_file(file, path, &parameters, &mut |cut, bytes| {
        chunks.extend_from_slice(cut);
        rayon::join(|| blocks.0.add(bytes), || blocks.1.add(bytes));
        Ok(())
    })?;
    let mut sections = Vec::new();
    if let Some(values) = &hashed.values {
        sections.push((SectionKind::Values, values_to_bytes(values)));
    }
    let has_help = size >= LEAST_FOR_HELP;
    if has_help {
        // In front of what is needed less often: it comes with the first question.
        sections.push((SectionKind::LargeBlocks, blocks.0.finish()));
    }
    if let Some(recipe) = has_help.then(|| recipe_section(&hashed.oid, parameters, &chunks)).flatten() {
        sections.push((SectionKind::Recipe, recipe));
    }
    if has_help {
        sections.push((SectionKind::SmallBlocks, blocks.1.finish()));
    }
    let described = sections.iter().map(|(kind, bytes)| TowSection::of(*kind, bytes)).collect();
    let About { name, mode, modified, .. } = about;
    let (oid, size) = (hashed.oid, hashed.stamp.size);
    let head = PublishedHead { oid, size, name, mode, modified, places, sections: described };
    let mut bytes = head.to_bytes();
    sections.iter().for_each(|(_, section)| bytes.extend_from_slice(section));
    Ok(PublishedFile { bytes, head })
}

/// The recipe's root and its nodes as a reader looks them up, repeated ones included.
fn recipe_section(oid: &Oid, parameters: Parameters, chunks: &[Descriptor]) -> Option<Vec<u8>> {
    let mut made: HashMap<NodeHash, Vec<u8>> = HashMap::new();
    let keep = |hash, bytes| {
        made.insert(hash, bytes);
        Ok::<_, Infallible>(())
    };
    let mut builder = RecipeBuilder::new(parameters, keep).ok()?;
    chunks.iter().try_for_each(|chunk| builder.push(chunk.hash, chunk.len)).ok()?;
    let root: RecipeRoot = builder.finish(*oid).ok()?;
    let mut nodes = Vec::new();
    let lookup = |hash: &NodeHash| {
        let node = made.get(hash).cloned();
        nodes.extend(node.clone());
        Ok::<_, Infallible>(node)
    };
    recipe::walk(&root, lookup).all(|extent| extent.is_ok()).then_some(())?;
    Some(recipe_to_bytes(&root.to_bytes(), &nodes))
}
