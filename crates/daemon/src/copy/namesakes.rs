//! Large files near the destination, by their names, as far as a short walk outward finds them: the search for chunks goes on
//! from there.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use towpath_files::is_temporary_name;
use towpath_plugins::disk_search::scope::Mounts;
use towpath_plugins::disk_search::{Cancel, Directory, Listing, Scope, stat};

use super::beyond::{Machine, from_root, nearest};
use super::catalogue::{LARGE, Present, may_be_version};

/// Directories that wait to be looked into, and files that are kept in mind.
const MOST: usize = 100_000;

/// See the head of this module.
#[derive(Default)]
pub struct Namesakes {
    files: HashMap<Vec<u8>, Vec<(PathBuf, u64)>>,
    count: usize,
}

impl Namesakes {
    /// Looks into directories of `scope`, nearest first, until a moment has come.
    pub fn near(scope: &Scope, until: Instant) -> Self {
        let (mut near, mut seen) = (Self::default(), HashSet::new());
        for beginning in scope.outward(&Mounts::read().unwrap_or_default()) {
            let mut next = VecDeque::from([Directory::start(&beginning.path)]);
            while let Some(directory) = next.pop_front() {
                if Instant::now() >= until || near.count >= MOST {
                    return near;
                }
                near.look_into(&directory, until, &mut seen, &mut next);
            }
        }
        near
    }

    fn look_into(
        &mut self,
        directory: &Directory,
        until: Instant,
        seen: &mut HashSet<(u64, u64)>,
        next: &mut VecDeque<Directory>,
    ) {
        let leave_out = |name: &OsStr| is_temporary_name(name.as_bytes());
        let mut is_first = true;
        let mut each = |listing: Listing| {
            if std::mem::take(&mut is_first) && !seen.insert(listing.identity) {
                return false;
            }
            let room = MOST.saturating_sub(next.len());
            next.extend(listing.directories.into_iter().take(room));
            for file in listing.files.into_iter().filter(|file| file.stamp.size >= LARGE) {
                let (path, size) = (file.path(), file.stamp.size);
                self.files.entry(file.name.as_bytes().to_vec()).or_default().push((path, size));
                self.count += 1;
            }
            Instant::now() < until
        };
        // What can't be read is no help, and that is all.
        let _ = stat(directory, &leave_out, &Cancel::default(), &mut each);
    }

    /// Of the files with this name the one nearest in size.
    pub fn find(&self, machine: &Machine, name: &[u8], size: u64) -> Option<Present> {
        let fitting = self.files.get(name)?.iter().filter(|(_, old)| may_be_version(*old, size));
        nearest(fitting.filter_map(|(path, _)| machine.look(from_root(path)?)), size)
    }
}
