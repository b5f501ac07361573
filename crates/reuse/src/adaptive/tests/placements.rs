//! Table 3: how soon a useful file is found, wherever it lies in a home directory of 445,355 files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_simnet::for_seeds;
use towpath_transfer::rate::Rate;

use super::tree::Tree;
use crate::adaptive::budget::Effort;
use crate::adaptive::costs::Costs;
use crate::adaptive::event::{Action, End, Event};
use crate::adaptive::groups::WantedChunk;
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{DiskLimits, PlannedOperation};
use crate::adaptive::paths::SplitDirectory;
use crate::adaptive::{Account, Scheduler, Settings};

const DIRECTORIES: usize = 37_157;
const FILES: u32 = 445_355;
const SIZE: u64 = 12_000_413;
const OLD: u64 = 12_100_871;
const CHUNK: u64 = 16 << 10;

/// The rows: where it is, its size, then the paper's share of STATs in percent and megabytes hashed.
const ROWS: &[(&str, u64, f64, f64)] = &[
    ("/s/y/n/c/test/a.out", SIZE, 0.003, 12.01),
    ("/s/y/n/c/test/a.out", OLD, 0.003, 12.11),
    ("/s/y/n/c/test/diff", SIZE, 1.0, 12.01),
    ("/s/y-old/n/c/test/a.out", SIZE, 2.37, 24.03),
    ("/s/y-old/n/c/test/a.out", OLD, 2.37, 24.13),
    ("/s/y-old/n/c/test/diff", SIZE, 5.98, 24.03),
    ("/a.out", SIZE, 16.25, 34.03),
    ("/a.out", OLD, 16.25, 34.13),
    ("/diff", SIZE, 100.0, 173.8),
];

/// A home with files that mislead: one of nearly the size beside the destination, others of the name.
fn home(seed: u64) -> Tree {
    let fixed = ["/s/y/n/c/test", "/s/y-old/n/c/test", "/s/y/n/c/other"];
    let mut tree = Tree::new(seed, DIRECTORIES, FILES, &fixed);
    let mut random = fastrand::Rng::with_seed(seed);
    tree.place("/s/y/n/c/other/core.12", SIZE + 30_000);
    for _ in 0..5 {
        tree.place_somewhere(&mut random, "a.out", 10_000_000);
    }
    tree
}

/// Searches without a network until the file at `path` was hashed.
fn search(tree: &Tree, path: &str) -> Account {
    let path = Path::new(path);
    let useful =
        (SplitDirectory::new(path.parent().unwrap()), path.file_name().unwrap().as_encoded_bytes().to_vec());
    let destination = SplitDirectory::new(Path::new("/s/y/n/c/test"));
    let (limits, costs) = (DiskLimits::default(), Costs::new(CHUNK));
    let mut scheduler =
        Scheduler::new(Settings { limits, parallel: 1, costs, rate: Rate::default(), effort: Effort::Some });
    let source =
        File { directory: destination.clone(), name: b"a.out".as_slice().into(), size: SIZE, modified: None };
    let chunks =
        (0..SIZE / CHUNK).map(|at| WantedChunk { tag: at, offset: at * CHUNK, len: CHUNK as u32 }).collect();
    let mut now = Duration::ZERO;
    let mut events = vec![
        Event::Look(std::iter::successors(Some(destination), SplitDirectory::parent).collect()),
        Event::Wanted { files: vec![Arc::new(source)], chunks },
    ];
    while let Some(event) = events.pop() {
        for action in scheduler.handle(now, event) {
            match action {
                Action::Recompute => {
                    scheduler.recompute();
                    events.push(Event::Recomputed(Duration::ZERO));
                }
                Action::Start { id, operation, .. } => {
                    let mut listed = None;
                    let (took, end, is_useful) = match operation {
                        PlannedOperation::Check(_) => (0.0, End::Checked(Vec::new()), false),
                        PlannedOperation::Stat(directory) => {
                            let (files, directories) = tree.list(&directory);
                            listed = Some(Event::Listed { operation: id, files, directories });
                            (1.5e-3, End::Listed, false)
                        }
                        PlannedOperation::Hash(file) => {
                            let is_useful = useful.0 == file.directory && *useful.1 == *file.name;
                            (file.size as f64 / 40e6, End::Hashed { bytes: file.size }, is_useful)
                        }
                        PlannedOperation::Read { .. } => unreachable!("the index is empty"),
                    };
                    let took = Duration::from_secs_f64(took);
                    now += took;
                    if is_useful {
                        let stats = scheduler.account().stats;
                        scheduler.handle(now, Event::Completed { operation: id, took, end });
                        return Account { stats, ..scheduler.account() };
                    }
                    events.push(Event::Completed { operation: id, took, end });
                    events.extend(listed);
                }
                _ => {}
            }
        }
    }
    panic!("the whole tree was searched and {path:?} not hashed");
}

#[test]
fn the_useful_file_is_found_no_later_than_in_the_paper() {
    for_seeds(1, |seed| {
        for (path, size, stats, hashed) in ROWS {
            let mut tree = home(seed);
            tree.place(path, *size);
            let account = search(&tree, path);
            let share = 100.0 * account.stats as f64 / DIRECTORIES as f64;
            let megabytes = account.hashed_bytes as f64 / 1e6;
            println!(
                "{path} {size}: {} STATs ({share:.3} %, paper {stats}), hashed {megabytes:.2} MB (paper {hashed}), {:.2} s",
                account.stats,
                account.disk_time.as_secs_f64()
            );
            assert!(share <= *stats, "{path}: {share} % of the directories");
            assert!(megabytes <= *hashed, "{path}: {megabytes} MB hashed");
        }
    });
}
