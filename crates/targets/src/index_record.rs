//! Records in the index of a file that was just written, so that its bytes need not come again.

use std::path::Path;

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_store::{DiskStore, FileRecord, Stamp};

/// Tells the index what a file that was just written holds, so that the same bytes need not cross
/// the network again.
pub fn remember(store: &DiskStore, path: &Path, stamp: &towpath_files::Stamp, oid: &Oid, values: Vec<Value>) {
    let whole = path.parent().and_then(|dir| dir.canonicalize().ok()).zip(path.file_name());
    if let Some((dir, name)) = whole
        && let Some(record) = file_record(&dir.join(name), stamp, oid, values)
        && let Err(error) = store.remember(&[record])
    {
        tracing::warn!(%error, "the file could not be indexed");
    }
}

/// A record of a file that was just written and checked; `path` is absolute and without symlinks.
pub fn file_record(
    path: &Path,
    stamp: &towpath_files::Stamp,
    oid: &Oid,
    values: Vec<Value>,
) -> Option<FileRecord> {
    let stamp = store_stamp(stamp);
    let (dir, name) = (path.parent()?.to_path_buf(), path.file_name()?.to_owned());
    // Its modification time was set by us; unless that is now, a later writer changes it.
    let age = i128::from(stamp.ctime_ns) - i128::from(stamp.mtime_ns);
    let settled = age.unsigned_abs() > towpath_store::stamp::COARSE_TICK.as_nanos();
    let values = Some(values).filter(|values| values.len() > 1);
    Some(FileRecord { dir, name, stamp, settled, oid: *oid, values })
}

/// The content of the file at `path`, which is absolute and without symlinks, as it was `seen`; none if the index does not know it.
pub fn known_at(store: &DiskStore, path: &Path, seen: &towpath_files::Stamp) -> Option<Oid> {
    let (dir, name) = path.parent().zip(path.file_name())?;
    store.known(dir, &[(name, store_stamp(seen))]).ok()?.into_iter().next()?
}

/// A stamp as the store has it.
pub fn store_stamp(stamp: &towpath_files::Stamp) -> Stamp {
    let nanos = |time: towpath_content::tree::Time| {
        time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanos))
    };
    Stamp {
        dev: stamp.device,
        ino: stamp.inode,
        size: stamp.size,
        mtime_ns: nanos(stamp.modified),
        ctime_ns: nanos(stamp.changed),
    }
}
