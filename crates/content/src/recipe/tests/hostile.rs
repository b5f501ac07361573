//! Trees whose hashes are right but that no builder makes.

use super::*;

/// A root over `top`, which was kept in `nodes`.
fn root_of(top: Child) -> RecipeRoot {
    RecipeRoot { parameters: PARAMETERS, size: top.bytes, object: Oid::of(b""), top: top.hash }
}

fn leaf(nodes: &mut Nodes, runs: Vec<Run>) -> Child {
    nodes.keep(&RecipeNode::new(0, Entries::Runs(runs)).unwrap())
}

fn inner(nodes: &mut Nodes, level: u8, children: Vec<Child>) -> Child {
    nodes.keep(&RecipeNode::new(level, Entries::Children(children)).unwrap())
}

/// A tree of any nodes that are valid by themselves: each entry names a node or lies about it.
fn any_tree() -> impl Strategy<Value = (Child, Nodes)> {
    let entry = (any::<prop::sample::Index>(), 0u64..40);
    let node = (0u8..4, prop::collection::vec(entry, 1..40));
    prop::collection::vec(node, 1..12).prop_map(|list| {
        let mut nodes = Nodes::default();
        let mut kept = vec![leaf(&mut nodes, closed()), leaf(&mut nodes, Vec::new())];
        for (level, entries) in list {
            let runs = entries.iter().map(|(_, number)| chunk(*number)).collect();
            let child = |(which, lie): &(prop::sample::Index, u64)| {
                let child = kept[which.index(kept.len())];
                Child {
                    bytes: child.bytes.max(1) + u64::from(*lie == 0),
                    chunks: child.chunks.max(1),
                    ..child
                }
            };
            let children = entries.iter().map(child).collect();
            let entries = if level == 0 { Entries::Runs(runs) } else { Entries::Children(children) };
            kept.extend(RecipeNode::new(level, entries).ok().map(|node| nodes.keep(&node)));
        }
        (kept[kept.len() - 1], nodes)
    })
}

/// Reason why the tree below `top` is refused; it blames the maker.
fn refusal(nodes: &Nodes, top: Child) -> String {
    let error = verify(&root_of(top), nodes.lookup()).unwrap_err();
    assert!(error.blames_maker(), "{error}");
    error.to_string()
}

/// Chunks that close a leaf with the last of them.
fn closed() -> Vec<Run> {
    let closing = (0..).map(chunk).find(|run| run.hash.0[0] == 0).unwrap();
    let plain = (1_000_000..).map(chunk).filter(|run| run.hash.0[0] > 5).take(MIN_ENTRIES - 1);
    plain.chain([closing]).collect()
}

#[test]
fn a_leaf_that_ends_before_it_is_closed_is_refused() {
    let mut nodes = Nodes::default();
    let children = vec![leaf(&mut nodes, chunks(0..5)), leaf(&mut nodes, chunks(5..10))];
    let top = inner(&mut nodes, 1, children);
    assert!(refusal(&nodes, top).contains("closes it"));
}

#[test]
fn a_run_that_goes_on_in_the_next_leaf_is_refused() {
    let mut nodes = Nodes::default();
    let last = closed()[MIN_ENTRIES - 1];
    let children = vec![leaf(&mut nodes, closed()), leaf(&mut nodes, vec![last])];
    let top = inner(&mut nodes, 1, children);
    assert!(refusal(&nodes, top).contains("goes on"));
}

#[test]
fn a_level_above_the_top_is_refused() {
    let mut nodes = Nodes::default();
    let only = leaf(&mut nodes, chunks(0..5));
    let top = inner(&mut nodes, 1, vec![only]);
    assert!(refusal(&nodes, top).contains("only child"));
}

#[test]
fn a_skipped_level_is_refused() {
    let mut nodes = Nodes::default();
    let children = vec![leaf(&mut nodes, closed()), leaf(&mut nodes, chunks(0..5))];
    let top = inner(&mut nodes, 2, children);
    assert!(refusal(&nodes, top).contains("level"));
}

#[test]
fn sums_that_a_child_does_not_have_are_refused() {
    for (bytes, chunks_more) in [(1, 0), (0, 1)] {
        let mut nodes = Nodes::default();
        let mut first = leaf(&mut nodes, closed());
        first.bytes += bytes;
        first.chunks += chunks_more;
        let last = leaf(&mut nodes, chunks(0..5));
        let top = inner(&mut nodes, 1, vec![first, last]);
        assert!(refusal(&nodes, top).contains("sums"));
    }
}

#[test]
fn an_empty_leaf_below_another_node_is_refused() {
    let mut nodes = Nodes::default();
    let first = leaf(&mut nodes, closed());
    let empty = Child { bytes: 1, chunks: 1, ..leaf(&mut nodes, Vec::new()) };
    let top = inner(&mut nodes, 1, vec![first, empty]);
    assert!(refusal(&nodes, top).contains("sums"));
}

#[test]
fn a_size_that_the_top_does_not_have_is_refused() {
    let (root, nodes) = build(&chunks(0..5));
    let error = verify(&RecipeRoot { size: root.size + 1, ..root }, nodes.lookup()).unwrap_err();
    assert!(error.to_string().contains("size"), "{error}");
}

#[test]
fn lengths_that_the_parameters_do_not_allow_are_refused() {
    let short = Run { len: 63, ..chunk(0) };
    let long = Run { len: 65537, ..chunk(0) };
    for runs in [vec![short, chunk(1)], vec![long], vec![Run { repeat: 2, ..short }]] {
        let mut nodes = Nodes::default();
        let top = leaf(&mut nodes, runs);
        assert!(refusal(&nodes, top).contains("length"));
    }
    let mut nodes = Nodes::default();
    let top = leaf(&mut nodes, vec![chunk(1), short]);
    assert_eq!(verify(&root_of(top), nodes.lookup()), Ok(2), "the last chunk may be short");
}

#[test]
fn bytes_that_are_no_node_blame_the_maker() {
    let mut nodes = Nodes::default();
    let hash = NodeHash::of(b"no node");
    nodes.bytes.insert(hash, b"no node".to_vec());
    let top = Child { hash, bytes: 1, chunks: 1 };
    assert!(refusal(&nodes, top).contains("malformed"));
}

#[test]
fn a_tree_of_repeated_nodes_is_walked_in_little_memory() {
    let mut nodes = Nodes::default();
    let run = Run { len: 64, repeat: 1 << 20, ..chunk(0) };
    let other = Run { hash: chunk(1).hash, ..run };
    let mut child = leaf(&mut nodes, [run, other].repeat(MAX_ENTRIES / 2));
    let mut level = 1;
    while child.bytes * MAX_ENTRIES as u64 <= MAX_SIZE {
        child = inner(&mut nodes, level, vec![child; MAX_ENTRIES]);
        level += 1;
    }
    assert!(nodes.bytes.len() < 5);
    let root = root_of(child);
    let mut walk = walk_recipe(&root, nodes.lookup());
    assert!((0..10_000).all(|_| walk.next().unwrap().is_ok()));
    assert!(nodes.lookups.get() < 50);
    assert!(seek(&root, root.size - 1, nodes.lookup()).next().unwrap().is_ok());
}

proptest! {
    #[test]
    fn any_tree_is_read_without_a_panic((top, nodes) in any_tree(), offset in 0u64..100_000) {
        let root = root_of(top);
        let honest = build(&closed());
        let all = nodes.clone().with(&honest.1);
        let is_whole = |extent: Result<Extent, RecipeError<Infallible>>| extent.is_ok();
        let read = walk_recipe(&root, nodes.lookup()).take_while(|extent| extent.is_ok()).take(5000).count();
        prop_assert!(read as u64 <= top.chunks);
        seek(&root, offset, nodes.lookup()).take(5000).find(|extent| extent.is_err());
        for (old, new) in [(&root, &honest.0), (&honest.0, &root)] {
            if let Ok(found) = difference(old, new, 5000, all.lookup()) {
                found.take(5000).all(is_whole);
            }
        }
    }

    #[test]
    fn a_tree_cut_elsewhere_is_refused(cut in 1usize..200) {
        let runs = chunks(0..200);
        let mut nodes = Nodes::default();
        let parts = [&runs[..cut], &runs[cut..]].map(|part| RecipeNode::new(0, Entries::Runs(part.to_vec())));
        if let [Ok(first), Ok(last)] = &parts && last.bytes() > 0 {
            let children = vec![nodes.keep(first), nodes.keep(last)];
            let top = inner(&mut nodes, 1, children);
            let honest = build(&runs).0;
            let verified = verify(&root_of(top), nodes.lookup());
            prop_assert_eq!(verified.is_ok(), honest.top == top.hash);
        }
    }
}
