//! Objects: nodes, blocks and records by hash, in the log's records or in packs of the byte store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use towpath_byte_store::{ByteName, ByteStore};
use towpath_vault_format::{Canonical, Digest};

use crate::changes::{ChangeAt, MadeNodes, NodeChange, ShortHash, short};
use crate::error::VaultError;
use crate::index::{PlaceIndex, StoredAt};
use crate::log::RecordLog;
use crate::packs::{NewPack, PackRun, TOGETHER, is_lost};
use crate::record::{LogRecord, PackList};

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

    /// A pack of these objects, which is not written yet.
    pub(crate) fn new_pack(&self, objects: Vec<(Digest, Bytes)>) -> NewPack {
        NewPack::of(Arc::clone(&self.bytes), objects)
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
        if let Some(run) = &run
            && let Some(objects) = run.read(names)?
        {
            return Ok(objects.into_iter().map(Some).collect());
        }
        // Each by itself shows which one is wrong.
        let alone = &names[..run.map_or(1, |run| run.lens.len()).min(names.len())];
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

    /// The first of these objects, if they lie in a pack: as many as lie there one behind the other.
    pub(crate) fn run(&self, names: &[Digest]) -> Option<PackRun> {
        let found = |name| self.index.get(&short(name)).filter(|found| found.pack.is_some());
        let first = names.first().and_then(found)?;
        let pack = *self.packs.get(first.pack? as usize)?;
        let (mut end, mut lens) = (first.at, Vec::new());
        for place in names.iter().map_while(found) {
            let behind = place.at + u64::from(place.len);
            let follows = place.pack == first.pack && place.at == end;
            if !follows || !lens.is_empty() && behind - first.at > TOGETHER {
                break;
            }
            end = behind;
            lens.push(place.len);
        }
        Some(PackRun { bytes: Arc::clone(&self.bytes), pack, range: first.at..end, lens })
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
