//! Stamps of files, by which a file counts as unchanged, and when not even an equal one is believed.
//!
//! A stamp is what the file system says of a file without its content being read. Two equal
//! stamps mean equal content, with one exception: file systems date changes by a clock that
//! ticks (some milliseconds; two seconds on FAT), so a file that was changed, read and changed again
//! within one tick has the same stamp before and after. A stamp is therefore *settled* only if
//! all its times were older than a tick when the content was read. What was read under an unsettled
//! stamp may be served, since whoever takes bytes in checks them, but it is no proof that the
//! file need not be read again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};
use towpath_content::tree::Time;

/// Time for which a fresh stamp is distrusted: twice the slowest usual tick of Linux (10 ms at 100 Hz).
pub const TICK: Duration = Duration::from_millis(20);
/// The same where times are whole seconds, as on FAT, which counts in steps of two.
pub const COARSE_TICK: Duration = Duration::from_secs(3);

const NANOS: i64 = 1_000_000_000;

/// The file system's record of a file's identity, length and age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Device the file is on.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content, in nanoseconds since 1970; may be set by anyone.
    pub mtime_ns: i64,
    /// Last change of the inode, in nanoseconds since 1970; set by the kernel alone.
    pub ctime_ns: i64,
}

impl Stamp {
    /// The stamp of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    /// The stamp of the file at `path`, symlinks followed, without opening it.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::stat(path)?))
    }

    /// The stamp of the file at `path`, `None` if that is no regular file.
    pub(crate) fn of_regular(path: &Path) -> io::Result<Option<Self>> {
        let stat = rustix::fs::stat(path)?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_regular.then(|| Self::from_stat(&stat)))
    }

    /// The stamp in what `stat` returned.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
            mtime_ns: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime_ns: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// Last change of the content, as trees have it.
    pub const fn modified(&self) -> Time {
        Time { seconds: self.mtime_ns.div_euclid(NANOS), nanos: self.mtime_ns.rem_euclid(NANOS) as u32 }
    }

    /// True if an equal stamp at any later time proves equal content, given that the content was
    /// read no earlier than `now`.
    ///
    /// A change time in the future is not believed, since the clock that set it is not ours. A
    /// modification time in the future is, as people set those and any write replaces them.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        let tick = if self.ctime_ns % NANOS == 0 { COARSE_TICK } else { TICK }.as_nanos() as i64;
        let is_changed_lately = self.ctime_ns > now.saturating_sub(tick);
        let is_modified_lately = self.mtime_ns.abs_diff(now) < tick as u64;
        !is_changed_lately && !is_modified_lately
    }

    /// Five integers for columns of a database; device and inode keep their bits.
    pub const fn to_columns(&self) -> [i64; 5] {
        [self.dev as i64, self.ino as i64, self.size as i64, self.mtime_ns, self.ctime_ns]
    }

    /// The mirror of [`Self::to_columns`].
    pub const fn from_columns([dev, ino, size, mtime_ns, ctime_ns]: [i64; 5]) -> Self {
        Self { dev: dev as u64, ino: ino as u64, size: size as u64, mtime_ns, ctime_ns }
    }
}

/// Nanoseconds since 1970; times beyond the years 1677 to 2262 are taken for those.
const fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(NANOS).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const MS: i64 = 1_000_000;

    #[test]
    fn times_are_seconds_and_less_than_one() {
        let modified = |mtime_ns| Stamp { dev: 1, ino: 1, size: 1, mtime_ns, ctime_ns: 0 }.modified();
        for (nanos, seconds, rest) in [(0, 0, 0), (1_500_000_000, 1, 500_000_000), (-1, -1, 999_999_999)] {
            assert_eq!(modified(nanos), Time { seconds, nanos: rest }, "{nanos}");
        }
    }

    #[test]
    fn a_stamp_is_settled_once_its_times_are_older_than_a_tick() {
        let now = 1_800_000_000_123_456_789i64;
        let cases = [
            ("both long ago", -60_000 * MS, -60_000 * MS, true),
            ("written a moment ago", -5 * MS, -5 * MS, false),
            ("just within the tick", -19 * MS, -19 * MS, false),
            ("just past the tick", -21 * MS, -21 * MS, true),
            ("copied with its old time a moment ago", -60_000 * MS, -5 * MS, false),
            ("written a moment ago by a clock that is behind", -5 * MS, -60_000 * MS, false),
            ("dated tomorrow by hand", 86_400_000 * MS, -60_000 * MS, true),
            ("changed in the future", -60_000 * MS, 5_000 * MS, false),
        ];
        for (situation, mtime, ctime, is_settled) in cases {
            let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime_ns: now + mtime, ctime_ns: now + ctime };
            let now = UNIX_EPOCH + Duration::from_nanos(now as u64);
            assert_eq!(stamp.is_settled(now), is_settled, "{situation}");
        }
    }

    #[test]
    fn whole_seconds_are_distrusted_for_longer() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime_ns: 100 * NANOS, ctime_ns: 100 * NANOS };
        assert!(!stamp.is_settled(at(102)));
        assert!(stamp.is_settled(at(103)));
    }

    #[test]
    fn a_write_changes_the_stamp_and_reading_does_not() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one").unwrap();
        let before = Stamp::of(file.as_file()).unwrap();
        std::fs::read(file.path()).unwrap();
        assert_eq!(Stamp::of_path(file.path()).unwrap(), before);
        file.write_all(b"two").unwrap();
        assert_ne!(Stamp::of(file.as_file()).unwrap(), before);
    }

    proptest! {
        #[test]
        fn columns_come_back(dev: u64, ino: u64, size: u64, mtime_ns: i64, ctime_ns: i64) {
            let stamp = Stamp { dev, ino, size, mtime_ns, ctime_ns };
            prop_assert_eq!(Stamp::from_columns(stamp.to_columns()), stamp);
        }

        #[test]
        fn no_time_is_out_of_range(mtime_ns: i64, ctime_ns: i64, seconds in 0u64..u32::MAX as u64) {
            let stamp = Stamp { dev: 0, ino: 0, size: 0, mtime_ns, ctime_ns };
            stamp.is_settled(UNIX_EPOCH + Duration::from_secs(seconds));
        }
    }
}
