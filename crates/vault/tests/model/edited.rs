//! Somebody edits what the server stores: it is named, nothing wrong is written, and what else is there can be read.
//!
//! A block's bytes are found wrong by its tag, too. That a node is another than it was is found by hashes alone, if it fits where it stands.

use std::fs;
use std::ops::Range;

use towpath_vault::format::{Canonical, TreeNode, Tuple};
use towpath_vault::put::PutOptions;

use crate::stale::Pair;

fn noise(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..300_000).map(|_| random.u8(..)).collect()
}

/// A vault with two entries, the pack of the first of which was edited. It is checked and got by a machine that never saw it.
fn assert_named(edit: impl Fn(&mut Vec<u8>)) {
    let pair = Pair::new();
    let path = pair.one.path().join("file");
    let mut packs = Vec::new();
    for (seed, name) in [(1, &b"first"[..]), (2, b"second")] {
        fs::write(&path, noise(seed)).unwrap();
        pair.open(pair.one.path()).put(&path, name, &PutOptions::default(), &mut |_| ()).unwrap();
        packs.extend(pair.served.borrow().packs());
    }
    let mut content = fs::read(&packs[0]).unwrap();
    edit(&mut content);
    fs::write(&packs[0], content).unwrap();
    pair.served.borrow_mut().start_again();
    let (other, to) = (pair.other.path(), pair.other.path().join("got"));
    let checked = pair.open(other).check(None, false, &mut |_| ()).unwrap();
    let entries: Vec<_> = checked.faults.iter().map(|fault| fault.entry.as_deref()).collect();
    assert_eq!(entries, [Some(&b"first"[..])]);
    assert!(pair.open(other).get(b"first", None, &to, false, &mut |_| ()).is_err());
    assert!(!to.exists());
    pair.open(other).get(b"second", None, &to, false, &mut |_| ()).unwrap();
    assert!(fs::read(&to).unwrap() == noise(2));
}

/// Where a pack has the leaf of the file, and its runs. Nodes are in front of blocks.
fn leaf(pack: &[u8]) -> (Range<usize>, Vec<Tuple>) {
    let mut at = 0;
    loop {
        let node = |end: usize| Some((at..end, TreeNode::from_bytes(&pack[at..end]).ok()?));
        let (place, node) = (at + 1..pack.len()).find_map(node).expect("it has a node here");
        at = place.end;
        match node {
            TreeNode::Leaf(runs) if runs.len() > 10 => return (place, runs),
            _ => {}
        }
    }
}

/// Each block is what it was, and the tree has as much as it should.
#[test]
fn runs_that_are_exchanged_in_a_store_are_named() {
    assert_named(|pack| {
        let (place, mut runs) = leaf(pack);
        let last = runs.len() - 1;
        runs.swap(0, last);
        pack[place].copy_from_slice(&TreeNode::Leaf(runs).to_bytes());
    });
}

#[test]
fn blocks_that_are_changed_in_a_store_are_named() {
    assert_named(|pack| {
        let (place, _) = leaf(pack);
        pack[place.end..][..200_000].iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
    });
}
