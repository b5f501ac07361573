//! Parsers of the vault's client: what servers and other members send it, and what lies in its own folder.

use std::sync::Arc;

use towpath_content::tree::Kind;
use towpath_vault::Zeroizing;
use towpath_vault::block::{BlockKind, BlockSealer, content_of};
use towpath_vault::catalogue::{Catalogue, CatalogueEntry, EntryDescription};
use towpath_vault::descriptor::EntryDescriptor;
use towpath_vault::head::{TrustedNodes, VaultHead};
use towpath_vault::keys::{KeysRecord, PassphraseCost, Unlock, VaultKeys, WrappedKeys, keys_again};
use towpath_vault::line::KeptLine;
use towpath_vault::local::{BlobCache, SeenEntries, UncommittedQueue, UncommittedVersion};
use towpath_vault::patches::resolve;
use towpath_vault::summary::{ChunkSummary, FileSummary};
use towpath_vault::unchanged::FileMarks;
use towpath_vault_format::doubles::{TestKey, members, update_of};
use towpath_vault_format::root::Padding;
use towpath_vault_format::tuple::MAX_BLOCK;
use towpath_vault_format::{BlockId, Canonical, Digest, FileId, SignedRoot, Tuple, UpdateAction, VaultRoot};

use crate::input::{Source, Written};
use crate::seeds::content::trees;
use crate::vault::committed;

const FILE: FileId = FileId([5; 16]);
/// Keys of a vault with one epoch, and none that signs.
const FIXED_KEYS: [&[u8]; 6] = [&[1], &[3; 16], &[2; 32], &[1], &[7; 32], &[0, 0]];
/// Bytes of the cache that a pack is opened in.
const CACHE: u64 = 1 << 20;

/// A record of any kind: the first byte says which.
pub fn vault_client_record(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let again = match kind % 10 {
        0 => FileSummary::from_bytes(bytes).ok().map(|summary| summary.to_bytes()),
        1 => Catalogue::from_bytes(bytes).ok().map(|catalogue| catalogue.to_bytes()),
        2 => WrappedKeys::from_bytes(bytes).ok().map(|wrapped| wrapped.to_bytes()),
        3 => VaultHead::from_bytes(bytes).ok().map(|head| judged(&head)),
        4 => {
            // Soft state: it is read in any order, and written in one.
            let seen = SeenEntries::from_bytes(bytes);
            assert!(
                seen.is_err()
                    || SeenEntries::from_bytes(&seen.clone().unwrap_or_default().to_bytes()) == seen
            );
            None
        }
        5 => keys_again(bytes).map(|(_, again)| again),
        6 => KeysRecord::from_bytes(bytes).ok().map(|record| record.to_bytes()),
        8 => KeptLine::from_bytes(bytes).ok().map(|line| line.to_bytes()),
        9 => UncommittedQueue::from_bytes(bytes).ok().map(|queue| queue.to_bytes()),
        _ => FileMarks::from_bytes(bytes).ok().map(|marks| marks.to_bytes()),
    };
    assert!(again.is_none_or(|again| again == bytes), "a record has one encoding");
}

/// A head that nobody need have signed.
fn judged(head: &VaultHead) -> Vec<u8> {
    let owner = TestKey::new(1).node();
    let trusted = TrustedNodes { vault: head.signed.root.vault, owner, server: owner };
    if head.prove(&trusted).is_ok() {
        assert_eq!(head.certificate.root, head.named().root);
        assert_eq!(head.follows(head, &[]), Ok(()));
    }
    head.to_bytes()
}

/// A description of an entry, behind the length of its content.
pub fn vault_descriptor(data: &[u8]) {
    let mut source = Source::new(data);
    let length = source.number();
    let Ok(described) = EntryDescriptor::new(source.rest().to_vec(), length) else { return };
    let mut end = 0;
    for entry in described.entries() {
        let (Some(start), Kind::File { size, .. }) = (entry.start, entry.entry.kind) else { continue };
        assert_eq!(start, end, "one file behind the other");
        end += size;
    }
    assert_eq!(end, length);
}

/// What was decrypted of a block, by who holds the key.
pub fn vault_block(data: &[u8]) {
    let content = content_of(data);
    assert!(content.is_none_or(|content| content.len() <= MAX_BLOCK as usize));
}

/// A chain of a whole block and patches, by who holds the key.
pub fn vault_chain(data: &[u8]) {
    let (mut source, keys) = (Source::new(data), fixed_keys());
    let key = Arc::new(keys.file(FILE, 0).expect("the first epoch"));
    let mut sealer = BlockSealer::new(keys.file(FILE, 0).expect("the first epoch"), Padding::None);
    let (plain, count) = (source.number() as u32, 1 + source.below(4));
    let kinds = std::iter::once(BlockKind::Whole).chain(std::iter::repeat(BlockKind::Patch));
    let sealed = (0..count as u8)
        .zip(kinds)
        .map(|(number, kind)| sealer.seal(BlockId([number; 16]), kind, source.run()))
        .collect::<Result<Vec<_>, _>>();
    let Ok(sealed) = sealed else { return };
    let chain = sealed.iter().map(|block| block.reference).collect();
    let blocks: Vec<_> = sealed.iter().map(|block| (Arc::clone(&key), &block.bytes)).collect();
    let tuple = Tuple { length: 1, offset: 0, plain, chain };
    if let Ok(bytes) = resolve(&tuple, &blocks) {
        assert_eq!(bytes.len(), plain as usize);
    }
}

/// A pack of a cache that a crash or another program left.
pub fn vault_cache(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("pack-0"), data).expect("a disk with room");
    let mut cache =
        BlobCache::open(folder.path(), CACHE).expect("any bytes are a pack, or the beginning of one");
    for record in data.windows(32).take(64) {
        let mut hash = Digest::NONE;
        hash.0.copy_from_slice(record);
        assert!(cache.get(&hash).is_none_or(|bytes| Digest::of(&bytes) == hash));
    }
    let added = cache.add(b"one more").expect("a disk with room");
    drop(cache);
    let again = BlobCache::open(folder.path(), CACHE).expect("what was opened before");
    assert_eq!(again.get(&added).as_deref(), Some(&b"one more"[..]));
}

fn fixed_keys() -> VaultKeys {
    keys_again(&FIXED_KEYS.concat()).expect("keys").0
}

fn summary() -> FileSummary {
    let chunks = [&b"one"[..], b"another"].map(|chunk| ChunkSummary::of(&[1; 32], chunk));
    FileSummary { root: Digest([9; 32]), chunks: Arc::new(chunks.into_iter().collect()) }
}

fn catalogue() -> Catalogue {
    let entry = |description| CatalogueEntry { content: FILE, length: 300, description };
    let entries = [
        (b"a tree".to_vec(), entry(EntryDescription::File(FileId([6; 16])))),
        (b"notes".to_vec(), entry(EntryDescription::Inline(vec![1, 2, 3]))),
    ];
    Catalogue { entries: entries.into() }
}

fn head() -> VaultHead {
    let (version, owner) = (committed(), TestKey::new(1));
    let members = members(version.signed.root.vault, &owner, &[], &[]);
    let certificate = version.certificate.sign(|message| owner.sign(message));
    VaultHead { signed: version.signed, members, certificate }
}

/// A version that waits on a head.
fn queue() -> UncommittedQueue {
    let (base, owner) = (head(), TestKey::new(1));
    let root = &base.signed.root;
    let update = update_of(root, owner.node(), FILE, vec![UpdateAction::Remove], Vec::new());
    let next = VaultRoot { number: root.number + 1, previous: root.digest(), ..root.clone() };
    let signed = SignedRoot::sign(next, owner.node(), update.digest(), |message| owner.sign(message));
    UncommittedQueue { base, versions: vec![UncommittedVersion { signed, update, is_kept: true }] }
}

/// Records, each behind the byte of its kind.
pub fn records() -> Vec<Vec<u8>> {
    let keys = VaultKeys::generate().expect("random bytes");
    let unlock = Unlock::KeyFile(Zeroizing::new(vec![1; 32]));
    let wrapped = WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default()).expect("a key file");
    let (list, owner) = (members(keys.vault, &TestKey::new(1), &[], &[]).members, keys.writer.as_ref());
    let shared = KeysRecord::alone(wrapped.clone()).share(&keys, &list, &[], owner.expect("an owner's key"));
    let shared = shared.expect("a record without members");
    let mut seen = SeenEntries::default();
    (1..4).for_each(|number| seen.note(Digest([number; 32]), number.into(), Digest([8; 32])));
    let records = [
        summary().to_bytes(),
        catalogue().to_bytes(),
        wrapped.to_bytes(),
        head().to_bytes(),
        seen.to_bytes(),
        FIXED_KEYS.concat(),
        shared.to_bytes(),
        [&[1][..], &[9; 32], &[2], &[1; 16], &[2; 16]].concat(),
        vec![1, 100, 101, 102, 103],
        queue().to_bytes(),
    ];
    (0u8..).zip(records).map(|(kind, bytes)| [&[kind], &bytes[..]].concat()).collect()
}

/// Descriptions, each behind the length of its content.
pub fn descriptors() -> Vec<Vec<u8>> {
    trees().iter().map(|tree| Written::default().number(100).rest(tree).done()).collect()
}

/// Contents of blocks: one as it is, one packed, one that is padded.
pub fn blocks() -> Vec<Vec<u8>> {
    let packed = b"\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00plain";
    vec![
        [&[0, 5][..], b"plain"].concat(),
        [&[2, 5][..], b"patch", &[0; 9]].concat(),
        [&[1, 5, packed.len() as u8][..], packed].concat(),
    ]
}

/// A whole block, and a patch on it that inserts something.
pub fn chains() -> Vec<Vec<u8>> {
    let (base, target) =
        (b"a content of some words, in a block".repeat(9), b"a content of more words".repeat(9));
    let patch = towpath_content::delta::patch::make(&base, &target).unwrap_or_default();
    let framed = Written::default().number(target.len() as u64).rest(&patch).done();
    let chain = Written::default().number(target.len() as u64).number(1).run(&base).run(&framed);
    vec![Written::default().number(base.len() as u64).number(0).run(&base).done(), chain.done()]
}

/// A pack of two records, and one that is torn.
pub fn caches() -> Vec<Vec<u8>> {
    let record =
        |bytes: &[u8]| [&Digest::of(bytes).0[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat();
    let whole = [record(b"first"), record(b"second")].concat();
    vec![whole[..whole.len() - 1].to_vec(), whole]
}
