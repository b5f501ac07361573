//! Files of rules: read with a limit, by name or by a held directory, and cut into rules.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::MAX_FILE;
use super::error::too_big;

/// White space, as the C library has it.
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Reads a file the user named; `-` is standard input.
pub(super) fn read_named(path: &Path) -> io::Result<Vec<u8>> {
    if path.as_os_str() == OsStr::from_bytes(b"-") {
        return read_bounded(io::stdin().lock());
    }
    read_bounded(File::open(path)?)
}

/// Reads the file `name` in a held directory. `None` if there is none, or a directory is in its
/// place; whatever else is not a regular file is an error.
pub(super) fn read_in(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(not_regular("a symbolic link")),
        Err(Errno::NXIO) => return Err(not_regular("a socket or device")),
        Err(error) => return Err(error.into()),
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => read_bounded(File::from(file)).map(Some),
        FileType::Directory => Ok(None),
        _ => Err(not_regular("no regular file")),
    }
}

fn not_regular(what: &str) -> io::Error {
    let message =
        format!("filter rules are read from regular files, and this is {what}; replace it by a copy");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn read_bounded(file: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MAX_FILE as u64 + 1).read_to_end(&mut content)?;
    if content.len() > MAX_FILE { Err(too_big()) } else { Ok(content) }
}

/// The rules of a file, each with its line counted from 1. With `words`, white space ends a rule;
/// without, the line's end does, and comments are left out.
pub(super) fn rules(content: &[u8], words: bool) -> impl Iterator<Item = (usize, &[u8])> {
    lines(content)
        .flat_map(move |(number, line)| {
            let is_end = move |b: &u8| words && is_space(*b);
            line.split(is_end).map(move |rule| (number, rule))
        })
        .filter(move |(_, rule)| match rule {
            [] => false,
            [b'#' | b';', ..] => words,
            _ => true,
        })
}

/// Lines end with a line feed, a carriage return, or both.
fn lines(content: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = Some(content);
    let next = move || {
        let text = rest?;
        let Some(end) = text.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
            rest = None;
            return Some(text);
        };
        let width = if text[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = Some(&text[end + width..]);
        Some(&text[..end])
    };
    (1..).zip(std::iter::from_fn(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(content: &[u8], words: bool) -> Vec<(usize, &[u8])> {
        rules(content, words).collect()
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        let expected: [(usize, &[u8]); 3] = [(1, b"a"), (3, b" b "), (5, b"c#")];
        assert_eq!(all(b"a\r\n\r\n b \n#x\nc#\r", false), expected);
        assert_eq!(all(b"a\n;y\n b \r#x\rc#", false), expected);
    }

    #[test]
    fn words_are_cut_at_white_space_and_know_no_comments() {
        let expected: [(usize, &[u8]); 3] = [(1, b"a"), (1, b"#b"), (2, b"c")];
        assert_eq!(all(b"a \t#b\n\x0bc", true), expected);
    }
}
