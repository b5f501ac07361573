//! Files that the walk asks for, and the wait for those that are under way.

use std::sync::Arc;

use crate::error::CopyError;
use crate::file::CopyFile;
use crate::file_result::Settling;
use crate::receiving::Receiving;
use crate::supply::Supplier;
use crate::wanted::Wanted;
use towpath_targets::file_permits::{FileMoves, FilePermit};

/// Asks for files. For the merging thread: it blocks.
pub struct FileRequests {
    receiving: Arc<Receiving>,
    /// Supplier of files; none, if none are wanted.
    supplier: Option<Arc<dyn Supplier>>,
    moves: FileMoves,
}

impl FileRequests {
    /// Nothing was asked for.
    pub fn new(receiving: &Arc<Receiving>, supplier: Option<Arc<dyn Supplier>>) -> Self {
        if let Some(supplier) = &supplier {
            receiving.set_settling(Arc::clone(supplier) as Arc<dyn Settling>);
        }
        Self { receiving: Arc::clone(receiving), supplier, moves: receiving.permits.moves() }
    }

    /// Asks for a file; waits while too many are under way.
    pub fn request(&self, wanted: Wanted) -> Result<(), CopyError> {
        let receiving = &self.receiving;
        let Some(supplier) = &self.supplier else { return Ok(()) };
        if receiving.options.dry_run && wanted.compare.is_none() {
            receiving.report_file(&wanted, wanted.size);
            return Ok(());
        }
        let bytes = wanted.bytes_kept();
        let permit = match receiving.permits.try_take(bytes) {
            Some(permit) => permit,
            None => {
                supplier.push()?;
                self.next_permit(bytes)?
            }
        };
        let file = CopyFile::new(receiving, wanted, permit);
        if file.wanted().compare.is_none() {
            receiving.report_file(file.wanted(), file.size());
            if file.size() == 0 && !supplier.inspects() {
                file.make_empty();
                return Ok(());
            }
        }
        supplier.bring(file)
    }

    /// A permit for a file, once one is free. A batch that is full names its files; one that is not, and waits for what
    /// can't be asked for, is named as well.
    fn next_permit(&self, bytes: usize) -> Result<FilePermit, CopyError> {
        loop {
            self.receiving.check()?;
            if let Some(permit) = self.receiving.permits.try_take(bytes) {
                return Ok(permit);
            }
            self.moves.wait();
            self.receiving.name_if_stuck();
        }
    }

    /// All entries below this one have been looked at.
    pub fn considered(&self, entry: u64) -> Result<(), CopyError> {
        self.supplier.as_ref().map_or(Ok(()), |supplier| supplier.considered(entry))
    }

    /// True if anybody brings files.
    pub const fn has_supplier(&self) -> bool {
        self.supplier.is_some()
    }

    /// True if every file that was requested so far is in place, as far as that matters to its supplier.
    pub fn is_complete(&self) -> bool {
        self.supplier.as_ref().is_none_or(|supplier| supplier.is_complete())
    }

    /// It is known what only the destination has.
    pub fn end_walk(&self) -> Result<(), CopyError> {
        self.supplier.as_ref().map_or(Ok(()), |supplier| supplier.walk_is_over())
    }

    /// Lets files come that waited until it was known whether anything is removed, and waits for them.
    pub fn bring_waiting(&self, may_rename: bool, entries: u64) -> Result<(), CopyError> {
        match &self.supplier {
            Some(supplier) if supplier.waiting() > 0 => {
                supplier.bring_waiting(may_rename)?;
                self.wait_for_all(entries)
            }
            _ => Ok(()),
        }
    }

    /// Waits until no file is under way but those that wait for the end, where so many entries were looked at.
    pub fn wait_for_all(&self, entries: u64) -> Result<(), CopyError> {
        let receiving = &self.receiving;
        let waiting = self.supplier.as_ref().map_or(0, |supplier| supplier.waiting());
        if let Some(supplier) = &self.supplier {
            supplier.considered(entries)?;
            supplier.push()?;
        }
        while receiving.permits.taken() > waiting {
            receiving.check()?;
            receiving.name_if_stuck();
            self.moves.wait();
        }
        receiving.check()
    }
}
