//! The file a private key lives in: made once, whole, and readable by its owner alone.
//!
//! A new key is written and synced under a name nobody else uses, and then linked to its place.
//! Linking fails if another process was first; then that one's key is the one to use.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FileType, Mode, OFlags};
use thiserror::Error;
use towpath_content::node_id::hex;

use super::{Identity, KeyError};

/// An Ed25519 key in PKCS#8 has 83 bytes; anything near this is something else.
const MAX_BYTES: u64 = 1024;
/// Permissions of anyone but the owner.
const OTHERS: u32 = 0o077;

/// Reason why the key file can't be used.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// Others may read or write the file. The key may be known to them: make a new one, or
    /// take the permissions away (`chmod 600`) if nobody has looked.
    #[error("{path}: others may use this private key (mode {mode:03o}, must be 600)")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to someone else.
    #[error("{path}: belongs to user {owner}, not to this process's user {us}")]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's user.
        us: u32,
    },
    /// A folder, device, symbolic link or the like, or far too large.
    #[error("{path}: not a key file")]
    NotAKeyFile {
        /// The file.
        path: PathBuf,
    },
    /// The content is not a key.
    #[error("{path}: {source}")]
    Key {
        /// The file.
        path: PathBuf,
        /// The key's error.
        source: KeyError,
    },
    /// The system refused.
    #[error("{path}: can't {action}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

pub(super) fn load_or_create(path: &Path) -> Result<Identity, KeyFileError> {
    if let Some(identity) = load(path)? {
        return Ok(identity);
    }
    let identity = Identity::generate().map_err(|source| key(path, source))?;
    if create(path, identity.pkcs8())? {
        return Ok(identity);
    }
    load(path)?.ok_or_else(|| io_error(path, "read", io::ErrorKind::NotFound.into()))
}

/// The key in the file, or `None` if there is no file.
fn load(path: &Path) -> Result<Option<Identity>, KeyFileError> {
    // Non-blocking, so that a FIFO put in its place can't hold us up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(KeyFileError::NotAKeyFile { path: path.into() }),
        Err(errno) => return Err(io_error(path, "open", errno.into())),
    };
    check(path, &fd)?;
    let mut bytes = Vec::new();
    File::from(fd).take(MAX_BYTES).read_to_end(&mut bytes).map_err(|e| io_error(path, "read", e))?;
    Identity::from_pkcs8(&bytes).map(Some).map_err(|source| key(path, source))
}

/// Looks at the open file itself, so nothing can be swapped between this and reading.
fn check(path: &Path, fd: &OwnedFd) -> Result<(), KeyFileError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| io_error(path, "examine", errno.into()))?;
    let path = || path.to_path_buf();
    if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_size as u64 > MAX_BYTES {
        return Err(KeyFileError::NotAKeyFile { path: path() });
    }
    let us = rustix::process::geteuid().as_raw();
    if stat.st_uid != us {
        return Err(KeyFileError::ForeignOwner { path: path(), owner: stat.st_uid, us });
    }
    let mode = Mode::from_raw_mode(stat.st_mode).as_raw_mode();
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(KeyFileError::Exposed { path: path(), mode }),
    }
}

/// Puts a new file at `path`; false if there is one already.
fn create(path: &Path, bytes: &[u8]) -> Result<bool, KeyFileError> {
    let temporary = temporary_beside(path)?;
    let created = write_new(&temporary, bytes).and_then(|()| match std::fs::hard_link(&temporary, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    });
    // The link is what counts; a left-over temporary is only untidy.
    let _ = std::fs::remove_file(&temporary);
    let created = created.map_err(|e| io_error(path, "create", e))?;
    sync_folder(path).map_err(|e| io_error(path, "sync the folder of", e))?;
    Ok(created)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn temporary_beside(path: &Path) -> Result<PathBuf, KeyFileError> {
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| key(path, KeyError::NoRandomness))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", hex(&random)));
    Ok(name.into())
}

fn key(path: &Path, source: KeyError) -> KeyFileError {
    KeyFileError::Key { path: path.into(), source }
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> KeyFileError {
    KeyFileError::Io { path: path.into(), action, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_key_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let first = load_or_create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(load_or_create(&path).unwrap().node_id(), first.node_id());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary was left");
    }

    #[test]
    fn processes_that_race_get_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let racers: Vec<_> = (0..16)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || load_or_create(&path).unwrap().node_id())
            })
            .collect();
        let ids: HashSet<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_that_others_may_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_or_create(&path).unwrap();
        for bad in [0o640, 0o604, 0o620, 0o602, 0o601] {
            set_mode(&path, bad);
            let error = load_or_create(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Exposed { mode, .. } if mode == bad), "{error}");
        }
        set_mode(&path, 0o400);
        load_or_create(&path).unwrap();
    }

    #[test]
    fn someone_elses_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_or_create(&path).unwrap();
        // Only root can give files away; elsewhere there is nothing to test with.
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            let error = load_or_create(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::ForeignOwner { owner: 65534, .. }), "{error}");
        }
    }

    #[test]
    fn what_is_no_key_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_or_create(&path).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(load_or_create(&link), Err(KeyFileError::NotAKeyFile { .. })));
        assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::NotAKeyFile { .. })));
        for junk in [&b""[..], b"junk", &[0; 4096]] {
            std::fs::write(&path, junk).unwrap();
            assert!(load_or_create(&path).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), junk);
        }
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = load_or_create(&folder.path().join("none/key")).unwrap_err();
        assert!(matches!(error, KeyFileError::Io { action: "create", .. }), "{error}");
    }
}
