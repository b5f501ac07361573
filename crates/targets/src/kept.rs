//! An object on its way into the store as one of its own: a spool that an interruption leaves behind, and that is adopted when all
//! of it is there.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_store::{About, DiskStore, Store};
use towpath_transfer::{Announcing, Target};

use crate::spool::Spool;

/// See the head of this module.
pub struct KeptObject {
    spool: Arc<Spool>,
    path: PathBuf,
    store: Arc<DiskStore>,
    about: About,
    is_announced: bool,
    /// Called before the object is the store's, with its name.
    before: Box<dyn Fn(&Oid) + Send + Sync>,
}

impl KeptObject {
    /// Fills the file at `path`, which is on the store's disk and of this process alone. What an earlier run left there is checked
    /// before it counts.
    pub fn open(
        path: &Path,
        store: Arc<DiskStore>,
        about: About,
        before: impl Fn(&Oid) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let spool = Spool::open(path)?;
        Ok(Self { spool, path: path.into(), store, about, is_announced: false, before: Box::new(before) })
    }

    /// Others may read it from the store while it comes.
    #[must_use]
    pub fn announced(self, is_announced: bool) -> Self {
        Self { is_announced, ..self }
    }
}

impl Target for KeptObject {
    fn begin(&self, size: Option<u64>, about: &About) -> io::Result<()> {
        self.spool.begin(size, about)
    }

    fn existing(&self) -> Vec<Range<u64>> {
        self.spool.existing()
    }

    fn is_read_early(&self) -> bool {
        self.is_announced
    }

    fn announces(&self) -> Option<Announcing> {
        self.is_announced.then(|| Announcing::until_whole(Arc::clone(&self.store) as Arc<dyn Store>))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.spool.read(offset, buf)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.spool.write(offset, bytes)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.spool.write_zeros(range)
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.spool.complete(oid, size, Vec::new())?;
        (self.before)(oid);
        let taken = self.store.take_in(&self.path);
        taken
            .and_then(|taken| self.store.adopt(taken, oid, size, &values, &self.about))
            .map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::State;

    use super::*;

    #[test]
    fn what_is_complete_is_the_stores_own_and_what_is_not_stays_for_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(&dir.path().join("state"), &dir.path().join("data")).unwrap());
        let (path, content) = (dir.path().join("coming"), b"all of it");
        let oid = Oid::of(content);
        let open = || KeptObject::open(&path, Arc::clone(&store), About::default(), |_| ()).unwrap();
        let first = open();
        first.write(0, &content[..4]).unwrap();
        drop(first);
        let second = open();
        assert_eq!(second.existing(), vec![Range { start: 0, end: 4 }]);
        second.write(4, &content[4..]).unwrap();
        second.complete(&oid, content.len() as u64, vec![*oid.digest()]).unwrap();
        assert_eq!(store.have(&oid).unwrap().state, State::Complete);
        assert!(!path.exists());
    }
}
