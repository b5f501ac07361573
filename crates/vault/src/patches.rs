//! Patches: where a chunk changed a little, a block of its own that corrects an old one.
//!
//! A chain is a whole block and patches on it. It is kept short, and a patch counts only if it costs less than three quarters of a
//! whole block: dead bytes and the work of reading are bounded by that. Both are compared as they are stored, compressed: what a patch has of
//! a program is packed as well as the program is.

use std::sync::Arc;

use towpath_content::codec::{Reader, Writer};
use towpath_content::delta::patch;
use towpath_vault_format::tuple::{MAX_BLOCK, MAX_CHAIN};
use towpath_vault_format::{BlockRef, Tuple};

use crate::block::{BlockError, BlockKind};
use crate::keys::FileKey;

/// Old chunks that a new one is compared with, at most.
pub const MAX_BASES: usize = 4;
/// Bytes that a reference to a patch takes in a tuple.
const REFERENCE: usize = 16 + 32 + 3 + 1;

/// An old chunk: where it lies, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchBase {
    /// Its number among the old version's chunks.
    pub chunk: usize,
    /// It gives all of its block.
    pub tuple: Tuple,
    /// Its plaintext.
    pub plain: Vec<u8>,
}

/// A patch worth making, and the chain that it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPatch {
    /// Number of the base among those that were offered.
    pub base: usize,
    /// The content of its block.
    pub content: Vec<u8>,
}

/// True if one more patch may go on the chain of a tuple that gives all of its block.
pub fn may_grow(tuple: &Tuple) -> bool {
    let Some((whole, patches)) = tuple.chain.split_first() else { return false };
    let patched: u64 = patches.iter().map(|patch| u64::from(patch.stored)).sum();
    tuple.chain.len() < MAX_CHAIN && tuple.excess() == 0 && 2 * patched < u64::from(whole.stored.max(2048))
}

/// True if a patch that is stored in so many bytes goes in the place of a whole block of so many.
pub const fn is_worth_it(patch: usize, whole: usize) -> bool {
    4 * (patch + REFERENCE) <= 3 * whole
}

/// The shortest patch that makes `target` of one of `bases`, if it has at most seven eighths of the target's bytes before it is packed.
pub fn choose(bases: &[PatchBase], target: &[u8]) -> Option<ChosenPatch> {
    let growing = bases.iter().enumerate().filter(|(_, base)| may_grow(&base.tuple)).take(MAX_BASES);
    let made = growing.filter_map(|(at, base)| {
        let patch = patch::make(&base.plain, target)?;
        Some(ChosenPatch { base: at, content: framed(&patch, target.len()) })
    });
    let best = made.min_by_key(|chosen| chosen.content.len())?;
    (8 * (best.content.len() + REFERENCE) <= 7 * target.len()).then_some(best)
}

/// A tuple of a base's chain and one patch more, which gives `plain` bytes.
pub fn patched(base: &Tuple, patch: BlockRef, plain: u32) -> Tuple {
    let chain = base.chain.iter().copied().chain([patch]).collect();
    Tuple { length: plain.into(), offset: 0, plain, chain }
}

/// The plaintext of a tuple's chain, all of it, of its blocks in order: each with its key, and its bytes, which were compared with its
/// hash.
pub fn resolve(tuple: &Tuple, blocks: &[(Arc<FileKey>, impl AsRef<[u8]>)]) -> Result<Vec<u8>, BlockError> {
    let mut plain = Vec::new();
    for (at, reference) in tuple.chain.iter().enumerate() {
        let lacking = BlockError::OtherBytes { hash: reference.hash, found: 0 };
        let (key, bytes) = blocks.get(at).ok_or(lacking)?;
        let bytes = bytes.as_ref();
        plain = match at {
            0 => key.open(reference, BlockKind::Whole, bytes)?,
            _ => applied(&key.open(reference, BlockKind::Patch, bytes)?, &plain)?,
        };
    }
    let (expected, found) = (tuple.plain as usize, plain.len());
    match tuple.chain.last() {
        Some(last) if expected != found => Err(BlockError::Length { hash: last.hash, expected, found }),
        _ => Ok(plain),
    }
}

/// The content of a patch's block: the length of what it makes, and the patch.
fn framed(patch: &[u8], target: usize) -> Vec<u8> {
    let mut out = Writer::with_capacity(patch.len() + 5);
    out.varint(target as u64).raw(patch);
    out.into_bytes()
}

fn applied(content: &[u8], base: &[u8]) -> Result<Vec<u8>, BlockError> {
    let mut reader = Reader::new(content);
    let expected = reader.bounded("patched length", MAX_BLOCK.into())? as usize;
    let patch = reader.take("patch", reader.remaining())?;
    Ok(patch::apply(patch, base, expected)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockSealer;
    use crate::keys::VaultKeys;
    use proptest::prelude::*;
    use towpath_vault_format::{BlockId, FileId, Padding};

    const FILE: FileId = FileId([1; 16]);

    /// Versions of a chunk as one chain, as far as it grows.
    struct Chained {
        keys: VaultKeys,
        sealer: BlockSealer,
        base: PatchBase,
        blocks: Vec<Vec<u8>>,
    }

    impl Chained {
        fn new(plain: Vec<u8>) -> Self {
            let keys = VaultKeys::generate().unwrap();
            let mut sealer = BlockSealer::new(keys.file(FILE, 0).unwrap(), Padding::Padme);
            let block = sealer.seal(BlockId([0; 16]), BlockKind::Whole, &plain).unwrap();
            let tuple = Tuple::whole(block.reference, plain.len() as u32);
            Self { keys, sealer, base: PatchBase { chunk: 0, tuple, plain }, blocks: vec![block.bytes] }
        }

        /// True if a patch was worth it.
        fn change(&mut self, target: &[u8]) -> bool {
            let Some(chosen) = choose(std::slice::from_ref(&self.base), target) else { return false };
            let id = BlockId([self.blocks.len() as u8; 16]);
            let block = self.sealer.seal(id, BlockKind::Patch, &chosen.content).unwrap();
            let tuple = patched(&self.base.tuple, block.reference, target.len() as u32);
            self.blocks.push(block.bytes);
            self.base = PatchBase { chunk: 0, tuple, plain: target.to_vec() };
            true
        }

        fn read(&self, tuple: &Tuple, blocks: &[Vec<u8>]) -> Result<Vec<u8>, BlockError> {
            let key = Arc::new(self.keys.file(FILE, 0).unwrap());
            let blocks: Vec<_> = blocks.iter().map(|block| (Arc::clone(&key), block)).collect();
            resolve(tuple, &blocks)
        }
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn a_chain_of_patches_gives_the_newest_and_is_bounded() {
        let mut chained = Chained::new(noise(8000));
        let mut target = noise(8000);
        let mut patches = 0;
        for round in 0..20 {
            target.splice(round * 100..round * 100, *b"inserted");
            if !chained.change(&target) {
                break;
            }
            patches += 1;
            assert_eq!(chained.read(&chained.base.tuple, &chained.blocks), Ok(target.clone()));
        }
        assert_eq!(patches, MAX_CHAIN - 1);
        let sizes: Vec<_> = chained.blocks.iter().map(Vec::len).collect();
        assert!(sizes[1..].iter().all(|size| *size < 100), "{sizes:?}");
    }

    #[test]
    fn a_patch_that_saves_little_is_not_made() {
        let base = Chained::new(noise(8000)).base;
        let other: Vec<u8> = noise(16_000)[8000..].to_vec();
        assert_eq!(choose(std::slice::from_ref(&base), &other), None, "nothing in common");
        assert_eq!(choose(std::slice::from_ref(&base), b"short"), None);
        let near = [&other[..1000], &base.plain[..]].concat();
        let chosen = choose(&[Chained::new(other).base, base], &near).unwrap();
        assert_eq!(chosen.base, 1, "the nearer of two");
    }

    #[test]
    fn a_chain_out_of_order_or_short_is_named() {
        let mut chained = Chained::new(noise(8000));
        for at in 1..3 {
            let mut target = chained.base.plain.clone();
            target.splice(at * 500..at * 500, *b"inserted");
            assert!(chained.change(&target));
        }
        let Tuple { chain, .. } = &chained.base.tuple;
        let with = |order: &[usize]| {
            let chain: Vec<_> = order.iter().map(|at| chain[*at]).collect();
            let blocks: Vec<_> = order.iter().map(|at| chained.blocks[*at].clone()).collect();
            chained.read(&Tuple { chain, ..chained.base.tuple.clone() }, &blocks)
        };
        assert!(with(&[0, 1, 2]).is_ok());
        assert!(matches!(with(&[0, 1]), Err(BlockError::Length { .. })));
        assert!(matches!(with(&[1, 0, 2]), Err(BlockError::OtherKind { .. })));
        assert!(matches!(with(&[0, 0]), Err(BlockError::OtherKind { .. })));
        let lacking = chained.read(&chained.base.tuple, &chained.blocks[..2]);
        assert!(matches!(lacking, Err(BlockError::OtherBytes { found: 0, .. })));
    }

    proptest! {
        #[test]
        fn any_content_of_a_patch_is_applied_or_refused(content: Vec<u8>, base: Vec<u8>) {
            let _ = applied(&content, &base);
        }
    }
}
