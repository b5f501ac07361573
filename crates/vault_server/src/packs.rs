//! Packs on their way to the place where they lie, and back. A bucket may take seconds for one; so each of these knows all that it needs,
//! and the vault is read, or even changed, meanwhile.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use towpath_byte_store::{ByteName, ByteStore, ByteStoreError};
use towpath_vault_format::Digest;

use crate::error::VaultError;
use crate::record::PackList;

/// Objects of a pack are read in so many bytes.
pub(crate) const TOGETHER: u64 = 1 << 20;

/// Objects that are to be a pack. They are none of the vault's before a record of its log names the pack.
#[derive(Debug)]
pub(crate) struct NewPack {
    bytes: Arc<dyn ByteStore>,
    objects: Vec<(Digest, Bytes)>,
}

/// Objects that lie one behind the other in a pack.
#[derive(Debug)]
pub(crate) struct PackRun {
    pub(crate) bytes: Arc<dyn ByteStore>,
    pub(crate) pack: Digest,
    /// Where they lie, all of them.
    pub(crate) range: Range<u64>,
    /// Bytes of each.
    pub(crate) lens: Vec<u32>,
}

/// What stays of a pack of which most goes.
#[derive(Debug)]
pub(crate) struct PackRest {
    bytes: Arc<dyn ByteStore>,
    runs: Vec<(PackRun, Vec<Digest>)>,
}

/// Packs that no record names any more.
#[derive(Debug)]
pub(crate) struct NeedlessPacks {
    pub(crate) bytes: Arc<dyn ByteStore>,
    pub(crate) packs: Vec<Digest>,
}

impl NewPack {
    /// Of these objects, in order.
    pub(crate) const fn of(bytes: Arc<dyn ByteStore>, objects: Vec<(Digest, Bytes)>) -> Self {
        Self { bytes, objects }
    }

    /// Writes it, durably.
    pub(crate) fn write(&self) -> Result<PackList, VaultError> {
        let mut hasher = blake3::Hasher::new();
        for (_, object) in &self.objects {
            hasher.update(object);
        }
        let pack = Digest(*hasher.finalize().as_bytes());
        let size: usize = self.objects.iter().map(|(_, object)| object.len()).sum();
        let parts = self.objects.iter().map(|(_, object)| &object[..]);
        self.bytes.put(&ByteName(pack.0), &mut PartsReader { parts, left: &[] }, size as u64)?;
        let objects = self.objects.iter().map(|(hash, object)| (*hash, object.len() as u32)).collect();
        Ok(PackList { pack, objects })
    }
}

impl PackRun {
    /// Its objects, whose hashes are `names`; `None`: the pack is lost, or some bytes are wrong.
    pub(crate) fn read(&self, names: &[Digest]) -> Result<Option<Vec<Bytes>>, VaultError> {
        let mut bytes = Vec::with_capacity((self.range.end - self.range.start) as usize);
        let read = self.bytes.get_range(&ByteName(self.pack.0), self.range.clone(), &mut bytes);
        match read.map_err(VaultError::Packs) {
            Err(error) if !is_lost(&error) => return Err(error),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let mut bytes = Bytes::from(bytes);
        let objects: Vec<Bytes> = self.lens.iter().map(|len| bytes.split_to(*len as usize)).collect();
        let is_right = names.iter().zip(&objects).all(|(name, object)| Digest::of(object) == *name);
        Ok(is_right.then_some(objects))
    }
}

impl PackRest {
    /// Those objects of a pack that stay.
    pub(crate) fn of(bytes: &Arc<dyn ByteStore>, list: &PackList, stays: impl Fn(&Digest) -> bool) -> Self {
        let (mut runs, mut at): (Vec<(PackRun, Vec<Digest>)>, _) = (Vec::new(), 0);
        for (name, len) in &list.objects {
            let range = at..at + u64::from(*len);
            at = range.end;
            if !stays(name) {
                continue;
            }
            let follows =
                |run: &PackRun| run.range.end == range.start && range.end - run.range.start <= TOGETHER;
            match runs.last_mut().filter(|(run, _)| follows(run)) {
                Some((run, names)) => {
                    run.range.end = range.end;
                    run.lens.push(*len);
                    names.push(*name);
                }
                None => {
                    let (bytes, pack, lens) = (Arc::clone(bytes), list.pack, vec![*len]);
                    runs.push((PackRun { bytes, pack, range, lens }, vec![*name]));
                }
            }
        }
        Self { bytes: Arc::clone(bytes), runs }
    }

    /// Reads it and writes it as a pack of its own.
    pub(crate) fn write(&self) -> Result<PackList, VaultError> {
        let mut objects = Vec::new();
        for (run, names) in &self.runs {
            let read = run.read(names)?.ok_or(VaultError::Lost(names[0]))?;
            objects.extend(names.iter().copied().zip(read));
        }
        NewPack::of(Arc::clone(&self.bytes), objects).write()
    }
}

impl NeedlessPacks {
    /// Deletes them. What can't be deleted costs space and nothing else.
    pub(crate) fn delete(self) {
        for pack in self.packs {
            if let Err(error) = self.bytes.delete(&ByteName(pack.0)) {
                tracing::warn!(%error, "a pack can't be deleted");
            }
        }
    }
}

/// True if an object can't be had here for good, or until somebody mends it. A place of packs that does not answer, or refuses, is another thing.
pub(crate) fn is_lost(error: &VaultError) -> bool {
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
