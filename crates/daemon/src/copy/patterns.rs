//! Paths of the side that was started, as people write them for scp and rsync: relative to the home
//! directory, and with wildcards, which no shell expands here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, glob_with};
use towpath_api::{ApiError, ErrorKind};
use towpath_files::display_name;

/// Paths that one pattern may stand for.
const MAX_MATCHES: usize = 100_000;

/// A shell's: a wildcard is no slash and no dot at the front.
const LIKE_A_SHELL: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// The name of a source, as the person knows it.
#[derive(Debug, Clone)]
pub enum NamePattern {
    /// This very one.
    Exact(Vec<u8>),
    /// One that a wildcard may stand for.
    Wild(Pattern),
}

impl NamePattern {
    /// Whether a source may have this name.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Wild(pattern) => {
                // The file that is really called so.
                let is_itself = pattern.as_str().as_bytes() == name;
                is_itself
                    || std::str::from_utf8(name).is_ok_and(|name| pattern.matches_with(name, LIKE_A_SHELL))
            }
        }
    }
}

/// The names that sources have in the copy; `None` where their paths do not tell.
pub fn names(paths: &[&[u8]]) -> Option<Vec<NamePattern>> {
    let name = |path: &&[u8]| {
        let name = Path::new(OsStr::from_bytes(path)).file_name()?.as_bytes();
        match pattern(name) {
            Some(text) => Pattern::new(text).ok().map(NamePattern::Wild),
            None => Some(NamePattern::Exact(name.to_vec())),
        }
    };
    paths.iter().map(name).collect()
}

/// A text with wildcards in it.
fn pattern(path: &[u8]) -> Option<&str> {
    std::str::from_utf8(path).ok().filter(|text| text.contains(['*', '?', '[']))
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

/// What a path of this side stands for: itself if that is there, else what its wildcards match.
pub fn expand(path: &[u8]) -> Result<Vec<PathBuf>, ApiError> {
    let literal = here(path);
    let has_slash = path.ends_with(b"/");
    let text = pattern(literal.as_os_str().as_bytes()).filter(|_| literal.symlink_metadata().is_err());
    let Some(text) = text else { return Ok(vec![literal]) };
    let bad = |why: String| ApiError::new(ErrorKind::Usage, format!("{}: {why}", display_name(path)));
    let matches = glob_with(text, LIKE_A_SHELL).map_err(|error| bad(error.to_string()))?;
    let mut found: Vec<PathBuf> = matches.filter_map(Result::ok).take(MAX_MATCHES + 1).collect();
    if found.is_empty() {
        return Err(ApiError::new(ErrorKind::NotFound, format!("{}: nothing matches", display_name(path))));
    }
    if found.len() > MAX_MATCHES {
        return Err(bad("it stands for too many paths".into()).hint("name the directory, and use filters"));
    }
    if has_slash {
        found.iter_mut().for_each(|path| path.push(""));
    }
    Ok(found)
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
        assert_eq!(expand("*.none").unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn a_sender_may_send_what_the_wildcards_match_and_nothing_else() {
        let names = names(&[b"/x/*.txt", b"y/plain"]).unwrap();
        let allowed = |name: &[u8]| names.iter().any(|pattern| pattern.matches(name));
        assert!(allowed(b"a.txt") && allowed(b"plain"));
        assert!(!allowed(b".bashrc") && !allowed(b".evil.txt") && !allowed(b"other"));
        assert!(super::names(&[b"dir/.."]).is_none());
    }

    #[test]
    fn nothing_and_the_tilde_are_the_home_directory() {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        assert_eq!(here(b""), Path::new("."));
        assert_eq!((here(b"~"), here(b"~/x")), (home.clone(), home.join("x")));
        assert_eq!(here(b"~bob/x"), Path::new("~bob/x"));
    }
}
