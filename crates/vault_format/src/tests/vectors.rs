//! The published test vectors: `docs/formats/vectors/vault.txt`. `UPDATE_VECTORS=1` writes what this program makes; the difference
//! is looked at as that of any other source.

use std::fmt::Write;
use std::path::Path;

use towpath_content::NodeId;
use towpath_content::node_id::hex;

use crate::doubles::{TestKey, creation, members};
use crate::tree::{NodeMap, TreeEditor};
use crate::*;

const VAULT: VaultId = VaultId([0xa1; 16]);
const FILE: FileId = FileId([0xf1; 16]);

fn block(number: u8, stored: u32, epoch: u32) -> BlockRef {
    BlockRef { id: BlockId([number; 16]), hash: Digest([number; 32]), stored, epoch }
}

fn patched() -> Tuple {
    Tuple { length: 300, offset: 12, plain: 5000, chain: vec![block(1, 5120, 0), block(2, 64, 3)] }
}

fn file_root() -> FileRoot {
    FileRoot { file: FILE, length: 70_000, height: 1, top: Digest([7; 32]), epoch: 3, dead: 129 }
}

fn root() -> VaultRoot {
    let parameters = VaultParameters {
        degree: 16,
        mode: BlockMode::Convergent,
        padding: Padding::None,
        replicas: 3,
        ring: vec![NodeId([1; 32]), NodeId([2; 32])],
    };
    VaultRoot {
        vault: VAULT,
        number: 300,
        previous: Digest([8; 32]),
        parameters,
        members: Digest([9; 32]),
        keys: Digest::NONE,
        files: vec![FileRoot::empty(FileId::CATALOGUE, 0), file_root()],
    }
}

fn update() -> Update {
    let actions = vec![
        UpdateAction::Replace { tuples: vec![Tuple::whole(block(3, 4096, 0), 4000)] },
        UpdateAction::Insert { at: 200, tuples: vec![patched()] },
        UpdateAction::Delete { at: 1, length: 1000 },
        UpdateAction::Patch { at: 77, plain: 4001, block: block(4, 60, 3) },
    ];
    let files = vec![
        FileUpdate { file: FileId::CATALOGUE, epoch: 0, actions: vec![UpdateAction::Remove] },
        FileUpdate { file: FILE, epoch: 3, actions },
    ];
    Update {
        vault: VAULT,
        writer: TestKey::new(1).node(),
        base: Some(Predicate { number: 299, root: Digest([8; 32]) }),
        parameters: None,
        members: None,
        keys: Some(vec![1, 2, 3]),
        files,
        blocks: vec![NewBlock { hash: Digest([3; 32]), stored: 4096 }],
    }
}

fn certificate(server: &TestKey) -> Certificate {
    let certificate = Certificate {
        vault: VAULT,
        number: 300,
        root: root().digest(),
        previous: Digest([6; 32]),
        update: update().digest(),
        time: 1_795_000_000,
        server: server.node(),
        signature: [0; 64],
    };
    certificate.sign(|message| server.sign(message))
}

fn statement(deleter: &TestKey) -> DropStatement {
    let dropped = vec![DroppedRange { first: 0, last: 9 }, DroppedRange { first: 300, last: 300 }];
    let statement =
        DropStatement { vault: VAULT, number: 2, dropped, deleter: deleter.node(), signature: [0; 64] };
    statement.sign(|message| deleter.sign(message))
}

struct Vectors(String);

impl Vectors {
    fn record<T: Canonical + PartialEq + std::fmt::Debug>(&mut self, value: &T, note: &str) {
        let bytes = value.to_bytes();
        assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value));
        let kind = T::NAME.replace(' ', "-");
        writeln!(self.0, "record {kind} {} {} # {note}", hex(&bytes), value.digest()).unwrap();
    }

    fn refused<T: Canonical + std::fmt::Debug>(&mut self, bytes: &[u8], note: &str) {
        assert!(T::from_bytes(bytes).is_err(), "{note}");
        writeln!(self.0, "refused {} {} # {note}", T::NAME.replace(' ', "-"), hex(bytes)).unwrap();
    }

    /// What the vectors of others are changed to, to be refused.
    fn changed<T: Canonical + std::fmt::Debug>(
        &mut self,
        value: &T,
        change: impl FnOnce(&mut Vec<u8>),
        note: &str,
    ) {
        let mut bytes = value.to_bytes();
        change(&mut bytes);
        self.refused::<T>(&bytes, note);
    }
}

fn records(vectors: &mut Vectors) {
    let (owner, writer) = (TestKey::new(1), TestKey::new(2));
    let members = members(VAULT, &owner, &[writer.node()], &[TestKey::new(4).node()]);
    let leaf = TreeNode::Leaf(vec![Tuple::whole(block(1, 5120, 0), 5000), patched()]);
    let child = |count, node| ChildRef { count, dead: 4700, node: Digest([node; 32]) };
    vectors.record(&block(1, 5120, 70), "a block");
    vectors.record(&patched(), "bytes 12 to 311 of a block with a patch");
    vectors.record(&leaf, "a leaf");
    vectors.record(&TreeNode::Inner(1, vec![child(5300, 1), child(1, 2)]), "a node with two children");
    vectors.record(&FileRoot::empty(FILE, 1), "a file without bytes");
    vectors.record(&file_root(), "a file");
    vectors.record(&VaultParameters::default(), "what a vault has if nothing is said");
    vectors.record(&root(), "a version, with the fields that are kept for later");
    vectors.record(&members, "members, signed by seed 1");
    let made = creation(VAULT, 16, members);
    vectors.record(&made, "the update that makes a vault");
    vectors.record(&update(), "one with each action");
    let signed = SignedRoot::sign(root(), owner.node(), update().digest(), |message| owner.sign(message));
    assert!(signed.is_signed());
    vectors.record(&signed, "a version, signed by seed 1");
    vectors.record(&certificate(&TestKey::new(3)), "a certificate of seed 3");
    vectors.record(&statement(&TestKey::new(5)), "a statement of seed 5");
}

fn refusals(vectors: &mut Vectors) {
    vectors.changed(&block(1, 5120, 0), |bytes| bytes[48..50].fill(0), "a block without bytes");
    vectors.changed(&Tuple { length: 0, ..patched() }, |_| {}, "a run without bytes");
    vectors.changed(&Tuple { offset: 4701, ..patched() }, |_| {}, "a run beyond its block");
    vectors.changed(&Tuple { chain: Vec::new(), ..patched() }, |_| {}, "a run without a block");
    vectors.changed(&Tuple { chain: vec![block(1, 1, 0); 9], ..patched() }, |_| {}, "a chain of nine");
    vectors.changed(&TreeNode::Leaf(Vec::new()), |_| {}, "a leaf without runs");
    vectors.changed(&TreeNode::Leaf(vec![patched(); 130]), |_| {}, "more runs than a node of any degree has");
    let huge = ChildRef { count: u64::MAX, dead: 0, node: Digest([1; 32]) };
    vectors.changed(&TreeNode::Inner(1, vec![huge; 2]), |_| {}, "more bytes than 64 bits count");
    vectors.changed(&TreeNode::Inner(49, vec![huge]), |_| {}, "a tree that is too high");
    vectors.changed(&FileRoot { length: 0, ..file_root() }, |_| {}, "a top node without bytes");
    vectors.changed(&FileRoot { top: Digest::NONE, ..file_root() }, |_| {}, "bytes without a top node");
    vectors.changed(&VaultRoot { number: 0, ..root() }, |_| {}, "a first version with one before it");
    let mut twice = root();
    twice.files = vec![file_root(); 2];
    vectors.changed(&twice, |_| {}, "a file twice");
    vectors.changed(&root(), |bytes| bytes[0] = 2, "another version of the format");
    vectors.changed(&root(), |bytes| bytes.push(0), "a byte too many");
    vectors.changed(&certificate(&TestKey::new(3)), |bytes| bytes.truncate(100), "cut short");
    let mut files = update();
    files.files.reverse();
    vectors.changed(&files, |_| {}, "files that are not in order");
    let mut ranges = statement(&TestKey::new(5));
    ranges.dropped.reverse();
    vectors.changed(&ranges, |_| {}, "versions that are not in order");
}

/// The root of a file after each of some steps: client and server must agree on it.
fn trees(vectors: &mut Vectors) {
    for degree in [2, 16] {
        let mut store = NodeMap::default();
        let mut root = FileRoot::empty(FILE, 0);
        let tuples: Vec<Tuple> = (0..200).map(|number| Tuple::whole(block(number, 26, 0), 10)).collect();
        let few = tuples[..3].to_vec();
        for (from, to, new) in [
            (0, 0, tuples),
            (1005, 1005, few.clone()),
            (3, 17, few),
            (100, 1500, Vec::new()),
            (0, 630, Vec::new()),
        ] {
            let count = new.len();
            let editor = TreeEditor::new(&store, degree, &root).splice(from, to, new).unwrap();
            let (next, nodes) = editor.finish();
            nodes.into_iter().for_each(|node| store.insert(node.bytes));
            root = next;
            let FileRoot { length, height, top, dead, .. } = root;
            writeln!(vectors.0, "tree {degree} {from} {to} {count} {length} {height} {dead} {top}").unwrap();
        }
    }
}

const HEAD: &str = "\
# The vault (vault.md). \"seed N NODE\": the Ed25519 key whose seed is the byte N 32 times, and its public half.
# \"record KIND BYTES HASH\": a record and its name. \"refused KIND BYTES\": none.
# \"tree DEGREE FROM TO COUNT LENGTH HEIGHT DEAD TOP\": in a tree of this degree the bytes FROM to TO give way to COUNT runs; then it
# has LENGTH bytes and this top node. The first line of a degree begins with an empty file and puts 200 runs, numbered from 0; the
# others put runs 0, 1 and 2. Run N: the 10 bytes of a block with id N 16 times, hash N 32 times, 26 bytes stored, epoch 0.
";

#[test]
fn the_published_vectors_are_what_this_program_makes() {
    let mut vectors = Vectors(HEAD.to_owned());
    for seed in 1..=5 {
        writeln!(vectors.0, "seed {seed} {}", TestKey::new(seed).node()).unwrap();
    }
    records(&mut vectors);
    refusals(&mut vectors);
    trees(&mut vectors);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/vectors/vault.txt");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, &vectors.0).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap();
    for (number, (made, published)) in vectors.0.lines().zip(published.lines()).enumerate() {
        assert_eq!(made, published, "line {}", number + 1);
    }
    assert_eq!(vectors.0.lines().count(), published.lines().count());
}
