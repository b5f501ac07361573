//! Packed updates come back as they were, whatever they name, and are short.

use super::*;
use crate::doubles::{TestKey, block, update_of};
use crate::root::VaultRoot;
use proptest::prelude::*;

const VAULT: VaultId = VaultId([3; 16]);
const FILE: FileId = FileId([5; 16]);

fn base() -> VaultRoot {
    VaultRoot {
        vault: VAULT,
        number: 7,
        previous: Digest([8; 32]),
        parameters: VaultParameters::default(),
        members: Digest([9; 32]),
        keys: Digest::NONE,
        files: Vec::new(),
    }
}

fn known(root: &dyn Fn(u64) -> Option<Digest>) -> KnownUpdate<'_> {
    KnownUpdate { vault: VAULT, writer: TestKey::new(1).node(), root }
}

/// A block with a counted id.
fn numbered(place: u32, bytes: &[u8]) -> (BlockRef, NewBlock) {
    let (tuple, new) = block(bytes, 0);
    let first = BlockId([0xff; 16]);
    (BlockRef { id: counted(first, place), ..tuple.chain[0] }, new)
}

/// What a document with changed words is put as: a patch for each.
fn patches(count: u32) -> (Update, Vec<Vec<u8>>) {
    let bytes: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8 + 1; 40]).collect();
    let (blocks, news): (Vec<_>, Vec<_>) =
        bytes.iter().enumerate().map(|(at, bytes)| numbered(at as u32, bytes)).unzip();
    let patch = |(at, block)| UpdateAction::Patch { at: 50_000 * at as u64, plain: 8000, block };
    let actions = blocks.into_iter().enumerate().map(patch).collect();
    (update_of(&base(), TestKey::new(1).node(), FILE, actions, news), bytes)
}

fn again(update: &Update, place: &dyn Fn(usize) -> BlockPlace<'static>) -> UnpackedUpdate {
    let root = |number| (number == 7).then(|| base().digest());
    let packed = pack(update, &known(&root), place);
    unpack(&packed.into(), &known(&root), &|_| None).unwrap()
}

#[test]
fn a_patch_takes_some_bytes_beside_its_block() {
    let (update, bytes) = patches(15);
    let root = |number| (number == 7).then(|| base().digest());
    let packed = pack(&update, &known(&root), |at| BlockPlace::Here(&bytes[at]));
    let blocks: usize = bytes.iter().map(Vec::len).sum();
    assert!(packed.len() < blocks + 200, "{} bytes, of them {blocks} of blocks", packed.len());
    let unpacked = unpack(&packed.into(), &known(&root), &|_| None).unwrap();
    assert_eq!(unpacked.update, update);
    assert_eq!(unpacked.blocks, bytes);
    assert_eq!(unpacked.update.digest(), update.digest());
}

#[test]
fn blocks_beside_it_are_asked_for_by_their_place() {
    let (update, _) = patches(3);
    let root = |number| (number == 7).then(|| base().digest());
    let packed: Bytes = pack(&update, &known(&root), |at| BlockPlace::Beside(2 - at as u32)).into();
    let beside = |at: u32| {
        let block = update.blocks.get(2usize.checked_sub(at as usize)?)?;
        Some((block.hash, block.stored))
    };
    assert_eq!(unpack(&packed, &known(&root), &beside).unwrap().update, update);
    assert!(unpack(&packed, &known(&root), &|_| None).is_err());
}

#[test]
fn another_base_writer_or_vault_is_another_update() {
    let (update, _) = patches(1);
    let root = |number| (number == 7).then(|| base().digest());
    let packed: Bytes = pack(&update, &known(&root), |_| BlockPlace::Elsewhere).into();
    let none = |_| None;
    let other = unpack(&packed, &known(&none), &|_| None).unwrap().update;
    assert_ne!(other.digest(), update.digest());
    assert_ne!(other.base, update.base);
    let whole = pack(&update, &known(&none), |_| BlockPlace::Elsewhere);
    assert_eq!(unpack(&whole.into(), &known(&none), &|_| None).unwrap().update, update, "all of the hash");
    let other = KnownUpdate { writer: TestKey::new(9).node(), ..known(&root) };
    let by_other = pack(&update, &other, |_| BlockPlace::Elsewhere);
    assert_eq!(by_other.len(), packed.len() + 32, "its writer is told");
    assert_eq!(unpack(&by_other.into(), &known(&root), &|_| None).unwrap().update, update);
}

#[test]
fn none_is_read_cut_short() {
    let (update, bytes) = patches(3);
    let root = |_| Some(base().digest());
    let packed: Bytes = pack(&update, &known(&root), |at| BlockPlace::Here(&bytes[at])).into();
    for end in 0..packed.len() {
        assert!(unpack(&packed.slice(..end), &known(&root), &|_| None).is_err(), "{end}");
    }
}

fn any_block(new: Vec<NewBlock>) -> impl Strategy<Value = BlockRef> {
    (0..new.len().max(1), any::<bool>(), 0..3u8).prop_map(move |(at, is_new, id)| {
        let NewBlock { hash, stored } = match new.get(at) {
            Some(new) if is_new => *new,
            _ => NewBlock { hash: Digest([at as u8; 32]), stored: 7 },
        };
        let id = match id {
            0 => BlockId([at as u8; 16]),
            id => counted(BlockId([id; 16]), at as u32),
        };
        BlockRef { id, hash, stored, epoch: u32::from(at == 3) }
    })
}

fn any_tuples(new: Vec<NewBlock>) -> impl Strategy<Value = Vec<Tuple>> {
    let tuple = (prop::collection::vec(any_block(new), 1..4), 1..100u64, 0..3u32, 0..3u32);
    let tuple = tuple.prop_map(|(chain, length, offset, more)| Tuple {
        length,
        offset,
        plain: offset + length as u32 + more,
        chain,
    });
    prop::collection::vec(tuple, 0..5)
}

fn any_actions(new: Vec<NewBlock>) -> impl Strategy<Value = Vec<UpdateAction>> {
    let insert = (any::<u64>(), any_tuples(new.clone()));
    let patch = (any::<u64>(), 1..9000u32, any_block(new.clone()));
    let action = prop_oneof![
        insert.prop_map(|(at, tuples)| UpdateAction::Insert { at, tuples }),
        (any::<u64>(), any::<u64>()).prop_map(|(at, length)| UpdateAction::Delete { at, length }),
        any_tuples(new).prop_map(|tuples| UpdateAction::Replace { tuples }),
        Just(UpdateAction::Remove),
        patch.prop_map(|(at, plain, block)| UpdateAction::Patch { at, plain, block }),
    ];
    prop::collection::vec(action, 0..6)
}

fn any_update() -> impl Strategy<Value = Update> {
    let new: Vec<NewBlock> = (1..9u8).map(|at| numbered(0, &[at; 30]).1).collect();
    (any_actions(new.clone()), any_actions(new.clone()), any::<bool>()).prop_map(
        move |(one, two, has_base)| {
            let mut update = update_of(&base(), TestKey::new(2).node(), FILE, one, new.clone());
            update.files.insert(0, FileUpdate { file: FileId::CATALOGUE, epoch: 1, actions: two });
            update.base = update.base.filter(|_| has_base);
            update
        },
    )
}

proptest! {
    #[test]
    fn any_update_comes_back(update in any_update()) {
        prop_assert_eq!(again(&update, &|_| BlockPlace::Elsewhere).update, update);
    }

    #[test]
    fn any_bytes_are_read_or_refused(packed: Vec<u8>) {
        let root = |_| None;
        let _ = unpack(&packed.into(), &known(&root), &|_| None);
    }
}
