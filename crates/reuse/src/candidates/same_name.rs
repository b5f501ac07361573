//! Files near the destination, by their names, as far as a short walk outward finds them: the search for chunks goes on
//! from there.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::FileType;
use towpath_disk_search::scope::Mounts;
use towpath_disk_search::{DirectoryId, OpenedDirectory, Scope};

use super::index::{Present, may_be_version};
use super::machine::{Machine, from_root, nearest};

/// Directories, and names, that are kept in mind: some ten megabytes.
const MOST_DIRECTORIES: usize = 100_000;
const MOST_NAMES: usize = 500_000;
/// Files of one name that are looked at, the nearest first.
const MOST_ALIKE: usize = 256;
/// Names between two looks at the clock.
const LOOK: usize = 256;

/// See the head of this module.
#[derive(Default)]
pub struct Namesakes {
    directories: Vec<Arc<Path>>,
    /// The hash of a name, and the directory it is in, in order: most of them nobody asks for.
    names: Vec<(u64, u32)>,
    hasher: RandomState,
}

impl Namesakes {
    /// Looks into directories of `scope`, nearest first, until a moment has come.
    pub fn near(scope: &Scope, until: Instant) -> Self {
        let mut near = Self::default();
        near.walk(scope, until);
        near.names.sort_unstable();
        near
    }

    fn walk(&mut self, scope: &Scope, until: Instant) {
        let mut seen = HashSet::new();
        for beginning in scope.outward(&Mounts::read().unwrap_or_default()) {
            let mut next = VecDeque::from([DirectoryId::start(&beginning.path)]);
            while let Some(directory) = next.pop_front() {
                if Instant::now() >= until || self.directories.len() >= MOST_DIRECTORIES {
                    return;
                }
                // An unreadable entry is no help, and that is all.
                let Ok(opened) = OpenedDirectory::open(&directory) else { continue };
                if seen.insert(opened.identity()) {
                    self.directories.push(directory.path);
                    self.look_into(&opened, until, &mut next);
                }
            }
        }
    }

    fn look_into(&mut self, directory: &OpenedDirectory, until: Instant, next: &mut VecDeque<DirectoryId>) {
        let here = self.directories.len() as u32 - 1;
        // A directory that can't be read to its end is as good as what was read of it.
        let _ = directory.names(&mut |name, kind| {
            if kind.is_dir() {
                if next.len() < MOST_DIRECTORIES {
                    next.push_back(directory.below(name));
                }
            } else if kind.is_file() || kind == FileType::Unknown {
                self.names.push((self.hasher.hash_one(name), here));
            }
            let count = self.names.len();
            count < MOST_NAMES && (!count.is_multiple_of(LOOK) || Instant::now() < until)
        });
    }

    /// Of the files with this name the one nearest in size.
    pub fn find(&self, machine: &Machine, name: &[u8], size: u64) -> Option<Present> {
        let name = OsStr::from_bytes(name);
        let hash = self.hasher.hash_one(name);
        let first = self.names.partition_point(|(other, _)| *other < hash);
        let alike = self.names[first..].iter().take_while(|(other, _)| *other == hash).take(MOST_ALIKE);
        let found = alike.filter_map(|(_, directory)| {
            machine.look(from_root(&self.directories[*directory as usize].join(name))?)
        });
        nearest(found.filter(|file| may_be_version(file.stamp.size, size)), size)
    }
}
