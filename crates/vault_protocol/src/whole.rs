//! Small versions in one message: the update is packed with its blocks, so a put of some words is some hundred bytes.
//!
//! What was left out is filled in from the connection and from what the server has. Nobody has to believe it: the signature is of the update as
//! it was before, and with anything else it is wrong.

use bytes::Bytes;
use towpath_content::{DecodeError, NodeId};
use towpath_vault_format::packed::{BlockPlace, KnownUpdate, UnpackedUpdate, pack, unpack};
use towpath_vault_format::{Canonical, Digest, Update, VaultId};

use crate::message::ClientMessage;

/// The most bytes of an update that goes packed.
const MAX_PACKED: usize = 64 << 10;
/// The most bytes of the blocks that go with it.
const MAX_BLOCKS: u64 = 256 << 10;

/// True if an update and its blocks are few enough to be one message.
pub fn is_small(update: &Update) -> bool {
    let blocks = update.blocks.iter().map(|block| u64::from(block.stored)).sum::<u64>();
    blocks <= MAX_BLOCKS && update.to_bytes().len() <= MAX_PACKED
}

/// Packs an update for the server: on a connection of `member`, that has the vault's version which the update is based on. `blocks`: all its
/// new ones, in order.
pub fn packed_for_server(update: &Update, member: NodeId, blocks: &[Bytes]) -> Bytes {
    let root = |number| update.base.filter(|base| base.number == number).map(|base| base.root);
    let known = KnownUpdate { vault: update.vault, writer: member, root: &root };
    pack(update, &known, |at| BlockPlace::Here(&blocks[at])).into()
}

/// What a packed proposal of `member` says, as the messages that say the same. `root`: the hash of a version of the vault.
pub fn unpacked_proposal(
    (signature, packed): ([u8; 64], &Bytes),
    vault: VaultId,
    member: NodeId,
    root: &dyn Fn(u64) -> Option<Digest>,
) -> Result<Vec<ClientMessage>, DecodeError> {
    let known = KnownUpdate { vault, writer: member, root };
    let UnpackedUpdate { update, blocks } = unpack(packed, &known, &|_| None)?;
    let pushes = blocks.len() == update.blocks.len();
    let propose = ClientMessage::Propose { update: Box::new(update), signature: Some(signature), pushes };
    let blocks = blocks.into_iter().filter(|_| pushes).map(ClientMessage::Block);
    Ok(std::iter::once(propose).chain(blocks).collect())
}

/// Packs an update for who has the version that it is based on, and knows the vault's owner. `block` gives those of its blocks that go along.
pub fn packed_for_reader(update: &Update, owner: NodeId, block: impl Fn(&Digest) -> Option<Bytes>) -> Bytes {
    let blocks: Vec<Option<Bytes>> = match is_small(update) {
        true => update.blocks.iter().map(|new| block(&new.hash)).collect(),
        false => vec![None; update.blocks.len()],
    };
    let root = |number| update.base.filter(|base| base.number == number).map(|base| base.root);
    let known = KnownUpdate { vault: update.vault, writer: owner, root: &root };
    let place =
        |at: usize| blocks[at].as_ref().map_or(BlockPlace::Elsewhere, |block| BlockPlace::Here(block));
    pack(update, &known, place).into()
}

/// Reads what [`packed_for_reader`] packed, on the version `base`, of which number and hash are told.
pub fn unpacked_update(
    packed: &Bytes,
    vault: VaultId,
    owner: NodeId,
    (number, hash): (u64, Digest),
) -> Result<UnpackedUpdate, DecodeError> {
    let root = |asked| (asked == number).then_some(hash);
    unpack(packed, &KnownUpdate { vault, writer: owner, root: &root }, &|_| None)
}

/// Bytes of an update as it is sent, without its blocks, and of its signature.
pub fn sent_len(update: &Update) -> u64 {
    let len = match is_small(update) {
        true => packed_for_server(update, update.writer, &vec![Bytes::new(); update.blocks.len()]).len(),
        false => update.to_bytes().len(),
    };
    (len + 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_vault_format::doubles::{TestKey, block, update_of};
    use towpath_vault_format::{BlockMode, FileId, Padding, UpdateAction, VaultParameters, VaultRoot};

    fn base() -> VaultRoot {
        let parameters = VaultParameters {
            degree: 4,
            mode: BlockMode::Random,
            padding: Padding::None,
            replicas: 1,
            ring: Vec::new(),
        };
        let (members, keys) = (Digest([1; 32]), Digest([2; 32]));
        let (vault, previous, files) = (VaultId([3; 16]), Digest([9; 32]), Vec::new());
        VaultRoot { vault, number: 5, previous, parameters, members, keys, files }
    }

    fn update() -> (Update, Bytes) {
        let bytes = Bytes::from_static(b"some ciphertext");
        let (tuple, new) = block(&bytes, 1);
        let insert = vec![UpdateAction::Insert { at: 0, tuples: vec![tuple] }];
        (update_of(&base(), TestKey::new(1).node(), FileId([5; 16]), insert, vec![new]), bytes)
    }

    #[test]
    fn a_packed_proposal_is_the_proposal_and_its_blocks() {
        let (update, block) = update();
        let (signature, member) = ([7; 64], update.writer);
        let packed = packed_for_server(&update, member, std::slice::from_ref(&block));
        assert_eq!((packed.len() - block.len() + 64) as u64, sent_len(&update));
        let root = |number| (number == 5).then(|| base().digest());
        let messages = unpacked_proposal((signature, &packed), update.vault, member, &root).unwrap();
        let propose =
            ClientMessage::Propose { update: Box::new(update), signature: Some(signature), pushes: true };
        assert_eq!(messages, [propose, ClientMessage::Block(block)]);
    }

    #[test]
    fn an_update_is_told_with_its_blocks_or_without() {
        let (update, block) = update();
        let owner = TestKey::new(8).node();
        let told = |blocks: Option<Bytes>| {
            let packed = packed_for_reader(&update, owner, |_| blocks.clone());
            unpacked_update(&packed, update.vault, owner, (5, base().digest())).unwrap()
        };
        assert_eq!(told(None), UnpackedUpdate { update: update.clone(), blocks: Vec::new() });
        assert_eq!(told(Some(block.clone())), UnpackedUpdate { update: update.clone(), blocks: vec![block] });
    }
}
