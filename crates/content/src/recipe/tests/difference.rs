//! The difference of two recipes against what comparing all chunks gives.

use std::collections::HashSet;

use super::*;

/// An edit of a sequence: where, how many chunks go, how many come.
type Edit = (prop::sample::Index, usize, usize);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, 0usize..40), 0..4)
}

/// Applies `edits`; what comes is `fresh(i)`.
fn edited(mut runs: Vec<Run>, edits: &[Edit], fresh: impl Fn(u64) -> Run) -> Vec<Run> {
    let mut number = 0..;
    for (at, gone, come) in edits {
        let start = at.index(runs.len() + 1);
        let end = (start + gone).min(runs.len());
        runs.splice(start..end, number.by_ref().take(*come).map(&fresh));
    }
    runs
}

fn found(old: &(RecipeRoot, Nodes), new: &(RecipeRoot, Nodes), limit: usize) -> Vec<Extent> {
    let nodes = old.1.clone().with(&new.1);
    difference(&old.0, &new.0, limit, nodes.lookup()).unwrap().collect::<Result<_, _>>().unwrap()
}

/// All runs of `new` whose chunk occurs nowhere in `old`.
fn lacking(old: &[Run], new: &[Run]) -> Vec<Extent> {
    let known: HashSet<_> = old.iter().map(|run| run.hash).collect();
    joined(new).into_iter().filter(|extent| !known.contains(&extent.run.hash)).collect()
}

/// Chunks in leaves of `old` that `new` does not have: these are in the differing part for sure.
fn in_differing_leaves(old: &Nodes, new: &Nodes) -> HashSet<ChunkHash> {
    let fresh = old.bytes.keys().filter(|hash| !new.bytes.contains_key(*hash));
    let runs = fresh.flat_map(|hash| match old.node(hash).into_entries() {
        Entries::Runs(runs) => runs,
        Entries::Children(_) => Vec::new(),
    });
    runs.map(|run| run.hash).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn without_recurring_chunks_exactly_the_lacking_ones_are_named(
        len in 0u64..3000,
        edits in edits(),
        turn: prop::sample::Index,
    ) {
        let old = chunks(0..len);
        let mut new = edited(old.clone(), &edits, |i| chunk(1_000_000 + i));
        if len % 3 == 0 && !new.is_empty() {
            let turn = turn.index(new.len());
            new.rotate_left(turn);
        }
        let expected = lacking(&old, &new);
        prop_assert_eq!(found(&build(&old), &build(&new), DEFAULT_LIMIT), expected);
    }

    #[test]
    fn with_recurring_chunks_none_is_left_out(
        old in sequence(),
        edits in edits(),
        limit in prop::sample::select(vec![0, 1, 40, 300, DEFAULT_LIMIT]),
    ) {
        let new = edited(old.clone(), &edits, |i| chunk(i % 12));
        let (old_built, new_built) = (build(&old), build(&new));
        let found = found(&old_built, &new_built, limit);
        let named: HashSet<_> = found.iter().copied().collect();
        prop_assert!(lacking(&old, &new).iter().all(|extent| named.contains(extent)));
        let all = joined(&new);
        prop_assert!(named.iter().all(|extent| all.contains(extent)), "named extents are the object's");
        prop_assert!(found.is_sorted_by_key(|extent| extent.offset));
        if limit == DEFAULT_LIMIT {
            let known = in_differing_leaves(&old_built.1, &new_built.1);
            prop_assert!(found.iter().all(|extent| !known.contains(&extent.run.hash)));
        }
    }

    #[test]
    fn an_unrelated_object_differs_as_a_whole(old in 0u64..400, new in 0u64..400) {
        let (old, new) = (chunks(0..old), chunks(1_000_000..1_000_000 + new));
        prop_assert_eq!(found(&build(&old), &build(&new), DEFAULT_LIMIT), joined(&new));
    }
}

#[test]
fn a_recipe_does_not_differ_from_itself_and_nothing_is_looked_up() {
    let (root, nodes) = build(&chunks(0..1000));
    assert_eq!(difference(&root, &root, 0, nodes.lookup()).unwrap().count(), 0);
    assert_eq!(nodes.lookups.get(), 0);
}

#[test]
fn the_cost_goes_with_the_difference() {
    let numbers = || 0..100_000u64;
    let old = build(&chunks(numbers()));
    for at in [0, 31_415, 50_000, 99_999] {
        let new = build(&chunks(numbers().map(|i| if i == at { 1_000_000 } else { i })));
        let nodes = old.1.clone().with(&new.1);
        let found: Vec<_> = difference(&old.0, &new.0, DEFAULT_LIMIT, nodes.lookup()).unwrap().collect();
        assert_eq!(found.len(), 1);
        assert!(nodes.lookups.get() <= 40, "{} look-ups of {}", nodes.lookups.get(), nodes.bytes.len());
    }
}

#[test]
fn a_difference_goes_on_once_a_missing_node_has_come() {
    let old = build(&chunks(0..3000));
    let new = build(&chunks((0..3000).map(|i| if i % 500 == 7 { i + 1_000_000 } else { i })));
    let expected = found(&old, &new, DEFAULT_LIMIT);
    let nodes = old.1.clone().with(&new.1);
    let here = std::cell::RefCell::new(HashSet::from([old.0.top, new.0.top]));
    let lookup = |hash: &NodeHash| {
        let bytes = here.borrow().contains(hash).then(|| nodes.bytes[hash].clone());
        Ok::<_, Infallible>(bytes)
    };
    let mut found = Vec::new();
    for item in difference(&old.0, &new.0, DEFAULT_LIMIT, lookup).unwrap() {
        match item {
            Ok(extent) => found.push(extent),
            Err(RecipeError::Missing(hash)) => assert!(here.borrow_mut().insert(hash)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn a_subtree_with_other_sums_than_in_the_old_recipe_is_not_struck() {
    let (old, nodes) = build(&chunks(0..1000));
    let mut nodes = nodes;
    let Entries::Children(mut children) = nodes.node(&old.top).into_entries() else {
        panic!("a thousand chunks take more than a leaf");
    };
    children[0].bytes += 1;
    let top = nodes.keep(&RecipeNode::new(1, Entries::Children(children)).unwrap());
    let lie = RecipeRoot { size: top.bytes, top: top.hash, ..old };
    let error = difference(&old, &lie, DEFAULT_LIMIT, nodes.lookup()).unwrap().find_map(Result::err);
    assert!(error.is_some_and(|error| error.blames_maker()));
}
