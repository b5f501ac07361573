//! The shape of a recipe, and how little of it a change touches.

use super::*;
use crate::DecodeError;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn what_is_built_is_read_and_verified(runs in sequence()) {
        let (root, nodes) = build(&runs);
        let extents = joined(&runs);
        prop_assert_eq!(read(&root, &nodes), extents);
        prop_assert_eq!(verify(&root, nodes.lookup()), Ok(runs.iter().map(|run| run.repeat).sum()));
        prop_assert_eq!(root.size, runs.iter().map(Run::bytes).sum::<u64>());
    }

    #[test]
    fn the_steps_of_building_leave_no_trace(runs in sequence(), cut: prop::sample::Index) {
        let mut steps = Vec::new();
        for run in &runs {
            let first = 1 + cut.index(run.repeat as usize) as u64;
            steps.push(Run { repeat: first.min(run.repeat), ..*run });
            if first < run.repeat {
                steps.push(Run { repeat: run.repeat - first, ..*run });
            }
        }
        let (whole, stepwise) = (build(&runs), build(&steps));
        prop_assert_eq!(whole.0, stepwise.0);
        prop_assert_eq!(whole.1.bytes, stepwise.1.bytes);
    }
}

/// Levels of the tree.
fn depth(root: &RecipeRoot, nodes: &Nodes) -> usize {
    usize::from(nodes.node(&root.top).level()) + 1
}

#[test]
fn an_edit_changes_few_nodes_of_each_level() {
    let mut total = 0;
    for seed in 0..30u64 {
        let numbers: Vec<u64> = (0..20_000).map(|i| seed * 100_000 + i).collect();
        let (old_root, old) = build(&chunks(numbers.iter().copied()));
        let at = (seed as usize * 9_111) % numbers.len();
        for insert in [0, 3] {
            let fresh = (0..insert).map(|i| 5_000_000 + i);
            let edited = numbers[..at].iter().copied().chain(fresh).chain(numbers[at + 1..].iter().copied());
            let (new_root, new) = build(&chunks(edited));
            let changed = new.not_in(&old);
            assert!(changed <= 6 * depth(&new_root, &new), "{changed} nodes, seed {seed}");
            assert!(depth(&old_root, &old) >= 3);
            total += changed;
        }
    }
    assert!(total < 60 * 6, "{total} nodes in 60 edits");
}

#[test]
fn a_joined_sequence_shares_its_parts_nodes() {
    let (_, a) = build(&chunks(0..3000));
    let (_, b) = build(&chunks(10_000..13_000));
    let (root, both) = build(&chunks((0..3000).chain(10_000..13_000)));
    let fresh = both.not_in(&a.with(&b));
    assert!(fresh <= 6 * depth(&root, &both), "{fresh} of {} nodes", both.bytes.len());
}

#[test]
fn fan_out_keeps_to_its_bounds_and_target() {
    let (root, nodes) = build(&chunks(0..100_000));
    let leaves = nodes.bytes.values().filter(|bytes| bytes[1] == 0).count();
    assert!((100_000 / 80..100_000 / 50).contains(&leaves), "{leaves} leaves");
    let full: Vec<_> = nodes.bytes.keys().map(|hash| nodes.node(hash).entries().len()).collect();
    assert!(full.iter().all(|count| *count <= MAX_ENTRIES));
    assert!(full.iter().filter(|count| **count < MIN_ENTRIES).count() <= depth(&root, &nodes));
}

#[test]
fn zeros_have_a_tiny_recipe() {
    let zeros = Run { hash: ChunkHash::of(&[0; 65536]), len: 65536, repeat: MAX_SIZE / 65536 };
    let (root, nodes) = build(&[zeros]);
    assert_eq!(nodes.bytes.len(), 1);
    assert!(nodes.bytes[&root.top].len() < 50);
    assert_eq!(verify(&root, nodes.lookup()), Ok(zeros.repeat));
    let end = seek(&root, MAX_SIZE - 1, nodes.lookup()).next().unwrap().unwrap();
    assert_eq!(end, Extent { offset: MAX_SIZE - 65536, run: Run { repeat: 1, ..zeros } });
}

#[test]
fn alternating_chunks_make_equal_nodes() {
    let (root, nodes) = build(&chunks((0..20_000).map(|i| i % 2)));
    assert!(nodes.bytes.len() < 20, "{} nodes", nodes.bytes.len());
    assert_eq!(verify(&root, nodes.lookup()), Ok(20_000));
}

#[test]
fn the_empty_object_has_one_empty_leaf() {
    let (root, nodes) = build(&[]);
    assert_eq!((root.size, nodes.bytes.len()), (0, 1));
    assert_eq!(verify(&root, nodes.lookup()), Ok(0));
}

#[test]
fn the_top_may_be_a_node_that_was_closed_by_its_last_entry() {
    let closing = (0..).find(|n| chunk(*n).hash.0[0] == 0).unwrap();
    let numbers = (closing + 1..closing + 16).chain([closing]);
    let (root, nodes) = build(&chunks(numbers));
    assert_eq!(nodes.bytes.len(), 1, "no level above the only leaf");
    assert_eq!(verify(&root, nodes.lookup()), Ok(16));
}

/// Pushes `runs` and returns why that was refused.
fn refusal(runs: &[Run]) -> DecodeError {
    let mut builder = RecipeBuilder::new(PARAMETERS, |_, _| Ok::<_, Infallible>(())).unwrap();
    let refused = runs.iter().find_map(|run| builder.push_run(*run).err());
    let Some(BuildError::Refused(why)) = refused else {
        panic!("accepted {runs:?}");
    };
    why
}

#[test]
fn chunks_that_no_chunker_makes_are_refused() {
    let long = Run { len: 65537, ..chunk(0) };
    let short = Run { len: 63, ..chunk(0) };
    let never = Run { repeat: 0, ..chunk(0) };
    let other_len = Run { len: chunk(0).len + 1, ..chunk(0) };
    refusal(&[long]);
    refusal(&[Run { len: 0, ..chunk(0) }]);
    refusal(&[never]);
    refusal(&[short, chunk(1)]);
    refusal(&[Run { repeat: 2, ..short }]);
    refusal(&[chunk(0), other_len]);
    build(&[chunk(1), short]);
}

#[test]
fn a_size_over_the_limit_is_refused() {
    for repeat in [MAX_SIZE, u64::MAX] {
        let refused = refusal(&[Run { repeat, ..chunk(0) }]);
        assert!(matches!(refused, DecodeError::TooLarge { .. }), "{refused:?}");
    }
    let half = Run { len: 65536, repeat: MAX_SIZE / 65536 / 2, ..chunk(0) };
    assert!(matches!(refusal(&[half, half, chunk(1)]), DecodeError::TooLarge { .. }));
}

#[test]
fn a_node_that_is_not_kept_fails_the_build() {
    let mut builder = RecipeBuilder::new(PARAMETERS, |_, _| Err("disk full")).unwrap();
    builder.push(chunk(0).hash, 100).unwrap();
    assert_eq!(builder.finish(Oid::of(b"")), Err(BuildError::Emit("disk full")));
}

#[test]
fn a_live_object_has_no_recipe() {
    let builder = RecipeBuilder::new(PARAMETERS, |_, _| Ok::<_, Infallible>(())).unwrap();
    assert!(matches!(builder.finish(Oid::Live([1; 32])), Err(BuildError::Refused(_))));
}
