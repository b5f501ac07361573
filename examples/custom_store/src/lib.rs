//! A store of your own: each complete object is a plain file, named by its hash, in one folder, which
//! may be a USB disk or a network share.
//!
//! It uses only the public API, and implements [`Store`] by wrapping: objects that are being put or
//! received live in a [`MemoryStore`], which knows all about those; what is complete is a file, and
//! found again after a restart. `tests/conformance.rs` passes the examination of the seam.
//!
//! Not here: names and times of objects after a restart, leases, and giving memory back before it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::node_id::hex;
use towpath_content::pieces::{Layout, PieceTree};
use towpath_store::{
    About, Availability, Descriptors, Listener, MemoryStore, Partial, RecipeNodes, State, Store, StoreChange,
    StoreError, hash_open_file,
};

/// Objects as files in one folder.
pub struct FolderStore {
    folder: PathBuf,
    fresh: MemoryStore,
}

impl FolderStore {
    /// Keeps objects in `folder`, which must be there; finds those of an earlier run.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), fresh: MemoryStore::new() }
    }

    /// The file of a complete object, and how it is cut; `NotHere` if there is none.
    fn open(&self, oid: &Oid) -> Result<(File, PathBuf, Layout), StoreError> {
        let path = self.folder.join(hex(oid.digest()));
        let file = File::open(&path).map_err(|_| StoreError::NotHere)?;
        let size = file.metadata().map_err(|error| failed("looking at", &path, error))?.len();
        let layout = Layout::of(size).map_err(|_| StoreError::NotHere)?;
        if oid.is_live() { Err(StoreError::NotHere) } else { Ok((file, path, layout)) }
    }

    /// Complete under its name or not at all, whatever happens meanwhile.
    fn keep(&self, oid: &Oid) -> Result<(), StoreError> {
        let (path, layout) = (self.folder.join(hex(oid.digest())), self.fresh.have(oid)?.layout);
        let write = || -> io::Result<()> {
            let temporary =
                self.folder.join(format!(".{}-{:?}", hex(oid.digest()), std::thread::current().id()));
            let mut file = File::create(&temporary)?;
            for index in 0..layout.count() {
                let mut piece = Vec::new();
                self.fresh.read_piece(oid, index, &mut piece).map_err(io::Error::other)?;
                file.write_all(&piece)?;
            }
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| failed("keeping", &path, error))
    }
}

fn failed(doing: &str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { what: format!("{doing} {}", path.display()), source }
}

/// Result from the objects in memory, and from the files if it is not there.
fn or<T>(here: Result<T, StoreError>, file: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    match here {
        Err(StoreError::NotHere) => file(),
        result => result,
    }
}

impl Store for FolderStore {
    fn put_init(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        self.fresh.put_init(live, about)
    }

    fn put_data(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError> {
        self.fresh.put_data(live, data)
    }

    fn put_boundary(&self, live: &Oid) -> Result<(), StoreError> {
        self.fresh.put_boundary(live)
    }

    fn put_commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        let oid = self.fresh.put_commit(live)?;
        self.keep(&oid).map(|()| oid)
    }

    fn put_abort(&self, live: &Oid) {
        self.fresh.put_abort(live);
    }

    fn have(&self, oid: &Oid) -> Result<Availability, StoreError> {
        or(self.fresh.have(oid), || {
            let (_, _, layout) = self.open(oid)?;
            let pieces = std::iter::once(0..layout.count()).collect();
            Ok(Availability {
                state: State::Complete,
                layout,
                pieces,
                spans: Vec::new(),
                about: About::default(),
            })
        })
    }

    fn version(&self, oid: &Oid) -> u64 {
        self.fresh.version(oid)
    }

    fn change(&self, oid: &Oid, seen: u64) -> StoreChange {
        self.fresh.change(oid, seen)
    }

    fn get_descriptors(&self, oid: &Oid, run: Range<u64>) -> Result<Descriptors, StoreError> {
        or(self.fresh.get_descriptors(oid, run.clone()), || {
            let (file, path, layout) = self.open(oid)?;
            let values = hash_open_file(&file, &path)?.values.unwrap_or_else(|| vec![*oid.digest()]);
            let tree = PieceTree::new(layout, values).filter(|tree| tree.oid() == *oid);
            let tree = tree.ok_or(StoreError::NotHere)?;
            tree.proof(run).map(Descriptors::Proof).map_err(|_| OUTSIDE)
        })
    }

    fn read_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        or(self.fresh.read_piece(oid, index, buf), || {
            let (file, path, layout) = self.open(oid)?;
            let range = Some(index).filter(|index| *index < layout.count()).map(|index| layout.range(index));
            let Range { start, end } = range.ok_or(OUTSIDE)?;
            let mut piece = vec![0; (end - start) as usize];
            file.read_exact_at(&mut piece, start).map_err(|error| failed("reading", &path, error))?;
            buf.extend_from_slice(&piece);
            Ok(())
        })
    }

    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        self.fresh.recipe(oid)
    }

    fn announce(&self, oid: &Oid, partial: Option<Arc<dyn Partial>>) {
        self.fresh.announce(oid, partial);
    }

    fn register_push(&self, listener: Listener) {
        self.fresh.register_push(listener);
    }
}

const OUTSIDE: StoreError = StoreError::Refused { why: "outside of the object" };
