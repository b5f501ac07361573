//! Paths of the remote end, as people write them for scp and rsync: relative to the home
//! directory, and with wildcards, which no shell expands here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use towpath_files::filter::ShellPattern;

use crate::error::SshError;

/// Paths that one pattern may stand for.
const MAX_MATCHES: usize = 100_000;

/// Names that are looked at for one pattern: `*/*/*` of a large disk would take long.
const MAX_LOOKED_AT: usize = 1_000_000;

/// The name of a source, as the person knows it.
#[derive(Debug, Clone)]
pub enum NamePattern {
    /// This very one.
    Exact(Vec<u8>),
    /// One that a wildcard may stand for, or that is really called like the pattern.
    Wild(Vec<u8>, ShellPattern),
}

impl NamePattern {
    /// True if a source may have this name.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Wild(text, pattern) => text == name || pattern.matches(name),
        }
    }
}

/// Sources that may come from another machine, as the paths were typed: a sender can only leave
/// things out.
#[derive(Debug, Clone)]
pub struct Requested {
    /// The names that sources may have; `None` where what is in the only one is meant.
    pub names: Option<Vec<NamePattern>>,
    paths: usize,
    is_wild: bool,
}

impl Requested {
    /// Of the paths as they were typed; `contents`: what is in the only one is meant.
    pub fn of(paths: &[&[u8]], contents: bool) -> Result<Self, SshError> {
        let is_wild = paths.iter().any(|path| has_wildcard(path));
        let names = if contents { None } else { Some(paths.iter().map(name).collect::<Result<_, _>>()?) };
        Ok(Self { names, paths: paths.len(), is_wild })
    }

    /// Number of sources that there may be: several where a wildcard stands, whatever it proves to match.
    pub fn sources(&self) -> usize {
        if self.is_wild { self.paths.max(2) } else { self.paths }
    }

    /// True if a sender may announce this many.
    pub const fn allows(&self, sources: usize) -> bool {
        if self.is_wild { sources >= self.paths } else { sources == self.paths }
    }
}

/// True if a path ends in no name: nothing (the home directory of the other side), the root, `.` and `..`.
pub fn is_nameless(path: &[u8]) -> bool {
    Path::new(OsStr::from_bytes(path)).file_name().is_none()
}

/// The name that a source has in the copy. Only the other side knows what its home directory is called.
fn name(path: &&[u8]) -> Result<NamePattern, SshError> {
    let name = match path {
        [b'~'] | [b'~', b'/'] => None,
        path => Path::new(OsStr::from_bytes(path)).file_name().map(OsStr::as_bytes),
    };
    let Some(name) = name else {
        return Err(SshError::Nameless { path: path.to_vec() });
    };
    Ok(match ShellPattern::new(name) {
        Some(pattern) => NamePattern::Wild(name.to_vec(), pattern),
        None => NamePattern::Exact(name.to_vec()),
    })
}

fn has_wildcard(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|name| ShellPattern::new(name).is_some())
}

/// A path of this side. ssh starts in the home directory, and nothing means that one.
pub fn here(path: &[u8]) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let below = |path: &[u8]| Path::new(OsStr::from_bytes(path)).to_path_buf();
    match path {
        b"" => ".".into(),
        b"~" => home().unwrap_or_else(|| below(path)),
        [b'~', b'/', rest @ ..] => home().map_or_else(|| below(path), |home| home.join(below(rest))),
        path => below(path),
    }
}

/// Paths that a path of this side stands for: itself if that is there, else what its wildcards match.
pub fn expand(path: &[u8]) -> Result<Vec<PathBuf>, SshError> {
    let literal = here(path);
    let text = literal.as_os_str().as_bytes();
    if !has_wildcard(text) || literal.symlink_metadata().is_ok() {
        return Ok(vec![literal]);
    }
    let mut left = MAX_LOOKED_AT;
    let mut found = vec![PathBuf::from(if text.starts_with(b"/") { "/" } else { "" })];
    for name in text.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        found =
            step(&found, name, &mut left).ok_or_else(|| SshError::TooManyPaths { pattern: path.to_vec() })?;
    }
    if found.is_empty() {
        return Err(SshError::NothingMatches { pattern: path.to_vec() });
    }
    if path.ends_with(b"/") {
        found.iter_mut().for_each(|path| path.push(""));
    }
    Ok(found)
}

/// Entries called `name` in these directories, sorted; none if that is too much to look at.
fn step(directories: &[PathBuf], name: &[u8], left: &mut usize) -> Option<Vec<PathBuf>> {
    let Some(pattern) = ShellPattern::new(name) else {
        let named = directories.iter().map(|directory| directory.join(OsStr::from_bytes(name)));
        return Some(named.filter(|path| path.symlink_metadata().is_ok()).collect());
    };
    let mut found = Vec::new();
    for directory in directories {
        let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        for entry in listed.read_dir().into_iter().flatten().flatten() {
            *left = left.checked_sub(1)?;
            if pattern.matches(entry.file_name().as_bytes()) {
                found.push(directory.join(entry.file_name()));
            }
        }
        if found.len() > MAX_MATCHES {
            return None;
        }
    }
    found.sort();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_those_of_a_shell() {
        let tmp = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.txt", ".hidden.txt", "c[d].log", "cd.log"] {
            std::fs::write(tmp.path().join(name), b"").unwrap();
        }
        std::fs::create_dir(tmp.path().join("sub")).unwrap();
        std::fs::write(tmp.path().join("sub/e.txt"), b"").unwrap();
        // A name that is no text harms nobody.
        std::fs::write(tmp.path().join(OsStr::from_bytes(b"\xff.bin")), b"").unwrap();
        let expand = |text: &str| {
            let found = expand(tmp.path().join(text).as_os_str().as_bytes());
            found.map(|paths| {
                let names =
                    paths.iter().map(|path| path.strip_prefix(tmp.path()).unwrap().display().to_string());
                names.collect::<Vec<_>>()
            })
        };
        assert_eq!(expand("*.txt").unwrap(), ["a.txt", "b.txt"]);
        assert_eq!(expand("*/e.txt").unwrap(), ["sub/e.txt"]);
        assert_eq!(expand("c[d].log").unwrap(), ["c[d].log"], "a file that is really called so");
        assert_eq!(expand("[ab].txt").unwrap(), ["a.txt", "b.txt"]);
        assert_eq!(expand("missing").unwrap(), ["missing"], "told when it is opened");
        assert_eq!(expand("*.bin").unwrap().len(), 1);
        assert_eq!(expand(".h*").unwrap(), [".hidden.txt"]);
        assert!(matches!(expand("*.none"), Err(SshError::NothingMatches { .. })));
    }

    #[test]
    fn a_sender_may_send_what_the_wildcards_match_and_nothing_else() {
        let requested = Requested::of(&[b"/x/*.txt", b"y/plain"], false).unwrap();
        let names = requested.names.unwrap();
        let allowed = |name: &[u8]| names.iter().any(|pattern| pattern.matches(name));
        assert!(allowed(b"a.txt") && allowed(b"plain"));
        assert!(!allowed(b".bashrc") && !allowed(b".evil.txt") && !allowed(b"other"));
    }

    #[test]
    fn how_many_sources_there_may_be_is_known_before_the_sender_is_asked() {
        let requested = |paths: &[&[u8]]| Requested::of(paths, false).unwrap();
        for (paths, sources, allowed, refused) in [
            (&[&b"a"[..]][..], 1, 1, 2),
            (&[b"a", b"b"], 2, 2, 1),
            (&[b"*.log"], 2, 1, 0),
            (&[b"*.log", b"b"], 2, 5, 1),
        ] {
            let requested = requested(paths);
            assert_eq!(requested.sources(), sources, "{paths:?}");
            assert!(requested.allows(allowed) && !requested.allows(refused), "{paths:?}");
        }
    }

    #[test]
    fn what_has_no_name_goes_alone_and_for_what_is_in_it() {
        for path in [&b""[..], b"~", b"~/", b".", b"dir/..", b"/", b"*/.."] {
            assert!(Requested::of(&[path], true).unwrap().names.is_none());
            assert!(Requested::of(&[path], false).is_err());
            assert!(Requested::of(&[b"a", path], false).is_err());
        }
    }

    #[test]
    fn a_pattern_looks_at_no_more_than_it_may() {
        let tmp = tempfile::tempdir().unwrap();
        (0..10).for_each(|number| drop(std::fs::write(tmp.path().join(format!("{number}")), b"")));
        let here = [tmp.path().to_path_buf()];
        assert_eq!(step(&here, b"*", &mut 10).unwrap().len(), 10);
        assert!(step(&here, b"9*", &mut 9).is_none());
    }

    #[test]
    fn nothing_and_the_tilde_are_the_home_directory() {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        assert_eq!(here(b""), Path::new("."));
        assert_eq!((here(b"~"), here(b"~/x")), (home.clone(), home.join("x")));
        assert_eq!(here(b"~bob/x"), Path::new("~bob/x"));
    }
}
