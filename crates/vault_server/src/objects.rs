//! Objects: nodes, blocks and records by hash, in the log's records or in packs of the byte store.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use towpath_byte_store::{ByteName, ByteStore};
use towpath_vault_format::Digest;

use crate::error::VaultError;
use crate::log::RecordLog;
use crate::record::PackList;

/// Objects are read for one who asks for many in so many bytes.
const TOGETHER: u64 = 1 << 20;

/// Half of a hash: enough to find an object, whose whole hash is checked when it is read.
type ShortHash = [u8; 16];

/// Where an object lies.
#[derive(Debug, Clone, Copy)]
struct StoredAt {
    /// Number of its pack; 0: the log.
    pack: u32,
    len: u32,
    at: u64,
}

/// Where all objects of a vault lie.
#[derive(Debug)]
pub struct VaultObjects {
    bytes: Arc<dyn ByteStore>,
    locations: HashMap<ShortHash, StoredAt>,
    packs: Vec<Digest>,
    stored: u64,
}

fn short(hash: &Digest) -> ShortHash {
    let mut short = [0; 16];
    short.copy_from_slice(&hash.0[..16]);
    short
}

impl VaultObjects {
    /// An empty one, over packs in `bytes`.
    pub fn new(bytes: Arc<dyn ByteStore>) -> Self {
        Self { bytes, locations: HashMap::new(), packs: Vec::new(), stored: 0 }
    }

    /// Where packs lie.
    pub fn bytes(&self) -> &Arc<dyn ByteStore> {
        &self.bytes
    }

    /// Length of an object that is here.
    pub fn len_of(&self, hash: &Digest) -> Option<u32> {
        self.locations.get(&short(hash)).map(|location| location.len)
    }

    /// Bytes of all objects.
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Bytes of the objects in packs.
    pub fn packed(&self) -> u64 {
        let packed = self.locations.values().filter(|location| location.pack > 0);
        packed.map(|location| u64::from(location.len)).sum()
    }

    /// Bytes of all objects but `live` ones.
    pub fn stored_without(&self, live: &HashSet<Digest>) -> u64 {
        let live: HashSet<ShortHash> = live.iter().map(short).collect();
        let others = self.locations.iter().filter(|(hash, _)| !live.contains(*hash));
        others.map(|(_, location)| u64::from(location.len)).sum()
    }

    /// Names of the packs.
    pub fn packs(&self) -> &[Digest] {
        &self.packs
    }

    /// Notes an object in the log.
    pub fn add_logged(&mut self, hash: &Digest, at: u64, len: u32) {
        self.add(hash, StoredAt { pack: 0, len, at });
    }

    /// Notes the objects of a pack.
    pub fn add_pack(&mut self, list: &PackList) {
        self.packs.push(list.pack);
        let (pack, mut at) = (self.packs.len() as u32, 0);
        for (hash, len) in &list.objects {
            self.add(hash, StoredAt { pack, len: *len, at });
            at += u64::from(*len);
        }
    }

    fn add(&mut self, hash: &Digest, location: StoredAt) {
        self.stored += u64::from(location.len);
        if let Some(before) = self.locations.insert(short(hash), location) {
            self.stored -= u64::from(before.len);
        }
    }

    /// Writes a pack, durably.
    pub fn write_pack<B: AsRef<[u8]>>(&self, objects: &[(Digest, B)]) -> Result<PackList, VaultError> {
        let size = objects.iter().map(|(_, object)| object.as_ref().len()).sum();
        let mut bytes = Vec::with_capacity(size);
        objects.iter().for_each(|(_, object)| bytes.extend_from_slice(object.as_ref()));
        let pack = Digest::of(&bytes);
        self.bytes.put(&ByteName(pack.0), &mut Cursor::new(bytes), size as u64)?;
        let objects = objects.iter().map(|(hash, object)| (*hash, object.as_ref().len() as u32)).collect();
        Ok(PackList { pack, objects })
    }

    /// An object; `None`: there is none. One whose bytes are wrong is lost.
    pub fn read(&self, log: &RecordLog, hash: &Digest) -> Result<Option<Vec<u8>>, VaultError> {
        let Some(location) = self.locations.get(&short(hash)) else { return Ok(None) };
        let StoredAt { pack, len, at } = *location;
        let object = match pack.checked_sub(1) {
            None => log.read(at, len as usize)?,
            Some(index) => {
                let name = self.packs.get(index as usize).ok_or(VaultError::Lost(*hash))?;
                let mut object = Vec::with_capacity(len as usize);
                self.bytes.get_range(&ByteName(name.0), at..at + u64::from(len), &mut object)?;
                object
            }
        };
        match Digest::of(&object) == *hash {
            true => Ok(Some(object)),
            false => Err(VaultError::Lost(*hash)),
        }
    }

    /// The first of these objects: some megabyte of them, or one. A run of them that lies together in a pack is read at once.
    pub fn read_some(&self, log: &RecordLog, names: &[Digest]) -> Vec<Result<Option<Bytes>, VaultError>> {
        let run = self.run(names);
        match self.read_run(&names[..run.len()], &run) {
            Some(objects) => objects.into_iter().map(|object| Ok(Some(object))).collect(),
            // Each by itself shows which one is wrong.
            None => {
                let alone = &names[..run.len().max(1).min(names.len())];
                alone.iter().map(|name| Ok(self.read(log, name)?.map(Bytes::from))).collect()
            }
        }
    }

    /// Where the first of these lie, if that is one behind the other in a pack.
    fn run(&self, names: &[Digest]) -> Vec<StoredAt> {
        let mut run: Vec<StoredAt> = Vec::new();
        for name in names {
            let Some(found) = self.locations.get(&short(name)).filter(|found| found.pack > 0) else { break };
            let follows =
                |last: &StoredAt| last.pack == found.pack && last.at + u64::from(last.len) == found.at;
            let is_near = |first: &StoredAt| found.at + u64::from(found.len) - first.at <= TOGETHER;
            if !run.last().is_none_or(follows) || !run.first().is_none_or(is_near) {
                break;
            }
            run.push(*found);
        }
        run
    }

    /// The objects of a run; `None`: it can't be read, or some bytes are wrong.
    fn read_run(&self, names: &[Digest], run: &[StoredAt]) -> Option<Vec<Bytes>> {
        let (first, last) = (run.first()?, run.last()?);
        let pack = self.packs.get(first.pack as usize - 1)?;
        let range = first.at..last.at + u64::from(last.len);
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        self.bytes.get_range(&ByteName(pack.0), range, &mut bytes).ok()?;
        let mut bytes = Bytes::from(bytes);
        let objects: Vec<Bytes> = run.iter().map(|place| bytes.split_to(place.len as usize)).collect();
        let is_right = names.iter().zip(&objects).all(|(name, object)| Digest::of(object) == *name);
        is_right.then_some(objects)
    }
}
