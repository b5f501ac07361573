//! Parsers of the vault's crates: what servers, clients and writers send, and a log that a crash or a stranger left.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use towpath_link::Frame;
use towpath_vault_format::doubles::{TestKey, block, creation, members, update_of};
use towpath_vault_format::packed::{BlockPlace, KnownUpdate, UnpackedUpdate, pack, unpack};
use towpath_vault_format::tree::missing_nodes;
use towpath_vault_format::{
    Canonical, Certificate, Digest, DropStatement, FileId, FileRoot, NodeMap, SignedMembers, SignedRoot,
    TreeNode, Tuple, TupleWalk, Update, UpdateAction, VaultId, VaultRoot, apply,
};
use towpath_vault_protocol::assembly::Assembly;
use towpath_vault_protocol::message::SeenVersion;
use towpath_vault_protocol::newer::difference;
use towpath_vault_protocol::whole::{packed_for_reader, packed_for_server};
use towpath_vault_protocol::{
    ClientMessage, CommittedVersion, ProposalVerdict, ServerMachine, ServerMessage, ServerOrder, VaultRefusal,
};
use towpath_vault_server::LogMedium;
use towpath_vault_server::changes::NodeChange;
use towpath_vault_server::log::RecordLog;
use towpath_vault_server::record::{LogRecord, object_offsets};

use crate::input::{Source, Written};

const VAULT: VaultId = VaultId([3; 16]);
const FILE: FileId = FileId([5; 16]);

fn read_again<T: Canonical>(bytes: &[u8]) {
    if let Ok(record) = T::from_bytes(bytes) {
        assert!(bytes.len() <= T::LIMIT);
        assert_eq!(record.to_bytes(), bytes, "a record has one encoding");
    }
}

/// A record of any kind: the first byte says which.
pub fn vault_record(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    match kind % 9 {
        0 => read_again::<Tuple>(bytes),
        1 => read_again::<TreeNode>(bytes),
        2 => read_again::<VaultRoot>(bytes),
        3 => read_again::<SignedRoot>(bytes),
        4 => read_again::<SignedMembers>(bytes),
        5 => read_again::<Update>(bytes),
        6 => read_again::<Certificate>(bytes),
        7 => read_again::<DropStatement>(bytes),
        _ => read_again::<CommittedVersion>(bytes),
    }
}

/// A vault with one file of some runs.
fn base() -> (VaultRoot, SignedMembers, NodeMap) {
    let owner = TestKey::new(1);
    let signed = members(VAULT, &owner, &[], &[]);
    let mut store = NodeMap::default();
    let made = apply(&creation(VAULT, 2, signed.clone()), None, &store).expect("a first version");
    let tuples = (0..40u8).map(|number| block(&[number; 10], number.into()).0).collect();
    let update =
        update_of(&made.root, owner.node(), FILE, vec![UpdateAction::Replace { tuples }], Vec::new());
    let next = apply(&update, Some((&made.root, &signed.members)), &store).expect("a second version");
    next.nodes.into_iter().for_each(|node| store.insert(node.bytes));
    (next.root, signed, store)
}

/// Steps on a file of a vault, by one of its writers.
pub fn vault_update(data: &[u8]) {
    let ((root, members, mut store), owner) = (base(), TestKey::new(1).node());
    let (mut source, mut actions, mut length) = (Source::new(data), Vec::new(), 400u64);
    while !source.is_empty() && actions.len() < 20 {
        let (from, to) = (source.below(length + 3), source.below(length + 3));
        let count = source.below(30);
        let tuples: Vec<Tuple> = (0..count).map(|number| block(&[9, number as u8], number).0).collect();
        actions.push(match source.byte() % 4 {
            0 | 1 => UpdateAction::Insert { at: from, tuples },
            2 => UpdateAction::Delete { at: from.min(to), length: from.abs_diff(to) },
            _ => UpdateAction::Replace { tuples },
        });
        match actions.last() {
            Some(UpdateAction::Insert { .. }) if from <= length => length += 2 * count,
            Some(UpdateAction::Delete { .. }) if from.max(to) <= length => length -= from.abs_diff(to),
            Some(UpdateAction::Replace { .. }) => length = 2 * count,
            _ => break,
        }
    }
    let update = update_of(&root, owner, FILE, actions, Vec::new());
    let Ok(next) = apply(&update, Some((&root, &members.members)), &store) else { return };
    next.nodes.into_iter().for_each(|node| store.insert(node.bytes));
    let file = next.root.file(&FILE).expect("the file");
    assert_eq!(file.length, length);
    // A walk checks heights, counts and numbers of entries of all nodes.
    let read = TupleWalk::new(&store, 2, file, 0..length, 10_000);
    let read: u64 = read.map(|item| item.expect("a node that follows from good ones").1.length).sum();
    assert_eq!(read, length);
}

/// Nodes by who lies: each run of bytes is one, the last the top.
pub fn vault_tree(data: &[u8]) {
    let (mut source, mut store, mut root) = (Source::new(data), NodeMap::default(), FileRoot::empty(FILE, 0));
    for _ in 0..64 {
        let bytes = source.run().to_vec();
        if let Ok(node) = TreeNode::from_bytes(&bytes) {
            let (length, dead) = (node.count().unwrap_or(0), node.dead().unwrap_or(0));
            root = FileRoot { length, dead, height: node.height(), top: node.digest(), ..root };
        }
        store.insert(bytes);
        if source.is_empty() {
            break;
        }
    }
    let read = TupleWalk::new(&store, 2, &root, 0..root.length, 1000).count();
    assert!(read <= 1001);
    let lacking = missing_nodes(&store, 2, &root, &(1..root.length.max(2) - 1), 100);
    assert!(lacking.is_err() || lacking.is_ok_and(|lacking| lacking.len() <= 100));
}

/// A message of either end: its kind and its body.
pub fn vault_message(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    if let Ok(Some(message)) = ClientMessage::from_body(kind, &body) {
        assert_eq!(again(message.to_frames()), Some((kind, body.clone())));
    }
    if let Ok(Some(message)) = ServerMessage::from_body(kind, &body) {
        let (written, whole) = again(message.to_frames()).expect("a whole message");
        // Refusals of later versions and control characters are read as something else.
        assert!(kind == 38 || (written, &whole) == (kind, &body));
        assert_eq!(ServerMessage::from_body(written, &whole), Ok(Some(message)));
    }
}

fn again(frames: Vec<(u8, Bytes)>) -> Option<(u8, Bytes)> {
    let (mut assembly, mut whole) = (Assembly::default(), None);
    for (kind, body) in frames {
        whole = assembly.take(Frame { kind, body }).expect("not too long");
    }
    whole
}

/// A client that says anything in any order to the server's machine.
pub fn vault_talk(data: &[u8]) {
    let (mut source, mut machine) = (Source::new(data), ServerMachine::default());
    for _ in 0..64 {
        if source.is_empty() || machine.is_over() {
            return;
        }
        let (kind, body) = (source.byte() % 12, Bytes::copy_from_slice(source.run()));
        let Ok(Some(message)) = ClientMessage::from_body(kind, &body) else { continue };
        let mut order = machine.on(message);
        for _ in 0..3 {
            order = match order {
                ServerOrder::Open(..) => {
                    machine.opened();
                    break;
                }
                ServerOrder::Judge(proposal) => {
                    let count = proposal.update.blocks.len() as u32;
                    let verdict = match source.byte() % 3 {
                        0 => ProposalVerdict::Refused(VaultRefusal::Update, String::new()),
                        1 => ProposalVerdict::Possible { lacking: (0..count).collect(), paths: None },
                        _ => ProposalVerdict::Possible { lacking: Vec::new(), paths: Some(Vec::new()) },
                    };
                    machine.judged(proposal, verdict).1
                }
                ServerOrder::Keep(..) => machine.kept(),
                ServerOrder::Commit(proposal) => {
                    assert!(proposal.signature.is_some(), "nothing is committed without a signature");
                    break;
                }
                _ => break,
            };
        }
    }
}

#[derive(Debug, Clone)]
struct FuzzedDisk(Arc<Mutex<Vec<u8>>>);

impl FuzzedDisk {
    fn bytes(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panicked")
    }
}

impl LogMedium for FuzzedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let held = self.bytes();
        let found = held.get(at as usize..at as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes().truncate(len as usize);
        Ok(())
    }
}

/// A log with any bytes: what is opened once is opened again with the same records, and takes one more.
pub fn vault_log(data: &[u8]) {
    let disk = FuzzedDisk(Arc::new(Mutex::new(data.to_vec())));
    let open = || {
        let mut records = Vec::new();
        let log = RecordLog::open(Box::new(disk.clone()), |_, record| {
            records.push(record.to_vec());
            Ok(())
        });
        log.map(|log| (log, records))
    };
    let Ok((mut log, records)) = open() else { return };
    log.append(b"one more").expect("a disk with room");
    let (_, more) = open().expect("what was opened before");
    assert!(more.len() == records.len() + 1 && more[..records.len()] == records);
}

/// A record of a log.
pub fn vault_log_record(data: &[u8]) {
    // Updates are packed in them, which can be done in several ways.
    if let Ok(record) = LogRecord::from_bytes(data) {
        assert_eq!(LogRecord::from_bytes(&record.to_bytes()), Ok(record));
    }
    if let Ok(LogRecord::Version { objects, .. } | LogRecord::Objects(objects)) = LogRecord::from_bytes(data)
    {
        for (object, at) in objects.iter().zip(object_offsets(data.len(), &objects)) {
            assert_eq!(&data[at..at + object.len()], object);
        }
    }
}

/// A packed update. What was read of it can be packed again, for who knows the same.
pub fn vault_packed(data: &[u8]) {
    let (root, writer) = (base().0, TestKey::new(1).node());
    let hash_of = |number| (number == root.number).then(|| root.digest());
    let known = KnownUpdate { vault: VAULT, writer, root: &hash_of };
    let beside = |at| (at < 3).then_some((Digest([at as u8; 32]), 9));
    let Ok(UnpackedUpdate { update, .. }) = unpack(&Bytes::copy_from_slice(data), &known, &beside) else {
        return;
    };
    let again = pack(&update, &known, |_| BlockPlace::Elsewhere);
    assert_eq!(unpack(&again.into(), &known, &|_| None).map(|unpacked| unpacked.update), Ok(update));
}

fn a_packed_update() -> Bytes {
    packed_for_server(&an_update(), TestKey::new(1).node(), &[Bytes::from_static(b"ciphertext")])
}

/// Packed updates.
pub fn packed_updates() -> Vec<Vec<u8>> {
    let told = packed_for_reader(&an_update(), TestKey::new(2).node(), |_| None);
    vec![a_packed_update().to_vec(), told.to_vec()]
}

/// A version that its writer signed.
pub fn committed() -> CommittedVersion {
    let ((root, ..), key) = (base(), TestKey::new(1));
    let update = creation(VAULT, 2, members(VAULT, &key, &[], &[])).digest();
    let certificate = Certificate {
        vault: VAULT,
        number: root.number,
        root: root.digest(),
        previous: update,
        update,
        time: 1,
        server: key.node(),
        signature: [0; 64],
    };
    CommittedVersion {
        signed: SignedRoot::sign(root, key.node(), update, |message| key.sign(message)),
        certificate,
    }
}

fn an_update() -> Update {
    let (tuple, new) = block(b"ciphertext", 1);
    let patch = UpdateAction::Patch { at: 10, plain: 12, block: tuple.chain[0] };
    let insert = UpdateAction::Insert { at: 7, tuples: vec![tuple] };
    let actions = vec![insert, UpdateAction::Delete { at: 1, length: 20 }, patch];
    update_of(&base().0, TestKey::new(1).node(), FILE, actions, vec![new])
}

/// Records, each behind the byte of its kind.
pub fn records() -> Vec<Vec<u8>> {
    let (root, members, nodes) = base();
    let mut seeds: Vec<Vec<u8>> = nodes.iter().take(3).map(|(_, node)| [&[1], &node[..]].concat()).collect();
    let version = committed();
    seeds.push([&[0], &block(b"ciphertext", 1).0.to_bytes()[..]].concat());
    seeds.push([&[2], &root.to_bytes()[..]].concat());
    seeds.push([&[3], &version.signed.to_bytes()[..]].concat());
    seeds.push([&[4], &members.to_bytes()[..]].concat());
    seeds.push([&[5], &an_update().to_bytes()[..]].concat());
    seeds.push([&[6], &version.certificate.to_bytes()[..]].concat());
    seeds.push([&[8], &version.to_bytes()[..]].concat());
    seeds
}

/// Steps, as numbers.
pub fn updates() -> Vec<Vec<u8>> {
    vec![vec![10, 20, 5, 0, 30, 90, 3, 2, 0, 0, 29, 3], vec![0, 0, 29, 1, 100, 255, 2, 0, 2]]
}

/// All nodes of a tree, the top one last.
pub fn trees() -> Vec<Vec<u8>> {
    let (root, _, nodes) = base();
    let top = root.file(&FILE).expect("the file").top;
    let (last, first): (Vec<_>, Vec<_>) = nodes.iter().partition(|(name, _)| **name == top);
    let all = first.into_iter().chain(last).map(|(_, node)| &node[..]);
    vec![Written::default().runs(all).done()]
}

fn client_messages() -> Vec<ClientMessage> {
    vec![
        ClientMessage::Hello(VAULT, Some(SeenVersion::of(&committed()))),
        ClientMessage::Propose { update: Box::new(an_update()), signature: Some([1; 64]), pushes: true },
        ClientMessage::Block(Bytes::from_static(b"ciphertext")),
        ClientMessage::Sign([2; 64]),
        ClientMessage::Get(vec![an_update().digest(); 2]),
        ClientMessage::Versions { before: 9, most: 3 },
        ClientMessage::Root(1),
        ClientMessage::Withdraw,
        ClientMessage::Whole { signature: [3; 64], packed: a_packed_update() },
    ]
}

/// Messages of both ends, each behind the byte of its kind.
pub fn messages() -> Vec<Vec<u8>> {
    let version = Box::new(committed());
    let server = [
        ServerMessage::Head(Some(version.clone())),
        ServerMessage::Wants(vec![0, 1, 5]),
        ServerMessage::Paths(vec![Bytes::from_static(b"node")]),
        ServerMessage::Committed(version.certificate),
        ServerMessage::Refused(VaultRefusal::Full, "no room".into()),
        ServerMessage::Root(version.clone()),
        ServerMessage::Newer(difference(&version, &version).expect("a version")),
        ServerMessage::Update(packed_for_reader(&an_update(), TestKey::new(1).node(), |_| None)),
    ];
    let frames = client_messages().into_iter().flat_map(|message| message.to_frames());
    let frames = frames.chain(server.into_iter().flat_map(|message| message.to_frames()));
    frames.map(|(kind, body)| [&[kind], &body[..]].concat()).collect()
}

/// A client's conversation.
pub fn talks() -> Vec<Vec<u8>> {
    let frames = client_messages().into_iter().flat_map(|message| message.to_frames());
    let talk = frames.fold(Written::default(), |talk, (kind, body)| talk.rest(&[kind]).run(&body));
    vec![talk.done()]
}

fn log_record(changes: Vec<NodeChange>) -> LogRecord {
    LogRecord::Version {
        version: Box::new(committed()),
        update: Box::new(an_update()),
        pack: None,
        changes,
        objects: vec![b"one".to_vec(), vec![2; 200]],
    }
}

/// Logs of some records, whole and torn.
pub fn logs() -> Vec<Vec<u8>> {
    let disk = FuzzedDisk(Arc::default());
    let mut log = RecordLog::open(Box::new(disk.clone()), |_, _| Ok(())).expect("an empty log");
    for record in [log_record(Vec::new()).to_bytes(), b"two".to_vec()] {
        log.append(&record).expect("a disk with room");
    }
    let whole = disk.bytes().clone();
    let torn = whole[..whole.len() - 2].to_vec();
    vec![whole, torn, Vec::new()]
}

/// Records of a log.
pub fn log_records() -> Vec<Vec<u8>> {
    let change = NodeChange { name: [1; 16], base: [2; 16], len: 300, patch: vec![1, 0, 0, 7] };
    let records = [log_record(Vec::new()), log_record(vec![change]), LogRecord::Objects(vec![vec![7; 9]])];
    records.iter().map(Canonical::to_bytes).collect()
}
