//! Files outside the destination that may be older versions of new large ones: with the same path in a directory beside it, or
//! with the same name near by.
//!
//! Looked at in a thread of its own, which is waited for a little: a disk that is asleep, or a dead server's, holds up nobody.
//! Its finds prove nothing.

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use towpath_disk_search::Scope;
use towpath_files::RelPath;

use super::index::Sought;
use super::machine::Machine;
use super::rules::{FileCandidate, Resemblance};
use super::same_name::Namesakes;
use super::sibling_dirs::Siblings;

/// Search outside the destination.
pub struct OutsideSearch {
    /// None if it is not wanted, or kept somebody waiting.
    sources: Option<Arc<OutsideSources>>,
}

/// Limits of waiting.
#[derive(Debug, Clone, Copy)]
pub struct WaitLimits {
    /// For all of it.
    pub whole: Duration,
    /// For a walk around.
    pub walk: Duration,
}

/// Sources that are searched.
struct OutsideSources {
    scope: Scope,
    machine: OnceLock<Option<Machine>>,
    siblings: OnceLock<Siblings>,
    namesakes: OnceLock<Namesakes>,
}

impl OutsideSearch {
    /// Nothing was looked at yet, and nothing will be outside `scope`.
    pub fn new(scope: Option<Scope>) -> Self {
        let sources = |scope| OutsideSources {
            scope,
            machine: OnceLock::new(),
            siblings: OnceLock::new(),
            namesakes: OnceLock::new(),
        };
        let scope = scope.filter(|scope| scope.beyond_destination);
        Self { sources: scope.map(sources).map(Arc::new) }
    }

    /// For each of these files what may be its older version outside `root`.
    pub fn find(
        &mut self,
        root: &Path,
        files: &[Sought<'_>],
        wait_limit: WaitLimits,
    ) -> Vec<Option<FileCandidate>> {
        let nothing = || vec![None; files.len()];
        let Some(sources) =
            self.sources.clone().filter(|_| files.iter().any(|file| Resemblance::Beside.is_for(file.size)))
        else {
            return nothing();
        };
        let sought: Vec<_> = files.iter().map(|file| (file.path.clone(), file.size)).collect();
        let (root, until) = (root.to_owned(), Instant::now() + wait_limit.walk);
        let (done, found) = sync_channel(1);
        let looking = move || {
            let found = sought.iter().map(|(path, size)| sources.find(&root, path, *size, until));
            // Nobody may wait any more.
            let _ = done.send(found.collect());
        };
        // Without a thread the channel closes.
        let _ = std::thread::Builder::new().name("outside".into()).spawn(looking);
        found.recv_timeout(wait_limit.whole).unwrap_or_else(|_| {
            self.sources = None;
            nothing()
        })
    }
}

impl OutsideSources {
    fn find(&self, root: &Path, path: &RelPath, size: u64, until: Instant) -> Option<FileCandidate> {
        if !Resemblance::Beside.is_for(size) {
            return None;
        }
        let machine = self.machine.get_or_init(Machine::open).as_ref()?;
        let siblings = self.siblings.get_or_init(|| Siblings::of(machine, root));
        if let Some(found) = siblings.find(machine, path, size) {
            return Some(FileCandidate { file: found, resemblance: Resemblance::Beside });
        }
        let namesakes = self.namesakes.get_or_init(|| Namesakes::near(&self.scope, until));
        let file = namesakes.find(machine, path.split()?.1, size)?;
        Some(FileCandidate { file, resemblance: Resemblance::NamesakeNear })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::candidates::index::tests::{at, path_of};
    use crate::candidates::machine::from_root;
    use crate::policy::table::LARGE;

    const LONG: WaitLimits = WaitLimits { whole: Duration::from_secs(60), walk: Duration::from_secs(2) };
    const NONE: WaitLimits = WaitLimits { whole: Duration::ZERO, walk: Duration::ZERO };

    fn place(root: &Path, path: &str) {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::File::create(root.join(path)).unwrap().set_len(LARGE).unwrap();
    }

    fn sought(path: &RelPath, size: u64) -> Sought<'_> {
        Sought { path, size, modified: at(0) }
    }

    fn scope(start: &Path, beyond_destination: bool) -> Scope {
        Scope { start: start.to_owned(), beyond_destination, ..Scope::default() }
    }

    #[test]
    fn the_same_path_beside_the_destination_comes_before_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        ["new/x", "old/a/file 1", "far/off/file 1", "far/off/file 2"]
            .iter()
            .for_each(|path| place(&root, path));
        let new = root.join("new");
        let mut outside = OutsideSearch::new(Some(scope(&new, true)));
        let whole = |path: &str| from_root(&root.join(path)).unwrap();
        let paths = ["a/file 1", "a/file 2", "a/no file has such a name", "a/file 1"].map(path_of);
        let files = [LARGE, LARGE, LARGE, LARGE - 1];
        let files: Vec<_> = paths.iter().zip(files).map(|(path, size)| sought(path, size)).collect();
        let found = outside.find(&new, &files, LONG);
        let expected = [
            Some((Resemblance::Beside, whole("old/a/file 1"))),
            Some((Resemblance::NamesakeNear, whole("far/off/file 2"))),
            None,
            None,
        ];
        let found = found.into_iter().map(|found| found.map(|found| (found.resemblance, found.file.path)));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        for scope in [None, Some(scope(&new, false))] {
            assert_eq!(
                OutsideSearch::new(scope).find(&new, &files[..1], LONG),
                [None],
                "nothing outside is wanted"
            );
        }
    }

    #[test]
    fn whoever_keeps_somebody_waiting_is_not_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        ["old/file", "new/file"].iter().for_each(|path| place(&root, path));
        let (path, new) = (path_of("file"), root.join("new"));
        let files = [sought(&path, LARGE)];
        let mut outside = OutsideSearch::new(Some(scope(&new, true)));
        let (sources, (begin, begun), (end, ended)) =
            (outside.sources.clone().unwrap(), sync_channel::<()>(1), sync_channel::<()>(1));
        let sleeping = std::thread::spawn(move || {
            sources.machine.get_or_init(|| {
                begin.send(()).unwrap();
                let _ = ended.recv();
                Machine::open()
            });
        });
        begun.recv().unwrap();
        assert_eq!(outside.find(&new, &files, NONE), [None]);
        drop(end);
        sleeping.join().unwrap();
        assert_eq!(outside.find(&new, &files, LONG), [None]);
        let wait_limit = WaitLimits { walk: Duration::ZERO, ..LONG };
        assert!(OutsideSearch::new(Some(scope(&new, true))).find(&new, &files, wait_limit)[0].is_some());
    }
}
