//! The place of a tree that is got, or of paths in it, and the record of what an interrupted get left there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use towpath_api::{ApiError, ErrorKind, GetRequest};
use towpath_content::Oid;
use towpath_files::{Selection, display_name};
use towpath_store::About;
use towpath_targets::resume::Record;

use crate::getting::GetUnderWay;
use crate::selecting::usage;
use towpath_words as words;

/// Destination of a tree, or of a part of one.
#[derive(Debug, Clone)]
pub(crate) enum TreePlace {
    /// Its root becomes this directory, which must not be there.
    New(PathBuf),
    /// Wanted paths go into a directory that is there.
    Within {
        /// The directory.
        dir: PathBuf,
        /// Names what goes there, for the record of an interruption.
        key: Oid,
    },
}

impl TreePlace {
    /// The record of what an interrupted get left. What is there and is not its own is not written into.
    pub(crate) fn record(&self, get: &GetUnderWay, selection: &Selection) -> Result<Record, ApiError> {
        let folder = get.service.home.resume();
        let failed = |error| words::io("note", &folder, &error);
        let (dir, key) = match self {
            Self::New(path) => return Record::open(&folder, path, &get.oid).map_err(failed),
            Self::Within { dir, key } => (dir, key),
        };
        let base = dir.canonicalize().map_err(|error| words::io("open", dir, &error))?;
        let record = Record::open_beside_others(&folder, &base, key).map_err(failed)?;
        let is_free = |path: &Path| path.symlink_metadata().map_or(true, |found| found.is_file());
        match self.paths(selection).find(|path| record.temp().is_none() && !is_free(path)) {
            None => Ok(record),
            Some(path) => {
                record.remove();
                Err(is_there(&path))
            }
        }
    }

    /// The one path that is written to, or the directory that several are in.
    pub(crate) fn shown(&self, selection: &Selection) -> PathBuf {
        let (mut paths, Self::New(dir) | Self::Within { dir, .. }) = (self.paths(selection), self);
        match (paths.next(), paths.next()) {
            (Some(one), None) => one,
            _ => dir.clone(),
        }
    }

    /// The paths that are written to.
    pub(crate) fn paths<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = PathBuf> + 'a {
        let (dir, whole) = match self {
            Self::New(path) => (path, Some(path.clone())),
            Self::Within { dir, .. } => (dir, None),
        };
        whole.into_iter().chain(selection.wanted().map(|(_, name)| dir.join(OsStr::from_bytes(name))))
    }
}

/// The directory that wanted paths go to, and the name of a single one there if that is not its own.
///
/// | | DEST is a directory | DEST is not there | DEST is something else |
/// |---|---|---|---|
/// | one path | DEST/NAME | becomes DEST | DEST, if that is the same already |
/// | several | DEST/NAME each | refused | refused |
///
/// Without DEST that is the current directory. One that an interrupted get of the very same path made is not there.
pub(crate) fn tree_place(
    get: &GetUnderWay,
    request: &GetRequest,
) -> Result<(TreePlace, Option<OsString>), ApiError> {
    let key = |renamed: Option<&OsStr>| key(get, request, renamed);
    let within = |dir: &Path| TreePlace::Within { dir: dir.to_path_buf(), key: key(None) };
    let Some(output) = &request.output else { return Ok((within(&request.directory), None)) };
    let named = output.parent().zip(output.file_name()).filter(|_| request.paths.len() == 1);
    let named = named.map(|(dir, name)| (dir.to_path_buf(), name.to_owned()));
    let goes_on = |(dir, name): &(PathBuf, OsString)| {
        let dir = dir.canonicalize();
        dir.is_ok_and(|dir| Record::is_one_open(&get.service.home.resume(), &dir, &key(Some(name))))
    };
    match named {
        _ if output.is_dir() && !named.as_ref().is_some_and(goes_on) => Ok((within(output), None)),
        Some((dir, name)) => Ok((TreePlace::Within { dir, key: key(Some(&name)) }, Some(name))),
        None => Err(no_directory(output)),
    }
}

fn no_directory(output: &Path) -> ApiError {
    let shown = display_name(output.as_os_str().as_bytes());
    let message = format!("{shown} is no directory, and several paths are to go there");
    usage(message).hint("make it first, or ask for one path at a time")
}

/// Names what goes to a directory, and what a single path is called there.
fn key(get: &GetUnderWay, request: &GetRequest, renamed: Option<&OsStr>) -> Oid {
    let mut words = format!("part of {}", get.oid).into_bytes();
    for path in request.paths.iter().map(|path| path.as_os_str()).chain(renamed) {
        words.push(0);
        words.extend_from_slice(path.as_bytes());
    }
    Oid::of(&words)
}

/// Error for something that has the place of what was requested, and is not overwritten.
pub(crate) fn is_there(path: &Path) -> ApiError {
    let message = format!("{} is already there", display_name(path.as_os_str().as_bytes()));
    ApiError::new(ErrorKind::Exists, message)
        .hint("choose another directory with -o, or remove what is there")
}

/// Under its own name in `directory`.
pub(crate) fn named(directory: &Path, about: &About) -> Result<PathBuf, ApiError> {
    if towpath_files::names::check_name(&about.name).is_err() {
        let message = "the object has no name of its own that is safe to use";
        return Err(ApiError::new(ErrorKind::Usage, message).hint("choose one with -o"));
    }
    // Shells and programs read such files unasked.
    if about.name.starts_with(b".") {
        let message = format!("the sender calls it {}, a hidden name", display_name(&about.name));
        return Err(ApiError::new(ErrorKind::Usage, message).hint("if you want that name, give it with -o"));
    }
    Ok(directory.join(OsStr::from_bytes(&about.name)))
}
