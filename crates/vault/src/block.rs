//! Blocks: plaintext that is packed, padded and encrypted, and back.
//!
//! ```text
//!   content ── zstd where it pays ── form, length, content, zeros to a Padmé length ── AES-256-GCM-SIV
//! ```
//!
//! Key and nonce of a block are derived from its file's key and its id, and vault, file, epoch and id are authenticated: a
//! block that is put in the place of another can't be decrypted. Which blocks make a version, and in what order, is what its
//! signed root says.

use std::cell::RefCell;

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Key, Nonce};
use thiserror::Error;
use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::delta::patch::PatchError;
use towpath_vault_format::padding::padded_len;
use towpath_vault_format::tuple::MAX_BLOCK;
use towpath_vault_format::{BlockId, BlockRef, Digest, Padding};
use zeroize::Zeroize;

use crate::keys::{FileKey, VaultKeyError};

/// Bytes that encryption adds.
pub const TAG: usize = 16;
/// Contents below this are not worth trying to compress.
const LEAST_PACKED: usize = 64;
/// Of zstd: the usual one.
const LEVEL: i32 = 3;

/// What a block's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Plaintext of a file.
    Whole,
    /// A patch on what the blocks before it in a chain give.
    Patch,
}

/// Reason why a block, or a chain of them, gives no plaintext.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlockError {
    /// The bytes are not those that the reference names.
    #[error("block {}: {found} bytes that are not those its reference names", .hash.short())]
    OtherBytes {
        /// Of the reference.
        hash: Digest,
        /// Bytes that came.
        found: usize,
    },
    /// It can't be decrypted.
    #[error("block {}: it is of another file, vault, epoch or id, or the key is another's", .hash.short())]
    NotOfThisFile {
        /// Of the reference.
        hash: Digest,
    },
    /// A patch where a whole block should be, or the other way round.
    #[error("block {}: not of the kind that its place in the chain wants", .hash.short())]
    OtherKind {
        /// Of the reference.
        hash: Digest,
    },
    /// Its plaintext has another length than its tuple says.
    #[error("block {}: {found} bytes of plaintext where {expected} were expected", .hash.short())]
    Length {
        /// Of the reference.
        hash: Digest,
        /// Bytes that the tuple names.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// What was decrypted can't be read: whoever wrote it held the key.
    #[error("a block's content: {0}")]
    Decode(#[from] DecodeError),
    /// A patch does not fit.
    #[error("a block's patch: {0}")]
    Patch(#[from] PatchError),
    /// The key of its epoch is not there.
    #[error(transparent)]
    Key(#[from] VaultKeyError),
    /// A content is longer than a block may be.
    #[error("{found} bytes are no block's content, at most {MAX_BLOCK} are")]
    TooLong {
        /// Its bytes.
        found: usize,
    },
}

/// A block that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBlock {
    /// What names it.
    pub reference: BlockRef,
    /// The ciphertext.
    pub bytes: Vec<u8>,
    /// Bytes that padding added.
    pub padding: usize,
}

/// Packs and encrypts the blocks of one file.
pub struct BlockSealer {
    key: FileKey,
    padding: Padding,
    packer: Option<zstd::bulk::Compressor<'static>>,
}

impl BlockSealer {
    /// With a file's key of the newest epoch.
    pub fn new(key: FileKey, padding: Padding) -> Self {
        // Without a compressor contents stay as they are.
        Self { key, padding, packer: zstd::bulk::Compressor::new(LEVEL).ok() }
    }

    /// The block of a content.
    pub fn seal(&mut self, id: BlockId, kind: BlockKind, content: &[u8]) -> Result<SealedBlock, BlockError> {
        if content.len() > MAX_BLOCK as usize / 2 {
            return Err(BlockError::TooLong { found: content.len() });
        }
        let mut plain = self.framed(kind, content);
        let filled = plain.len();
        if self.padding == Padding::Padme {
            plain.resize(padded_len(filled), 0);
        }
        let padding = plain.len() - filled;
        let bytes = self.key.encrypt(id, &plain);
        plain.zeroize();
        let hash = Digest::of(&bytes);
        let reference = BlockRef { id, hash, stored: bytes.len() as u32, epoch: self.key.epoch };
        Ok(SealedBlock { reference, bytes, padding })
    }

    fn framed(&mut self, kind: BlockKind, content: &[u8]) -> Vec<u8> {
        let packed = self.packed(content);
        let form = u8::from(packed.is_some()) | if kind == BlockKind::Patch { IS_PATCH } else { 0 };
        let mut out = Writer::with_capacity(content.len() + content.len() / 8 + 16);
        out.u8(form);
        match packed {
            Some(packed) => out.varint(content.len() as u64).bytes(&packed),
            None => out.bytes(content),
        };
        out.into_bytes()
    }

    fn packed(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        if content.len() < LEAST_PACKED {
            return None;
        }
        let packed = self.packer.as_mut()?.compress(content).ok()?;
        (packed.len() + 4 < content.len() - content.len() / 16).then_some(packed)
    }
}

const IS_PACKED: u8 = 1;
const IS_PATCH: u8 = 2;

impl FileKey {
    /// The content of a block that `reference` names, of bytes that were compared with its hash.
    pub fn open(&self, reference: &BlockRef, kind: BlockKind, bytes: &[u8]) -> Result<Vec<u8>, BlockError> {
        let (hash, found) = (reference.hash, bytes.len());
        if found != reference.stored as usize {
            return Err(BlockError::OtherBytes { hash, found });
        }
        let (cipher, nonce) = self.cipher(reference.id);
        let payload = Payload { msg: bytes, aad: &self.bound(reference.id) };
        let plain = cipher.decrypt(&nonce, payload).map_err(|_| BlockError::NotOfThisFile { hash })?;
        let (found, content) = unframed(&plain)?;
        if found == kind { Ok(content) } else { Err(BlockError::OtherKind { hash }) }
    }

    fn encrypt(&self, id: BlockId, plain: &[u8]) -> Vec<u8> {
        let (cipher, nonce) = self.cipher(id);
        let payload = Payload { msg: plain, aad: &self.bound(id) };
        // It fails for more bytes than there is memory for only.
        cipher.encrypt(&nonce, payload).expect("a block is short")
    }

    fn cipher(&self, id: BlockId) -> (Aes256GcmSiv, Nonce) {
        let (mut key, mut nonce) = ([0; 32], [0; 12]);
        let mut drawn = blake3::Hasher::new_keyed(&self.key.0);
        let mut drawn = drawn.update(&id.0).finalize_xof();
        drawn.fill(&mut key);
        drawn.fill(&mut nonce);
        let cipher = Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(key));
        key.zeroize();
        (cipher, Nonce::from(nonce))
    }

    /// What is authenticated beside the content.
    fn bound(&self, id: BlockId) -> Vec<u8> {
        let mut out = Writer::with_capacity(64);
        out.raw(b"tow-vault block 1").raw(&self.vault.0).raw(&self.file.0);
        out.raw(&self.epoch.to_le_bytes()).raw(&id.0);
        out.into_bytes()
    }
}

/// The content of what was decrypted, whoever wrote it: a door for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn content_of(plain: &[u8]) -> Option<Vec<u8>> {
    unframed(plain).ok().map(|(_, content)| content)
}

/// Kind and content of what was decrypted.
fn unframed(plain: &[u8]) -> Result<(BlockKind, Vec<u8>), BlockError> {
    let mut reader = Reader::new(plain);
    let form = reader.u8("form")?;
    if form & !(IS_PACKED | IS_PATCH) != 0 {
        return Err(invalid("form", "is none that this program knows").into());
    }
    let kind = if form & IS_PATCH == 0 { BlockKind::Whole } else { BlockKind::Patch };
    let content = match form & IS_PACKED {
        0 => reader.bytes("content", MAX_BLOCK as usize)?.to_vec(),
        _ => {
            let length = reader.bounded("content length", MAX_BLOCK.into())? as usize;
            unpacked(reader.bytes("packed content", MAX_BLOCK as usize)?, length)?
        }
    };
    let padding = reader.take("padding", reader.remaining())?;
    match padding.iter().all(|byte| *byte == 0) {
        true => Ok((kind, content)),
        false => Err(invalid("padding", "is not zero").into()),
    }
}

thread_local! {
    /// Making one for each block takes longer than unpacking it.
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = RefCell::new(zstd::bulk::Decompressor::new().ok());
}

fn unpacked(packed: &[u8], length: usize) -> Result<Vec<u8>, DecodeError> {
    let content = UNPACKER.with_borrow_mut(|unpacker| match unpacker {
        Some(unpacker) => unpacker.decompress(packed, length),
        None => zstd::bulk::decompress(packed, length),
    });
    let content = content.map_err(|_| invalid("packed content", "can't be unpacked"))?;
    if content.len() == length { Ok(content) } else { Err(invalid("packed content", "is shorter")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::VaultKeys;
    use proptest::prelude::*;
    use towpath_vault_format::{FileId, VaultId};

    const A: FileId = FileId([1; 16]);
    const B: FileId = FileId([2; 16]);

    fn sealed(keys: &VaultKeys, file: FileId, content: &[u8]) -> SealedBlock {
        let mut sealer = BlockSealer::new(keys.file(file, 0).unwrap(), Padding::Padme);
        sealer.seal(BlockId(crate::keys::random().unwrap()), BlockKind::Whole, content).unwrap()
    }

    proptest! {
        #[test]
        fn contents_come_back_padded(content in prop::collection::vec(0..4u8, 0..20_000), is_patch: bool, padded: bool) {
            let keys = VaultKeys::generate().unwrap();
            let kind = if is_patch { BlockKind::Patch } else { BlockKind::Whole };
            let padding = if padded { Padding::Padme } else { Padding::None };
            let mut sealer = BlockSealer::new(keys.file(A, 0).unwrap(), padding);
            let SealedBlock { reference, bytes, padding } = sealer.seal(BlockId([5; 16]), kind, &content).unwrap();
            let key = keys.file(A, 0).unwrap();
            prop_assert_eq!(key.open(&reference, kind, &bytes), Ok(content));
            let plain = bytes.len() - TAG;
            prop_assert!(padding * 100 <= (plain - padding) * 12);
            prop_assert_eq!(plain == padded_len(plain), padded || plain == padded_len(plain));
        }

        #[test]
        fn whatever_was_decrypted_is_read_or_refused(plain: Vec<u8>) {
            let _ = unframed(&plain);
        }
    }

    #[test]
    fn a_block_is_of_one_vault_file_epoch_and_id() {
        let mut keys = VaultKeys::generate().unwrap();
        keys.epochs.push(crate::keys::KeySecret::random().unwrap());
        let SealedBlock { reference, bytes, .. } = sealed(&keys, A, b"some content");
        let hash = reference.hash;
        let not_this = Err(BlockError::NotOfThisFile { hash });
        let open = |keys: &VaultKeys, file, epoch, reference: &BlockRef| {
            keys.file(file, epoch).unwrap().open(reference, BlockKind::Whole, &bytes)
        };
        assert_eq!(open(&keys, A, 0, &reference).unwrap(), b"some content");
        assert_eq!(open(&keys, B, 0, &reference), not_this, "another file");
        assert_eq!(open(&keys, A, 1, &reference), not_this, "another epoch");
        let swapped = BlockRef { id: BlockId([9; 16]), ..reference };
        assert_eq!(open(&keys, A, 0, &swapped), not_this, "another id");
        let other = VaultKeys { vault: VaultId([8; 16]), ..keys.clone() };
        assert_eq!(open(&other, A, 0, &reference), not_this, "another vault");
        assert_eq!(open(&VaultKeys::generate().unwrap(), A, 0, &reference), not_this, "another key");
    }

    #[test]
    fn blocks_of_two_files_can_not_be_swapped() {
        let keys = VaultKeys::generate().unwrap();
        let (a, b) = (sealed(&keys, A, b"of a"), sealed(&keys, B, b"of b"));
        let key = keys.file(A, 0).unwrap();
        let hash = a.reference.hash;
        let given = key.open(&a.reference, BlockKind::Whole, &b.bytes);
        assert_eq!(given, Err(BlockError::NotOfThisFile { hash }));
        let named = key.open(&b.reference, BlockKind::Whole, &b.bytes);
        assert_eq!(named, Err(BlockError::NotOfThisFile { hash: b.reference.hash }));
    }

    #[test]
    fn cut_or_changed_bytes_and_another_kind_are_named() {
        let keys = VaultKeys::generate().unwrap();
        let SealedBlock { reference, bytes, .. } = sealed(&keys, A, b"some content");
        let key = keys.file(A, 0).unwrap();
        let hash = reference.hash;
        for end in 0..bytes.len() {
            let found = key.open(&reference, BlockKind::Whole, &bytes[..end]);
            assert_eq!(found, Err(BlockError::OtherBytes { hash, found: end }));
        }
        let mut changed = bytes.clone();
        changed[3] ^= 1;
        let relabelled = BlockRef { hash: Digest::of(&changed), ..reference };
        let found = key.open(&relabelled, BlockKind::Whole, &changed);
        assert_eq!(found, Err(BlockError::NotOfThisFile { hash: relabelled.hash }));
        assert_eq!(key.open(&reference, BlockKind::Patch, &bytes), Err(BlockError::OtherKind { hash }));
    }

    /// The vector of `docs/formats/vault-blocks.md`.
    #[test]
    fn the_documented_block() {
        let key = FileKey {
            vault: VaultId([0x11; 16]),
            file: FileId([0x33; 16]),
            epoch: 0,
            key: crate::keys::KeySecret(std::array::from_fn(|at| at as u8)),
        };
        let mut sealer = BlockSealer::new(key, Padding::Padme);
        let block = sealer.seal(BlockId([0x44; 16]), BlockKind::Whole, b"towpath vault").unwrap();
        assert_eq!(
            towpath_content::node_id::hex(&block.bytes),
            "6798be77242cd0eaed88b84b096763e8be20dea77e56a14a65bb5e05e6561c87"
        );
    }
}
