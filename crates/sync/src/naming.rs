//! Sources that stand for themselves or for what is in them: the habits of cp and rsync.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use towpath_api::copy::Mode;
use towpath_ssh::patterns;

use crate::error::{CopyError, RequestFault};

/// The sources as they are meant: a list of files, as rsync has it, names what is in the one source.
pub fn meant(mode: Mode, is_listed: bool, sources: &[OsString]) -> Vec<OsString> {
    let is_bare =
        |source: &OsStr| !source.is_empty() && !matches!(source.as_bytes().last(), Some(b'/' | b':'));
    match sources {
        [source] if is_listed && mode == Mode::Sync && is_bare(source) => {
            vec![[source, OsStr::new("/")].into_iter().collect()]
        }
        sources => sources.to_vec(),
    }
}

/// True if the one source names what is in it; an error if one of several does.
pub fn names_contents(mode: Mode, sources: &[&[u8]]) -> Result<bool, CopyError> {
    let is_contents = |path: &[u8]| {
        path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..") || patterns::is_nameless(path)
    };
    if mode == Mode::Sync && sources.len() > 1 && sources.iter().any(|path| path.ends_with(b"/")) {
        return Err(RequestFault::ContentsAndOthers.into());
    }
    // With a dot at the end, or no name at all, cp too means what is in a directory.
    let is_dot = |path: &[u8]| path.ends_with(b"/.") || patterns::is_nameless(path);
    let is_meant = |path| if mode == Mode::Sync { is_contents(path) } else { is_dot(path) };
    Ok(sources.len() == 1 && is_meant(sources[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_what_is_in_the_one_source() {
        let of = |mode, sources: &[&str], is_listed: bool| {
            let sources: Vec<_> = sources.iter().map(Into::into).collect();
            meant(mode, is_listed, &sources)
        };
        for (source, wanted) in
            [("a", "a/"), ("a/", "a/"), ("a/.", "a/./"), ("h:a", "h:a/"), ("h:", "h:"), ("/", "/"), ("", "")]
        {
            assert_eq!(of(Mode::Sync, &[source], true), [wanted]);
            assert_eq!(of(Mode::Sync, &[source], false), [source]);
        }
        assert_eq!(of(Mode::Cp, &["a"], true), ["a"]);
        assert_eq!(of(Mode::Sync, &["a", "b"], true), ["a", "b"]);
    }
}
