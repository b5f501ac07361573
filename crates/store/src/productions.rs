//! Objects while they are being put: readable piece by piece before their end is known.
//!
//! A [`Production`] is one run of a producer under a live name: where its bytes are (the store's
//! [`ProductionBody`]), the hasher that follows them, and the values of the pieces that are whole. It lives
//! in memory only; after a restart the producer starts over under a new generation.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::pieces::{Layout, MAX_LIVE_SIZE, Value};

use crate::error::StoreError;
use crate::hashing::{LIVE_PIECE, PieceHasher};
use crate::lru::Lru;
use crate::recipes::Cuts;
use crate::seam::{About, Availability, Descriptors, State};
use crate::spans::OUTSIDE;
use towpath_content::lock::lock;

/// Given-up productions that are remembered as such.
const ABANDONED: usize = 4096;

/// Storage for the bytes of a production.
pub(crate) trait ProductionBody: Send + Sync {
    /// Writes all of `data` at `offset`, or fails and may be asked again.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError>;
    /// Appends bytes to `buf` that were written; nothing if that fails.
    fn append(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError>;
}

/// One run of a producer.
pub(crate) struct Production<B> {
    pub(crate) about: About,
    pub(crate) body: B,
    generation: u64,
    hasher: Mutex<PieceHasher>,
    values: Mutex<Vec<Value>>,
    cuts: Mutex<Cuts>,
}

/// Result of a production.
pub(crate) struct Finished {
    pub(crate) oid: Oid,
    pub(crate) layout: Layout,
    pub(crate) values: Vec<Value>,
}

impl<B: ProductionBody> Production<B> {
    fn new(about: &About, body: B) -> Self {
        Self {
            about: about.clone(),
            body,
            generation: random(),
            hasher: Mutex::new(PieceHasher::new()),
            values: Mutex::default(),
            cuts: Mutex::default(),
        }
    }

    /// Appends bytes, all or none; true if pieces became whole.
    pub(crate) fn push(&self, data: &[u8]) -> Result<bool, StoreError> {
        let mut hasher = lock(&self.hasher);
        check_room(hasher.size(), data.len() as u64)?;
        self.body.write(hasher.size(), data)?;
        let values = hasher.update(data);
        let is_grown = !values.is_empty();
        self.publish(values);
        Ok(is_grown)
    }

    /// Notes that a chunk ends where the data so far end.
    pub(crate) fn cut(&self) {
        let hasher = lock(&self.hasher);
        lock(&self.cuts).add(hasher.size());
    }

    /// The lengths of the chunks of an object of `size` bytes, if the application said where they end.
    pub(crate) fn given(&self, size: u64) -> Option<Vec<u32>> {
        lock(&self.cuts).lengths(size)
    }

    fn publish(&self, values: Vec<Value>) {
        lock(&self.values).extend(values);
    }

    /// Makes those pieces readable too whose values are in `all` but were not published yet.
    pub(crate) fn publish_to(&self, all: &[Value]) {
        let mut values = lock(&self.values);
        let known = values.len().min(all.len());
        values.extend_from_slice(&all[known..]);
    }

    /// The object as it would be if nothing more came.
    pub(crate) fn finish(&self) -> Result<Finished, StoreError> {
        let hasher = lock(&self.hasher);
        let (oid, values) = hasher.finish(lock(&self.values).clone());
        let layout = Layout::of(hasher.size()).map_err(|_| TOO_LONG)?;
        Ok(Finished { oid, layout, values })
    }

    /// Bytes that can be had now.
    pub(crate) fn have(&self) -> Result<Availability, StoreError> {
        let whole = lock(&self.values).len() as u64;
        let layout = Layout::live(whole * LIVE_PIECE).map_err(|_| TOO_LONG)?;
        let state = State::Live { generation: self.generation };
        Ok(Availability {
            state,
            layout,
            pieces: some_run(whole),
            spans: Vec::new(),
            about: self.about.clone(),
        })
    }

    /// The values of a run of pieces.
    pub(crate) fn descriptors(&self, run: Range<u64>) -> Result<Descriptors, StoreError> {
        if run.start >= run.end || run.end > MAX_LIVE_SIZE / LIVE_PIECE {
            return Err(OUTSIDE);
        }
        let values = lock(&self.values);
        let found = values.get(run.start as usize..run.end as usize).ok_or(StoreError::NotYet)?;
        Ok(Descriptors::Values(found.to_vec()))
    }

    /// Appends one piece that is whole to `buf`.
    pub(crate) fn append_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if index >= MAX_LIVE_SIZE / LIVE_PIECE {
            return Err(OUTSIDE);
        }
        if index >= lock(&self.values).len() as u64 {
            return Err(StoreError::NotYet);
        }
        self.body.append(index * LIVE_PIECE..(index + 1) * LIVE_PIECE, buf)
    }
}

/// The refusal of a live object without end.
pub(crate) const TOO_LONG: StoreError = StoreError::Refused { why: "live objects end at 256 GiB" };
/// The refusal of data for a put that nobody began.
pub(crate) const NOT_OPEN: StoreError = StoreError::Refused { why: "no such put is open" };
/// The refusal of a second object under the same live name.
pub(crate) const IS_BOUND: StoreError = StoreError::Refused { why: "the name is bound to an object already" };
/// The refusal of a put under a name that is a hash.
pub(crate) const NOT_LIVE: StoreError = StoreError::Refused { why: "a put is opened under a live name" };

fn check_room(size: u64, more: u64) -> Result<(), StoreError> {
    if size.saturating_add(more) > MAX_LIVE_SIZE { Err(TOO_LONG) } else { Ok(()) }
}

/// The list of runs that holds the first `count` pieces.
pub(crate) fn some_run(count: u64) -> Vec<Range<u64>> {
    if count == 0 { Vec::new() } else { std::iter::once(0..count).collect() }
}

/// A number that neither this nor any other process gave out before, as far as anyone will see.
pub(crate) fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(std::process::id().into());
    hasher.finish()
}

/// All productions of one store.
pub(crate) struct Productions<B> {
    open: Mutex<HashMap<Oid, Arc<Production<B>>>>,
    abandoned: Mutex<Lru<Oid, About>>,
}

impl<B: ProductionBody> Productions<B> {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default(), abandoned: Mutex::new(Lru::new(ABANDONED)) }
    }

    /// Begins one, in place of any other of that name.
    pub(crate) fn begin(&self, live: &Oid, about: &About, body: B) -> Result<Arc<Production<B>>, StoreError> {
        if !live.is_live() {
            return Err(NOT_LIVE);
        }
        let production = Arc::new(Production::new(about, body));
        lock(&self.abandoned).remove(live);
        lock(&self.open).insert(*live, Arc::clone(&production));
        Ok(production)
    }

    /// The open production of that name.
    pub(crate) fn get(&self, live: &Oid) -> Option<Arc<Production<B>>> {
        lock(&self.open).get(live).cloned()
    }

    /// True while `production` was neither ended nor replaced.
    pub(crate) fn is_open(&self, live: &Oid, production: &Arc<Production<B>>) -> bool {
        lock(&self.open).get(live).is_some_and(|open| Arc::ptr_eq(open, production))
    }

    /// Ends what is open under a name that is bound now.
    pub(crate) fn end(&self, live: &Oid) {
        lock(&self.open).remove(live);
    }

    /// Gives the open production of that name up and returns it.
    pub(crate) fn abandon(&self, live: &Oid) -> Option<Arc<Production<B>>> {
        let mut open = lock(&self.open);
        let production = open.remove(live)?;
        lock(&self.abandoned).insert(*live, production.about.clone(), 1);
        Some(production)
    }

    /// Availability of an object that is being put or was given up.
    pub(crate) fn have(&self, live: &Oid) -> Result<Option<Availability>, StoreError> {
        if let Some(production) = self.get(live) {
            return production.have().map(Some);
        }
        let Some(about) = lock(&self.abandoned).get(live).cloned() else {
            return Ok(None);
        };
        let layout = Layout::live(0).map_err(|_| TOO_LONG)?;
        Ok(Some(Availability {
            state: State::Abandoned,
            layout,
            pieces: Vec::new(),
            spans: Vec::new(),
            about,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_object_ends_at_its_limit() {
        assert!(check_room(MAX_LIVE_SIZE - 5, 5).is_ok());
        assert!(matches!(check_room(MAX_LIVE_SIZE - 5, 6), Err(StoreError::Refused { .. })));
        assert!(matches!(check_room(1, u64::MAX), Err(StoreError::Refused { .. })));
    }

    #[test]
    fn random_numbers_differ() {
        let numbers: std::collections::HashSet<u64> = (0..1000).map(|_| random()).collect();
        assert_eq!(numbers.len(), 1000);
    }

    struct Full;

    impl ProductionBody for Full {
        fn write(&self, _offset: u64, _data: &[u8]) -> Result<(), StoreError> {
            Err(StoreError::NotYet)
        }
        fn append(&self, _range: Range<u64>, _buf: &mut Vec<u8>) -> Result<(), StoreError> {
            Err(StoreError::NotHere)
        }
    }

    #[test]
    fn bytes_that_could_not_be_written_do_not_count() {
        let production = Production::new(&About::default(), Full);
        assert!(production.push(b"lost").is_err());
        assert_eq!(production.finish().unwrap().oid, Oid::of(b""));
    }
}
