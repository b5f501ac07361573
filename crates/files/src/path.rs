//! A path below a tree's root that cannot lead out of it.
//!
//! Every component was checked when the path was made, so whoever holds a [`RelPath`] need not
//! check again. What a component *is* on disk, a directory or a symbolic link, is only known when
//! it is opened, and is looked after there (`confine`).

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use towpath_content::tree::MAX_DEPTH;

use crate::error::FileError;
use crate::names::{check_name, display_name};

/// A list of checked names, from the root of a tree downward. Empty: the root itself.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath {
    /// The names, joined by slashes.
    joined: Vec<u8>,
}

impl RelPath {
    /// The root of the tree.
    pub const fn root() -> Self {
        Self { joined: Vec::new() }
    }

    /// A path of these names; [`FileError::OutsideTree`] if one of them is not a plain name.
    pub fn new<N: AsRef<[u8]>>(names: impl IntoIterator<Item = N>) -> Result<Self, FileError> {
        let mut path = Self::root();
        for name in names {
            path.push(name.as_ref())?;
        }
        Ok(path)
    }

    /// This path and one name more.
    pub fn join(&self, name: &[u8]) -> Result<Self, FileError> {
        let mut joined = Vec::with_capacity(self.joined.len() + 1 + name.len());
        joined.extend_from_slice(&self.joined);
        let mut path = Self { joined };
        path.push(name)?;
        Ok(path)
    }

    /// Goes down to `name`.
    pub fn push(&mut self, name: &[u8]) -> Result<(), FileError> {
        let refuse = |why| FileError::outside("name", Path::new(OsStr::from_bytes(name)), why);
        check_name(name).map_err(refuse)?;
        if self.depth() >= MAX_DEPTH {
            return Err(refuse("nested too deeply"));
        }
        if !self.is_root() {
            self.joined.push(b'/');
        }
        self.joined.extend_from_slice(name);
        Ok(())
    }

    /// Goes up by one; false at the root.
    pub fn pop(&mut self) -> bool {
        let up = self.joined.iter().rposition(|&b| b == b'/').unwrap_or(0);
        let was_root = self.is_root();
        self.joined.truncate(up);
        !was_root
    }

    /// True for the root of the tree.
    pub const fn is_root(&self) -> bool {
        self.joined.is_empty()
    }

    /// The names, from the root downward.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.joined.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// Number of names.
    pub fn depth(&self) -> usize {
        let slashes = self.joined.iter().filter(|&&b| b == b'/').count();
        if self.is_root() { 0 } else { slashes + 1 }
    }

    /// The directory it lies in, and its own name; `None` for the root.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        let (parent, name) = self.split_bytes()?;
        Some((Self { joined: parent.to_vec() }, name))
    }

    /// [`Self::split`] without a copy: the joined names of the directory.
    pub(crate) fn split_bytes(&self) -> Option<(&[u8], &[u8])> {
        if self.is_root() {
            return None;
        }
        let slash = self.joined.iter().rposition(|&b| b == b'/');
        Some(slash.map_or((&[], &self.joined), |at| (&self.joined[..at], &self.joined[at + 1..])))
    }

    /// True for `other` itself and everything below it.
    pub fn starts_with(&self, other: &Self) -> bool {
        let rest = self.joined.strip_prefix(other.joined.as_slice());
        other.is_root() || rest.is_some_and(|rest| rest.first().is_none_or(|&b| b == b'/'))
    }

    /// The names joined by slashes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.joined
    }

    /// The path for messages, below the root's own path.
    pub fn below(&self, root: &Path) -> PathBuf {
        if self.is_root() { root.to_path_buf() } else { root.join(OsStr::from_bytes(&self.joined)) }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { "" })?;
        f.write_str(&display_name(&self.joined))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_with_dots_or_slashes_is_refused() {
        for bad in [&b".."[..], b".", b"", b"/etc", b"a/../b", b"a\0"] {
            let error = RelPath::new([&b"a"[..], bad]).unwrap_err();
            assert!(matches!(error, FileError::OutsideTree { .. }), "{error}");
        }
    }

    #[test]
    fn a_path_is_taken_apart_as_it_was_put_together() {
        let path = RelPath::new(["a", "b c", "d"]).unwrap();
        assert_eq!(path.names().collect::<Vec<_>>(), [&b"a"[..], b"b c", b"d"]);
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.as_bytes(), name), (&b"a/b c"[..], &b"d"[..]));
        assert_eq!(RelPath::new(["a"]).unwrap().split().unwrap().0, RelPath::root());
        assert!(RelPath::root().split().is_none());
        assert_eq!(path.below(Path::new("/r")), Path::new("/r/a/b c/d"));
    }

    #[test]
    fn going_up_ends_at_the_root() {
        let mut path = RelPath::new(["a", "b"]).unwrap();
        assert!(path.pop() && path.pop());
        assert!(!path.pop() && path.is_root());
    }

    #[test]
    fn a_path_is_below_another_by_whole_names() {
        let path = |names: &[&str]| RelPath::new(names).unwrap();
        for (below, above) in [(&["a", "b"][..], &["a"][..]), (&["a"], &["a"]), (&["a"], &[])] {
            assert!(path(below).starts_with(&path(above)));
        }
        assert!(!path(&["ab"]).starts_with(&path(&["a"])));
        assert!(!path(&["a"]).starts_with(&path(&["a", "b"])));
    }

    #[test]
    fn nesting_has_an_end() {
        let deepest = RelPath::new(vec!["d"; MAX_DEPTH]).unwrap();
        assert!(deepest.join(b"d").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_path_that_leaves(names: Vec<Vec<u8>>) {
            if let Ok(path) = RelPath::new(&names) {
                prop_assert_eq!(path.names().collect::<Vec<_>>(), names);
                prop_assert!(path.names().all(|name| name != b".." && name != b"."));
            }
        }
    }
}
