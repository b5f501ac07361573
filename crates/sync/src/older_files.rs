//! Files that are here and may be the same as what a session is about to fetch, or older versions of it: found as copies find
//! theirs, where the search of the transfer may look.
//!
//! Nothing of them is told to anybody. What is taken is compared with the names and values of the content first, so a guess
//! costs no more than its reading. Still whoever is not asked for it learns that it is here (`docs/threat-model.md`).

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_files::RelPath;
use towpath_reuse::adaptive::Adaptive;
use towpath_reuse::candidates::index::{Present, Sought};
use towpath_reuse::candidates::machine::{Machine, from_root};
use towpath_reuse::candidates::rules::FileCandidate;
use towpath_reuse::candidates::search::CandidateSearch;
use towpath_reuse::disk_search::Scope;
use towpath_reuse::policy::network::Network;
use towpath_targets::older::OlderFile;
use towpath_transfer::{Group, TransferPlugin};

/// A file of at most so many bytes is one piece: it is here as a whole, or fetched.
const WHOLE: u64 = 1 << MIN_LOG2;

/// See the head of this module.
pub struct OlderFiles {
    search: CandidateSearch,
    /// The directory that takes what is fetched, without symbolic links.
    root: PathBuf,
    adaptive: Arc<Adaptive>,
    /// The person's limit to the network's rate; 0 if there is none.
    limit: f64,
    files: AtomicU64,
    bytes: AtomicU64,
}

/// A file that was found, open.
#[derive(Debug)]
pub struct FoundFile {
    path: PathBuf,
    file: File,
    size: u64,
    is_same: bool,
}

/// What a found file proves to be of use for.
#[derive(Debug)]
pub enum Use {
    /// It is the very same: its bytes.
    Whole(Vec<u8>),
    /// Pieces of it may be right; its path, by which other parts of it are found.
    Pieces(OlderFile, PathBuf),
    /// It is another file.
    Nothing,
}

impl OlderFiles {
    /// Nothing was looked at yet, and nothing will be outside `scope`. `adaptive` measures the network.
    pub fn new(scope: Scope, adaptive: Arc<Adaptive>, limit_rate: u64) -> Self {
        Self {
            root: scope.start.clone(),
            search: CandidateSearch::new(Some(scope)).in_pieces(),
            adaptive,
            limit: limit_rate as f64,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// For each of some new files one that may be of use; none while the network is fast. Blocks.
    pub fn find(&self, files: &[&Group]) -> Vec<Option<FoundFile>> {
        let network = self.adaptive.network(&self.adaptive.path()).or_limit(self.limit);
        find(&self.search, &self.root, network, files)
    }

    /// Notes that so many bytes of a found file were right.
    pub fn proved(&self, is_same: bool, bytes: u64) {
        let is_hit = bytes > 0;
        match is_same {
            true => self.search.proved_same(is_hit),
            false => self.search.proved_base(is_hit),
        }
        self.files.fetch_add(is_hit.into(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many files were made of others, and how many bytes did not have to come.
    pub fn account(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl FoundFile {
    /// True if it is taken for the same, not for an older version.
    pub const fn is_same(&self) -> bool {
        self.is_same
    }

    /// Of what use it is for the content `oid` of `size` bytes. Reads it if that is one piece.
    pub fn of_use(self, oid: &Oid, size: u64) -> Use {
        if size > WHOLE {
            return Use::Pieces(OlderFile::new(self.file, self.size, size), self.path);
        }
        let mut bytes = vec![0; size as usize];
        let is_read = self.file.read_exact_at(&mut bytes, 0).is_ok();
        if is_read && Oid::of(&bytes) == *oid { Use::Whole(bytes) } else { Use::Nothing }
    }
}

fn find(search: &CandidateSearch, root: &Path, network: Network, files: &[&Group]) -> Vec<Option<FoundFile>> {
    let sought: Vec<_> =
        files.iter().enumerate().filter_map(|(at, file)| Some((at, Wanted::of(file, root)?))).collect();
    let mut found: Vec<_> = files.iter().map(|_| None).collect();
    if sought.is_empty() {
        return found;
    }
    let asked: Vec<_> = sought.iter().map(|(_, wanted)| wanted.sought()).collect();
    let candidates = search.find(root, |_| network, &asked);
    let machine = if candidates.iter().any(Option::is_some) { Machine::open() } else { None };
    let Some(machine) = machine else { return found };
    for ((at, wanted), candidate) in sought.iter().zip(candidates) {
        found[*at] = candidate.and_then(|candidate| open(&machine, root, &candidate, wanted.size));
    }
    found
}

/// A new file, by what others may have in common with it.
struct Wanted<'a> {
    path: RelPath,
    size: u64,
    group: &'a Group,
}

impl<'a> Wanted<'a> {
    fn of(group: &'a Group, root: &Path) -> Option<Self> {
        let below = group.destination.as_ref()?.strip_prefix(root).ok()?;
        let path = RelPath::new(below.components().map(|name| name.as_os_str().as_encoded_bytes())).ok()?;
        Some(Self { path, size: group.size.filter(|size| *size > 0)?, group })
    }

    fn sought(&self) -> Sought<'_> {
        let modified = self.group.modified.unwrap_or_default();
        Sought { path: &self.path, size: self.size, modified }
    }
}

/// Opens a candidate that may be of use for so many bytes.
fn open(machine: &Machine, root: &Path, candidate: &FileCandidate, size: u64) -> Option<FoundFile> {
    let (found, is_same) = (&candidate.file, candidate.is_same());
    if size <= WHOLE && !(is_same && found.stamp.size == size) {
        return None;
    }
    let whole = match candidate.is_outside() {
        true => found.clone(),
        false => Present { path: from_root(&found.path.below(root))?, stamp: found.stamp },
    };
    let file = machine.open_file(&whole)?;
    // What only its owner may read gets the mode that a stranger sends, unless it lies where that is written in any case.
    let is_open = || file.metadata().is_ok_and(|found| found.permissions().mode() & 0o044 != 0);
    let may_use = !candidate.is_outside() || is_open();
    let path = whole.path.below(Path::new("/"));
    may_use.then_some(FoundFile { path, file, size: found.stamp.size, is_same })
}
