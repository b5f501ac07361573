//! Runs rsync and reads what it prints.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::walk::Paths;

/// False, and says so, if rsync cannot be run.
pub fn is_there() -> bool {
    if version().is_none() {
        println!("skipped: rsync is not installed");
    }
    version().is_some()
}

/// False, and says so, if rsync cannot be run or is from before 3.5, which copies modes (`g=u`) and
/// distrusts more links than those before it.
pub fn is_recent() -> bool {
    let is_old = version().is_some_and(|version| version < (3, 5));
    if is_old {
        println!("skipped: this rsync is older than 3.5");
    }
    is_there() && !is_old
}

fn version() -> Option<(u32, u32)> {
    let output = Command::new("rsync").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.strip_prefix("rsync  version ")?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// A temporary directory for the many small trees: in memory where the system has a place for it.
pub fn tempdir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Number of cases that a property is tried with: `default`, or a share of `TOW_FILTER_CASES`.
pub fn cases(default: u32) -> u32 {
    let all: Option<u32> = std::env::var("TOW_FILTER_CASES").ok().and_then(|text| text.parse().ok());
    all.map_or(default, |all| (all / 1000 * default).max(1))
}

/// Runs rsync from `from/` to `to/`.
pub fn run(options: &[Vec<u8>], from: &Path, to: &Path) -> Output {
    let slash = |path: &Path| [path.as_os_str().as_bytes(), b"/"].concat();
    Command::new("rsync")
        .env("LC_ALL", "C")
        .args(options.iter().map(|option| OsStr::from_bytes(option)))
        .args([OsStr::from_bytes(&slash(from)), OsStr::from_bytes(&slash(to))])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Paths that a run with `--out-format=%i|%n` would transfer, and those it would delete.
pub fn itemized(output: &Output) -> (Paths, Paths) {
    let (mut sent, mut deleted) = (Paths::new(), Paths::new());
    for line in output.stdout.split(|b| *b == b'\n') {
        let Some(bar) = line.iter().position(|b| *b == b'|') else { continue };
        let path = unescape(&line[bar + 1..]);
        if line.starts_with(b"*deleting") {
            deleted.insert(path);
        } else if path != b"./" {
            sent.insert(path);
        }
    }
    (sent, deleted)
}

/// Undoes rsync's `\#ooo`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'\\', [b'#', a, b, c, after @ ..]) => {
                bytes.push([a, b, c].iter().fold(0u8, |byte, digit| byte.wrapping_mul(8) + (*digit - b'0')));
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    bytes
}
