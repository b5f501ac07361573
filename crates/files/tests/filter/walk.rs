//! Walks as a transfer does them: what a sender shows, and what a receiver deletes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use towpath_files::filter::Filter;
use towpath_files::{FileError, RelPath, display_name};

/// Paths, those of directories with a slash at the end.
pub type Paths = BTreeSet<Vec<u8>>;

/// Paths as a failing test shows them.
pub fn readable(paths: &Paths) -> Vec<String> {
    paths.iter().map(|path| display_name(path)).collect()
}

/// The entries of a directory: name, and whether it is a directory.
fn entries(dir: &Path) -> Vec<(Vec<u8>, bool)> {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().as_bytes().to_vec(), entry.file_type().unwrap().is_dir())
    };
    fs::read_dir(dir).unwrap().map(entry).collect()
}

fn labelled(path: &RelPath, is_dir: bool) -> Vec<u8> {
    [path.as_bytes(), if is_dir { b"/" } else { b"" }].concat()
}

/// Entries that a sender shows of the tree at `top`.
pub fn shown(top: &Path, filter: &mut Filter) -> Result<Paths, FileError> {
    let mut paths = Paths::new();
    show_in(top, &RelPath::root(), filter, &mut paths)?;
    Ok(paths)
}

fn show_in(top: &Path, path: &RelPath, filter: &mut Filter, paths: &mut Paths) -> Result<(), FileError> {
    let here = path.below(top);
    filter.enter(File::open(&here).unwrap().as_fd(), path)?;
    for (name, is_dir) in entries(&here) {
        let inner = path.join(&name).unwrap();
        if !filter.shows(&inner, is_dir) {
            continue;
        }
        paths.insert(labelled(&inner, is_dir));
        if is_dir {
            show_in(top, &inner, filter, paths)?;
        }
    }
    filter.leave();
    Ok(())
}

/// Entries that a receiver deletes below `top`, when the sender has shown `shown`.
pub fn deleted(top: &Path, shown: &Paths, filter: &mut Filter) -> Result<Paths, FileError> {
    let mut deleting = Deleting { top, shown, filter, paths: Paths::new() };
    deleting.in_kept(&RelPath::root())?;
    Ok(deleting.paths)
}

struct Deleting<'a> {
    top: &'a Path,
    shown: &'a Paths,
    filter: &'a mut Filter,
    paths: Paths,
}

impl Deleting<'_> {
    /// In a directory that the sender has too.
    fn in_kept(&mut self, path: &RelPath) -> Result<(), FileError> {
        let here = path.below(self.top);
        self.filter.enter(File::open(&here).unwrap().as_fd(), path)?;
        for (name, is_dir) in entries(&here) {
            let inner = path.join(&name).unwrap();
            if self.shown.contains(&labelled(&inner, is_dir)) {
                if is_dir {
                    self.in_kept(&inner)?;
                }
            } else if !self.filter.protects(&inner, is_dir) {
                self.delete(&inner, is_dir)?;
            }
        }
        self.filter.leave();
        Ok(())
    }

    /// False if it must stay since something in it must.
    fn delete(&mut self, path: &RelPath, is_dir: bool) -> Result<bool, FileError> {
        let goes = !is_dir || self.empty(path)?;
        if goes {
            self.paths.insert(labelled(path, is_dir));
        }
        Ok(goes)
    }

    fn empty(&mut self, path: &RelPath) -> Result<bool, FileError> {
        let here = path.below(self.top);
        self.filter.enter(File::open(&here).unwrap().as_fd(), path)?;
        let mut goes = true;
        for (name, is_dir) in entries(&here) {
            let inner = path.join(&name).unwrap();
            goes &= !self.filter.protects_in_deleted(&inner, is_dir) && self.delete(&inner, is_dir)?;
        }
        self.filter.leave();
        Ok(goes)
    }
}

/// Makes a file, and the directories it lies in; a slash at the end makes a directory.
pub fn make(top: &Path, path: &[u8], content: &[u8]) {
    let full = top.join(OsStr::from_bytes(path));
    if path.ends_with(b"/") {
        fs::create_dir_all(full).unwrap();
    } else {
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, content).unwrap();
    }
}
