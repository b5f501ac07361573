//! Another process swaps directories for symbolic links that lead outside while a tree is synced:
//! nothing out there is read, written or removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::environment::{TestEnvironment, until_stopped};
use crate::runner::situations;
use crate::trees::{entries, symlink};

situations![
    directories_of_the_destination_are_swapped_for_links,
    directories_of_the_source_are_swapped_for_links,
];

const RUNS: usize = 150;
/// No more than that.
const LONG_ENOUGH: Duration = Duration::from_secs(12);
const FILES: usize = 12;

/// A directory of small files, all with this content.
fn fill(dir: &Path, content: &str) {
    fs::create_dir_all(dir.join("below")).unwrap();
    for number in 0..FILES {
        fs::write(dir.join(format!("{number}")), content).unwrap();
        fs::write(dir.join(format!("below/{number}")), content).unwrap();
    }
}

/// Every file's content below `root`, without following links.
fn contents(root: &Path) -> Vec<(PathBuf, String)> {
    let files =
        entries(root).into_iter().filter(|path| fs::symlink_metadata(root.join(path)).unwrap().is_file());
    files.map(|path| (path.clone(), fs::read_to_string(root.join(path)).unwrap())).collect()
}

/// Calls `sync` again and again while `dir` and a link to `outside` change places.
fn while_swapped(env: &TestEnvironment, dir: &Path, outside: &Path, mut sync: impl FnMut(usize)) {
    // Beside the trees, so that --delete leaves it alone.
    let link = env.sender.path("link");
    symlink(outside, &link);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            until_stopped(&is_over, Duration::from_micros(50), || {
                // One of them may be removed at the moment.
                let _ = renameat_with(CWD, dir, CWD, &link, RenameFlags::EXCHANGE);
            });
        });
        let start = Instant::now();
        (0..RUNS).take_while(|_| start.elapsed() < LONG_ENOUGH).for_each(&mut sync);
        is_over.store(true, Ordering::Relaxed);
    });
}

fn directories_of_the_destination_are_swapped_for_links() {
    let env = TestEnvironment::new();
    let (source, copy) = (env.sender.path("source"), env.sender.path("copy"));
    let (dir, outside) = (copy.join("dir"), env.stranger.path("outside"));
    fill(&source.join("dir"), "copied");
    fill(&outside, "precious");
    fs::write(outside.join("extra"), "precious").unwrap();
    let before = (entries(&outside), contents(&outside));
    fs::create_dir_all(&dir).unwrap();
    while_swapped(&env, &dir, &outside, |number| {
        fs::write(source.join(format!("dir/{}", number % FILES)), format!("copied {number}")).unwrap();
        env.sender.tow(["sync", "-q", "--delete", "--force", "source/", "copy"]).end();
        assert_eq!((entries(&outside), contents(&outside)), before, "run {number}");
    });
}

fn directories_of_the_source_are_swapped_for_links() {
    let env = TestEnvironment::new();
    let (source, copy) = (env.sender.path("source"), env.sender.path("copy"));
    let outside = env.stranger.path("outside");
    fill(&source.join("dir"), "copied");
    fill(&outside, "secret");
    while_swapped(&env, &source.join("dir"), &outside, |number| {
        fs::write(source.join("top"), format!("copied {number}")).unwrap();
        env.sender.tow(["sync", "-q", "-I", "--delete", "--force", "source/", "copy"]).end();
        if copy.exists() {
            let read = contents(&copy).into_iter().find(|(_, content)| content.contains("secret"));
            assert_eq!(read, None, "run {number}");
        }
    });
}
