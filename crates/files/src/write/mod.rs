//! Writing: a tree below a held root, or one file beside its final name.
//!
//! A file's life: a temporary of mode 0600, which nobody else can name or open, is made at its full
//! size; pieces are written into it in any order, or all its bytes at once; mode and times are set on the held descriptor; the
//! bytes are synced; it takes its final name by a rename that refuses to replace anything unless
//! told to. So a crash leaves the old file or the new one, and never half of one.
//!
//! A tree's temporaries lie in one private directory `.tow-<16 hex digits>` (mode 0700) in its
//! root, a single file's temporary lies beside it. The staging directory has three merits over
//! temporaries spread beside their final names: names of unfinished files are hidden from other
//! users whatever the modes of the directories around them, one directory tells all that an
//! interrupted transfer left, and the final directories do not fill with names that vanish. Its
//! price: what a file takes over from its directory (the group under setgid, a default ACL) it
//! takes from the staging directory. Since a rename cannot cross from one file system to another,
//! each one that is mounted inside the tree gets a staging directory in its topmost directory.
//!
//! | module | story |
//! |---|---|
//! | `copy` | the bytes of another file of this machine into one |
//! | `body` | the bytes of an unfinished file, shared by both forms |
//! | `destination` | [`Destination`]: a tree being written, put together |
//! | `tree` | the held root and what lies below it |
//! | `directories` | its directories, made and finished |
//! | `nodes` | [`NodeMaker`]: its symbolic links, special files and hard links |
//! | `present` | what is there already: looked at, listed, its metadata changed |
//! | `access` | directories that their owner may not use, made accessible meanwhile |
//! | `remove` | [`TreeRemover`]: what is there already, removed |
//! | `backup` | [`BackupMover`]: what is there already, moved out of the way |
//! | `folding` | [`NameFolding`]: file systems that take different names for one |
//! | `queue` | files that wait for the sync before their rename |
//! | `staging` | the private directory, locked while in use, adopted on resume |
//! | `area` | [`StagingArea`]: what is staged, for who resumes and who ends |
//! | `mounts` | which staging directory is used: one for each file system |
//! | `single` | [`SingleFile`] |
//! | `place` | the rename, and what stands in for it where the kernel has none that refuses |

mod access;
mod area;
mod backup;
mod body;
mod copy;
mod destination;
mod directories;
mod folding;
mod mounts;
mod nodes;
mod place;
mod present;
mod queue;
mod remove;
mod single;
mod staging;
mod tree;

pub use area::StagingArea;
pub use backup::BackupMover;
pub use body::FileBody;
pub use destination::{Destination, WriteOptions};
pub use directories::Made;
pub use folding::NameFolding;
pub use nodes::{NodeMaker, Settled};
pub use place::Overwrite;
pub use queue::{BeforeNaming, FlushLimits, Naming, Placed};
pub use remove::{Removed, Removing, TreeRemover};
pub use single::SingleFile;
pub use staging::{Staged, is_staging_name};

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::FileError;

/// The attempt to make a temporary in a folder.
const STAGING: &str = "stage in";
/// Prefix of every staging directory's name; 16 hexadecimal digits follow.
pub(crate) const PREFIX: &str = ".tow-";
/// The length of [`random_digits`].
const DIGITS: usize = 16;

/// 16 hexadecimal digits that nobody can guess.
fn random_digits() -> Result<String, Errno> {
    random().map(digits)
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn digits(number: u64) -> String {
    format!("{number:016x}")
}

/// True for what [`random_digits`] may have made.
fn are_random_digits(digits: &[u8]) -> bool {
    digits.len() == DIGITS && digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// True for names of what is being written: staging directories, and single files beside their final
/// name, of this run or another.
pub fn is_temporary_name(name: &[u8]) -> bool {
    let (stem, digits) = name.split_at(name.len().saturating_sub(DIGITS));
    name.starts_with(b".") && stem.ends_with(PREFIX.as_bytes()) && are_random_digits(digits)
}

/// Error about a temporary, or the folder that one was to be made in, turned into one about the `file` that was to be
/// made of it; `None` of anything else.
pub fn of_file(error: &FileError, file: &Path) -> Option<FileError> {
    let is_temporary = |name: &OsStr| is_temporary_name(name.as_bytes());
    if error.op() != STAGING && !error.path().iter().any(is_temporary) {
        return None;
    }
    let said = std::error::Error::source(error)?.downcast_ref().and_then(Errno::from_io_error)?;
    Some(FileError::new("write", file, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_is_called_by_the_name_of_its_file() {
        let of = |op, path: &str, errno: Errno| {
            let error = of_file(&FileError::new(op, Path::new(path), errno), Path::new("/d/f"));
            error.map(|error| error.to_string())
        };
        let named = Some("/d/f: permission denied".to_owned());
        assert_eq!(of("create", "/d/.f.tow-0123456789abcdef", Errno::ACCESS), named);
        assert_eq!(of("write", "/d/.tow-0123456789abcdef/0123456789abcdef", Errno::ACCESS), named);
        assert_eq!(of(STAGING, "/d", Errno::ACCESS), named);
        assert_eq!(of(STAGING, "/d", Errno::NOSPC).as_deref(), Some("/d/f: no space left"));
        assert_eq!(of("open", "/d", Errno::ACCESS), None, "the folder itself");
    }

    #[test]
    fn what_is_being_written_is_known_by_its_name() {
        let digits = "0123456789abcdef";
        for (name, is_temporary) in [
            (format!(".tow-{digits}"), true),
            (format!(".film.mkv.tow-{digits}"), true),
            (format!("film.tow-{digits}"), false),
            (format!(".tow-{digits}x"), false),
            (".tow-mine".into(), false),
            (digits.into(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_temporary_name(name.as_bytes()), is_temporary, "{name}");
        }
    }
}
