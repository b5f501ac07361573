//! What puts left on this machine that is not committed: the queue of their updates, signed, and the new blocks of each, encrypted.
//!
//! ```text
//!   uncommitted                the newest version that the first update starts from, and the updates, one on the other
//!   uncommitted-blocks/HASH    the new blocks of the update of this hash, one behind the other as it lists them
//! ```
//!
//! The queue is replaced whole. A put on its way is in it too; only what a person was told to be kept here has its blocks made durable.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::{Canonical, Digest, SignedRoot, Update, VaultRoot};

use super::{LocalVault, MAX_FILE};
use crate::error::VaultClientError;
use crate::head::VaultHead;

/// Gives new blocks by their hash.
pub type BlockSource<'a> = dyn Fn(&Digest) -> Option<Vec<u8>> + 'a;

/// Updates that wait at most.
pub const MOST_UNCOMMITTED: usize = 256;
/// Blocks of a put on its way are written if they have at most so many bytes in all; more are lost when it is cut off.
const MOST_ON_ITS_WAY: u64 = 16 << 20;
const QUEUE: &str = "uncommitted";
const BLOCKS: &str = "uncommitted-blocks";
/// The most bytes of a head's encoding.
const MOST_HEAD: usize = 8 << 20;

/// A client that sees what is not committed: its newest version is the last of the queue.
#[derive(Debug)]
pub(crate) struct UncommittedView {
    /// What the queue starts from.
    pub(crate) base: VaultHead,
    /// The newest committed version that is known.
    pub(crate) newest: VaultHead,
}

/// A version that is not committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncommittedVersion {
    /// Its root, signed by its writer.
    pub signed: SignedRoot,
    /// The update that makes it.
    pub update: Update,
    /// True if a person was told that it is kept here. Else the put that made it was cut off, or is on its way.
    pub is_kept: bool,
}

/// Versions that are not committed, one on the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncommittedQueue {
    /// What the first one starts from.
    pub base: VaultHead,
    /// In order; at least one.
    pub versions: Vec<UncommittedVersion>,
}

impl UncommittedVersion {
    fn write(&self, out: &mut Writer) {
        out.u8(u8::from(self.is_kept)).bytes(&self.signed.to_bytes()).bytes(&self.update.to_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let is_kept = reader.bounded("kept", 1)? == 1;
        let signed = SignedRoot::from_bytes(reader.bytes("signed root", SignedRoot::LIMIT)?)?;
        let update = Update::from_bytes(reader.bytes("update", Update::LIMIT)?)?;
        match signed.update == update.digest() && signed.root.vault == update.vault && signed.is_signed() {
            true => Ok(Self { signed, update, is_kept }),
            false => Err(invalid("signed root", "is not of its update")),
        }
    }

    fn follows(&self, before: &VaultRoot) -> bool {
        let base = self.update.base.map(|base| (base.number, base.root));
        let is_next = before.number.checked_add(1) == Some(self.signed.root.number);
        is_next
            && base == Some((before.number, self.signed.root.previous))
            && before.digest() == self.signed.root.previous
    }
}

impl UncommittedQueue {
    /// What is left of it where `head` was seen as the newest version: the versions behind it, if it is one of them.
    pub fn behind(self, head: &VaultHead) -> Option<Self> {
        let found = self.versions.iter().rposition(|version| version.signed.root == head.signed.root);
        let left = match found {
            None => self,
            Some(at) => Self { base: head.clone(), versions: self.versions[at + 1..].to_vec() },
        };
        (!left.versions.is_empty()).then_some(left)
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(1).bytes(&self.base.to_bytes()).varint(self.versions.len() as u64);
        self.versions.iter().for_each(|version| version.write(&mut out));
        out.into_bytes()
    }

    /// Reads an encoding. Each version must be signed, and follow from the one before.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("uncommitted versions")? != 1 {
            return Err(invalid("uncommitted versions", "are of another version"));
        }
        let base = VaultHead::from_bytes(reader.bytes("head", MOST_HEAD)?)?;
        let count = reader.bounded("uncommitted versions", MOST_UNCOMMITTED as u64)?;
        let mut versions: Vec<UncommittedVersion> = Vec::new();
        for _ in 0..count {
            let version = UncommittedVersion::read(&mut reader)?;
            let before = versions.last().map_or(&base.signed.root, |last| &last.signed.root);
            if !version.follows(before) {
                return Err(invalid("uncommitted versions", "do not follow from each other"));
            }
            versions.push(version);
        }
        reader.finish()?;
        match versions.is_empty() {
            true => Err(invalid("uncommitted versions", "are none")),
            false => Ok(Self { base, versions }),
        }
    }
}

/// The queue in a vault's folder.
#[derive(Debug)]
pub(crate) struct KeptQueue<'a>(pub(crate) &'a LocalVault);

impl KeptQueue<'_> {
    /// What is not committed, as far as this machine knows. A damaged queue is an error, not none.
    pub(crate) fn read(&self) -> Result<Option<UncommittedQueue>, VaultClientError> {
        let Some(bytes) = self.0.read(QUEUE)? else { return Ok(None) };
        let queue = UncommittedQueue::from_bytes(&bytes).map_err(|_| self.damaged())?;
        Ok(match self.0.head()? {
            Some(head) => queue.behind(&head),
            None => Some(queue),
        })
    }

    /// Keeps a queue, whose blocks are here; those of others go.
    pub(crate) fn set(&self, queue: &UncommittedQueue) -> Result<(), VaultClientError> {
        self.0.replace(QUEUE, &queue.to_bytes())?;
        let needed: Vec<String> = queue.versions.iter().map(blocks_name).collect();
        self.drop_blocks(|name| needed.iter().any(|needed| needed == name));
        Ok(())
    }

    /// All of it is committed, or to be forgotten.
    pub(crate) fn clear(&self) -> Result<(), VaultClientError> {
        let path = self.0.path.join(QUEUE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(VaultClientError::local(&path, error))
            }
            _ => {
                // What was forgotten does not come back after a crash.
                let synced = File::open(&self.0.path).and_then(|folder| folder.sync_all());
                synced.map_err(|error| VaultClientError::local(&path, error))?;
                self.drop_blocks(|_| false);
                Ok(())
            }
        }
    }

    /// Notes a version before it is offered: who reads sees it, and it is there if the put is cut off.
    pub(crate) fn note_on_its_way(
        &self,
        base: &VaultHead,
        version: UncommittedVersion,
        give: &BlockSource<'_>,
    ) -> Result<(), VaultClientError> {
        if self.read()?.is_some_and(|queue| queue.versions.iter().any(|version| version.is_kept)) {
            return Err(VaultClientError::Uncommitted);
        }
        let bytes: u64 = version.update.blocks.iter().map(|block| u64::from(block.stored)).sum();
        if bytes <= MOST_ON_ITS_WAY {
            self.keep_blocks(&version, false, give)?;
        }
        self.set(&UncommittedQueue { base: base.clone(), versions: vec![version] })
    }

    /// Keeps a version behind those that wait, durably. `base` is what the first one starts from.
    pub(crate) fn keep(
        &self,
        base: &VaultHead,
        version: UncommittedVersion,
        give: &BlockSource<'_>,
    ) -> Result<(), VaultClientError> {
        let none = || UncommittedQueue { base: base.clone(), versions: Vec::new() };
        let mut queue = self.read()?.unwrap_or_else(none);
        queue.versions.push(version);
        let (found, limit) = (queue.versions.len() as u64, MOST_UNCOMMITTED as u64);
        if found > limit {
            return Err(VaultClientError::TooLarge { what: "versions that are not committed", found, limit });
        }
        let (found, limit) = (queue.to_bytes().len() as u64, MAX_FILE);
        match found > limit {
            true => {
                let what = "bytes of all changes that are not committed";
                Err(VaultClientError::TooLarge { what, found, limit })
            }
            false => self.settle(queue, give),
        }
    }

    /// Makes what is there of puts that were cut off durable, too. False: nothing waits.
    pub(crate) fn settle_all(&self, give: &BlockSource<'_>) -> Result<bool, VaultClientError> {
        let Some(queue) = self.read()? else { return Ok(false) };
        self.settle(queue, give).map(|()| true)
    }

    fn settle(&self, mut queue: UncommittedQueue, give: &BlockSource<'_>) -> Result<(), VaultClientError> {
        let is_last = |at: usize| at + 1 == queue.versions.len();
        for (at, version) in queue.versions.iter().enumerate() {
            if (is_last(at) || !version.is_kept) && !self.keep_blocks(version, true, give)? {
                return Err(self.damaged());
            }
        }
        queue.versions.iter_mut().for_each(|version| version.is_kept = true);
        self.set(&queue)
    }

    /// The error of a queue that can't be what it says.
    pub(crate) fn damaged(&self) -> VaultClientError {
        VaultClientError::damaged(&self.0.path.join(QUEUE))
    }

    /// What goes stays for nobody; what can't be removed is in no queue.
    fn drop_blocks(&self, is_needed: impl Fn(&str) -> bool) {
        let Ok(found) = std::fs::read_dir(self.0.path.join(BLOCKS)) else { return };
        for entry in found.filter_map(Result::ok) {
            if !entry.file_name().to_str().is_some_and(&is_needed) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Writes the new blocks of a version, which `give` gives; durable or not. False: one of them is gone.
    pub(crate) fn keep_blocks(
        &self,
        version: &UncommittedVersion,
        is_durable: bool,
        give: &BlockSource<'_>,
    ) -> Result<bool, VaultClientError> {
        let folder = self.0.path.join(BLOCKS);
        let path = folder.join(blocks_name(version));
        let write = || -> io::Result<bool> {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let new = path.with_extension("new");
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            let mut out = io::BufWriter::new(file);
            for block in &version.update.blocks {
                let Some(bytes) = give(&block.hash) else { return Ok(false) };
                out.write_all(&bytes)?;
            }
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            if is_durable {
                file.sync_all()?;
            }
            std::fs::rename(&new, &path)?;
            if is_durable {
                File::open(&folder)?.sync_all()?;
                File::open(&self.0.path)?.sync_all()?;
            }
            Ok(true)
        };
        write().map_err(|error| VaultClientError::local(&path, error))
    }

    /// The new blocks of a version that are here, as far as they are whole, given one by one.
    pub(crate) fn kept_blocks(&self, version: &UncommittedVersion, take: &mut dyn FnMut(Digest, Vec<u8>)) {
        let Ok(file) = File::open(self.0.path.join(BLOCKS).join(blocks_name(version))) else { return };
        let mut file = io::BufReader::new(file);
        for block in &version.update.blocks {
            let mut bytes = vec![0; block.stored as usize];
            if io::Read::read_exact(&mut file, &mut bytes).is_err() {
                return;
            }
            if Digest::of(&bytes) == block.hash {
                take(block.hash, bytes);
            }
        }
    }
}

fn blocks_name(version: &UncommittedVersion) -> String {
    version.signed.update.to_string()
}

#[cfg(test)]
mod tests {
    use towpath_vault_format::doubles::{TestKey, block, creation, members, update_of};
    use towpath_vault_format::{Certificate, FileId, NodeMap, UpdateAction, VaultId, apply};

    use super::*;

    /// Version 0 of a vault, and a version that puts eight bytes on it.
    fn queue() -> UncommittedQueue {
        let (vault, owner) = (VaultId([0x11; 16]), TestKey::new(1));
        let members = members(vault, &owner, &[], &[]);
        let made = creation(vault, 16, members.clone());
        let root = apply(&made, None, &NodeMap::default()).unwrap().root;
        let sign = |root: VaultRoot, update: &Update| {
            SignedRoot::sign(root, owner.node(), update.digest(), |message| owner.sign(message))
        };
        let (tuple, new) = block(b"uncommit", 4);
        let insert = vec![UpdateAction::Insert { at: 0, tuples: vec![tuple] }];
        let update = update_of(&root, owner.node(), FileId([0x33; 16]), insert, vec![new]);
        let next = apply(&update, Some((&root, &members.members)), &NodeMap::default()).unwrap().root;
        let certificate = Certificate {
            vault,
            number: 0,
            root: root.digest(),
            previous: Digest::NONE,
            update: made.digest(),
            time: 7,
            server: owner.node(),
            signature: [0; 64],
        };
        let certificate = certificate.sign(|message| owner.sign(message));
        let base = VaultHead { signed: sign(root, &made), members, certificate };
        let version = UncommittedVersion { signed: sign(next, &update), update, is_kept: true };
        UncommittedQueue { base, versions: vec![version] }
    }

    /// The vector of `docs/formats/vault-blocks.md`.
    #[test]
    fn the_documented_queue() {
        let bytes = queue().to_bytes();
        assert_eq!(
            (bytes.len(), Digest::of(&bytes).to_string()),
            (1088, "f9aefeab78441bb62c35d6b8cceb9618500e92ff28b7ef7f9dc47109137d50ed".to_owned())
        );
        assert_eq!(UncommittedQueue::from_bytes(&bytes), Ok(queue()));
    }

    #[test]
    fn what_is_not_signed_does_not_follow_or_is_none_is_no_queue() {
        let change = |change: fn(&mut UncommittedQueue)| {
            let mut changed = queue();
            change(&mut changed);
            UncommittedQueue::from_bytes(&changed.to_bytes()).is_err()
        };
        assert!(change(|queue| queue.versions[0].signed.signature[0] ^= 1));
        assert!(change(|queue| queue.versions[0].signed.root.number = 2));
        assert!(change(|queue| queue.versions[0].update.blocks.clear()));
        assert!(change(|queue| queue.base.signed.root.number = 1));
        assert!(change(|queue| queue.versions.clear()));
        let bytes = queue().to_bytes();
        assert!((0..bytes.len()).all(|end| UncommittedQueue::from_bytes(&bytes[..end]).is_err()));
    }

    #[test]
    fn blocks_that_are_cut_or_changed_are_not_there() {
        let vaults = tempfile::tempdir().unwrap();
        let folder = LocalVault::open(vaults.path(), &VaultId([0x11; 16])).unwrap();
        let version = queue().versions.remove(0);
        assert!(!KeptQueue(&folder).keep_blocks(&version, true, &|_| None).unwrap(), "none is given");
        assert!(KeptQueue(&folder).keep_blocks(&version, true, &|_| Some(b"uncommit".to_vec())).unwrap());
        let kept = || {
            let mut kept = Vec::new();
            KeptQueue(&folder).kept_blocks(&version, &mut |_, bytes| kept.push(bytes));
            kept
        };
        assert_eq!(kept(), [b"uncommit"]);
        let path =
            vaults.path().join(VaultId([0x11; 16]).to_string()).join(BLOCKS).join(blocks_name(&version));
        for damaged in [&b"uncommi"[..], b"Uncommit", b""] {
            std::fs::write(&path, damaged).unwrap();
            assert!(kept().is_empty());
        }
        KeptQueue(&folder).set(&queue()).unwrap();
        assert_eq!(KeptQueue(&folder).read().unwrap(), Some(queue()));
        KeptQueue(&folder).clear().unwrap();
        assert!(KeptQueue(&folder).read().unwrap().is_none() && !path.exists());
    }
}
