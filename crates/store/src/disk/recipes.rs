//! Recipes of objects on a disk: made when they are asked for, and kept in files of their own.
//!
//! One that was *made* can be made again: its file is not synced, and goes when there are too many of
//! them, unused longest first. One whose boundaries were *given* cannot: it is synced before its
//! object is committed, and stays as long as that. Both are checked when they are opened, and each node when
//! it is read; a damaged file is removed. Layout: `docs/formats/index.md`.
//!
//! Objects of up to 1 MiB are cut anew each time: that costs less than a file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use towpath_content::Oid;
use towpath_content::chunking::Parameters;
use towpath_content::lock::lock;
use towpath_content::pieces::Layout;
use towpath_content::recipe::{MAX_NODE_LEN, MAX_ROOT_LEN, NodeHash, RecipeRoot, verify};

use super::cache::{Cached, choose};
use super::folders::{self, Temporary};
use super::made_recipes::{MADE_LIMIT, MadeRecipes};
use super::source::OpenedBytes;
use super::sources::SourceFiles;
use super::store_core::StoreCore;
use crate::cutting::{Take, cut_file, hash_given};
use crate::error::StoreError;
use crate::hashing::{TOO_LARGE, append_range};
use crate::recipes::{Cuts, InMemory, failure_of, make};
use crate::seam::RecipeNodes;

/// Objects up to this size are cut anew whenever their recipe is asked for.
const SMALL: u64 = 1 << 20;
/// The version of the files.
const VERSION: u8 = 1;
/// Bytes of the last part of a file: version, length of the root, number of nodes.
const FOOTER: usize = 6;
/// Bytes of an entry of the table of nodes: name and length.
const ENTRY: usize = 34;
/// Most nodes that a file is believed to have: those of 2^24 chunks.
const MAX_NODES: usize = 1 << 20;

/// The recipes of a store.
pub struct Recipes {
    core: Arc<StoreCore>,
    sources: Arc<SourceFiles>,
    pub(super) made: MadeRecipes,
}

impl Recipes {
    /// Those of the store with this core.
    pub(super) fn new(core: Arc<StoreCore>, sources: Arc<SourceFiles>) -> Self {
        Self { core, sources, made: MadeRecipes::default() }
    }

    /// The recipe of a content: kept, or made now.
    pub(super) fn find(&self, content: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        let size = self.core.known(content)?.ok_or(StoreError::NotHere)?.size;
        if let Some(given) = kept(&self.core.folders.given_recipe(content), content, Parameters::Given)? {
            return Ok(Arc::new(given));
        }
        let parameters = Parameters::for_size(size).ok_or(StoreError::NotHere)?;
        if size <= SMALL {
            let attempt = |source: &Arc<OpenedBytes>| {
                InMemory::make(content, parameters, |take| self.cut_source(source, parameters, take))
            };
            return Ok(Arc::new(self.sources.with(content, attempt)?));
        }
        Ok(Arc::new(self.made(content, parameters)?))
    }

    /// The recipe on the disk, or one that is made now; two who ask at once make it once.
    fn made(&self, oid: &Oid, parameters: Parameters) -> Result<KeptRecipe, StoreError> {
        let (path, turn) = (self.core.folders.made_recipe(oid), self.made.turn(oid));
        let _turn = lock(&turn);
        if let Some(kept) = kept(&path, oid, parameters)? {
            return Ok(kept);
        }
        let temporary = self.sources.with(oid, |source| {
            self.write_recipe(oid, parameters, |take| self.cut_source(source, parameters, take))
        })?;
        temporary.place(&path)?;
        let file = temporary.file().try_clone();
        let made = file.and_then(|file| KeptRecipe::open(file, &path));
        let made = made.map_err(|error| StoreError::io("reading", &path, error))?;
        self.made.grow(made.len, || self.evict())?;
        Ok(made)
    }

    /// Keeps the recipe of an object with given boundaries, whose bytes are still in `incoming`. While
    /// what is returned lives, nobody takes it for the recipe of an object that is gone.
    pub(super) fn keep_given(
        &self,
        oid: &Oid,
        lengths: &[u32],
        incoming: &Temporary,
    ) -> Result<Temporary, StoreError> {
        let cut = |take: &mut Take<'_>| {
            let reading = |error| StoreError::io("reading", incoming.path(), error);
            hash_given(incoming.file(), lengths, take).map_err(|error| failure_of(error, reading))
        };
        let temporary = self.write_recipe(oid, Parameters::Given, cut)?;
        self.publish_given(oid, &temporary)?;
        Ok(temporary)
    }

    /// Says where the chunks of a complete object end, as [`crate::Store::put_boundary`] does of one that is being
    /// put: after each of the first `ends` bytes, ascending. It takes the place of what was said before.
    /// The object is read once. Ends behind its own say nothing, and too many are left out.
    pub fn give_boundaries(&self, oid: &Oid, ends: &[u64]) -> Result<(), StoreError> {
        let size = self.core.known(oid)?.ok_or(StoreError::NotHere)?.size;
        let mut cuts = Cuts::default();
        ends.iter().filter(|end| **end <= size).for_each(|end| cuts.add(*end));
        let Some(lengths) = cuts.lengths(size) else { return Ok(()) };
        let temporary = self.sources.with(oid, |source| {
            self.write_recipe(oid, Parameters::Given, |take| {
                let file = source.whole_file(&self.core)?;
                let cut = hash_given(file.file(), &lengths, take);
                cut.map_err(|error| failure_of(error, |error| source.origin.explain(error)))?;
                source.check()
            })
        })?;
        self.publish_given(oid, &temporary)
    }

    fn publish_given(&self, oid: &Oid, temporary: &Temporary) -> Result<(), StoreError> {
        let size = temporary.file().metadata().map(|found| found.len());
        temporary.sync(size.map_err(|error| StoreError::io("looking at", temporary.path(), error))?)?;
        temporary.publish(&self.core.folders.given_recipe(oid))
    }

    fn write_recipe(
        &self,
        oid: &Oid,
        parameters: Parameters,
        cut: impl FnOnce(&mut Take<'_>) -> Result<(), StoreError>,
    ) -> Result<Temporary, StoreError> {
        let temporary = self.core.folders.temporary()?;
        let (mut at, mut table) = (0, RecipeTable::default());
        let keep = |hash, bytes: Vec<u8>| {
            if table.add(hash, bytes.len()) {
                temporary.write(at, &bytes)?;
                at += bytes.len() as u64;
            }
            Ok(())
        };
        let root = make(oid, parameters, keep, cut)?;
        temporary.write(at, &table.finish(&root))?;
        Ok(temporary)
    }

    /// Cuts an object. One that is in the byte store is fetched for that, unless it is too large.
    fn cut_source(
        &self,
        source: &OpenedBytes,
        parameters: Parameters,
        take: &mut Take<'_>,
    ) -> Result<(), StoreError> {
        if source.spool_limit().is_some_and(|limit| source.size() > limit) {
            return Err(StoreError::NotHere);
        }
        let layout = Layout::of(source.size()).map_err(|_| TOO_LARGE)?;
        let cutter = parameters.cutter().map_err(|_| StoreError::NotHere)?;
        let file = source.whole_file(&self.core)?;
        let cut = cut_file(file.file(), &layout, &cutter, None, &mut |chunks, _| take(chunks));
        cut.map_err(|error| failure_of(error, |error| source.origin.explain(error)))?;
        source.check()
    }

    /// Evicts recipes that were made, beyond what is kept of them.
    pub(super) fn evict_made(&self) -> Result<(), StoreError> {
        *lock(&self.made.bytes) = Some(self.evict()?);
        Ok(())
    }

    fn evict(&self) -> Result<u64, StoreError> {
        evict(self.core.folders.made_recipes(), MADE_LIMIT)
    }
}

/// The end of a recipe's file, while the nodes before it are written.
#[derive(Debug, Default)]
pub(super) struct RecipeTable {
    lengths: HashMap<NodeHash, u16>,
    bytes: Vec<u8>,
}

impl RecipeTable {
    /// Notes the next node; false if it is there already.
    pub(super) fn add(&mut self, hash: NodeHash, len: usize) -> bool {
        let is_new = self.lengths.insert(hash, len as u16).is_none();
        if is_new {
            self.bytes.extend_from_slice(&hash.0);
            self.bytes.extend_from_slice(&(len as u16).to_le_bytes());
        }
        is_new
    }

    pub(super) fn finish(self, root: &RecipeRoot) -> Vec<u8> {
        let (mut bytes, root) = (self.bytes, root.to_bytes());
        bytes.extend_from_slice(&root);
        bytes.extend_from_slice(&(self.lengths.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[root.len() as u8, VERSION]);
        bytes
    }
}

/// A recipe in a file of its own.
#[derive(Debug)]
pub(super) struct KeptRecipe {
    file: File,
    path: PathBuf,
    /// Bytes of the file.
    len: u64,
    pub(super) root: RecipeRoot,
    /// Position of each node, and its length.
    nodes: HashMap<NodeHash, (u64, u16)>,
}

/// The recipe in the file at `path`, if there is one that is whole and as expected; another is removed.
fn kept(path: &Path, oid: &Oid, parameters: Parameters) -> Result<Option<KeptRecipe>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("opening", path, error)),
    };
    // The time of its last use; failing to note it is no reason not to use it.
    let _ = file.set_modified(SystemTime::now());
    match KeptRecipe::open(file, path).and_then(KeptRecipe::checked) {
        Ok(kept) if kept.root.object == *oid && kept.root.parameters == parameters => return Ok(Some(kept)),
        Ok(_) => tracing::debug!(path = %path.display(), "removing a recipe of another kind"),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            tracing::warn!(path = %path.display(), %error, "removing a damaged recipe");
        }
        Err(error) => return Err(StoreError::io("reading", path, error)),
    }
    folders::remove(path).map(|()| None)
}

impl KeptRecipe {
    /// Reads the end of the file, which says where the nodes are.
    pub(super) fn open(file: File, path: &Path) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let footer = read(&file, before(len, FOOTER)?, FOOTER)?;
        let (count, root_len) = match footer[..] {
            [a, b, c, d, root_len, VERSION] => {
                (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(root_len))
            }
            _ => return Err(damaged("it does not end as a recipe does")),
        };
        if count > MAX_NODES || root_len > MAX_ROOT_LEN {
            return Err(damaged("its end speaks of too much"));
        }
        let root_at = before(len, FOOTER + root_len)?;
        let root = RecipeRoot::from_bytes(&read(&file, root_at, root_len)?)
            .map_err(|_| damaged("its root is none"))?;
        let table_at = before(root_at, count * ENTRY)?;
        let (mut nodes, mut at) = (HashMap::with_capacity(count), 0);
        for entry in read(&file, table_at, count * ENTRY)?.as_chunks::<ENTRY>().0 {
            let [hash @ .., low, high] = *entry;
            let len = u16::from_le_bytes([low, high]);
            nodes.insert(NodeHash(hash), (at, len));
            at += u64::from(len);
        }
        if at != table_at {
            return Err(damaged("its nodes do not have the lengths that its end speaks of"));
        }
        Ok(Self { file, path: path.into(), len, root, nodes })
    }

    /// Reads all nodes once.
    pub(super) fn checked(self) -> io::Result<Self> {
        let checked = verify(&self.root, |hash| self.read_node(hash));
        checked.map(|_| self).map_err(|_| damaged("its nodes make no recipe"))
    }

    fn read_node(&self, hash: &NodeHash) -> io::Result<Option<Vec<u8>>> {
        let Some((at, len)) = self.nodes.get(hash).copied() else {
            return Ok(None);
        };
        if usize::from(len) > MAX_NODE_LEN {
            return Err(damaged("a node is too long"));
        }
        let bytes = read(&self.file, at, len.into())?;
        if NodeHash::of(&bytes) == *hash {
            Ok(Some(bytes))
        } else {
            Err(damaged("a node is not as it was written"))
        }
    }
}

impl RecipeNodes for KeptRecipe {
    fn root(&self) -> &RecipeRoot {
        &self.root
    }

    fn node(&self, hash: &NodeHash) -> io::Result<Option<Vec<u8>>> {
        self.read_node(hash).inspect_err(|error| {
            tracing::warn!(path = %self.path.display(), %error, "removing a damaged recipe");
            // If it stays it is found damaged once more.
            let _ = folders::remove(&self.path);
        })
    }
}

fn read(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    append_range(file, at..at + len as u64, &mut bytes).map(|()| bytes)
}

/// The place `len` bytes before `end`.
fn before(end: u64, len: usize) -> io::Result<u64> {
    end.checked_sub(len as u64).ok_or_else(|| damaged("it is too short"))
}

fn damaged(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Removes the files in `folder` that were unused longest, until the rest has at most `limit` bytes;
/// returns how many it has.
pub(super) fn evict(folder: &Path, limit: u64) -> Result<u64, StoreError> {
    let failed = |error| StoreError::io("listing", folder, error);
    let (mut paths, mut files) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // One that is gone meanwhile weighs nothing.
        let Ok(found) = entry.metadata() else { continue };
        let used = found.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let used = used.map_or(0, |used| used.as_nanos() as u64);
        files.push(Cached { key: paths.len(), used, weight: found.len(), is_busy: false });
        paths.push(entry.path());
    }
    let total: u64 = files.iter().map(|file| file.weight).sum();
    let weights: Vec<_> = files.iter().map(|file| file.weight).collect();
    let mut left = total;
    for victim in choose(files, limit) {
        folders::remove(&paths[victim])?;
        left -= weights[victim];
    }
    Ok(left)
}
