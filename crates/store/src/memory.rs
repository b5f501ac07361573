//! A store that keeps everything in memory: for tests, and for what need not outlive the process.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::pieces::PieceTree;
use towpath_content::recipe::Descriptor;

use crate::cutting::Take;
use crate::error::StoreError;
use crate::leases::{Chunks, Holder, Lease, Leases};
use crate::notices::Notices;
use crate::productions::{IS_BOUND, NOT_OPEN, Production, ProductionBody, Productions, some_run};
use crate::recipes::{InMemory, failure_of};
use crate::seam::{
    About, Availability, Descriptors, Listener, Partial, RecipeNodes, State, Store, StoreChange, read_pieces,
};
use crate::spans::{self, OUTSIDE};
use towpath_content::lock::lock;

/// A store in memory. What is in it is lost with it, and not before: nothing is evicted.
pub struct MemoryStore {
    productions: Productions<Mutex<Vec<u8>>>,
    notices: Notices,
    kept: Mutex<KeptObjects>,
}

struct MemoryObject {
    bytes: Vec<u8>,
    tree: PieceTree,
    about: About,
    /// Lengths of its chunks, if the application gave them.
    given: Option<Vec<u32>>,
    /// Once it was asked for.
    recipe: Mutex<Option<Arc<InMemory>>>,
}

#[derive(Default)]
struct KeptObjects {
    objects: HashMap<Oid, Arc<MemoryObject>>,
    /// From a live OID to content and size.
    bindings: HashMap<Oid, (Oid, u64)>,
    leases: Vec<Lease>,
    /// From a hash to the bytes and the number of puts.
    chunks: HashMap<[u8; 32], (Vec<u8>, u64)>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { productions: Productions::new(), notices: Notices::new(), kept: Mutex::default() }
    }

    fn binding(&self, live: &Oid) -> Option<(Oid, u64)> {
        lock(&self.kept).bindings.get(live).copied()
    }

    /// The object that `oid` names now, under whichever of its names.
    fn object(&self, oid: &Oid) -> Option<Arc<MemoryObject>> {
        let kept = lock(&self.kept);
        let content = kept.bindings.get(oid).map_or(oid, |(content, _)| content);
        kept.objects.get(content).cloned()
    }
}

impl MemoryObject {
    /// Its recipe; who asks while it is made waits for it.
    fn recipe(&self) -> Result<Arc<InMemory>, StoreError> {
        let mut recipe = lock(&self.recipe);
        if let Some(made) = &*recipe {
            return Ok(Arc::clone(made));
        }
        let size = self.bytes.len() as u64;
        let parameters = match &self.given {
            Some(_) => Parameters::Given,
            None => Parameters::for_size(size).ok_or(StoreError::NotHere)?,
        };
        let made = Arc::new(InMemory::make(&self.tree.oid(), parameters, |take| self.cut(parameters, take))?);
        *recipe = Some(Arc::clone(&made));
        Ok(made)
    }

    fn cut(&self, parameters: Parameters, take: &mut Take<'_>) -> Result<(), StoreError> {
        let (mut rest, mut offset) = (&self.bytes[..], 0);
        let mut lengths = self.given.iter().flatten();
        let cutter = parameters.cutter().ok();
        let failed = |source| StoreError::Io { what: "cutting an object".into(), source };
        while !rest.is_empty() {
            let given = lengths.next().map(|len| *len as usize);
            let len = given.or_else(|| cutter.as_ref().map(|cutter| cutter.first_len(rest)));
            let (chunk, behind) = rest.split_at(len.unwrap_or(rest.len()));
            let chunk = Descriptor { hash: ChunkHash::of(chunk), len: chunk.len() as u32, offset };
            take(&[chunk]).map_err(|error| failure_of(error, failed))?;
            (rest, offset) = (behind, offset + u64::from(chunk.len));
        }
        Ok(())
    }
}

impl ProductionBody for Mutex<Vec<u8>> {
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut bytes = lock(self);
        bytes.truncate(offset as usize);
        bytes.extend_from_slice(data);
        Ok(())
    }

    fn append(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let bytes = lock(self);
        buf.extend_from_slice(bytes.get(range.start as usize..range.end as usize).ok_or(StoreError::NotYet)?);
        Ok(())
    }
}

fn fill(buf: &mut Vec<u8>, bytes: &[u8]) {
    buf.clear();
    buf.extend_from_slice(bytes);
}

impl KeptObjects {
    /// Makes an object complete and binds its live name; true if it was not here before.
    fn keep(&mut self, live: &Oid, oid: Oid, mut object: MemoryObject) -> bool {
        let size = object.bytes.len() as u64;
        self.bindings.insert(*live, (oid, size));
        for lease in self.leases.iter_mut().filter(|lease| lease.oid == *live) {
            lease.learn(oid, size);
        }
        if let Some(before) = self.objects.get(&oid).filter(|_| object.given.is_none()) {
            object.given.clone_from(&before.given);
        }
        self.objects.insert(oid, Arc::new(object)).is_none()
    }

    /// Takes one lease out: the one of that name, else the oldest of that content.
    fn take_lease(&mut self, oid: &Oid) -> Option<Lease> {
        let by_name = self.leases.iter().position(|lease| lease.oid == *oid);
        let at = by_name.or_else(|| self.leases.iter().position(|lease| lease.content == Some(*oid)))?;
        Some(self.leases.remove(at))
    }

    /// Takes all leases of a session out; returns their names.
    fn take_leases(&mut self, session: &[u8; 16]) -> Vec<Oid> {
        let is_ended = |lease: &mut Lease| lease.holder == Holder::Session(*session);
        let ended: Vec<_> = self.leases.extract_if(.., is_ended).map(|lease| lease.oid).collect();
        self.bindings.retain(|name, _| !ended.contains(name));
        ended
    }
}

impl Store for MemoryStore {
    fn put_init(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        if self.binding(live).is_some() {
            return Err(IS_BOUND);
        }
        self.productions.begin(live, about, Mutex::default())?;
        self.notices.changed(live);
        Ok(())
    }

    fn put_data(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError> {
        if self.productions.get(live).ok_or(NOT_OPEN)?.push(data)? {
            self.notices.changed(live);
        }
        Ok(())
    }

    fn put_boundary(&self, live: &Oid) -> Result<(), StoreError> {
        self.productions.get(live).ok_or(NOT_OPEN)?.cut();
        Ok(())
    }

    fn put_commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        let Some(production) = self.productions.get(live) else {
            return self.binding(live).map(|(content, _)| content).ok_or(NOT_OPEN);
        };
        let (oid, object) = finish(&production)?;
        let is_new = lock(&self.kept).keep(live, oid, object);
        self.productions.end(live);
        self.notices.changed(live);
        self.notices.complete(&oid);
        if is_new {
            self.notices.tell(&oid);
        }
        Ok(oid)
    }

    fn put_abort(&self, live: &Oid) {
        if self.productions.abandon(live).is_some() {
            self.notices.changed(live);
        }
    }

    fn have(&self, oid: &Oid) -> Result<Availability, StoreError> {
        if let Some(found) = self.productions.have(oid)? {
            return Ok(found);
        }
        if let Some(object) = self.object(oid) {
            let state = self.binding(oid).map_or(State::Complete, |(content, _)| State::Bound(content));
            let layout = object.tree.layout();
            let about = object.about.clone();
            return Ok(Availability {
                state,
                layout,
                pieces: some_run(layout.count()),
                spans: Vec::new(),
                about,
            });
        }
        let partial = self.notices.partial(oid).ok_or(StoreError::NotHere)?;
        let (layout, pieces) = partial.available();
        let (spans, about) = (partial.spans(), partial.about());
        Ok(Availability { state: State::Partial, layout, pieces, spans, about })
    }

    fn version(&self, oid: &Oid) -> u64 {
        self.notices.version(oid)
    }

    fn change(&self, oid: &Oid, seen: u64) -> StoreChange {
        self.notices.change(oid, seen)
    }

    fn get_descriptors(&self, oid: &Oid, run: Range<u64>) -> Result<Descriptors, StoreError> {
        if let Some(production) = self.productions.get(oid) {
            return production.descriptors(run);
        }
        if let Some(object) = self.object(oid) {
            return object.tree.proof(run).map(Descriptors::Proof).map_err(|_| OUTSIDE);
        }
        let partial = self.notices.partial(oid).ok_or(StoreError::NotHere)?;
        partial.proof(run).map(Descriptors::Proof)
    }

    fn read_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if let Some(production) = self.productions.get(oid) {
            return production.append_piece(index, buf);
        }
        if let Some(object) = self.object(oid) {
            let layout = object.tree.layout();
            if index >= layout.count() {
                return Err(OUTSIDE);
            }
            let range = layout.range(index);
            buf.extend_from_slice(&object.bytes[range.start as usize..range.end as usize]);
            return Ok(());
        }
        self.notices.partial(oid).ok_or(StoreError::NotHere)?.read_piece(index, buf)
    }

    fn read_span(&self, oid: &Oid, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let Some(object) = self.object(oid).filter(|_| self.productions.get(oid).is_none()) else {
            let partial = self.notices.partial(oid);
            return match partial.map(|partial| partial.read_span(&range, buf)) {
                Some(Ok(())) => Ok(()),
                _ => read_pieces(self, oid, range, buf),
            };
        };
        spans::check(&range)?;
        fill(buf, object.bytes.get(range.start as usize..range.end as usize).ok_or(OUTSIDE)?);
        Ok(())
    }

    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        let object = self.object(oid).filter(|_| self.productions.get(oid).is_none());
        Ok(object.ok_or(StoreError::NotHere)?.recipe()?)
    }

    fn announce(&self, oid: &Oid, partial: Option<Arc<dyn Partial>>) {
        match partial {
            Some(partial) => self.notices.announce(oid, partial),
            None => self.notices.withdraw(oid),
        }
    }

    fn get_chunk(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        let kept = lock(&self.kept);
        kept.chunks.get(hash).map(|(bytes, _)| bytes.clone()).ok_or(StoreError::NotHere)
    }

    fn register_push(&self, listener: Listener) {
        self.notices.listen(listener);
    }
}

impl Leases for MemoryStore {
    fn lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let mut kept = lock(&self.kept);
        kept.leases.retain(|other| other.oid != lease.oid);
        let at = kept.leases.partition_point(|other| other.created <= lease.created);
        let mut lease = lease.clone();
        if let Some((content, size)) = kept.bindings.get(&lease.oid).copied() {
            lease.learn(content, size);
        }
        kept.leases.insert(at, lease);
        Ok(())
    }

    fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        Ok(lock(&self.kept).leases.clone())
    }

    fn done(&self, oid: &Oid) -> Result<bool, StoreError> {
        let mut kept = lock(&self.kept);
        let Some(lease) = kept.take_lease(oid) else {
            return Ok(false);
        };
        kept.bindings.remove(&lease.oid);
        drop(kept);
        self.notices.changed(&lease.oid);
        Ok(true)
    }

    fn end_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError> {
        let ended = lock(&self.kept).take_leases(session);
        ended.iter().for_each(|name| self.notices.changed(name));
        Ok(ended)
    }
}

impl Chunks for MemoryStore {
    fn put_chunk(&self, hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
        check_chunk(hash, bytes)?;
        let mut kept = lock(&self.kept);
        kept.chunks.entry(*hash).or_insert_with(|| (bytes.to_vec(), 0)).1 += 1;
        Ok(())
    }

    fn release_chunk(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        let mut kept = lock(&self.kept);
        let (_, puts) = kept.chunks.get_mut(hash).ok_or(StoreError::NotHere)?;
        *puts -= 1;
        if *puts == 0 {
            kept.chunks.remove(hash);
        }
        Ok(())
    }
}

/// Chunks are checked where they come in.
pub(crate) fn check_chunk(hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
    if blake3::hash(bytes).as_bytes() == hash {
        return Ok(());
    }
    Err(StoreError::Refused { why: "the chunk's bytes do not have that hash" })
}

fn finish(production: &Production<Mutex<Vec<u8>>>) -> Result<(Oid, MemoryObject), StoreError> {
    let finished = production.finish()?;
    let tree = PieceTree::new(finished.layout, finished.values)
        .ok_or(StoreError::Refused { why: "the put was still being written" })?;
    let bytes = lock(&production.body)[..finished.layout.size() as usize].to_vec();
    let about = production.about.clone();
    let given = production.given(finished.layout.size());
    Ok((finished.oid, MemoryObject { bytes, tree, about, given, recipe: Mutex::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::run(MemoryStore::new);
        crate::conformance::run_leases(MemoryStore::new);
        crate::conformance::run_chunks(MemoryStore::new);
    }
}
