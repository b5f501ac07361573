//! A temporary that is read while it grows: a tree descriptor on its way in, or an object on its
//! way to applications that read it as a stream.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_store::{About, Store, StoreError};
use towpath_transfer::intervals::Intervals;
use towpath_transfer::{Announcing, Target};

use towpath_content::lock::lock;

/// Bytes that are put into a store at a time.
const PUT_PART: usize = 256 << 10;

/// A transfer target whose checked front can be read at once.
pub struct Spool {
    file: File,
    existing: u64,
    /// The only bytes that are wanted, if not all are.
    part: Option<Range<u64>>,
    state: Mutex<SpoolState>,
    changed: Condvar,
    /// The same for those who wait without a thread.
    notify: Notify,
    /// How its pieces are announced, if others may read them.
    announcing: OnceLock<Announcing>,
}

#[derive(Default)]
struct SpoolState {
    /// Checked bytes from the front on.
    prefix: u64,
    /// All checked bytes.
    there: Intervals,
    /// Piece values, once it is complete.
    values: Vec<Value>,
    end: Option<SpoolEnd>,
}

/// Finding of a reader without a thread.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// These bytes can be read.
    Run(Range<u64>),
    /// Everything was read; the object has so many bytes.
    End(u64),
    /// No more will come.
    Failed,
}

enum SpoolEnd {
    Complete(u64),
    Failed,
}

impl Spool {
    /// Spools into the file at `path`, which only this process uses; what an earlier run left
    /// there is checked before it counts.
    pub fn open(path: &Path) -> io::Result<Arc<Self>> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let existing = file.metadata()?.len();
        Ok(Arc::new(Self::with(file, existing)))
    }

    /// Spools into a file that is empty.
    pub fn into_empty(file: File) -> Arc<Self> {
        Arc::new(Self::with(file, 0))
    }

    /// Spools a part of an object into a file that is empty, each byte at its place.
    pub fn part_into(file: File, part: Range<u64>) -> Arc<Self> {
        Arc::new(Self { part: Some(part), ..Self::with(file, 0) })
    }

    fn with(file: File, existing: u64) -> Self {
        let (changed, notify) = (Condvar::new(), Notify::new());
        let (state, announcing) = (Mutex::default(), OnceLock::new());
        Self { file, existing, part: None, state, changed, notify, announcing }
    }

    /// Others may read it while it comes, if a session does not fill it yet.
    pub fn announce(&self, how: Announcing) {
        let _ = self.announcing.set(how);
    }

    fn lock(&self) -> MutexGuard<'_, SpoolState> {
        lock(&self.state)
    }

    fn change(&self, change: impl FnOnce(&mut SpoolState)) {
        change(&mut self.lock());
        self.changed.notify_all();
        self.notify.notify_waiters();
    }

    /// The next bytes in order after `from`, at most `most`; waits for them, and for none before them.
    pub async fn next_in_order(&self, from: u64, most: u64) -> Next {
        self.next(|state| {
            let end = if state.prefix > from { state.prefix } else { state.there.end_of(from) };
            (end > from).then(|| from..end.min(from + most))
        })
        .await
    }

    /// The next bytes that were not `taken` yet, wherever they are, at most `most`; waits for them.
    pub async fn next_of_all(&self, taken: &Intervals, most: u64) -> Next {
        self.next(|state| {
            let mut left = state.there.clone();
            taken.iter().for_each(|range| left.remove(range));
            left.iter().next().map(|range| range.start..range.end.min(range.start + most))
        })
        .await
    }

    async fn next(&self, find: impl Fn(&SpoolState) -> Option<Range<u64>>) -> Next {
        loop {
            let changed = self.notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.lock();
                match (find(&state), &state.end) {
                    (Some(run), _) => return Next::Run(run),
                    (None, Some(SpoolEnd::Complete(size))) => return Next::End(*size),
                    (None, Some(SpoolEnd::Failed)) => return Next::Failed,
                    (None, None) => {}
                }
            }
            changed.await;
        }
    }

    /// Reads bytes that are there.
    pub fn read_run(&self, run: &Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (run.end - run.start) as usize];
        self.file.read_exact_at(&mut bytes, run.start)?;
        Ok(bytes)
    }

    /// True if all of the object is here.
    pub fn is_whole(&self) -> bool {
        matches!(self.lock().end, Some(SpoolEnd::Complete(_)))
    }

    /// Bytes of the object, if all of it is here.
    pub fn size(&self) -> Option<u64> {
        if let Some(SpoolEnd::Complete(size)) = self.lock().end { Some(size) } else { None }
    }

    /// The values of all pieces, once it is complete.
    pub fn take_values(&self) -> Vec<Value> {
        std::mem::take(&mut self.lock().values)
    }

    /// Nothing more comes.
    pub fn fail(&self) {
        self.change(|state| {
            state.end.get_or_insert(SpoolEnd::Failed);
        });
    }

    /// Blocks until there are more than `from` checked bytes or nothing more comes; returns how
    /// many there are.
    fn wait(&self, from: u64) -> io::Result<u64> {
        let mut state = self.lock();
        loop {
            match (state.prefix, &state.end) {
                (prefix, _) if prefix > from => return Ok(prefix),
                (_, Some(SpoolEnd::Complete(size))) => return Ok(*size),
                (_, Some(SpoolEnd::Failed)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Puts the object into `store` as one of its own, under the name `live` until all of it is there.
    pub fn put_into(
        self: &Arc<Self>,
        store: &dyn Store,
        live: &Oid,
        about: &About,
    ) -> Result<(), StoreError> {
        store.put_init(live, about)?;
        let (mut reader, mut part) = (self.reader(), vec![0; PUT_PART]);
        loop {
            match reader.read(&mut part) {
                Ok(0) => return store.put_commit(live).map(drop),
                Ok(len) => store.put_data(live, &part[..len])?,
                Err(source) => {
                    return Err(StoreError::Io { what: "read the tree's descriptor".into(), source });
                }
            }
        }
    }

    /// Reads from the front, waiting for bytes that are not there yet.
    pub fn reader(self: &Arc<Self>) -> SpoolReader {
        SpoolReader { spool: Arc::clone(self), at: 0 }
    }
}

/// Ends the wait of a spool's readers, should whoever fills it be dropped before the end.
pub struct FailOnDrop(pub Arc<Spool>);

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Reads a [`Spool`] in order.
pub struct SpoolReader {
    spool: Arc<Spool>,
    at: u64,
}

impl Read for SpoolReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let there = self.spool.wait(self.at)?;
        let len = usize::try_from(there - self.at).unwrap_or(usize::MAX).min(buf.len());
        let read = self.spool.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Target for Spool {
    fn begin(&self, _size: Option<u64>, _about: &About) -> io::Result<()> {
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        std::iter::once(0..self.existing).filter(|left| !left.is_empty()).collect()
    }

    fn part(&self) -> Option<Range<u64>> {
        self.part.clone()
    }

    fn announces(&self) -> Option<Announcing> {
        self.announcing.get().cloned()
    }

    fn is_read_early(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        self.change(|state| state.there.insert(offset..offset + bytes.len() as u64));
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        // The file may hold other bytes of an earlier run here.
        let zeros = vec![0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..len as usize], at)?;
            at += len;
        }
        self.change(|state| state.there.insert(range));
        Ok(())
    }

    fn prefix(&self, end: u64) {
        self.change(|state| state.prefix = end);
    }

    fn complete(&self, _oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.file.set_len(size)?;
        self.change(|state| {
            state.there.insert(0..size);
            state.values = values;
            state.prefix = size;
            state.end = Some(SpoolEnd::Complete(size));
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_waits_for_checked_bytes_and_sees_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        let mut reader = spool.reader();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        spool.write(0, b"hello ").unwrap();
        spool.prefix(6);
        spool.write(6, b"world").unwrap();
        spool.complete(&Oid::of(b""), 11, Vec::new()).unwrap();
        assert_eq!(reading.join().unwrap().unwrap(), b"hello world");
    }

    #[test]
    fn a_reader_of_a_failed_spool_gets_an_error_and_not_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        spool.write(0, b"hello").unwrap();
        spool.prefix(5);
        spool.fail();
        let mut all = Vec::new();
        assert!(spool.reader().read_to_end(&mut all).is_err());
        assert_eq!(all, b"hello");
    }

    #[tokio::test]
    async fn what_is_in_the_middle_is_read_without_what_is_before_it() {
        let spool = Spool::part_into(tempfile::tempfile().unwrap(), 6..9);
        let (late, ()) = tokio::join!(spool.next_in_order(7, 100), async {
            spool.write(2, b"lo wor").unwrap();
        });
        assert_eq!(late, Next::Run(7..8));
        spool.write(8, b"ld").unwrap();
        assert_eq!(spool.next_in_order(3, 6).await, Next::Run(3..9));
        assert!(!spool.is_whole());
        spool.fail();
        assert_eq!(spool.next_in_order(0, 1).await, Next::Failed);
        assert_eq!(spool.next_in_order(9, 1).await, Next::Run(9..10));
    }

    #[tokio::test]
    async fn what_is_there_is_taken_out_of_order_each_byte_once() {
        let spool = Spool::into_empty(tempfile::tempfile().unwrap());
        spool.write(6, b"world").unwrap();
        let mut taken = Intervals::default();
        for (expected, bytes) in [(6..9, &b"wor"[..]), (9..11, b"ld")] {
            let Next::Run(run) = spool.next_of_all(&taken, 3).await else { panic!("nothing there") };
            assert_eq!((&run, &spool.read_run(&run).unwrap()[..]), (&expected, bytes));
            taken.insert(run);
        }
        let (late, ()) = tokio::join!(spool.next_of_all(&taken, 100), async {
            spool.write(0, b"hello ").unwrap();
        });
        assert_eq!(late, Next::Run(0..6));
        taken.insert(0..6);
        spool.complete(&Oid::of(b""), 11, Vec::new()).unwrap();
        assert_eq!(spool.next_of_all(&taken, 100).await, Next::End(11));
        assert_eq!(spool.next_in_order(11, 100).await, Next::End(11));
    }
}
