//! The part of a tree that a get asks for, and what is said of paths that are not in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use towpath_api::copy::Preserve;
use towpath_api::{ApiError, ErrorKind, Event, GetRequest, Summary};
use towpath_files::metadata::is_root;
use towpath_files::{RelPath, RuleList, Selection, WantedPath, display_name};
use towpath_store::{About, ObjectKind};

/// Advice to whoever named a destination as with `scp`.
const WHERE: &str = "-o DEST says where it goes; --list tells what the ticket holds";

/// The part that `request` asks for of an object; `renamed` is the name of its one path at the destination, if that is
/// not its own.
pub(crate) fn selection(
    request: &GetRequest,
    about: &About,
    renamed: Option<&OsStr>,
) -> Result<Selection, ApiError> {
    if about.kind == ObjectKind::Blob && is_part(request) {
        let message = "the ticket names a single file: paths and filters choose in a tree";
        return Err(ApiError::new(ErrorKind::Usage, message).hint(WHERE));
    }
    let mut wanted = request.paths.iter().map(|path| wanted(path)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(renamed), [one]) = (renamed, &mut wanted[..]) {
        one.name = renamed.as_bytes().to_vec();
    }
    let rules = RuleList::from_lines(&request.filters).map_err(|error| usage(error.to_string()))?;
    Selection::new(wanted, rules).map_err(|fault| usage(fault.to_string()))
}

/// True if not all of a tree is asked for.
pub(crate) const fn is_part(request: &GetRequest) -> bool {
    !request.paths.is_empty() || !request.filters.is_empty()
}

/// Metadata of a tree's entries that are taken.
pub(crate) fn preserve(request: &GetRequest) -> Preserve {
    request.preserve.unwrap_or_else(|| Preserve::of_strangers(is_root()))
}

/// A path as a person writes it, under its last name.
fn wanted(path: &Path) -> Result<WantedPath, ApiError> {
    let names = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    let shown = || display_name(path.as_os_str().as_bytes());
    let path = RelPath::new(names)
        .map_err(|_| usage(format!("{} is no path in a tree; write it as --list tells it", shown())))?;
    let name = path.split().map(|(_, name)| name.to_vec());
    let name =
        name.ok_or_else(|| usage(format!("{} is the tree itself: leave it out for all of it", shown())))?;
    Ok(WantedPath { path, name })
}

pub(crate) fn usage(message: String) -> ApiError {
    ApiError::new(ErrorKind::Usage, message)
}

/// A path of a descriptor, as it is.
pub(crate) fn os_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// Paths that were asked for and are not in the tree.
pub(crate) struct Missing(Vec<String>);

impl Missing {
    /// Those that a whole walk did not come by.
    pub(crate) fn of(selection: &Selection) -> Self {
        Self(selection.missing().map(|path| display_name(path.as_bytes())).collect())
    }

    /// Tells of each, and counts it. An error if nothing else was asked for (`is_part`), or all of that failed too:
    /// `summary` says how many entries there were, and how many failed.
    pub(crate) async fn tell(
        self,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
        is_part: bool,
    ) -> Result<(), ApiError> {
        let came = summary.entries.saturating_sub(summary.failed);
        summary.failed += self.0.len() as u64;
        for path in self.0 {
            let _ = events.send(Event::FileFailed { path, error: "it is not in the tree".into() }).await;
        }
        if is_part && came == 0 && summary.failed > 0 { Err(nothing(summary.entries)) } else { Ok(()) }
    }
}

/// Nothing of so many entries came.
fn nothing(entries: u64) -> ApiError {
    match entries {
        0 => ApiError::new(ErrorKind::NotFound, "nothing that was asked for is in the tree").hint(WHERE),
        _ => ApiError::new(ErrorKind::Failed, "nothing that was asked for could be had"),
    }
}
