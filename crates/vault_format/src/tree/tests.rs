//! The tree against plain lists of bytes, and against nodes that lie.

use super::*;
use crate::names::{BlockId, FileId};
use crate::tuple::{BlockRef, Tuple};

/// A byte of a file: its block, and where it is in the block.
type ModelByte = (u64, u32);

struct Model {
    degree: u8,
    root: FileRoot,
    store: NodeMap,
    bytes: Vec<ModelByte>,
    blocks: u64,
}

fn block(number: u64, stored: u32) -> BlockRef {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    BlockRef { id: BlockId(id), hash: Digest::of(&id), stored, epoch: 0 }
}

fn number_of(tuple: &Tuple) -> u64 {
    let id = tuple.chain[0].id.0;
    u64::from_le_bytes(id[..8].try_into().unwrap())
}

fn bytes_of(tuple: &Tuple) -> impl Iterator<Item = ModelByte> + use<> {
    let (number, from) = (number_of(tuple), tuple.offset);
    (from..from + tuple.length as u32).map(move |at| (number, at))
}

impl Model {
    fn new(degree: u8) -> Self {
        let root = FileRoot::empty(FileId([7; 16]), 0);
        Self { degree, root, store: NodeMap::default(), bytes: Vec::new(), blocks: 0 }
    }

    fn tuples(&mut self, random: &mut fastrand::Rng, most: usize) -> Vec<Tuple> {
        let count = random.usize(0..=most);
        let one = |_| {
            self.blocks += 1;
            let plain = random.u32(1..40);
            let whole = Tuple::whole(block(self.blocks, plain + 16), plain);
            let from = random.u64(0..u64::from(plain));
            if random.bool() { whole } else { whole.part(from, u64::from(plain) - from).unwrap() }
        };
        (0..count).map(one).collect()
    }

    /// Several random steps; those that a proof alone allows come to the same root.
    fn change(&mut self, random: &mut fastrand::Rng, most: usize) {
        let mut steps = Vec::new();
        for _ in 0..random.usize(1..4) {
            let length = self.bytes.len() as u64;
            let (a, b) = (random.u64(0..=length), random.u64(0..=length));
            let (from, to) = match random.u8(0..8) {
                0..3 => (a, a),
                3 => (0, length),
                _ => (a.min(b), a.max(b)),
            };
            // Large runs go seldom, or there would be no large trees.
            let to = if random.u8(0..10) == 0 { to } else { to.min(from + 60) };
            let tuples = if random.u8(0..3) == 0 { Vec::new() } else { self.tuples(random, most) };
            let new: Vec<ModelByte> = tuples.iter().flat_map(bytes_of).collect();
            self.bytes.splice(from as usize..to as usize, new);
            steps.push((from, to, tuples));
        }
        let recorder = NodeRecorder::new(&self.store);
        let (root, nodes) = apply_steps(&recorder, self.degree, &self.root, &steps).unwrap();
        let proof = recorder.into_nodes();
        assert_eq!(apply_steps(&proof, self.degree, &self.root, &steps), Ok((root, nodes.clone())));
        let names = proof.iter().map(|(name, _)| *name);
        for name in names.filter(|_| random.u8(0..20) == 0).collect::<Vec<_>>() {
            let mut less = proof.clone();
            less.remove(&name);
            let lacks = apply_steps(&less, self.degree, &self.root, &steps);
            assert_eq!(lacks, Err(NodeError::Missing(name)), "each node of a proof is needed");
        }
        self.root = root;
        nodes.into_iter().for_each(|node| self.store.insert(node.bytes));
    }

    /// A walk checks all nodes: heights, counts, dead bytes and numbers of entries.
    fn check(&self) {
        let walk = TupleWalk::new(&self.store, self.degree, &self.root, 0..self.root.length, u64::MAX);
        let (mut found, mut dead) = (Vec::new(), 0);
        for item in walk {
            let (at, tuple) = item.unwrap();
            assert_eq!(at, found.len() as u64);
            dead += tuple.excess();
            found.extend(bytes_of(&tuple));
        }
        assert_eq!((found.len() as u64, dead), (self.root.length, self.root.dead));
        assert!(found == self.bytes);
        let entries = 2f64 * f64::from(self.degree) + 1.0;
        let fewest = (self.bytes.len() as f64).log(entries) / 8.0;
        assert!(f64::from(self.root.height) + 1.0 >= fewest.floor());
    }
}

fn apply_steps<S: NodeSource>(
    source: &S,
    degree: u8,
    root: &FileRoot,
    steps: &[(u64, u64, Vec<Tuple>)],
) -> Result<(FileRoot, Vec<NewNode>), NodeError> {
    let mut editor = TreeEditor::new(source, degree, root);
    for (from, to, tuples) in steps {
        editor = editor.splice(*from, *to, tuples.clone())?;
    }
    Ok(editor.finish())
}

fn grown(degree: u8, tuples: u64) -> Model {
    let mut model = Model::new(degree);
    let list: Vec<Tuple> = (0..tuples).map(|number| Tuple::whole(block(number, 26), 10)).collect();
    model.bytes = list.iter().flat_map(bytes_of).collect();
    let (root, nodes) = apply_steps(&model.store, degree, &model.root, &[(0, 0, list)]).unwrap();
    model.root = root;
    nodes.into_iter().for_each(|node| model.store.insert(node.bytes));
    model
}

#[test]
fn random_changes_are_those_of_a_plain_list() {
    for seed in 0..48 {
        let mut random = fastrand::Rng::with_seed(seed);
        let degree = [2, 3, 4, 16][seed as usize % 4];
        let mut model = Model::new(degree);
        let most = if seed % 3 == 0 { 200 } else { 12 };
        for _ in 0..40 {
            model.change(&mut random, most);
            model.check();
        }
    }
}

#[test]
fn large_runs_go_from_large_trees() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = grown(2, random.u64(1..400));
        let length = model.root.length;
        let (a, b) = (random.u64(0..=length), random.u64(0..=length));
        let (from, to) = (a.min(b), a.max(b));
        model.bytes.drain(from as usize..to as usize);
        let (root, nodes) = apply_steps(&model.store, 2, &model.root, &[(from, to, Vec::new())]).unwrap();
        model.root = root;
        nodes.into_iter().for_each(|node| model.store.insert(node.bytes));
        model.check();
    }
}

#[test]
fn a_change_in_the_middle_touches_a_path() {
    let model = grown(16, 100_000);
    let height = usize::from(model.root.height);
    assert_eq!(height, 3, "33^3 < 100,000 runs");
    for at in [0, 5, 499_995, 500_000, 1_000_000] {
        let recorder = NodeRecorder::new(&model.store);
        let new = vec![Tuple::whole(block(1 << 40, 26), 10)];
        let (_, nodes) = apply_steps(&recorder, 16, &model.root, &[(at, at, new)]).unwrap();
        assert_eq!(nodes.len(), height + 1, "at {at}");
        assert_eq!(recorder.into_nodes().len(), height + 1, "at {at}");
    }
    let recorder = NodeRecorder::new(&model.store);
    let (_, nodes) = apply_steps(&recorder, 16, &model.root, &[(13, 999_987, Vec::new())]).unwrap();
    assert!(nodes.len() + recorder.into_nodes().len() <= 3 * (height + 1), "what goes is not read");
}

#[test]
fn parts_of_a_file_are_read_by_themselves() {
    let model = grown(2, 300);
    for (from, to) in [(0, 0), (0, 1), (9, 10), (10, 11), (9, 11), (1500, 2999), (2999, 3000), (0, 3000)] {
        let recorder = NodeRecorder::new(&model.store);
        let walk = TupleWalk::new(&recorder, 2, &model.root, from..to, 1000);
        let found: Vec<(u64, Tuple)> = walk.collect::<Result<_, _>>().unwrap();
        let starts: Vec<u64> = (0..300).map(|at| at * 10).filter(|at| *at < to && at + 10 > from).collect();
        assert_eq!(found.iter().map(|(at, _)| *at).collect::<Vec<_>>(), starts);
        let read = recorder.into_nodes();
        assert!(to - from > 11 || read.len() <= 2 * usize::from(model.root.height + 1));
    }
}

#[test]
fn lacking_nodes_are_named_level_by_level_until_there_are_none() {
    let model = grown(2, 300);
    let (mut here, mut rounds) = (NodeMap::default(), 0);
    loop {
        let lacking = missing_nodes(&here, 2, &model.root, &(700..2200), 50).unwrap();
        if lacking.is_empty() {
            break;
        }
        for name in lacking {
            here.insert(model.store.node(&name).unwrap());
        }
        rounds += 1;
        assert!(rounds < 20);
    }
    assert_eq!(TupleWalk::new(&here, 2, &model.root, 700..2200, 1000).filter(Result::is_ok).count(), 150);
    assert!(here.len() < model.store.len());
}

#[test]
fn offsets_outside_are_refused() {
    let model = grown(2, 10);
    let editor = || TreeEditor::new(&model.store, 2, &model.root);
    let outside = |from, to| NodeError::Outside { from, to, length: 100 };
    assert_eq!(editor().delete(90, 11).err(), Some(outside(90, 101)));
    assert_eq!(editor().insert(101, Vec::new()).err(), Some(outside(101, 101)));
    assert_eq!(editor().splice(5, 4, Vec::new()).err(), Some(outside(5, 4)));
    assert_eq!(editor().delete(1, u64::MAX).err(), Some(NodeError::Uncountable));
}

/// A tree whose top is `top`, over what `store` has.
fn poisoned(store: &mut NodeMap, height: u8, top: &TreeNode) -> FileRoot {
    let bytes = top.to_bytes();
    let (length, dead) = (top.count().unwrap(), top.dead().unwrap());
    let root =
        FileRoot { length, height, top: Digest::of(&bytes), dead, ..FileRoot::empty(FileId([1; 16]), 0) };
    store.insert(bytes);
    root
}

fn first_error(store: &NodeMap, root: &FileRoot) -> Option<NodeError> {
    TupleWalk::new(store, 2, root, 0..root.length, 1000).find_map(Result::err)
}

#[test]
fn nodes_that_lie_are_found_out() {
    let model = grown(2, 20);
    let TreeNode::Inner(height, children) =
        TreeNode::from_bytes(&model.store.node(&model.root.top).unwrap()).unwrap()
    else {
        panic!("a tree of several levels")
    };
    let lie = |change: fn(&mut Vec<ChildRef>), told: u8| {
        let (mut store, mut children) = (model.store.clone(), children.clone());
        change(&mut children);
        let root = poisoned(&mut store, told, &TreeNode::Inner(told, children));
        first_error(&store, &root)
    };
    let is_lie = |error: Option<NodeError>, about: &str| match error {
        Some(NodeError::Lies { what, .. }) => assert_eq!(what, about),
        other => panic!("{other:?} is no lie about {about}"),
    };
    is_lie(lie(|children| children[0].count += 1, height), "its count");
    is_lie(lie(|children| children[1].dead += 1, height), "its dead bytes");
    is_lie(lie(|_| {}, height + 1), "its height");
    is_lie(lie(|children| children.truncate(1), height), "its number of entries");
    is_lie(lie(|children| children.extend(children.clone().repeat(3)), height), "its number of entries");
    let wrong = FileRoot { length: model.root.length + 1, ..model.root };
    is_lie(first_error(&model.store, &wrong), "its count");
    let wrong = FileRoot { height: 0, ..model.root };
    is_lie(first_error(&model.store, &wrong), "its height");
}

#[test]
fn a_node_below_is_never_too_small() {
    let mut store = NodeMap::default();
    let small = TreeNode::Leaf(vec![Tuple::whole(block(1, 26), 10)]);
    store.insert(small.to_bytes());
    let child = ChildRef { count: 10, dead: 0, node: small.digest() };
    let root = poisoned(&mut store, 1, &TreeNode::Inner(1, vec![child; 2]));
    assert!(matches!(
        first_error(&store, &root),
        Some(NodeError::Lies { what: "its number of entries", .. })
    ));
}

#[test]
fn a_billion_runs_of_few_nodes_take_neither_time_nor_memory() {
    let mut store = NodeMap::default();
    let mut node = TreeNode::Leaf((0..5).map(|at| Tuple::whole(block(at, 26), 10)).collect());
    for height in 1..=13 {
        let child = ChildRef { count: node.count().unwrap(), dead: 0, node: node.digest() };
        store.insert(node.to_bytes());
        node = TreeNode::Inner(height, vec![child; 5]);
    }
    let root = poisoned(&mut store, 13, &node);
    assert!(root.length > 10_000_000_000);
    assert_eq!(first_error(&store, &root), Some(NodeError::TooManyTuples(1000)));
    let lacking = missing_nodes(&store, 2, &root, &(0..root.length), 10);
    assert_eq!(lacking, Ok(Vec::new()), "each node is looked at once");
    let lacking = missing_nodes(&store, 2, &root, &(1..root.length - 1), 10);
    assert_eq!(lacking, Ok(Vec::new()));
    let editor = TreeEditor::new(&store, 2, &root).delete(7, root.length - 9).unwrap();
    assert_eq!(editor.length(), 9);
    let most = ChildRef { count: u64::MAX / 2, dead: 0, node: Digest([9; 32]) };
    let huge = TreeNode::Inner(1, vec![most; 2]);
    let root = poisoned(&mut store, 1, &huge);
    let added = TreeEditor::new(&store, 2, &root).insert(0, vec![Tuple::whole(block(1, 26), 10)]);
    assert_eq!(added.err(), Some(NodeError::Missing(Digest([9; 32]))));
}

#[test]
fn a_source_that_gives_other_bytes_or_fails_is_told_from_one_that_lacks_them() {
    struct Wrong(Result<Vec<u8>, SourceFault>);
    impl NodeSource for Wrong {
        fn node(&self, _: &Digest) -> Result<Vec<u8>, SourceFault> {
            self.0.clone()
        }
    }
    let model = grown(2, 3);
    let root = model.root;
    let error = |answer| TupleWalk::new(&Wrong(answer), 2, &root, 0..30, 9).find_map(Result::err);
    assert_eq!(error(Ok(vec![1, 2, 3])), Some(NodeError::OtherBytes(root.top)));
    assert_eq!(error(Err(SourceFault::Failed("disk".into()))), Some(NodeError::Source("disk".into())));
    assert_eq!(error(Err(SourceFault::Missing)), Some(NodeError::Missing(root.top)));
    let garbage = FileRoot { top: Digest::of(b"garbage"), ..root };
    let found = TupleWalk::new(&Wrong(Ok(b"garbage".to_vec())), 2, &garbage, 0..30, 9).next();
    assert!(matches!(found, Some(Err(NodeError::Malformed { .. }))));
}
