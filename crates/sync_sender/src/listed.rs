//! Entries that may come when only a part of a source was requested: a list of names (`--files-from`), or
//! no directories (`--no-r`). A sender that is not trusted gets nothing else written.

use towpath_api::copy::CopyOptions;
use towpath_files::{PathList, RelPath};

use crate::error::CopyError;

/// The part of the source that was requested.
#[derive(Debug, Clone)]
pub struct RequestedPaths {
    listed: Option<PathList>,
    recursive: bool,
}

impl RequestedPaths {
    /// Entries that the options ask for.
    pub fn new(options: &CopyOptions) -> Result<Self, CopyError> {
        let listed = options.files_from.as_ref().map(|listed| list(listed)).transpose()?;
        Ok(Self { listed, recursive: options.recursive })
    }

    /// True if an entry was requested; `path` is below the transfer's root, which has the source's
    /// own name first unless `is_contents`.
    pub fn covers(&self, path: &RelPath, is_dir: bool, is_contents: bool) -> bool {
        let Some(listed) = &self.listed else {
            let depth = path.depth() + usize::from(is_contents);
            return self.recursive || depth <= usize::from(is_contents) + 1 && (!is_dir || path.is_root());
        };
        let names: Vec<&[u8]> = path.names().skip(usize::from(!is_contents)).collect();
        if names.is_empty() {
            return is_dir;
        }
        listed.find(&names).is_some()
            || is_dir && listed.is_on_the_way(&names)
            || self.recursive && listed.is_above(&names)
    }
}

/// The list as paths.
pub fn list(listed: &[Vec<u8>]) -> Result<PathList, CopyError> {
    let path = |path: &Vec<u8>| {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        RelPath::new(names).map_err(CopyError::source)
    };
    Ok(PathList::new(listed.iter().map(path).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(listed: Option<&[&str]>, recursive: bool) -> RequestedPaths {
        let files_from = listed.map(|list| list.iter().map(|name| name.as_bytes().to_vec()).collect());
        RequestedPaths::new(&CopyOptions { files_from, recursive, ..CopyOptions::default() }).unwrap()
    }

    fn covers(requested: &RequestedPaths, path: &str, is_dir: bool) -> bool {
        let path = RelPath::new(path.split('/').filter(|name| !name.is_empty())).unwrap();
        requested.covers(&path, is_dir, true)
    }

    #[test]
    fn only_what_is_listed_and_the_way_there() {
        let requested = requested(Some(&["a/b", "c", "./d//e/f"]), false);
        for (path, is_dir) in
            [("", true), ("a", true), ("a/b", false), ("c", true), ("d/e/f", false), ("d/e", true)]
        {
            assert!(covers(&requested, path, is_dir), "{path}");
        }
        for (path, is_dir) in
            [("a", false), ("a/c", false), ("a/b/x", false), ("c/x", false), ("d/e/g", true), ("z", true)]
        {
            assert!(!covers(&requested, path, is_dir), "{path}");
        }
    }

    #[test]
    fn a_listed_directory_has_its_contents_with_r() {
        let requested = requested(Some(&["a/b"]), true);
        assert!(covers(&requested, "a/b/x/y", false));
        assert!(!covers(&requested, "a/x", false));
    }

    #[test]
    fn without_r_there_are_no_directories() {
        let requested = requested(None, false);
        assert!(covers(&requested, "f", false) && covers(&requested, "", true));
        assert!(!covers(&requested, "d", true) && !covers(&requested, "d/f", false));
        let named = RelPath::new(["file"]).unwrap();
        assert!(requested.covers(&named, false, false));
    }

    #[test]
    fn the_sources_own_name_is_not_listed() {
        let requested = requested(Some(&["b"]), false);
        let path = |names: &[&str]| RelPath::new(names).unwrap();
        assert!(requested.covers(&path(&["src"]), true, false));
        assert!(requested.covers(&path(&["src", "b"]), false, false));
        assert!(!requested.covers(&path(&["src", "c"]), false, false));
    }
}
