//! A supplier whose contents are all at hand, for tests and fuzz targets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_transfer::SourceId;
use towpath_transfer::source_id::PEER;

use crate::error::CopyError;
use crate::file::CopyFile;
use crate::file_result::{FileResult, Settling};
use crate::supply::Supplier;
use crate::tree_receiving::TreeReceiving;

/// Brings what the sender has, at once.
pub struct Given {
    /// Contents of files, by the number of their entries; the others can't be had.
    pub contents: HashMap<u64, Vec<u8>>,
    /// The protocol that is told what is wanted, considered and settled, if anybody listens.
    pub tree: Option<Arc<Mutex<TreeReceiving>>>,
}

impl Given {
    fn tell(&self, news: impl FnOnce(&mut TreeReceiving)) {
        if let Some(tree) = &self.tree {
            news(&mut lock(tree));
        }
    }
}

impl Settling for Given {
    fn settled(&self, entry: u64, result: FileResult) {
        self.tell(|tree| tree.settled(entry, result));
    }
}

impl Supplier for Given {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), CopyError> {
        let entry = file.wanted().entry;
        self.tell(|tree| tree.want(entry));
        let Some(content) = self.contents.get(&entry) else {
            file.drop_it();
            return Ok(());
        };
        let oid = Oid::of(content);
        if file.is_to_come(&oid) {
            file.take_content(&oid, content, &SourceId::other(PEER, None));
        }
        Ok(())
    }

    fn inspects(&self) -> bool {
        true
    }

    fn considered(&self, entry: u64) -> Result<(), CopyError> {
        self.tell(|tree| _ = tree.considered(entry));
        Ok(())
    }

    fn walk_is_over(&self) -> Result<(), CopyError> {
        Ok(())
    }

    fn push(&self) -> Result<(), CopyError> {
        Ok(())
    }
}
