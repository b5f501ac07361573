//! Files that are here and may be the same as what a session is about to fetch, or older versions of it: found as copies find
//! theirs, where the search of the transfer may look.
//!
//! Nothing of them is told to a stranger. What is taken is compared with the names and values of the content first, so a guess
//! costs no more than its reading. Still whoever is not asked for it learns that it is here (`docs/threat-model.md`). Whom
//! this machine's files may be known to gets signatures of older versions of files of few pieces.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::adaptive::Adaptive;
use crate::candidates::index::{Present, Sought};
use crate::candidates::machine::{Machine, from_root};
use crate::candidates::rules::{FileCandidate, Resemblance};
use crate::candidates::search::CandidateSearch;
use crate::delta::made::MadeDeltas;
use crate::policy::network::Network;
use rayon::prelude::*;
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::pieces::MIN_LOG2;
use towpath_disk_search::Scope;
use towpath_files::RelPath;
use towpath_transfer::{Group, Source};

/// A file of at most so many bytes is one piece: it is here as a whole, or fetched, as a delta at best.
pub const WHOLE: u64 = 1 << MIN_LOG2;
/// Files of which it is remembered why they were found.
const REMEMBERED: usize = 4096;

/// See the head of this module.
pub struct FoundFiles {
    search: CandidateSearch,
    /// The sender may get signatures of what is here.
    may_sign: bool,
    /// The directory that takes what is fetched, without symbolic links.
    root: PathBuf,
    adaptive: Arc<Adaptive>,
    made: Mutex<MadeOfFound>,
    /// What was found, and by what.
    found: Mutex<HashMap<PathBuf, Resemblance>>,
}

/// Account of what was made of files that were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MadeOfFound {
    /// Files.
    pub files: u64,
    /// Bytes that did not have to come.
    pub bytes: u64,
    /// Of these, bytes of files that were taken as a whole, of which no session knows.
    pub whole: u64,
    /// Of these files, those of which pieces came as deltas, too.
    pub by_deltas: u64,
}

/// Use of a file that was found.
#[derive(Debug)]
pub enum Use {
    /// It is the very same: its bytes.
    Whole(Vec<u8>),
    /// Pieces of it may be right.
    Pieces(FoundFile),
    /// It is likely an older version, and the new one is one piece.
    Older(FoundFile),
}

/// A candidate that is still what was seen.
#[derive(Debug)]
pub struct FoundFile {
    /// The file, open.
    pub file: File,
    /// Its bytes.
    pub size: u64,
    /// It is taken for the same, rather than for an older version.
    pub is_same: bool,
    path: PathBuf,
    resemblance: Resemblance,
    /// It may be quite another file.
    is_guess: bool,
}

impl FoundFiles {
    /// Nothing was looked at yet, and nothing will be outside `scope`. `adaptive` measures the network.
    pub fn new(scope: Scope, adaptive: Arc<Adaptive>) -> Self {
        Self {
            root: scope.start.clone(),
            may_sign: scope.beyond_destination,
            search: in_pieces(scope),
            adaptive,
            made: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// True if older versions may be signed, and what is known of the network makes that worth it.
    pub fn may_spare_pieces(&self) -> bool {
        self.may_sign && self.adaptive.network(&self.adaptive.state().path).is_slow()
    }

    /// For each of some new files, with the names of their contents, one that is of use; none while the network is fast.
    /// Reads those that are of one piece. Blocks.
    pub fn find(&self, files: &[(&Group, Oid)]) -> Vec<Option<Use>> {
        let network = self.adaptive.network(&self.adaptive.state().path);
        let groups: Vec<_> = files.iter().map(|(group, _)| *group).collect();
        let found = candidates(&self.search, &self.root, network, &groups);
        let of_use = |(&(group, oid), found): (&(&Group, Oid), Option<FoundFile>)| {
            let (found, size) = (found?, group.size?);
            let is_same = found.is_same;
            let of_use = of_use(found, size, &oid, self.may_sign);
            match &of_use {
                None => self.count(is_same, 0, false),
                Some(Use::Whole(_)) => {}
                Some(Use::Pieces(found) | Use::Older(found)) => self.remember(found),
            }
            of_use
        };
        files.par_iter().zip(found).map(of_use).collect()
    }

    /// Notes that a file of so many bytes was the very same, and taken over.
    pub fn took(&self, size: u64) {
        self.count(true, size, false);
        lock(&self.made).whole += size;
    }

    /// Notes that so many bytes of a file that was found for `oid` were right in their places, which was taken for the same or for an
    /// older version.
    pub fn proved(&self, oid: &Oid, is_same: bool, bytes: u64) {
        self.count(is_same, bytes, self.came_as_delta(oid));
    }

    /// True if pieces of it came as deltas.
    pub fn came_as_delta(&self, oid: &Oid) -> bool {
        self.adaptive.saved_by_deltas(oid) > 0
    }

    fn count(&self, is_same: bool, bytes: u64, by_deltas: bool) {
        let is_hit = bytes > 0 || by_deltas;
        self.search.proved(is_same, is_hit);
        let mut made = lock(&self.made);
        made.files += u64::from(is_hit);
        made.bytes += bytes;
        made.by_deltas += u64::from(by_deltas);
    }

    fn remember(&self, file: &FoundFile) {
        let mut found = lock(&self.found);
        if found.len() < REMEMBERED {
            found.insert(file.path.clone(), file.resemblance);
        }
    }

    /// What was made of files so far.
    pub fn account(&self) -> MadeOfFound {
        *lock(&self.made)
    }

    /// Files that came as deltas, of those that were found and of others.
    pub fn deltas(&self) -> MadeDeltas {
        let (mut deltas, found) = (self.adaptive.made_deltas(), lock(&self.found));
        for delta in &mut deltas.listed {
            if let Some(resemblance) = found.get(&delta.base) {
                delta.reason = resemblance.name();
            }
        }
        deltas
    }
}

impl FoundFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the search find other parts of it: near it first, unless it may be quite another file.
    pub fn show_to_search(&self, group: &mut Group) {
        let place = if self.is_guess { &mut group.older } else { &mut group.destination };
        *place = Some(self.path.clone());
    }
}

/// The search for files that are compared in pieces, where `scope` allows.
fn in_pieces(scope: Scope) -> CandidateSearch {
    let may_sign = scope.beyond_destination;
    CandidateSearch::new(Some(scope)).in_pieces(may_sign)
}

/// Use of a file for one of `size` bytes that are called `oid`.
fn of_use(found: FoundFile, size: u64, oid: &Oid, may_sign: bool) -> Option<Use> {
    if size > WHOLE {
        return Some(Use::Pieces(found));
    }
    let mut bytes = vec![0; size as usize];
    let is_it = found.file.read_exact_at(&mut bytes, 0).is_ok() && Oid::of(&bytes) == *oid;
    match is_it {
        true => Some(Use::Whole(bytes)),
        false => may_sign.then_some(Use::Older(found)),
    }
}

/// Candidates for files, open.
fn candidates(
    search: &CandidateSearch,
    root: &Path,
    network: Network,
    files: &[&Group],
) -> Vec<Option<FoundFile>> {
    let sought: Vec<_> =
        files.iter().enumerate().filter_map(|(at, file)| Some((at, NewFile::of(file, root)?))).collect();
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
struct NewFile<'a> {
    path: RelPath,
    size: u64,
    group: &'a Group,
}

impl<'a> NewFile<'a> {
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

/// Opens a candidate for a file of `size` bytes, if it may be used.
fn open(machine: &Machine, root: &Path, candidate: &FileCandidate, size: u64) -> Option<FoundFile> {
    let (found, is_same) = (&candidate.file, candidate.is_same());
    let whole = match candidate.is_outside() {
        true => found.clone(),
        false => Present { path: from_root(&found.path.below(root))?, stamp: found.stamp },
    };
    let file = machine.open_file(&whole.path, &whole.stamp)?;
    // What only its owner may read gets the mode that a stranger sends, unless it lies where that is written in any case.
    let is_open = || file.metadata().is_ok_and(|found| found.permissions().mode() & 0o044 != 0);
    let may_use = !candidate.is_outside() || is_open();
    let path = whole.path.below(Path::new("/"));
    may_use.then_some(FoundFile {
        file,
        size: found.stamp.size,
        path,
        is_same,
        resemblance: candidate.resemblance,
        is_guess: candidate.is_guess(size),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::time::Duration;

    use super::*;

    const SLOW: Network = Network { rate: 1e4, round_trip: Duration::ZERO };
    const FAST: Network = Network { rate: 1e9, round_trip: Duration::ZERO };
    const SIZE: u64 = 1 << 20;

    fn place(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().set_len(SIZE).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// The path of what is found for a file of a get into `start`, of a stranger or of somebody who may know all.
    fn found(start: &Path, path: &str, is_stranger: bool, network: Network) -> Option<PathBuf> {
        let scope = Scope {
            start: start.into(),
            beyond_destination: !is_stranger,
            not_below: true,
            ..Scope::default()
        };
        let search = in_pieces(scope);
        let group = Group { size: Some(SIZE + 1), destination: Some(start.join(path)), ..Group::default() };
        let mut found = candidates(&search, start, network, &[&group, &Group::default()]);
        assert!(found.pop().unwrap().is_none(), "it has no place");
        found.pop().flatten().map(|found| found.path)
    }

    #[test]
    fn a_stranger_draws_on_what_lies_beside_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["to/app-1.0", "to/v1/x", "to/.tow-0123456789abcdef", "beside/y"] {
            place(&root.join(name), 0o600);
        }
        std::os::unix::fs::symlink("app-1.0", root.join("to/link-1.0")).unwrap();
        let to = root.join("to");
        for (path, stranger, known) in [
            ("app-1.1", Some("to/app-1.0"), Some("to/app-1.0")),
            ("v2/x", None, Some("to/v1/x")),
            ("y", None, None),
            ("link-1.1", None, None),
            ("v2/nothing.like.it", None, None),
        ] {
            for (is_stranger, expected) in [(true, stranger), (false, known)] {
                let expected = expected.map(|path| root.join(path));
                assert_eq!(found(&to, path, is_stranger, SLOW), expected, "{path} {is_stranger}");
            }
            assert_eq!(found(&to, path, false, FAST), None, "{path}");
        }
    }

    #[test]
    fn what_only_its_owner_may_read_is_drawn_from_in_the_destination_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (old, new) = (root.join("old/a file of this name"), root.join("new"));
        fs::create_dir(&new).unwrap();
        for (mode, is_found) in [(0o600, false), (0o711, false), (0o640, true), (0o644, true)] {
            place(&old, mode);
            let found = found(&new, "a file of this name", false, SLOW);
            assert_eq!(found, is_found.then(|| old.clone()), "{mode:o}");
            assert_eq!(self::found(&new, "a file of this name", true, SLOW), None);
        }
    }

    #[test]
    fn one_piece_is_the_very_same_or_signed_if_it_may_be_and_more_are_compared_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let open = || {
            fs::write(&path, b"content").unwrap();
            let file = File::open(&path).unwrap();
            let resemblance = Resemblance::SameTime;
            FoundFile { file, size: 7, path: path.clone(), resemblance, is_same: true, is_guess: false }
        };
        let oid = Oid::of(b"content");
        assert!(matches!(of_use(open(), 7, &oid, false), Some(Use::Whole(bytes)) if bytes == b"content"));
        for (size, oid) in [(7, Oid::of(b"another")), (6, oid), (8, oid), (WHOLE, oid)] {
            assert!(of_use(open(), size, &oid, false).is_none(), "{size}");
            assert!(matches!(of_use(open(), size, &oid, true), Some(Use::Older(_))), "{size}");
        }
        let opened = open();
        fs::write(&path, b"changed").unwrap();
        assert!(of_use(opened, 7, &oid, false).is_none());
        let more = of_use(open(), WHOLE + 1, &oid, true);
        assert!(matches!(more, Some(Use::Pieces(found)) if found.size == 7));
    }
}
