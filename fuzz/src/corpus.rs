//! Kept inputs: `corpus/NAME/` has one a file, as it is. Those called `found-…` made the parser fail once.

use std::fs;
use std::io;
use std::path::Path;

/// Folder that they lie in.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
/// Bytes of a file, at most: it is for cases, not for what a fuzzer collects in a night.
const LONGEST: u64 = 64 << 10;

/// The inputs that are kept for this target, in the order of their names.
pub fn kept(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    match fs::read_dir(Path::new(FOLDER).join(name)) {
        Ok(entries) => {
            entries.into_iter().try_for_each(|entry| entry.map(|entry| paths.push(entry.path())))?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| match fs::metadata(path)?.len() {
        ..=LONGEST => fs::read(path),
        _ => Err(io::Error::other(format!("{} is too long to be kept", path.display()))),
    };
    paths.iter().map(read).collect()
}
