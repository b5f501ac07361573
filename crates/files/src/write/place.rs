//! The rename that gives a finished file its name.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RenameFlags, linkat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

/// Treatment of a file that already has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// It stays, and the new one is refused.
    #[default]
    Never,
    /// It is replaced, if it is a regular file or a symbolic link (the link itself, not what it
    /// points to). Directories, devices, pipes and sockets stay in any case.
    Replace,
    /// It is replaced, whatever it is, unless it is a directory.
    ReplaceAny,
}

/// Position of a name: a held directory and a checked name in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceAt<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a [u8],
}

/// Moves `from` to `to`.
pub(crate) fn place(from: PlaceAt<'_>, to: PlaceAt<'_>, overwrite: Overwrite) -> Result<(), Errno> {
    match overwrite {
        Overwrite::Never => place_new(from, to),
        Overwrite::Replace => {
            check_replaceable(to)?;
            renameat(from.dir, from.name, to.dir, to.name)
        }
        Overwrite::ReplaceAny => replace_any(from, to),
    }
}

fn place_new(from: PlaceAt<'_>, to: PlaceAt<'_>) -> Result<(), Errno> {
    match renameat_with(from.dir, from.name, to.dir, to.name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => place_by_link(from, to),
        done => done,
    }
}

/// For file systems without a rename that refuses to replace: a link refuses too.
fn place_by_link(from: PlaceAt<'_>, to: PlaceAt<'_>) -> Result<(), Errno> {
    match linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty()) {
        Ok(()) => unlinkat(from.dir, from.name, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => place_by_look(from, to),
        Err(error) => Err(error),
    }
}

/// For file systems without links either (FAT): look first. Another process that makes the same
/// name in between loses its file; nothing better exists there.
fn place_by_look(from: PlaceAt<'_>, to: PlaceAt<'_>) -> Result<(), Errno> {
    match statat(to.dir, to.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(from.dir, from.name, to.dir, to.name),
        Err(error) => Err(error),
        Ok(_) => Err(Errno::EXIST),
    }
}

/// Exchanges what has the two names. Where the file system can't do that in one step, what was at `to` gets the
/// name `aside` beside `from` first.
pub(crate) fn swap(from: PlaceAt<'_>, to: PlaceAt<'_>, aside: &str) -> Result<(), Errno> {
    match renameat_with(from.dir, from.name, to.dir, to.name, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            renameat(to.dir, to.name, from.dir, aside)?;
            renameat(from.dir, from.name, to.dir, to.name)
        }
        done => done,
    }
}

/// The system itself refuses to put anything but a directory in the place of a directory; that
/// one it would replace if it is empty.
fn replace_any(from: PlaceAt<'_>, to: PlaceAt<'_>) -> Result<(), Errno> {
    match statat(to.dir, to.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Err(Errno::ISDIR),
        Ok(_) | Err(Errno::NOENT) => renameat(from.dir, from.name, to.dir, to.name),
        Err(error) => Err(error),
    }
}

fn check_replaceable(to: PlaceAt<'_>) -> Result<(), Errno> {
    match statat(to.dir, to.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Ok(()),
            _ => Err(Errno::EXIST),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    type Way = fn(PlaceAt<'_>, PlaceAt<'_>) -> Result<(), Errno>;
    const WAYS: [(&str, Way); 3] = [("rename", place_new), ("link", place_by_link), ("look", place_by_look)];

    #[test]
    fn each_way_places_a_new_name_and_refuses_a_taken_one() {
        for (label, way) in WAYS {
            let tmp = tempfile::tempdir().unwrap();
            let dir = fs::File::open(tmp.path()).unwrap();
            let at = |name| PlaceAt { dir: dir.as_fd(), name };
            fs::write(tmp.path().join("temp"), b"new").unwrap();
            fs::write(tmp.path().join("taken"), b"old").unwrap();
            symlink("/nowhere", tmp.path().join("dangling")).unwrap();
            assert_eq!(way(at(b"temp"), at(b"taken")), Err(Errno::EXIST), "{label}");
            assert_eq!(way(at(b"temp"), at(b"dangling")), Err(Errno::EXIST), "{label}");
            assert_eq!(fs::read(tmp.path().join("taken")).unwrap(), b"old", "{label}");
            way(at(b"temp"), at(b"free")).unwrap();
            assert_eq!(fs::read(tmp.path().join("free")).unwrap(), b"new", "{label}");
            assert!(!tmp.path().join("temp").exists(), "{label}");
        }
    }

    #[test]
    fn replacing_takes_files_and_links_but_no_directories_or_pipes() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = fs::File::open(tmp.path()).unwrap();
        let at = |name| PlaceAt { dir: dir.as_fd(), name };
        fs::write(tmp.path().join("aim"), b"aim").unwrap();
        symlink("aim", tmp.path().join("link")).unwrap();
        fs::create_dir(tmp.path().join("dir")).unwrap();
        rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        for refused in [&b"dir"[..], b"pipe"] {
            fs::write(tmp.path().join("temp"), b"new").unwrap();
            assert_eq!(place(at(b"temp"), at(refused), Overwrite::Replace), Err(Errno::EXIST));
        }
        place(at(b"temp"), at(b"link"), Overwrite::Replace).unwrap();
        fs::write(tmp.path().join("temp"), b"new").unwrap();
        assert_eq!(place(at(b"temp"), at(b"dir"), Overwrite::ReplaceAny), Err(Errno::ISDIR));
        place(at(b"temp"), at(b"pipe"), Overwrite::ReplaceAny).unwrap();
        assert_eq!(fs::read(tmp.path().join("pipe")).unwrap(), b"new");
        assert_eq!(fs::read(tmp.path().join("aim")).unwrap(), b"aim");
        assert_eq!(fs::read(tmp.path().join("link")).unwrap(), b"new");
    }
}
