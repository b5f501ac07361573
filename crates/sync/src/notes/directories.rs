//! The directories in which something was noted: each once, by its name and the directory it lies in, so that
//! a tree that is deep takes no more than one that is wide.

use std::io;

use prost::Message;
use towpath_files::RelPath;

use towpath_sync_messages::records::Records;

/// A directory in which something was noted; [`ROOT`] stands for the transfer's root.
pub type DirNumber = u64;
/// The transfer's root.
pub const ROOT: DirNumber = 0;

#[derive(Clone, PartialEq, Message)]
struct DirName {
    #[prost(uint64, tag = "1")]
    parent: DirNumber,
    #[prost(bytes = "vec", tag = "2")]
    name: Vec<u8>,
}

/// See the head of this module.
#[derive(Default)]
pub struct Directories {
    names: Records<DirName>,
    /// The directory that was looked up last, with all that it lies in.
    open: Vec<DirNumber>,
    path: RelPath,
}

impl Directories {
    /// Notes the directory `name` in `parent`.
    pub fn add(&mut self, parent: DirNumber, name: &[u8]) -> io::Result<DirNumber> {
        let at = self.names.push(&DirName { parent, name: name.to_vec() })?;
        Ok(at + 1)
    }

    /// The path of what is called `name` in a directory; with an empty name, the directory's own.
    pub fn path_of(&mut self, dir: DirNumber, name: &[u8]) -> io::Result<RelPath> {
        self.enter(dir)?;
        if name.is_empty() { Ok(self.path.clone()) } else { self.path.join(name).map_err(io::Error::other) }
    }

    /// Goes from the directory looked up last to this one: their common front is not read again.
    fn enter(&mut self, dir: DirNumber) -> io::Result<()> {
        let (mut missing, mut at) = (Vec::new(), dir);
        let common = loop {
            if at == ROOT {
                break 0;
            }
            if let Some(depth) = self.open.iter().rposition(|open| *open == at) {
                break depth + 1;
            }
            let DirName { parent, name } = self.names.get(at - 1)?;
            missing.push((at, name));
            at = parent;
        };
        while self.open.len() > common {
            self.open.pop();
            self.path.pop();
        }
        for (dir, name) in missing.into_iter().rev() {
            self.path.push(&name).map_err(io::Error::other)?;
            self.open.push(dir);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_again_in_any_order() {
        let mut directories = Directories::default();
        let a = directories.add(ROOT, b"a").unwrap();
        let ab = directories.add(a, b"b").unwrap();
        let c = directories.add(ROOT, b"c").unwrap();
        let abd = directories.add(ab, b"d").unwrap();
        for (dir, path) in [(abd, "a/b/d/x"), (c, "c/x"), (a, "a/x"), (abd, "a/b/d/x"), (ab, "a/b/x")] {
            assert_eq!(directories.path_of(dir, b"x").unwrap().as_bytes(), path.as_bytes());
        }
        assert!(directories.path_of(ROOT, b"").unwrap().is_root());
        assert_eq!(directories.path_of(ab, b"").unwrap().as_bytes(), b"a/b");
    }

    #[test]
    fn a_deep_directory_takes_no_more_than_its_name() {
        let (mut directories, mut dir) = (Directories::default(), ROOT);
        let name = [b'n'; 255];
        for _ in 0..64 {
            dir = directories.add(dir, &name).unwrap();
        }
        assert!(dir < 64 * 270, "{dir} bytes");
        assert_eq!(directories.path_of(dir, b"").unwrap().as_bytes().len(), 64 * 256 - 1);
    }
}
