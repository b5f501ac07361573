//! The paper's worked example (§5.4, Table 1).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_content::tree::Time;

use crate::adaptive::arrival::{self, ArrivalStep};
use crate::adaptive::costs::Costs;
use crate::adaptive::groups::{Groups, WantedChunk};
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{Candidate, Candidates, DiskLimits, PlannedOperation};
use crate::adaptive::paths::SplitDirectory;

const CHUNK: u32 = 16 << 10;

fn directory(path: &str) -> SplitDirectory {
    SplitDirectory::new(Path::new(path))
}

fn file(path: &str, size: u64, seconds: i64) -> Arc<File> {
    let path = Path::new(path);
    Arc::new(File {
        directory: SplitDirectory::new(path.parent().unwrap()),
        name: path.file_name().unwrap().as_encoded_bytes().into(),
        size,
        modified: Some(Time { seconds, nanos: 0 }),
    })
}

/// STAT and CHUNK-HASH cost one second each; the example does not weight STATs.
fn costs() -> Costs {
    let mut costs = Costs::new(u64::from(CHUNK)).with_stat_weight(1.0);
    costs.listed(Duration::from_secs(1));
    costs.hashed(64 << 10, Duration::from_secs(4));
    costs
}

fn is_near(found: f64, paper: f64) {
    // The paper rounds in between: no likelihood of `/d` gives both its 2.533 and its 418.4.
    assert!((found - paper).abs() <= (0.001 * paper).max(0.0005), "{found}, in the paper {paper}");
}

#[test]
fn the_worked_example_gives_the_paper_s_numbers() {
    let mut groups = Groups::default();
    let chunks = |from: u64| {
        (0..4).map(move |at| WantedChunk { tag: from + at, offset: at * 16384, len: CHUNK }).collect()
    };
    let a = groups.add(vec![file("/d/new/a.txt", 65536, 1000)], chunks(0)).unwrap();
    let b = groups.add(vec![file("/d/new/b.txt", 65536, 2000)], chunks(4)).unwrap();
    let costs = costs();
    let candidate = |operation| Candidate::new(operation, 0, &groups);

    let first = candidate(PlannedOperation::Stat(directory("/d/new")));
    is_near(first.total(&costs), 9.0);
    is_near(first.cpc(&costs), 1.125);
    is_near(first.probability(a, &groups), 1.0);

    let copy = candidate(PlannedOperation::Hash(file("/d/new/a.txt", 65536, 1000)));
    let above = candidate(PlannedOperation::Stat(directory("/d")));
    let core = candidate(PlannedOperation::Hash(file("/d/new/core", 1 << 20, 5)));
    for (candidate, total, for_a, for_b, cpc) in [
        (&copy, 4.0, 1.0, 0.35, 0.741),
        (&above, 9.0, 0.444, 0.444, 2.533),
        (&core, 64.0, 0.007, 0.007, 1142.9),
    ] {
        is_near(candidate.total(&costs), total);
        is_near(candidate.probability(a, &groups), for_a);
        is_near(candidate.probability(b, &groups), for_b);
        is_near(candidate.cpc(&costs), cpc);
    }

    let mut candidates = Candidates::new(DiskLimits::default());
    for (id, candidate) in [core, above, copy].into_iter().enumerate() {
        candidates.add(id as u64, candidate, &costs);
    }
    assert_eq!(candidates.ordered(true).map(|(id, _)| id).collect::<Vec<_>>(), [2, 1, 0]);
    let eta = |group| {
        let steps = candidates.ordered(true).map(|(_, candidate)| ArrivalStep {
            total: candidate.total(&costs),
            cpc: candidate.cpc(&costs),
            probability: candidate.probability(group, &groups),
        });
        arrival::expected(steps, 0.0)
    };
    is_near(eta(a), 4.0);
    is_near(eta(b), 418.4);
}
