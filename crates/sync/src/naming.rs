//! Whether a source stands for itself or for what is in it: the habits of cp and rsync.

use towpath_api::copy::Mode;
use towpath_ssh::patterns;

use crate::error::{CopyError, RequestFault};

/// Whether the one source names what is in it; an error if one of several does.
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
