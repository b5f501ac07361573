//! Nodes as bytes: whatever they are, they are refused or canonical, and cost nothing.

use super::*;
use crate::DecodeError;
use crate::codec::Writer;

/// Some node of the recipe of `runs`.
fn some_node(runs: &[Run], which: prop::sample::Index) -> Vec<u8> {
    let mut nodes: Vec<_> = build(runs).1.bytes.into_iter().collect();
    nodes.sort();
    nodes.swap_remove(which.index(nodes.len())).1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn nodes_come_back(runs in sequence(), which: prop::sample::Index) {
        let bytes = some_node(&runs, which);
        prop_assert_eq!(RecipeNode::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }

    #[test]
    fn changed_nodes_are_refused_or_canonical(
        runs in sequence(),
        which: prop::sample::Index,
        at: prop::sample::Index,
        to: u8,
    ) {
        let mut bytes = some_node(&runs, which);
        let at = at.index(bytes.len());
        prop_assert!(RecipeNode::from_bytes(&bytes[..at]).is_err(), "truncated at {}", at);
        bytes[at] = to;
        if let Ok(node) = RecipeNode::from_bytes(&bytes) {
            prop_assert_eq!(node.to_bytes(), &bytes[..]);
        }
        bytes.push(to);
        prop_assert!(RecipeNode::from_bytes(&bytes).is_err(), "a byte too many");
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(level in 0u8..12, count in 0u8..4, rest: Vec<u8>) {
        let bytes = [&[VERSION, level, count], &rest[..]].concat();
        if let Ok(node) = RecipeNode::from_bytes(&bytes) {
            prop_assert_eq!(node.to_bytes(), bytes);
        }
    }
}

/// A node of one or more raw entries.
fn raw(level: u8, entries: &[(u8, u64, u64)]) -> Result<RecipeNode, DecodeError> {
    let mut writer = Writer::new();
    writer.u8(VERSION).u8(level).varint(entries.len() as u64);
    for (hash, a, b) in entries {
        writer.raw(&[*hash; 32]).varint(*a).varint(*b);
    }
    RecipeNode::from_bytes(&writer.into_bytes())
}

#[test]
fn counts_beyond_the_bytes_or_the_limit_take_no_memory() {
    for (count, limit) in [(MAX_ENTRIES as u64, false), (MAX_ENTRIES as u64 + 1, true), (u64::MAX, true)] {
        let mut writer = Writer::new();
        writer.u8(VERSION).u8(0).varint(count);
        let refused = RecipeNode::from_bytes(&writer.into_bytes()).unwrap_err();
        assert_eq!(matches!(refused, DecodeError::TooLarge { .. }), limit, "{refused:?}");
        assert_eq!(matches!(refused, DecodeError::Truncated { .. }), !limit, "{refused:?}");
    }
    let long = vec![VERSION; MAX_NODE_LEN + 1];
    assert!(matches!(RecipeNode::from_bytes(&long), Err(DecodeError::TooLarge { .. })));
}

#[test]
fn entries_beyond_their_limits_are_refused() {
    for bad in [(0, 1), (1, 0), ((1 << 24) + 1, 1), (2, MAX_SIZE), (1 << 24, MAX_SIZE), (1, MAX_SIZE + 1)] {
        assert!(raw(0, &[(7, bad.0, bad.1)]).is_err(), "run of {bad:?}");
    }
    for bad in [(0, 0), (1, 0), (1, 2), (MAX_SIZE + 1, 1), (u64::MAX, u64::MAX)] {
        assert!(raw(1, &[(7, bad.0, bad.1)]).is_err(), "child of {bad:?}");
    }
    assert!(raw(0, &[(7, 1, MAX_SIZE)]).is_ok());
    assert!(raw(1, &[(7, MAX_SIZE, MAX_SIZE)]).is_ok());
}

#[test]
fn sums_over_the_limit_are_refused() {
    assert!(raw(0, &[(7, 1, MAX_SIZE), (8, 1, 1)]).is_err());
    assert!(raw(1, &[(7, MAX_SIZE, 1), (8, 1, 1)]).is_err());
}

#[test]
fn a_node_that_breaks_a_rule_is_refused() {
    assert!(raw(0, &[(7, 5, 1), (7, 5, 1)]).is_err(), "a split run");
    assert!(raw(0, &[(7, 5, 1), (7, 6, 1)]).is_err(), "one hash, two lengths");
    assert!(raw(1, &[]).is_err(), "an empty inner node");
    assert!(raw(MAX_LEVEL + 1, &[(7, 5, 1)]).is_err(), "a level over the limit");
    let mut closing: Vec<_> = (200..215).map(|hash| (hash, 5, 1)).collect();
    closing.push((0, 5, 1));
    assert!(raw(0, &closing).is_ok());
    closing.push((1, 5, 1));
    assert!(raw(0, &closing).is_err(), "an entry after the one that closes");
}

#[test]
fn the_longest_node_is_read() {
    let child = |i: u64| {
        let mut hash = [0xff; 32];
        hash[31] = i as u8;
        Child { hash: NodeHash(hash), bytes: MAX_SIZE / 256, chunks: MAX_SIZE / 256 }
    };
    let node = RecipeNode::new(1, Entries::Children((0..256).map(child).collect())).unwrap();
    let bytes = node.to_bytes();
    assert!(bytes.len() <= MAX_NODE_LEN);
    assert_eq!(RecipeNode::from_bytes(&bytes), Ok(node));
}

#[test]
fn entries_of_the_wrong_kind_make_no_node() {
    assert!(RecipeNode::new(1, Entries::Runs(vec![chunk(0)])).is_err());
    let child = Child { hash: NodeHash([1; 32]), bytes: 1, chunks: 1 };
    assert!(RecipeNode::new(0, Entries::Children(vec![child])).is_err());
}
