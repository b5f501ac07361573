//! Another process that swaps a directory for a symbolic link while the tree is written.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with};
use towpath_content::tree::{Kind, Metadata, Owner, Xattr};
use towpath_files::{
    Destination, FileError, FlushLimits, Overwrite, Policy, ScanOptions, SourceTree, WriteOptions,
};

use crate::support::{acl, ask, everything, metadata, names_in, path};

const TRIES: usize = 3000;
/// Tries after which a busy machine has still not let the two meet.
const MOST_TRIES: usize = 100 * TRIES;

/// Swaps the names of `dst/d`, a directory, and `dst/evil`, a link out of the tree, until told to
/// stop.
fn keep_swapping(root: &Path, stop: &AtomicBool) {
    let (dir, link) = (root.join("d"), root.join("evil"));
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    }
}

/// Writes below `dst/d` through a fresh handle, so that the way there is looked up every time.
fn write_once(root: &Path, turn: usize) -> Result<(), FileError> {
    let flush = FlushLimits { files: 1, ..FlushLimits::default() };
    let to = Destination::open(root, WriteOptions { flush, ..WriteOptions::default() })?;
    let (plain, name) = (Metadata::default(), turn.to_string());
    let at = path(&["d", &name]);
    match turn % 16 {
        0 => drop(to.commit(to.stage_file(0)?, at, &plain, Overwrite::Never)?),
        1 => drop(to.nodes().symlink(&at, b"t", &plain, Overwrite::Never)?),
        2 => drop(to.finish_dir(&path(&["d"]), &Metadata { mode: 0o711, ..plain })?),
        _ if turn.is_multiple_of(2) => drop(to.make_dir(&at)?),
        _ => drop((to.make_dir(&path(&["d"]))?, to.make_dir(&at)?)),
    }
    to.staging().remove()
}

/// Ends the swapping also when the test fails.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_directory_swapped_for_a_link_lets_nothing_out() {
    let tmp = tempfile::tempdir().unwrap();
    let (root, outside) = (tmp.path().join("dst"), tmp.path().join("outside"));
    fs::create_dir_all(root.join("d")).unwrap();
    fs::create_dir(&outside).unwrap();
    let mode = fs::metadata(&outside).unwrap().mode();
    symlink(&outside, root.join("evil")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut written, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_swapping(&root, &stop));
        let _stop = StopWhenDropped(&stop);
        let mut turns = 0..MOST_TRIES;
        while let Some(turn) = turns.next().filter(|&turn| turn < TRIES || written == 0 || refused == 0) {
            match write_once(&root, turn) {
                Ok(()) => written += 1,
                Err(FileError::OutsideTree { .. } | FileError::NotADirectory { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert_eq!(names_in(&outside), [""; 0]);
    assert_eq!(fs::metadata(&outside).unwrap().mode(), mode);
    assert!(written > 0 && refused > 0, "no race: {written} written, {refused} refused");
}

/// Tries over all operations together; fewer if the machine is too busy for them.
const ALL_TRIES: usize = 100_000;
const TIME: Duration = Duration::from_secs(10);

/// A destination with `d` and the link `evil` to `outside`, which has the same names in it, and
/// `a-secret` besides.
struct Arena {
    tmp: tempfile::TempDir,
    /// Held while the two are swapped, or made anew.
    swapping: Mutex<()>,
}

impl Arena {
    fn new() -> Self {
        // In memory, where it can be, a sync does not take most of the time.
        let tmp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let arena = Self { tmp, swapping: Mutex::default() };
        fs::create_dir_all(arena.outside().join("sub")).unwrap();
        for name in ["a-secret", "f", "g", "sub/f"] {
            fs::write(arena.outside().join(name), b"secret").unwrap();
        }
        fs::create_dir(arena.root()).unwrap();
        repair(&arena.repair_all());
        arena
    }

    fn root(&self) -> std::path::PathBuf {
        self.tmp.path().join("dst")
    }

    fn outside(&self) -> std::path::PathBuf {
        self.tmp.path().join("outside")
    }

    /// Makes what operations removed or moved, `d` or `evil` themselves included. Tells which
    /// directory is the one that is swapped.
    fn repair_all(&self) -> fs::File {
        let _held = self.swapping.lock().unwrap_or_else(PoisonError::into_inner);
        let names = [self.root().join("d"), self.root().join("evil")];
        let is_dir = |path: &std::path::PathBuf| fs::symlink_metadata(path).is_ok_and(|is| is.is_dir());
        let dir = names.iter().position(is_dir).unwrap_or(0);
        fs::create_dir_all(&names[dir]).unwrap();
        if fs::symlink_metadata(&names[1 - dir]).is_err() {
            symlink(self.outside(), &names[1 - dir]).unwrap();
        }
        fs::File::open(&names[dir]).unwrap()
    }

    fn keep_swapping(&self, stop: &AtomicBool) {
        let (dir, link) = (self.root().join("d"), self.root().join("evil"));
        while !stop.load(Ordering::Relaxed) {
            let held = self.swapping.lock().unwrap_or_else(PoisonError::into_inner);
            // One of them may just have been removed.
            let _ = renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE);
            drop(held);
        }
    }

    /// All that must stay as it is: names, metadata, attributes and bytes.
    fn shown_outside(&self) -> String {
        let mut text = String::new();
        for name in ["", "a-secret", "f", "g", "sub", "sub/f"] {
            let path = self.outside().join(name);
            let found = towpath_files::look(&path, &everything()).unwrap();
            // Reading changes no stamp.
            text += &format!("{:?} {:?} {}\n", found.entry, found.stamp, found.links);
            match path.is_dir() {
                true => text += &format!("{:?}\n", names_in(&path)),
                false => text += &String::from_utf8(fs::read(&path).unwrap()).unwrap(),
            }
        }
        text
    }
}

/// Makes what operations removed from `d`, whatever its name is just now.
fn repair(dir: &fs::File) {
    let _ = mkdirat(dir, "sub", Mode::RWXU);
    for name in ["f", "sub/f"] {
        let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::WRONLY;
        drop(openat(dir, name, flags, Mode::RUSR | Mode::WUSR).unwrap());
    }
}

/// Number of kinds of operations, and the one of this turn: what moves `d`
/// itself is rare, what makes files (in a staging directory of its own) less frequent than the rest.
const KINDS: usize = 14;

fn kind(turn: usize) -> usize {
    match (turn % 4096, turn % 128) {
        (rare @ 0..2, _) => rare,
        (_, making @ 2..6) => making,
        _ => 6 + turn % 8,
    }
}

/// One operation below `dst/d` through fresh handles; tells which inodes it read.
fn try_once(arena: &Arena, turn: usize) -> Result<Vec<u64>, FileError> {
    let flush = FlushLimits { files: 1, ..FlushLimits::default() };
    let options = WriteOptions { flush, policy: Policy::archive(), ..WriteOptions::default() };
    let to = Destination::open(&arena.root(), options)?;
    let (f, g, sub) = (path(&["d", "f"]), path(&["d", "g"]), path(&["d", "sub"]));
    let owner = Owner { id: rustix::process::geteuid().as_raw() + 1, name: Vec::new() };
    let xattrs = vec![Xattr { name: b"system.posix_acl_access".to_vec(), value: acl() }];
    let changed = Metadata { user: owner.clone(), group: owner, xattrs, ..metadata(0o6777, 77) };
    let any = Overwrite::ReplaceAny;
    let mut read = Vec::new();
    match kind(turn) {
        0 => drop(to.removal().remove(&path(&["d"]), &mut ask(|_, _| true))?),
        1 => drop(to.backups().rename(&path(&["d"]), &path(&["old-d"]))?),
        2 => drop(to.commit(to.stage_file_for(&g, 0)?, g, &changed, any)?),
        3 => drop(to.nodes().symlink(&g, b"t", &changed, any)?),
        4 => drop(to.nodes().special(&g, &Kind::Fifo, &changed, any)?),
        5 => drop(to.nodes().hard_link(&f, &to.stamp_at(&f)?, &g, any)?),
        6 => drop(to.removal().remove(&sub, &mut ask(|path, _| !path.as_bytes().ends_with(b"secret")))?),
        7 => drop(to.removal().remove(&f, &mut ask(|_, _| true))?),
        8 => to.backups().rename(&f, &path(&["d", "back", "f"]))?,
        9 => to.backups().rename(&f, &path(&["old", "d", "f"]))?,
        10 => {
            let found = to.look(&f, &everything())?;
            let stamp = found.as_ref().map(|found| found.stamp);
            read.extend(stamp.map(|stamp| stamp.inode));
            if let Some(file) = found.and_then(|found| found.file) {
                read.push(towpath_files::Stamp::of(&file.open()?).unwrap().inode);
            }
            if let Some(stamp) = stamp {
                to.set_metadata(&f, &stamp, &changed)?;
            }
        }
        11 => {
            let mut names = to.names(&path(&["d"]), &ScanOptions::default())?;
            let first = names.next().unwrap();
            assert_ne!(first.as_deref(), Some(&b"a-secret"[..]), "the names outside were read");
            to.folding().actual_name(&f)?;
        }
        12 => {
            to.make_dir(&sub)?;
            to.finish_dir(&sub, &changed)?;
        }
        _ => {
            let source = SourceTree::open(&arena.root())?;
            let stamp = source.look(&f, &everything())?.stamp;
            read.push(stamp.inode);
            source.remove_file(&f, &stamp)?;
        }
    }
    to.staging().remove()?;
    Ok(read)
}

#[test]
fn no_operation_on_what_is_there_gets_out_through_a_link() {
    let arena = Arena::new();
    let before = arena.shown_outside();
    let inode = |name| fs::metadata(arena.outside().join(name)).unwrap().ino();
    let forbidden: HashSet<u64> = ["", "a-secret", "f", "g", "sub", "sub/f"].map(inode).into();
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let (mut done, mut refused, mut turns) = ([0; KINDS], [0; KINDS], 0);
    std::thread::scope(|scope| {
        scope.spawn(|| arena.keep_swapping(&stop));
        let _stop = StopWhenDropped(&stop);
        let mut dir = arena.repair_all();
        while turns < ALL_TRIES && start.elapsed() < TIME {
            match try_once(&arena, turns) {
                Ok(read) => {
                    assert!(read.iter().all(|inode| !forbidden.contains(inode)), "read outside");
                    done[kind(turns)] += 1;
                }
                Err(_) => refused[kind(turns)] += 1,
            }
            if kind(turns) < 2 {
                dir = arena.repair_all();
            }
            repair(&dir);
            turns += 1;
        }
    });
    assert_eq!(arena.shown_outside(), before);
    println!("{turns} tries in {:?}", start.elapsed());
    println!("done {done:?}, refused {refused:?}");
    // Each operation met both; the first two are told of the link itself, and come seldom.
    assert!(done[2..].iter().chain(&refused[2..]).all(|&n| n > 0), "no race");
}
