//! Objects: nodes, blocks and records by hash, in the log's records or in packs of the byte store.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use towpath_byte_store::{ByteName, ByteStore, ByteStoreError};
use towpath_vault_format::{Canonical, Digest};

use crate::changes::{ChangeAt, MadeNodes, NodeChange, ShortHash, short};
use crate::error::VaultError;
use crate::index::{PlaceIndex, StoredAt};
use crate::log::RecordLog;
use crate::record::{LogRecord, PackList};

/// Objects are read for one who asks for many in so many bytes.
const TOGETHER: u64 = 1 << 20;

/// Where all objects of a vault lie.
#[derive(Debug)]
pub struct VaultObjects {
    bytes: Arc<dyn ByteStore>,
    index: PlaceIndex,
    /// Nodes that are patches on others.
    changes: HashMap<ShortHash, ChangeAt>,
    made: MadeNodes,
    packs: Vec<Digest>,
    stored: u64,
}

impl VaultObjects {
    /// An empty one, over packs in `bytes`.
    pub fn new(bytes: Arc<dyn ByteStore>) -> Self {
        let (index, changes) = (PlaceIndex::default(), HashMap::new());
        Self { bytes, index, changes, made: MadeNodes::default(), packs: Vec::new(), stored: 0 }
    }

    /// Where packs lie.
    pub fn bytes(&self) -> &Arc<dyn ByteStore> {
        &self.bytes
    }

    /// Length of an object that is here.
    pub fn len_of(&self, hash: &Digest) -> Option<u32> {
        let name = short(hash);
        let whole = self.index.get(&name).map(|stored| stored.len);
        whole.or_else(|| self.changes.get(&name).map(|change| change.len))
    }

    /// Bytes of all objects.
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Bytes of the objects in packs.
    pub fn packed(&self) -> u64 {
        let packed = self.index.iter().filter(|(_, stored)| stored.pack.is_some());
        packed.map(|(_, stored)| u64::from(stored.len)).sum()
    }

    /// Bytes of all objects but `live` ones.
    pub fn stored_without(&self, live: &HashSet<Digest>) -> u64 {
        let live: HashSet<ShortHash> = live.iter().map(short).collect();
        let whole = self.index.iter().map(|(name, stored)| (name, stored.len));
        let all = whole.chain(self.changes.iter().map(|(name, change)| (*name, change.stored)));
        all.filter(|(name, _)| !live.contains(name)).map(|(_, len)| u64::from(len)).sum()
    }

    /// Names of the packs.
    pub fn packs(&self) -> &[Digest] {
        &self.packs
    }

    /// Notes an object in the log.
    pub fn add_logged(&mut self, hash: &Digest, at: u64, len: u32) {
        self.add(hash, StoredAt { pack: None, at, len });
    }

    /// Notes the changed nodes of a record that begins at `at` and has `len` bytes.
    pub fn add_changes(&mut self, record: (u64, usize), changes: &[NodeChange]) {
        for (place, NodeChange { name, base, len, patch }) in changes.iter().enumerate() {
            let stored = patch.len() as u32;
            let depth = self.depth_of(base).saturating_add(1);
            let change = ChangeAt { record, place, base: *base, len: *len, stored, depth };
            self.stored += u64::from(stored);
            if let Some(before) = self.changes.insert(*name, change) {
                self.stored -= u64::from(before.stored);
            }
        }
    }

    /// Patches on each other that make a node; 0: it is whole.
    pub fn depth_of(&self, name: &ShortHash) -> u8 {
        if self.index.get(name).is_some() {
            return 0;
        }
        self.changes.get(name).map_or(0, |change| change.depth)
    }

    /// Notes the objects of a pack.
    pub fn add_pack(&mut self, list: &PackList) {
        let (pack, mut at) = (Some(self.packs.len() as u32), 0);
        self.packs.push(list.pack);
        for (hash, len) in &list.objects {
            self.add(hash, StoredAt { pack, at, len: *len });
            at += u64::from(*len);
        }
    }

    fn add(&mut self, hash: &Digest, stored: StoredAt) {
        self.stored += u64::from(stored.len);
        if let Some(before) = self.index.insert(short(hash), stored) {
            self.stored -= u64::from(before.len);
        }
    }

    /// Writes a pack, durably.
    pub fn write_pack<B: AsRef<[u8]>>(&self, objects: &[(Digest, B)]) -> Result<PackList, VaultError> {
        let mut hasher = blake3::Hasher::new();
        for (_, object) in objects {
            hasher.update(object.as_ref());
        }
        let pack = Digest(*hasher.finalize().as_bytes());
        let size: usize = objects.iter().map(|(_, object)| object.as_ref().len()).sum();
        let parts = objects.iter().map(|(_, object)| object.as_ref());
        self.bytes.put(&ByteName(pack.0), &mut PartsReader { parts, left: &[] }, size as u64)?;
        let objects = objects.iter().map(|(hash, object)| (*hash, object.as_ref().len() as u32)).collect();
        Ok(PackList { pack, objects })
    }

    /// An object; `None`: there is none. One whose bytes are wrong is lost.
    pub fn read(&self, log: &RecordLog, hash: &Digest) -> Result<Option<Vec<u8>>, VaultError> {
        if self.len_of(hash).is_none() {
            return Ok(None);
        }
        match self.read_named(log, &short(hash))? {
            Some(object) if Digest::of(&object) == *hash => Ok(Some(object)),
            _ => Err(VaultError::Lost(*hash)),
        }
    }

    /// An object by its short name. Nothing of it is checked; `None`: it is not here, or can't be made.
    pub fn read_named(&self, log: &RecordLog, name: &ShortHash) -> Result<Option<Vec<u8>>, VaultError> {
        let (mut name, mut steps) = (*name, Vec::new());
        let mut node = loop {
            if let Some(stored) = self.index.get(&name) {
                break self.read_whole(log, stored)?;
            }
            let Some(change) = self.changes.get(&name) else { return Ok(None) };
            match self.made.get(&name) {
                Some(made) => break Some(made),
                // A damaged log may say that a node is a patch on itself.
                None if steps.len() >= self.changes.len() => return Ok(None),
                None => steps.push((name, change)),
            }
            name = change.base;
        };
        for (name, change) in steps.into_iter().rev() {
            let Some(base) = node else { return Ok(None) };
            node = made(log, change, &base)?.filter(|node| short(&Digest::of(node)) == name);
            node.iter().for_each(|node| self.made.add(name, node.clone()));
        }
        Ok(node)
    }

    fn read_whole(&self, log: &RecordLog, stored: StoredAt) -> Result<Option<Vec<u8>>, VaultError> {
        let StoredAt { pack, at, len } = stored;
        let Some(index) = pack else { return log.read(at, len as usize).map(Some) };
        let Some(name) = self.packs.get(index as usize) else { return Ok(None) };
        let mut object = Vec::with_capacity(len as usize);
        self.bytes.get_range(&ByteName(name.0), at..at + u64::from(len), &mut object)?;
        Ok(Some(object))
    }

    /// The first of these objects: some megabyte of them, or one; `None` for each that is not here or lost. A run of them that lies
    /// together in a pack is read at once. An error: the place of packs fails, which says nothing of them.
    pub fn read_some(&self, log: &RecordLog, names: &[Digest]) -> Result<Vec<Option<Bytes>>, VaultError> {
        let run = self.run(names);
        if let Some(objects) = self.read_run(&names[..run.len()], &run)? {
            return Ok(objects.into_iter().map(Some).collect());
        }
        // Each by itself shows which one is wrong.
        let alone = &names[..run.len().max(1).min(names.len())];
        alone.iter().map(|name| self.read_or_lost(log, name)).collect()
    }

    fn read_or_lost(&self, log: &RecordLog, name: &Digest) -> Result<Option<Bytes>, VaultError> {
        match self.read(log, name) {
            Ok(object) => Ok(object.map(Bytes::from)),
            Err(error) if is_lost(&error) => {
                tracing::warn!(%error, object = %name, "an object is not sent");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Where the first of these lie, if that is one behind the other in a pack.
    fn run(&self, names: &[Digest]) -> Vec<StoredAt> {
        let mut run: Vec<StoredAt> = Vec::new();
        for name in names {
            let Some(found) = self.index.get(&short(name)).filter(|found| found.pack.is_some()) else {
                break;
            };
            let follows =
                |last: &StoredAt| last.pack == found.pack && last.at + u64::from(last.len) == found.at;
            let is_near = |first: &StoredAt| found.at + u64::from(found.len) - first.at <= TOGETHER;
            if !run.last().is_none_or(follows) || !run.first().is_none_or(is_near) {
                break;
            }
            run.push(found);
        }
        run
    }

    /// The objects of a run; `None`: it is none, its pack is lost, or some bytes are wrong.
    fn read_run(&self, names: &[Digest], run: &[StoredAt]) -> Result<Option<Vec<Bytes>>, VaultError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(None) };
        let pack = first.pack.and_then(|pack| self.packs.get(pack as usize));
        let Some(pack) = pack else { return Ok(None) };
        let range = first.at..last.at + u64::from(last.len);
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        match self.bytes.get_range(&ByteName(pack.0), range, &mut bytes).map_err(VaultError::Packs) {
            Err(error) if !is_lost(&error) => return Err(error),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let mut bytes = Bytes::from(bytes);
        let objects: Vec<Bytes> = run.iter().map(|place| bytes.split_to(place.len as usize)).collect();
        let is_right = names.iter().zip(&objects).all(|(name, object)| Digest::of(object) == *name);
        Ok(is_right.then_some(objects))
    }
}

/// True if an object can't be had here for good, or until somebody mends it. A place of packs that does not answer, or refuses, is another thing.
fn is_lost(error: &VaultError) -> bool {
    !matches!(
        error,
        VaultError::Packs(
            ByteStoreError::Unreachable { .. }
                | ByteStoreError::Denied { .. }
                | ByteStoreError::Missing { .. }
        )
    )
}

/// Objects as the bytes of a pack, which are never in memory beside them.
struct PartsReader<'a, Parts> {
    parts: Parts,
    left: &'a [u8],
}

impl<'a, Parts: Iterator<Item = &'a [u8]>> Read for PartsReader<'a, Parts> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            if self.left.is_empty() {
                match self.parts.next() {
                    Some(part) => self.left = part,
                    None => break,
                }
            }
            done += self.left.read(&mut buffer[done..])?;
        }
        Ok(done)
    }
}

/// What a patch in the log makes of its base.
fn made(log: &RecordLog, change: &ChangeAt, base: &[u8]) -> Result<Option<Vec<u8>>, VaultError> {
    let (at, len) = change.record;
    let record = log.read(at, len)?;
    match LogRecord::from_bytes(&record) {
        Ok(LogRecord::Version { update, changes, .. }) => {
            Ok(changes.get(change.place).and_then(|change| change.made_of(base, &update.to_bytes())))
        }
        _ => Ok(None),
    }
}
