//! The search of this machine's disk for content that a ticket names, as far as a get may.
//!
//! Its sender sees what is not asked of it. So a stranger's ticket draws only from what lies beside the
//! file that comes; further goes only what was asked for, and the ticket of a node that may fetch
//! without one (`docs/threat-model.md`).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use towpath_api::GetRequest;
use towpath_content::NodeId;
use towpath_disk_search::Scope;
use towpath_files::is_temporary_name;
use towpath_reuse::adaptive::Search;

use crate::state::Service;
use towpath_sync::search::within;

/// Search for what the ticket of `node` names, or what comes from the web, at `limit_rate` bytes a second at most; nowhere if that
/// is not wanted.
pub(crate) fn search(
    service: &Service,
    request: &GetRequest,
    node: Option<NodeId>,
    (is_web, limit_rate): (bool, u64),
) -> Option<Search> {
    if request.no_search {
        return None;
    }
    let knows_all = if is_web { request.reuse } else { knows_all(service, request, node) };
    let scope = scope(request, knows_all)?;
    if !scope.beyond_destination && scope.extra.is_empty() && !has_files(&scope.start) {
        return None;
    }
    Some(within(&service.store, scope, (request.search_effort, limit_rate)))
}

/// True if the sender may learn what lies anywhere on this disk.
fn knows_all(service: &Service, request: &GetRequest, node: Option<NodeId>) -> bool {
    let is_allowed =
        |node: NodeId| node == service.node_id() || service.config().general.allowed_nodes.contains(&node);
    request.reuse || node.is_none_or(is_allowed)
}

/// From the directory that takes the object; nothing if there is none.
fn scope(request: &GetRequest, beyond_destination: bool) -> Option<Scope> {
    let start = destination(request).ancestors().find(|path| path.is_dir())?.canonicalize().ok()?;
    let extra = request.search.iter().filter_map(|dir| dir.canonicalize().ok()).collect();
    let home = std::env::var_os("HOME").and_then(|home| PathBuf::from(home).canonicalize().ok());
    let roots = home.into_iter().collect();
    Some(Scope { start, roots, extra, beyond_destination, not_below: true })
}

/// True if there is a file right in this directory: else a recipe would be asked for in vain.
fn has_files(directory: &Path) -> bool {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.any(|entry| !is_temporary_name(entry.file_name().as_bytes()))
}

fn destination(request: &GetRequest) -> &Path {
    match &request.output {
        None => &request.directory,
        Some(output) if output.is_dir() => output,
        Some(output) => output.parent().unwrap_or(output),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn request(directory: &Path, output: Option<&str>) -> GetRequest {
        let output = output.map(|name| directory.join(name));
        GetRequest { directory: directory.into(), output, ..GetRequest::default() }
    }

    #[test]
    fn it_begins_in_the_directory_that_takes_the_object() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir(base.join("in")).unwrap();
        std::os::unix::fs::symlink("in", base.join("link")).unwrap();
        for (output, start) in [
            (None, ""),
            (Some("new"), ""),
            (Some("in"), "in"),
            (Some("in/new"), "in"),
            (Some("link/new"), "in"),
            (Some("not/there/new"), ""),
        ] {
            let scope = scope(&request(&base, output), false).unwrap();
            assert_eq!(scope.start, base.join(start).components().collect::<PathBuf>(), "{output:?}");
        }
    }

    #[test]
    fn there_is_nothing_to_search_where_no_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("below")).unwrap();
        fs::write(at("below/file"), "x").unwrap();
        std::os::unix::fs::symlink("below/file", at("link")).unwrap();
        assert!(!has_files(folder.path()) && !has_files(&at("not there")));
        fs::write(at("file"), "x").unwrap();
        assert!(has_files(folder.path()));
    }

    #[test]
    fn a_stranger_learns_only_what_lies_beside_it_and_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("dest/below")).unwrap();
        fs::create_dir(base.join("asked")).unwrap();
        let mut request = request(&base, Some("dest"));
        request.search = vec![base.join("asked"), base.join("not there")];
        let (mounts, stranger) = (Default::default(), scope(&request, false).unwrap());
        for (name, may) in [
            ("dest/file", true),
            ("dest/below/file", false),
            ("file", false),
            ("asked/file", true),
            ("asked/below/file", true),
        ] {
            assert_eq!(stranger.covers(&base.join(name), &mounts), may, "{name}");
        }
        assert_eq!(stranger.outward(&mounts).len(), 2);
        assert!(!stranger.enters(&base.join("dest/below")) && stranger.enters(&base.join("asked/below")));
        assert!(scope(&request, true).unwrap().enters(&base.join("dest/below")));
    }
}
