//! The sources of a copy, read as one tree.
//!
//! ```text
//!   root (stands for the destination, has no metadata of its own)
//!   ├── a            `tow cp /x/a /y/b DEST`: each source under its own name,
//!   └── b            sorted, with all that is in it
//! ```
//!
//! Entries are sent as they are read, in the order of a tree descriptor; files come with the way back to them.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_api::copy::CopyOptions;
use towpath_content::tree::{Entry, Event, Kind, Metadata};
use towpath_files::filter::{Filter, FilterBelow, FilterSide, RuleList};
use towpath_files::{
    FileError, Found, HardLinks, Prune, RelPath, ScanError, ScanOptions, Scanned, SourceTree, Stamp, look,
};

use super::file_result::FileResult;
use crate::error::{CopyError, LeftOut, RequestFault};

/// Position of a file's bytes.
#[derive(Debug, Clone)]
pub struct Located {
    tree: Arc<SourceTree>,
    base: Arc<Path>,
    /// Below the tree's root.
    path: RelPath,
    /// Stamp of what it looked like when the scan saw it.
    pub stamp: Stamp,
    /// Number of its names.
    pub links: u64,
    /// It takes less room than it has bytes.
    pub is_sparse: bool,
}

impl Located {
    /// A file that a scan of `tree` found at `path`.
    fn of((tree, base): (&Arc<SourceTree>, &Arc<Path>), path: RelPath, found: &Found) -> Self {
        let (tree, base) = (Arc::clone(tree), Arc::clone(base));
        Self { tree, base, path, stamp: found.stamp, links: found.links, is_sparse: found.looks_sparse }
    }

    /// Opens it, if it is still the file that was seen.
    pub fn open(&self) -> Result<std::fs::File, FileError> {
        self.tree.open_file(&self.path, &self.stamp)
    }

    /// Its path, absolute and without symbolic links.
    pub fn whole_path(&self) -> PathBuf {
        self.path.below(&self.base)
    }

    /// True if it is superfluous here once it has had its result over there.
    pub fn may_go(&self, result: &FileResult) -> bool {
        match result {
            FileResult::Placed => true,
            FileResult::Dropped | FileResult::Lost => false,
            // The same file under both names; its device may have another number over there.
            FileResult::Unchanged(there) => {
                (there.inode, there.changed) != (self.stamp.inode, self.stamp.changed)
            }
        }
    }

    /// Removes it, if it is still what was seen.
    pub fn remove(&self) -> Result<(), FileError> {
        self.tree.remove_file(&self.path, &self.stamp)
    }
}

/// A step of reading the sources.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Nearly all steps are of the large kind.
pub enum SourceStep {
    /// A step of the walk; a file's OID is not known. What can be removed or read comes with the
    /// way to it.
    Walk(Event, Option<Located>),
    /// Something could not be read and is left out: what stands there at the destination is to be
    /// left alone.
    Failed {
        /// Its path as a person knows it.
        path: PathBuf,
        /// Error of it.
        error: FileError,
        /// The person named it. Then it never was there; else it may have vanished since its directory was read.
        is_named: bool,
    },
    /// The directory that comes next is another file system, and its content does not come.
    Closed,
    /// A directory that is not entered.
    Skipped {
        /// Its path as a person knows it.
        path: PathBuf,
        /// Reason.
        why: LeftOut,
    },
}

/// All sources of a copy.
pub struct Sources {
    roots: Vec<SourceRoot>,
    /// Sources that could not be looked at; reported when the others are read.
    missing: Vec<(PathBuf, FileError)>,
    scan: ScanOptions,
    options: CopyOptions,
    /// A directory that is not to be copied into itself.
    avoid: Option<PathBuf>,
}

/// One source.
struct SourceRoot {
    /// As the person wrote it.
    path: PathBuf,
    /// The name it has in the tree.
    name: Vec<u8>,
    found: Found,
    /// Path that it is filtered as: below the transfer's root, under its own name or (a directory
    /// whose contents are copied) under none.
    shown: RelPath,
}

impl Sources {
    /// Destination of the copy itself below the directory `base`, if it is there.
    fn avoided_below(&self, base: &Path) -> Option<RelPath> {
        let below = self.avoid.as_ref()?.strip_prefix(base).ok()?;
        RelPath::new(below.iter().map(OsStr::as_bytes)).ok().filter(|path| !path.is_root())
    }

    /// Looks at the sources. `contents`: a trailing slash means what is in a directory, as for
    /// rsync; then the transfer's root is inside it.
    pub fn open(paths: &[PathBuf], contents: bool, options: &CopyOptions) -> Result<Self, CopyError> {
        let preserve = &options.preserve;
        let scan = ScanOptions {
            one_file_system: options.one_file_system,
            follow_links: options.copy_links,
            xattrs: preserve.xattrs,
            acls: preserve.acls,
            owner_names: (preserve.owner || preserve.group) && !preserve.numeric_ids,
            hard_links: preserve.hard_links,
            files: false,
            ..ScanOptions::default()
        };
        let mut roots = Vec::new();
        let mut missing = Vec::new();
        for path in paths {
            match SourceRoot::look(path, contents, &scan) {
                Ok(root) => roots.push(root),
                Err(error) => missing.push((path.clone(), error)),
            }
        }
        if roots.is_empty() && !missing.is_empty() {
            return Err(CopyError::source(missing.swap_remove(0).1));
        }
        roots.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(same) = roots.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(RequestFault::SameName(same[0].name.clone()).into());
        }
        Ok(Self { roots, missing, scan, options: options.clone(), avoid: None })
    }

    /// Leaves this directory (absolute, without symbolic links) out, should it lie in a source: it
    /// is where the copy goes.
    #[must_use]
    pub fn avoiding(self, directory: Option<PathBuf>) -> Self {
        Self { avoid: directory, ..self }
    }

    /// Reads everything, in order.
    pub fn read(
        &mut self,
        each: &mut dyn FnMut(SourceStep) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        for (path, error) in std::mem::take(&mut self.missing) {
            each(SourceStep::Failed { path, error, is_named: true })?;
        }
        let rules = RuleList::from_lines(&self.options.filters)
            .map_err(|error| RequestFault::Filter(FilterSide::Sender, error.to_string()))?;
        let mut filter = Filter::new(rules, FilterSide::Sender, self.options.delete_excluded);
        let mut links = if self.options.copy_links { HardLinks::following() } else { HardLinks::default() };
        each(SourceStep::Walk(Event::Enter(nameless()), None))?;
        for root in &self.roots {
            let mut reader =
                SourceReader { root, sources: self, filter: &mut filter, links: &mut links, each };
            match &self.options.files_from {
                Some(listed) => reader.listed(listed)?,
                None => reader.all()?,
            }
        }
        each(SourceStep::Walk(Event::Leave, None))
    }
}

/// The root of the tree.
fn nameless() -> Entry {
    Entry { name: Vec::new(), kind: Kind::Directory, metadata: Metadata::default(), hard_link: None }
}

impl SourceRoot {
    fn look(path: &Path, contents: bool, scan: &ScanOptions) -> Result<Self, FileError> {
        let has_slash = path.as_os_str().as_bytes().ends_with(b"/") || path.file_name().is_none();
        let found = look(path, scan)?;
        let is_dir = found.entry.kind == Kind::Directory;
        // `.`, `..` and `/` have no name of their own.
        let name = match path.file_name() {
            Some(name) => name.to_owned(),
            None => {
                let whole = path.canonicalize().map_err(|e| FileError::new("open", path, e))?;
                whole.file_name().unwrap_or(OsStr::new("root")).to_owned()
            }
        };
        let name = name.as_bytes().to_vec();
        let shown = if is_dir && has_slash && contents { RelPath::root() } else { RelPath::new([&name])? };
        Ok(Self { path: path.into(), name, found, shown })
    }

    fn is_dir(&self) -> bool {
        self.found.entry.kind == Kind::Directory
    }
}

/// Reads one source.
struct SourceReader<'a> {
    root: &'a SourceRoot,
    sources: &'a Sources,
    filter: &'a mut Filter,
    links: &'a mut HardLinks,
    each: &'a mut dyn FnMut(SourceStep) -> Result<(), CopyError>,
}

/// A filter that is asked below the transfer's root, and what is not entered besides.
struct Below<'f> {
    rules: FilterBelow<'f>,
    recursive: bool,
    /// See [`Sources::avoiding`], below the held root.
    avoid: Option<RelPath>,
    /// Directories that were not entered, and why.
    skipped: Vec<(RelPath, LeftOut)>,
}

impl Prune for Below<'_> {
    fn enter(&mut self, dir: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError> {
        self.rules.enter(dir, path)
    }

    fn leave(&mut self) {
        self.rules.leave();
    }

    fn shows(&mut self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        if !self.rules.shows(dir, name, is_dir) {
            return false;
        }
        if !is_dir || self.recursive && self.avoid.is_none() {
            return true;
        }
        // Entries nested too deeply for a path are reported by the scan itself.
        let Ok(path) = dir.join(name) else { return true };
        if !self.recursive {
            self.skipped.push((path, LeftOut::Directory));
            return false;
        }
        if self.avoid.as_ref() == Some(&path) {
            self.skipped.push((path, LeftOut::Destination));
            return false;
        }
        true
    }
}

impl SourceReader<'_> {
    fn all(&mut self) -> Result<(), CopyError> {
        let is_dir = self.root.is_dir();
        let is_named = !self.root.shown.is_root();
        if is_named && !self.filter.shows(&self.root.shown, is_dir) {
            return Ok(());
        }
        if !is_dir {
            return self.single();
        }
        if !self.sources.options.recursive {
            return (self.each)(SourceStep::Skipped {
                path: self.root.path.clone(),
                why: LeftOut::Directory,
            });
        }
        let tree = self.open(&self.root.path)?;
        self.scan(&tree, &RelPath::root(), &self.root.name)
    }

    fn open(&self, path: &Path) -> Result<(Arc<SourceTree>, Arc<Path>), CopyError> {
        let tree = SourceTree::open(path).map_err(CopyError::source)?;
        let tree = if self.sources.options.copy_links { tree.following_links() } else { tree };
        let base = path.canonicalize().map_err(|error| CopyError::system("open", path, error))?;
        Ok((Arc::new(tree), base.into()))
    }

    /// A source that is no directory.
    fn single(&mut self) -> Result<(), CopyError> {
        let path = &self.root.path;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (tree, base) = self.open(parent)?;
        let name = RelPath::new([&self.root.name]).map_err(CopyError::source)?;
        let mut found = match look(path, &self.sources.scan) {
            Ok(found) => found,
            Err(error) => {
                return (self.each)(SourceStep::Failed { path: path.clone(), error, is_named: true });
            }
        };
        if self.sources.scan.hard_links {
            self.links.number(&mut found);
        }
        self.report_incomplete(&mut found, path)?;
        found.entry.name.clone_from(&self.root.name);
        let located = Located::of((&tree, &base), name, &found);
        (self.each)(SourceStep::Walk(Event::Leaf(found.entry), Some(located)))
    }

    /// Attributes that could not be read are left out and reported, as a scan does.
    fn report_incomplete(&mut self, found: &mut Found, path: &Path) -> Result<(), CopyError> {
        match found.incomplete.take() {
            Some(error) => {
                (self.each)(SourceStep::Failed { path: path.into(), error: *error, is_named: false })
            }
            None => Ok(()),
        }
    }

    /// The directory at `below` in a held tree, which is called `name` in the copy.
    fn scan(
        &mut self,
        (tree, base): &(Arc<SourceTree>, Arc<Path>),
        below: &RelPath,
        name: &[u8],
    ) -> Result<(), CopyError> {
        let recursive = self.sources.options.recursive;
        let avoid = self.sources.avoided_below(base);
        let mut prune = Below {
            rules: FilterBelow::new(&self.root.shown, self.filter),
            recursive,
            avoid,
            skipped: Vec::new(),
        };
        let mut at = below.clone();
        let mut depth = 0;
        let each = &mut *self.each;
        let one_file_system = self.sources.options.one_file_system;
        let device = self.root.found.stamp.device;
        let mut visit = |scanned: Scanned| match scanned {
            Scanned::Enter(mut found) => {
                if one_file_system && found.stamp.device != device {
                    each(SourceStep::Closed)?;
                }
                if depth == 0 {
                    found.entry.name = name.to_vec();
                } else {
                    at.push(&found.entry.name).map_err(CopyError::source)?;
                }
                depth += 1;
                each(SourceStep::Walk(Event::Enter(found.entry), None))
            }
            Scanned::Leaf(found) => {
                let path = at.join(&found.entry.name).map_err(CopyError::source)?;
                let located = Located::of((tree, base), path, &found);
                each(SourceStep::Walk(Event::Leaf(found.entry), Some(located)))
            }
            Scanned::Leave => {
                depth -= 1;
                if depth > 0 {
                    at.pop();
                }
                each(SourceStep::Walk(Event::Leave, None))
            }
            Scanned::Failed(error) => {
                each(SourceStep::Failed { path: error.path().to_path_buf(), error, is_named: false })
            }
        };
        let scanned = tree.scan_below(below, &self.sources.scan, self.links, &mut prune, &mut visit);
        let skipped = std::mem::take(&mut prune.skipped);
        scanned.map_err(|error| match error {
            ScanError::Root(error) => CopyError::source(error),
            ScanError::Stopped(error) => error,
        })?;
        skipped.into_iter().try_for_each(|(path, why)| {
            (self.each)(SourceStep::Skipped { path: path.below(&self.root.path), why })
        })
    }

    /// Only what is listed, and the directories on the way there.
    fn listed(&mut self, listed: &[Vec<u8>]) -> Result<(), CopyError> {
        let listed = super::listed::list(listed)?;
        let tree = self.open(&self.root.path)?;
        let mut root = self.root.found.entry.clone();
        root.name.clone_from(&self.root.name);
        (self.each)(SourceStep::Walk(Event::Enter(root), None))?;
        let mut open = RelPath::root();
        let mut whole: Option<RelPath> = None;
        for path in listed.paths().iter().filter(|path| !path.is_root()) {
            if whole.as_ref().is_some_and(|whole| is_below(path, whole)) {
                continue;
            }
            if self.go_to(&tree.0, &mut open, path)? && self.one(&tree, &mut open, path)? {
                whole = Some(path.clone());
            }
        }
        while open.pop() {
            (self.each)(SourceStep::Walk(Event::Leave, None))?;
        }
        (self.each)(SourceStep::Walk(Event::Leave, None))
    }

    /// Leaves and enters directories until the parent of `path` is open; false if that failed.
    fn go_to(&mut self, tree: &SourceTree, open: &mut RelPath, path: &RelPath) -> Result<bool, CopyError> {
        let Some((parent, _)) = path.split() else { return Ok(false) };
        while !(*open == parent || is_below(&parent, open)) {
            open.pop();
            (self.each)(SourceStep::Walk(Event::Leave, None))?;
        }
        let missing: Vec<Vec<u8>> = parent.names().skip(open.depth()).map(<[u8]>::to_vec).collect();
        for name in missing {
            let next = open.join(&name).map_err(CopyError::source)?;
            match tree.look(&next, &self.sources.scan) {
                Ok(found) if found.entry.kind == Kind::Directory => {
                    (self.each)(SourceStep::Walk(Event::Enter(found.entry), None))?;
                    *open = next;
                }
                Ok(_) => {
                    let shown = next.below(&self.root.path);
                    let error = FileError::new("enter", &shown, rustix::io::Errno::NOTDIR);
                    (self.each)(SourceStep::Failed { path: shown, error, is_named: true })?;
                    return Ok(false);
                }
                Err(error) => {
                    (self.each)(SourceStep::Failed {
                        path: next.below(&self.root.path),
                        error,
                        is_named: true,
                    })?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One listed path, whose parent is open; true if all below it was read too.
    fn one(
        &mut self,
        tree: &(Arc<SourceTree>, Arc<Path>),
        open: &mut RelPath,
        path: &RelPath,
    ) -> Result<bool, CopyError> {
        let shown = path.below(&self.root.path);
        let mut found = match tree.0.look(path, &self.sources.scan) {
            Ok(found) => found,
            Err(error) => {
                (self.each)(SourceStep::Failed { path: shown, error, is_named: true })?;
                return Ok(false);
            }
        };
        self.report_incomplete(&mut found, &shown)?;
        let is_dir = found.entry.kind == Kind::Directory;
        if !self.filter.shows(path, is_dir) {
            return Ok(false);
        }
        if is_dir && self.sources.options.recursive {
            let name = found.entry.name.clone();
            self.scan(tree, path, &name)?;
            return Ok(true);
        }
        if is_dir {
            (self.each)(SourceStep::Walk(Event::Enter(found.entry), None))?;
            *open = path.clone();
            return Ok(false);
        }
        let (tree, base) = (Arc::clone(&tree.0), Arc::clone(&tree.1));
        let located = Located {
            tree,
            base,
            path: path.clone(),
            stamp: found.stamp,
            links: found.links,
            is_sparse: found.looks_sparse,
        };
        (self.each)(SourceStep::Walk(Event::Leaf(found.entry), Some(located)))?;
        Ok(false)
    }
}

fn is_below(path: &RelPath, dir: &RelPath) -> bool {
    path.depth() > dir.depth() && path.names().take(dir.depth()).eq(dir.names())
}
