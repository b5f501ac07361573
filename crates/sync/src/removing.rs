//! Removals below something that goes from the destination, and what is protected from them.

use towpath_files::{FileError, Filter, RelPath, Removed, Removing};

use crate::receiving::Receiving;

/// Calls `each` with what removing would remove, and removes nothing.
pub fn rehearse(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    filter: &mut Filter,
    each: impl FnMut(&RelPath, &RelPath, bool),
) -> Result<Removed, FileError> {
    let mut may = |below: &RelPath, is_dir: bool| !is_protected(filter, below, shown, is_dir);
    let mut removal = ShownRemoval { path, shown, may: &mut may, gone: each };
    receiving.placing()?.destination.rehearse_removal(path, &mut removal)
}

/// True if the filter rules keep something below a directory that goes.
pub fn is_protected(filter: &mut Filter, path: &RelPath, top: &RelPath, is_dir: bool) -> bool {
    // The top was checked when it was found.
    path != top && filter.protects_in_deleted(path, is_dir)
}

/// Translates between the destination's paths and those that people know.
pub struct ShownRemoval<'a, G> {
    /// The top, as the destination calls it.
    pub path: &'a RelPath,
    /// The same as people know it.
    pub shown: &'a RelPath,
    /// True if something may go.
    pub may: &'a mut dyn FnMut(&RelPath, bool) -> bool,
    /// Called for what is gone.
    pub gone: G,
}

impl<G: FnMut(&RelPath, &RelPath, bool)> Removing for ShownRemoval<'_, G> {
    fn may(&mut self, path: &RelPath, is_dir: bool) -> bool {
        below(path, self.path, self.shown).is_some_and(|below| (self.may)(&below, is_dir))
    }

    fn gone(&mut self, path: &RelPath, is_dir: bool) {
        if let Some(below) = below(path, self.path, self.shown) {
            (self.gone)(path, &below, is_dir);
        }
    }
}

/// The name for people of something below `path`, which they know as `shown`.
fn below(removed: &RelPath, path: &RelPath, shown: &RelPath) -> Option<RelPath> {
    let mut below = shown.clone();
    removed.names().skip(path.depth()).try_for_each(|name| below.push(name)).ok()?;
    Some(below)
}
