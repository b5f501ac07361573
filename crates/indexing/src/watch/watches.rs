//! Watches of directories by the kernel, and their notes (inotify).
//!
//! A directory is watched from before its names are read, so nothing that happens meanwhile is missed. Its
//! handle is what is watched, not its path: nobody can put a link in its way. One that is moved within its
//! trees is reported as a new one.

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;
use towpath_files::{RelPath, is_temporary_name};

use super::pending::PendingSpot;
use towpath_content::lock::lock;

/// Directories watched, at most: each takes about 1 KiB of the kernel's memory.
const MOST: usize = 64 << 10;
/// The kernel's own limit, for all programs of a user.
const KERNELS_LIMIT: &str = "/proc/sys/fs/inotify/max_user_watches";
/// Readings that wait to be taken; further ones wait in the kernel.
const READINGS: usize = 16;
/// Bytes of events read at once.
const BUFFER: usize = 16 << 10;
/// Events that make the index of a directory stale.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// A note of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchNote {
    /// Files in this directory.
    Changed(PendingSpot),
    /// This directory is new, with all that is in it.
    Appeared(PendingSpot),
    /// More than the kernel kept in mind, or the root of a tree is gone.
    Missed,
}

/// See the head of this module.
pub struct Watches {
    /// None where the kernel gives none: then nothing is reported.
    inotify: Option<OwnedFd>,
    most: usize,
    known: Mutex<KnownDirectory>,
}

#[derive(Default)]
struct KnownDirectory {
    spots: HashMap<i32, PendingSpot>,
    is_full: bool,
}

/// Notes of the kernel, as they come.
pub struct WatchNotes {
    inbox: mpsc::Receiver<Vec<WatchNote>>,
    /// Closed, it ends the reader.
    _stop: Option<PipeWriter>,
}

impl WatchNotes {
    /// Waits until something happens. Nothing is lost if it is no longer waited for.
    pub async fn next(&mut self) -> Vec<WatchNote> {
        match self.inbox.recv().await {
            Some(notes) => notes,
            None => std::future::pending().await,
        }
    }
}

impl Watches {
    /// Nothing is watched yet; the notes of what will be.
    pub fn start() -> (Arc<Self>, WatchNotes) {
        let limit = std::fs::read_to_string(KERNELS_LIMIT).ok().and_then(|text| text.trim().parse().ok());
        // The user's other programs need some too.
        let most = limit.map_or(MOST, |limit: usize| MOST.min(limit / 2));
        Self::start_with(most).unwrap_or_else(|error| {
                tracing::warn!(
                    "nothing is told of changes in indexed directories ({error}), which are looked at now and then \
                     instead; if the user has too many programs that watch files, raise the sysctl \
                     fs.inotify.max_user_instances"
                );
                Self::none()
        })
    }

    fn start_with(most: usize) -> io::Result<(Arc<Self>, WatchNotes)> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let watches = Arc::new(Self { inotify: Some(inotify), most, known: Mutex::default() });
        let (notes, inbox) = mpsc::channel(READINGS);
        let (stopped, stop) = io::pipe()?;
        let reading = Arc::clone(&watches);
        let read = move || {
            if let Err(error) = reading.read_all(&stopped, &notes) {
                tracing::error!("the kernel tells no more of indexed directories: {error}");
            }
        };
        std::thread::Builder::new().name("watches".into()).spawn(read)?;
        Ok((watches, WatchNotes { inbox, _stop: Some(stop) }))
    }

    /// Nothing is ever reported.
    pub fn none() -> (Arc<Self>, WatchNotes) {
        let (_, inbox) = mpsc::channel(1);
        (
            Arc::new(Self { inotify: None, most: 0, known: Mutex::default() }),
            WatchNotes { inbox, _stop: None },
        )
    }

    /// Watches a directory.
    pub fn add(&self, dir: BorrowedFd<'_>, spot: PendingSpot) {
        let Some(inotify) = &self.inotify else { return };
        // Held meanwhile, so that no event of it is read before it is known.
        let mut known = lock(&self.known);
        if known.spots.len() >= self.most && !known.is_full {
            return self.full(&mut known);
        }
        if known.is_full {
            return;
        }
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        match inotify::add_watch(inotify, Path::new(&path), CHANGES) {
            // One that is watched already keeps its number.
            Ok(number) => drop(known.spots.insert(number, spot)),
            Err(Errno::NOSPC | Errno::NOMEM) => self.full(&mut known),
            Err(error) => tracing::debug!(path = %spot.path, %error, "a directory can't be watched"),
        }
    }

    fn full(&self, known: &mut KnownDirectory) {
        known.is_full = true;
        tracing::warn!(
            "of the indexed directories {} are watched, and no more: Towpath takes {MOST} watches at most, and half \
             of the sysctl fs.inotify.max_user_watches; what changes in others is found when all are looked at, \
             now and then. Name fewer directories in 'index', or raise that limit",
            known.spots.len()
        );
    }

    /// True if the kernel tells of all directories that were added.
    pub fn are_complete(&self) -> bool {
        self.inotify.is_some() && !lock(&self.known).is_full
    }

    /// All is about to be looked at: there may be room again.
    pub fn try_again(&self) {
        lock(&self.known).is_full = false;
    }

    /// Nothing at or below this directory is watched any more.
    pub fn forget(&self, gone: &PendingSpot) {
        self.forget_in(&mut lock(&self.known), gone);
    }

    fn forget_in(&self, known: &mut KnownDirectory, gone: &PendingSpot) {
        let Some(inotify) = &self.inotify else { return };
        known.spots.retain(|&number, spot| {
            let is_gone = spot.tree == gone.tree && spot.path.starts_with(&gone.path);
            if is_gone {
                // The kernel may have done so itself.
                let _ = inotify::remove_watch(inotify, number);
            }
            !is_gone
        });
    }

    /// Reads until nobody takes any more, or `stopped` is closed.
    fn read_all(&self, stopped: &PipeReader, notes: &mpsc::Sender<Vec<WatchNote>>) -> io::Result<()> {
        let Some(inotify) = &self.inotify else { return Ok(()) };
        loop {
            let mut fds = [PollFd::new(inotify, PollFlags::IN), PollFd::new(stopped, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            let read = match self.read(inotify) {
                Err(Errno::AGAIN | Errno::INTR) => continue,
                read => read?,
            };
            if !read.is_empty() && notes.blocking_send(read).is_err() {
                return Ok(());
            }
        }
    }

    /// Notes of one reading.
    fn read(&self, inotify: &OwnedFd) -> Result<Vec<WatchNote>, Errno> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut notes = Vec::new();
        loop {
            let event = reader.next()?;
            let name = event.file_name().map_or(&b""[..], |name| name.to_bytes());
            notes.extend(self.note(event.wd(), event.events(), name));
            if reader.is_buffer_empty() {
                return Ok(notes);
            }
        }
    }

    fn note(&self, number: i32, what: ReadFlags, name: &[u8]) -> Option<WatchNote> {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(WatchNote::Missed);
        }
        let mut known = lock(&self.known);
        if what.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
            let is_gone = what.contains(ReadFlags::IGNORED);
            let spot = if is_gone { known.spots.remove(&number) } else { known.spots.get(&number).cloned() };
            return spot.filter(|spot| spot.path.is_root()).map(|_| WatchNote::Missed);
        }
        let spot = known.spots.get(&number)?.clone();
        if name.is_empty() || is_temporary_name(name) {
            return None;
        }
        if !what.contains(ReadFlags::ISDIR) {
            return (!what.contains(ReadFlags::MOVED_FROM)).then_some(WatchNote::Changed(spot));
        }
        let dir = PendingSpot { path: join(&spot.path, name)?, ..spot };
        if what.contains(ReadFlags::MOVED_FROM) {
            self.forget_in(&mut known, &dir);
            return None;
        }
        what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO).then_some(WatchNote::Appeared(dir))
    }
}

fn join(dir: &RelPath, name: &[u8]) -> Option<RelPath> {
    dir.join(name).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn spot(path: &str) -> PendingSpot {
        PendingSpot { tree: 0, path: RelPath::new(path.split('/').filter(|name| !name.is_empty())).unwrap() }
    }

    /// Watches these directories below `root`.
    fn watch(watches: &Watches, root: &Path, dirs: &[&str]) {
        for dir in dirs {
            watches.add(fs::File::open(root.join(dir)).unwrap().as_fd(), spot(dir));
        }
    }

    /// A directory in which new ones divide the notes.
    struct Marks {
        dir: tempfile::TempDir,
        count: u64,
    }

    impl Marks {
        fn new(watches: &Watches) -> Self {
            let dir = tempfile::tempdir().unwrap();
            watches.add(
                fs::File::open(dir.path()).unwrap().as_fd(),
                PendingSpot { tree: 1, path: RelPath::root() },
            );
            Self { dir, count: 0 }
        }

        /// Notes received since the last time, the same in a row once.
        async fn received(&mut self, notes: &mut WatchNotes) -> Vec<WatchNote> {
            self.count += 1;
            let name = self.count.to_string();
            fs::create_dir(self.dir.path().join(&name)).unwrap();
            let mark = WatchNote::Appeared(PendingSpot { tree: 1, path: RelPath::new([&name]).unwrap() });
            let mut received = Vec::new();
            while received.last() != Some(&mark) {
                received.extend(tokio::time::timeout(LIMIT, notes.next()).await.expect("it is received"));
            }
            received.pop();
            received.dedup();
            received
        }
    }

    #[tokio::test]
    async fn files_and_directories_that_come_and_change_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        let (watches, mut notes) = Watches::start();
        let mut marks = Marks::new(&watches);
        watch(&watches, root, &["", "a", "a/b"]);
        assert!(watches.are_complete());

        fs::write(root.join("a/b/file"), b"x").unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Changed(spot("a/b"))]);
        fs::rename(root.join("a/b/file"), root.join("a/file")).unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Changed(spot("a"))]);
        fs::read(root.join("a/file")).unwrap();
        fs::write(root.join(".name.tow-0123456789abcdef"), b"x").unwrap();
        fs::remove_file(root.join("a/file")).unwrap();
        assert_eq!(marks.received(&mut notes).await, []);
        fs::create_dir(root.join("new")).unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Appeared(spot("new"))]);
        fs::rename(root.join("a"), root.join("c")).unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Appeared(spot("c"))]);
        fs::write(root.join("c/b/file"), b"x").unwrap();
        assert_eq!(
            marks.received(&mut notes).await,
            [],
            "it is told under its new name once it was looked at"
        );
        fs::remove_dir_all(root.join("c")).unwrap();
        assert_eq!(marks.received(&mut notes).await, []);
        assert_eq!(lock(&watches.known).spots.len(), 2);
        fs::rename(root, root.with_extension("moved")).unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Missed]);
        fs::remove_dir_all(root.with_extension("moved")).unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Missed]);
        assert_eq!(lock(&watches.known).spots.len(), 1);
    }

    #[tokio::test]
    async fn no_more_are_watched_than_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a")).unwrap();
        let (watches, mut notes) = Watches::start_with(2).unwrap();
        let mut marks = Marks::new(&watches);
        watch(&watches, root, &["", "a"]);
        assert!(!watches.are_complete());
        fs::write(root.join("a/file"), b"x").unwrap();
        fs::write(root.join("file"), b"x").unwrap();
        assert_eq!(marks.received(&mut notes).await, [WatchNote::Changed(spot(""))]);
        watches.forget(&spot(""));
        watches.try_again();
        watch(&watches, root, &["a"]);
        assert!(watches.are_complete());
    }
}
