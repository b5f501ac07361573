//! An older version of a file on its way: the one that it replaces, or another one that lies somewhere else. Pieces of it that
//! are right are taken over.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use towpath_content::pieces::MIN_LOG2;
use towpath_transfer::following::BaseReader;

/// Bytes from which on a file is worth reading for pieces of it: it has several.
pub const WORTH_READING: u64 = (1 << MIN_LOG2) + 1;

/// The older version, open.
#[derive(Debug)]
pub struct BaseFile {
    file: File,
    size: u64,
    in_place: u64,
    /// The temporary of the new file shares its bytes.
    is_shared: bool,
}

impl BaseFile {
    /// A file of `size` bytes that may be an older version of one of `new`.
    pub fn new(file: File, size: u64, new: u64) -> Self {
        Self { file, size, in_place: size.min(new), is_shared: false }
    }

    /// The same, whose bytes the temporary of the new file shares.
    pub fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// The file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that have a place in the new file, from the front on.
    pub const fn in_place(&self) -> u64 {
        self.in_place
    }

    /// True if the temporary of the new file shares its bytes.
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// True if reading it would wait for a disk.
    pub fn is_cold(&self) -> bool {
        !is_in_memory(&self.file, self.size)
    }
}

impl BaseReader for BaseFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

/// Whether a few places of a file can be read without waiting for a disk; true where the system can't tell.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File, size: u64) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let is_there = |offset| {
        let mut byte = [0];
        let read = preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
        read != Err(Errno::AGAIN)
    };
    [0, size / 2, size.saturating_sub(1)].into_iter().all(is_there)
}

/// Whether a few places of a file can be read without waiting for a disk; true where the system can't tell.
#[cfg(not(target_os = "linux"))]
const fn is_in_memory(_: &File, _: u64) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use rustix::fs::{Advice, fadvise, fstatfs};

    use super::is_in_memory;

    /// File systems that are known to tell, and to forget (`linux/magic.h`): ext4, XFS, btrfs.
    const ON_DISKS: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

    #[test]
    fn what_was_just_written_is_in_memory_until_the_kernel_forgets_it() {
        // Temporary files may lie in memory for good.
        let beside = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 3 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        assert!(is_in_memory(&file, 3 << 20) && is_in_memory(&file, 0));
        if ON_DISKS.contains(&(fstatfs(&file).unwrap().f_type as u64)) {
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            assert!(!is_in_memory(&file, 3 << 20));
        }
    }
}
