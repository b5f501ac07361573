//! Reading in order and from any place, with nodes that come late or wrong.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn seeking_is_walking_on_from_there(runs in sequence(), at: prop::sample::Index) {
        let (root, nodes) = build(&runs);
        let offset = at.index(root.size as usize + 2) as u64;
        let expected: Vec<_> = read(&root, &nodes)
            .iter()
            .filter(|extent| extent.range().end > offset)
            .flat_map(|extent| extent.descriptors().filter(|d| d.offset + u64::from(d.len) > offset).take(1))
            .collect();
        let found: Vec<_> = seek(&root, offset, nodes.lookup())
            .map(|extent| extent.unwrap().descriptors().next().unwrap())
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn descriptors_cover_the_object_without_gaps(runs in sequence()) {
        let (root, nodes) = build(&runs);
        let mut end = 0;
        for descriptor in read(&root, &nodes).iter().flat_map(Extent::descriptors) {
            prop_assert_eq!(descriptor.offset, end);
            end += u64::from(descriptor.len);
        }
        prop_assert_eq!(end, root.size);
    }
}

#[test]
fn seeking_looks_up_one_node_of_each_level() {
    let (root, nodes) = build(&chunks(0..20_000));
    let levels = usize::from(nodes.node(&root.top).level()) + 1;
    let found = seek(&root, root.size / 2, nodes.lookup()).next().unwrap().unwrap();
    assert!(found.range().contains(&(root.size / 2)));
    assert_eq!(nodes.lookups.get(), levels);
}

#[test]
fn a_walk_goes_on_once_a_missing_node_has_come() {
    let runs = chunks(0..2000);
    let (root, nodes) = build(&runs);
    let mut here = HashMap::new();
    let mut found = Vec::new();
    let fetched = std::cell::RefCell::new(&mut here);
    let lookup = |hash: &NodeHash| Ok::<_, Infallible>(fetched.borrow().get(hash).cloned());
    for item in walk_recipe(&root, lookup) {
        match item {
            Ok(extent) => found.push(extent),
            Err(RecipeError::Missing(hash)) => {
                let before = fetched.borrow_mut().insert(hash, nodes.bytes[&hash].clone());
                assert!(before.is_none(), "each node is missed once");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(found, joined(&runs));
}

#[test]
fn wrong_bytes_blame_whoever_sent_them() {
    let (root, mut nodes) = build(&chunks(0..2000));
    for bytes in nodes.bytes.values_mut() {
        bytes[10] ^= 1;
    }
    let error = verify(&root, nodes.lookup()).unwrap_err();
    assert_eq!(error, RecipeError::WrongBytes(root.top));
    assert!(!error.blames_maker());
}

#[test]
fn a_failing_look_up_is_handed_on() {
    let (root, _) = build(&chunks(0..10));
    let failing = |_: &NodeHash| Err("no network");
    assert_eq!(verify(&root, failing), Err(RecipeError::Lookup("no network")));
}
