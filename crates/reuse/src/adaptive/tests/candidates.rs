//! However much a disk has to offer, few candidates are outstanding, and they are the best.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::rate::Rate;

use crate::adaptive::budget::Effort;
use crate::adaptive::costs::Costs;
use crate::adaptive::event::{Action, End, Event};
use crate::adaptive::groups::{Groups, WantedChunk};
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{Candidate, Candidates, DiskLimits, PlannedOperation};
use crate::adaptive::paths::SplitDirectory;
use crate::adaptive::scheduler::{Scheduler, Settings};

const CHUNK: u64 = 16 << 10;
const SIZE: u64 = 100 * CHUNK;
const FILES: u64 = 20_000;
const DIRECTORIES: u64 = 6_000;

fn file(path: &str, size: u64) -> File {
    let path = Path::new(path);
    File {
        directory: SplitDirectory::new(path.parent().unwrap()),
        name: path.file_name().unwrap().as_encoded_bytes().into(),
        size,
        modified: None,
    }
}

fn chunks() -> Vec<WantedChunk> {
    (0..SIZE / CHUNK).map(|at| WantedChunk { tag: at, offset: at * CHUNK, len: CHUNK as u32 }).collect()
}

#[test]
fn beyond_the_limits_the_worst_are_forgotten() {
    let (mut groups, costs) = (Groups::default(), Costs::new(CHUNK));
    groups.add(vec![Arc::new(file("/d/wanted", SIZE))], chunks()).unwrap();
    let limits = DiskLimits { files: 10, directories: 5 };
    let mut candidates = Candidates::new(limits);
    let mut all = Vec::new();
    // In an order that is neither theirs nor its reverse.
    for id in (0..1000).map(|number| number * 7 % 1000) {
        let operation = match id % 4 {
            0 => PlannedOperation::Stat(SplitDirectory::new(Path::new(&format!(
                "/d/{id}{}",
                "/x".repeat(id as usize % 90)
            )))),
            _ => PlannedOperation::Hash(Arc::new(file(&format!("/d/{id}"), SIZE + id * CHUNK))),
        };
        let candidate = Candidate::new(operation, 0, &groups);
        all.push((candidate.cpc(&costs), id));
        candidates.add(id, candidate, &costs);
        assert!(candidates.len() <= 15);
    }
    assert_eq!((candidates.len(), candidates.forgotten()), (15, 985));
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let best = |is_directory: bool, limit: usize| {
        let of_kind = all.iter().filter(move |(_, id)| (id % 4 == 0) == is_directory);
        of_kind.take(limit).map(|(_, id)| *id)
    };
    let expected: BTreeSet<u64> = best(false, 10).chain(best(true, 5)).collect();
    candidates.recompute(&groups, &costs);
    assert_eq!(candidates.len(), 15, "also when they are judged anew");
    let kept: BTreeSet<u64> = (0..1000).filter(|id| candidates.take(*id).is_some()).collect();
    assert_eq!(kept, expected);
}

/// Files, and names of directories.
type Listing = (Vec<File>, Vec<Box<[u8]>>);

/// Operations under way that were started and are not over.
#[derive(Default)]
struct Disk {
    running: usize,
    most: usize,
    hashed: Vec<Arc<File>>,
}

impl Disk {
    /// Does each action at once; a listing has all the files and directories.
    fn act(&mut self, scheduler: &mut Scheduler, now: Duration, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            if matches!(event, Event::Completed { .. }) {
                self.running -= 1;
            }
            for action in scheduler.handle(now, event) {
                match action {
                    Action::Recompute => {
                        scheduler.recompute();
                        events.push(Event::Recomputed(Duration::ZERO));
                    }
                    Action::Start { id, operation, .. } => {
                        self.running += 1;
                        self.most = self.most.max(self.running);
                        let took = Duration::from_millis(1);
                        let (end, listed) = self.run(operation);
                        events.push(Event::Completed { operation: id, took, end });
                        events.extend(listed.map(|(files, directories)| Event::Listed {
                            operation: id,
                            files,
                            directories,
                        }));
                    }
                    _ => {}
                }
            }
        }
    }

    fn run(&mut self, operation: PlannedOperation) -> (End, Option<Listing>) {
        match operation {
            PlannedOperation::Check(_) => (End::Checked(Vec::new()), None),
            PlannedOperation::Stat(directory) if directory == SplitDirectory::new(Path::new("/d")) => {
                let names = (0..FILES).map(|number| (format!("/d/{number}"), 1 + number * 1000));
                let like = [("/d/wanted".to_owned(), SIZE)];
                let files = names.chain(like).map(|(path, size)| file(&path, size)).collect();
                let below = (0..DIRECTORIES).map(|number| number.to_string().into_bytes().into()).collect();
                (End::Listed, Some((files, below)))
            }
            PlannedOperation::Stat(_) => (End::Listed, None),
            PlannedOperation::Hash(file) => {
                let bytes = file.size;
                self.hashed.push(file);
                (End::Hashed { bytes }, None)
            }
            PlannedOperation::Read { .. } => panic!("the index is empty"),
        }
    }
}

#[test]
fn a_huge_directory_leaves_few_candidates_and_the_likely_file_first() {
    let (costs, rate) = (Costs::new(CHUNK), Rate::default());
    let settings = Settings { limits: DiskLimits::default(), parallel: 1, costs, rate, effort: Effort::Some };
    let mut scheduler = Scheduler::new(settings);
    let mut disk = Disk::default();
    let wanted = Event::Wanted { files: vec![Arc::new(file("/d/wanted", SIZE))], chunks: chunks() };
    disk.act(&mut scheduler, Duration::ZERO, Event::Look(vec![SplitDirectory::new(Path::new("/d"))]));
    disk.act(&mut scheduler, Duration::ZERO, wanted);
    assert_eq!(disk.running, 0);
    assert!(disk.most <= 2, "one, and a look into the index: {}", disk.most);
    assert_eq!(&*disk.hashed[0].name, b"wanted");
    let DiskLimits { files, directories } = DiskLimits::default();
    let kept = (files + directories) as u64;
    let forgotten = scheduler.account().forgotten;
    assert!(forgotten >= FILES + DIRECTORIES - kept, "{forgotten}");
    assert!(disk.hashed.len() <= files, "{}", disk.hashed.len());
}
