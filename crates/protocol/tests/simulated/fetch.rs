//! One object on its way to a host, by the transfer session's own ledger and checks, without its
//! threads.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, MAX_OUTLINES, Request, SignedParts};
use towpath_content::pieces::{Layout, PieceTree, Value};
use towpath_store::{About, Partial, StoreError};
use towpath_transfer::claim::{RecipeClaim, RecipeReader};
use towpath_transfer::intervals::Intervals;
use towpath_transfer::ledger::{Ledger, LedgerConfig, WantResult};
use towpath_transfer::object::ObjectInFlight;
use towpath_transfer::want::{Delivery, ObjectOffset, WantId};
use towpath_transfer::{Group, Origin, Outcome, RecipePart, SignedBase, Tag, Target, Want};

/// Bytes of wants under way.
const WINDOW: u64 = 1 << 20;
/// Wants in one request.
const BATCH: usize = 4;
/// Time that wants are left alone after a connection was lost, as the plugin does.
const PAUSE: Duration = Duration::from_millis(100);
/// With nothing for so long a fetch fails, as in the session and in the service.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const KEY: u64 = 1;

/// Bytes in memory.
#[derive(Default)]
struct Memory(Mutex<Vec<u8>>);

impl Target for Memory {
    fn begin(&self, _: Option<u64>, _: &About) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..offset as usize + buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let mut memory = self.0.lock().unwrap();
        let len = memory.len().max(end);
        memory.resize(len, 0);
        memory[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.write(range.start, &vec![0; (range.end - range.start) as usize])
    }

    fn complete(&self, _: &Oid, _: u64, _: Vec<Value>) -> io::Result<()> {
        Ok(())
    }
}

/// Of an object that comes, what others may have.
pub struct WholePieces {
    /// Their indexes.
    pub whole: Vec<Range<u64>>,
    tree: Arc<PieceTree>,
    memory: Arc<Memory>,
}

impl Partial for WholePieces {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        (self.tree.layout(), self.whole.clone())
    }

    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.tree.proof(run).map_err(|_| StoreError::NotYet)
    }

    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if !self.whole.iter().any(|run| run.contains(&index)) {
            return Err(StoreError::NotYet);
        }
        let Range { start, end } = self.tree.layout().range(index);
        buf.extend_from_slice(&self.memory.0.lock().unwrap()[start as usize..end as usize]);
        Ok(())
    }
}

/// See the head of this module.
pub struct Fetch {
    pub oid: Oid,
    object: ObjectInFlight,
    memory: Arc<Memory>,
    ledger: Ledger,
    layout: Option<Layout>,
    /// It asks for the recipe, and then for chunks where they lie.
    pub by_recipe: bool,
    /// An older version, of which the object comes as a delta in steps, unless nobody makes one.
    pub older: Option<Vec<u8>>,
    /// Chunks on this host's disk, by hash: those of the recipe need not come.
    pub on_disk: HashMap<[u8; 32], Vec<u8>>,
    /// Bytes that were found there.
    pub found: u64,
    /// Layout of it, and its recipe as far as that has come.
    reading: Option<(Layout, RecipeReader)>,
    failed: Option<String>,
    retry_question_at: Option<Instant>,
    last_progress: Instant,
}

impl Fetch {
    pub fn new(oid: Oid, now: Instant) -> Self {
        let memory = Arc::new(Memory::default());
        let group = Arc::new(Group::default());
        let object = ObjectInFlight::new(KEY, oid, group, Arc::clone(&memory) as Arc<dyn Target>);
        let ledger = Ledger::new(LedgerConfig::default(), now);
        let (layout, failed, retry_question_at) = (None, None, None);
        let (by_recipe, reading, on_disk, found) = (false, None, HashMap::new(), 0);
        Self {
            oid,
            object,
            memory,
            ledger,
            layout,
            by_recipe,
            older: None,
            on_disk,
            found,
            reading,
            failed,
            retry_question_at,
            last_progress: now,
        }
    }

    pub fn is_described(&self) -> bool {
        self.layout.is_some()
    }

    pub fn is_complete(&self) -> bool {
        self.layout.is_some_and(|layout| self.ledger.coverage().is_complete(KEY, &(0..layout.size())))
    }

    /// Reason why it will not be complete.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    pub fn is_over(&self) -> bool {
        self.is_complete() || self.failed.is_some()
    }

    /// Bytes that are here; all of them have been checked.
    pub fn bytes(&self) -> Vec<u8> {
        self.memory.0.lock().unwrap().clone()
    }

    /// Pieces that are here, by the ledger.
    pub fn have(&self) -> Vec<Range<u64>> {
        self.ledger.coverage().have(KEY).map(|have| have.iter().collect()).unwrap_or_default()
    }

    /// The pieces that are whole, as a transfer session announces them. What proves them is known.
    pub fn whole_pieces(&self, tree: &Arc<PieceTree>) -> WholePieces {
        let (layout, here) = (tree.layout(), self.ledger.coverage().have(KEY));
        let mut whole = Intervals::default();
        for index in 0..layout.count() {
            if here.is_some_and(|here| here.covers(&layout.range(index))) {
                whole.insert(index..index + 1);
            }
        }
        let (tree, memory) = (Arc::clone(tree), Arc::clone(&self.memory));
        WholePieces { whole: whole.iter().collect(), tree, memory }
    }

    pub fn may_ask(&self, now: Instant) -> bool {
        self.retry_question_at.is_none_or(|at| at <= now)
    }

    /// The source said what it is.
    pub fn described(&mut self, layout: Layout, now: Instant) {
        if self.layout.is_some() || self.failed.is_some() {
            return;
        }
        if self.by_recipe {
            self.reading = Some((layout, RecipeReader::new(self.oid, layout.size())));
            return;
        }
        match self.older {
            Some(_) => self.want_whole(layout, now),
            None => self.want_pieces(layout, now),
        }
    }

    fn want_whole(&mut self, layout: Layout, now: Instant) {
        (self.layout, self.last_progress) = (Some(layout), now);
        let id = WantId::Chunk { hash: *self.oid.digest(), len: layout.size() as u32 };
        self.ledger.add(id, ObjectOffset { object: KEY, offset: 0 }, &self.object.group, now);
    }

    /// Takes part of the recipe; false if it is not that.
    pub fn recipe(&mut self, part: RecipePart) -> bool {
        self.reading.as_mut().is_some_and(|(_, reader)| reader.take(part).is_ok())
    }

    /// The question what it is has ended: after a recipe, or because there is none.
    pub fn question_ended(&mut self, result: &Result<(), Outcome>, now: Instant) {
        let Some((layout, reader)) = self.reading.take() else { return };
        match (result, reader.finish()) {
            (Ok(()), Ok(Some(claim))) => self.want_chunks(layout, &claim, now),
            (Err(Outcome::RetryLater(_)), _) => {}
            _ => self.want_pieces(layout, now),
        }
    }

    fn want_chunks(&mut self, layout: Layout, claim: &RecipeClaim, now: Instant) {
        (self.layout, self.last_progress) = (Some(layout), now);
        for chunk in &claim.chunks {
            if let Some(bytes) = self.on_disk.get(&chunk.hash) {
                self.object.target.write(chunk.offset, bytes).unwrap();
                self.found += u64::from(chunk.len);
                self.ledger.cover(KEY, chunk.offset..chunk.offset + u64::from(chunk.len));
                continue;
            }
            let id = WantId::Chunk { hash: chunk.hash, len: chunk.len };
            self.ledger.add(id, ObjectOffset { object: KEY, offset: chunk.offset }, &self.object.group, now);
        }
    }

    fn want_pieces(&mut self, layout: Layout, now: Instant) {
        (self.layout, self.last_progress) = (Some(layout), now);
        self.object.set_layout(layout);
        for index in 0..layout.count() {
            let id = WantId::Piece { oid: self.oid, layout, index };
            let place = ObjectOffset { object: KEY, offset: layout.range(index).start };
            self.ledger.add(id, place, &self.object.group, now);
        }
    }

    /// The question what it is ended without an answer.
    pub fn not_described(&mut self, outcome: &Outcome, now: Instant) {
        match outcome {
            Outcome::RetryLater(wait) => self.retry_question_at = Some(now + (*wait).max(PAUSE)),
            outcome if self.layout.is_none() => self.failed = Some(format!("{outcome:?}")),
            _ => {}
        }
    }

    /// Wants to request now.
    pub fn next_wants(&mut self, now: Instant) -> Vec<Want> {
        let room = WINDOW.saturating_sub(self.ledger.requested().all);
        match room > 0 && self.failed.is_none() {
            true => {
                self.ledger.next_batch(room, BATCH, now).into_iter().map(|want| self.locate(want)).collect()
            }
            false => Vec::new(),
        }
    }

    fn locate(&self, want: Want) -> Want {
        let origin = Origin { oid: self.oid, offset: want.positions[0].offset };
        let want = Want { origin: matches!(want.id, WantId::Chunk { .. }).then_some(origin), ..want };
        let older = self.older.as_ref().filter(|_| want.whole_object().is_some());
        Want { base: older.map(|older| signed(older, want.id.len())), ..want }
    }

    /// Time at which there may be more to request; what is due already needs a connection, not time.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let wake = match self.is_described() {
            true => self.ledger.next_wake(),
            false => self.retry_question_at,
        };
        wake.filter(|&at| at > now).into_iter().chain([self.last_progress + WAIT_LIMIT]).min()
    }

    /// Gives up when nothing came for too long: a peer that is there and does not answer.
    pub fn check_wait_limit(&mut self, now: Instant) {
        if !self.is_over() && now >= self.last_progress + WAIT_LIMIT {
            self.failed = Some("stalled".into());
        }
    }

    /// Takes bytes; false if they are not what they were said to be.
    pub fn delivered(&mut self, delivery: &Delivery, now: Instant) -> bool {
        let Some(want) = self.ledger.delivered(delivery.tag).cloned() else { return true };
        let bytes = delivery.payload.to_bytes(want.id.len());
        let is_good = match want.id {
            WantId::Piece { layout, index, .. } => {
                self.object.check_piece(&layout, index, &bytes, delivery.proof.as_deref()).is_ok()
            }
            WantId::Chunk { hash, .. } | WantId::Block { hash, .. } => *Oid::of(&bytes).digest() == hash,
        };
        if !is_good {
            let result = self.ledger.bad(delivery.tag, &delivery.source);
            self.take_result(&result, "bad bytes time and again", now);
            return false;
        }
        for place in &want.positions {
            self.object.target.write(place.offset, &bytes).unwrap();
        }
        self.last_progress = now;
        self.ledger.done(delivery.tag, &want.positions, now);
        true
    }

    /// A want ended without bytes.
    pub fn ended(&mut self, tag: Tag, outcome: &Outcome, now: Instant) {
        let outcome = match outcome {
            Outcome::RetryLater(wait) => Outcome::RetryLater((*wait).max(PAUSE)),
            outcome => outcome.clone(),
        };
        let result = self.ledger.ended(tag, &outcome, now);
        self.take_result(&result, &format!("{outcome:?}"), now);
    }

    fn take_result(&mut self, result: &WantResult, why: &str, now: Instant) {
        let WantResult::Failed(_) = result else { return };
        match (self.older.take(), self.layout) {
            (Some(_), Some(layout)) => self.want_pieces(layout, now),
            _ => self.failed = Some(why.to_owned()),
        }
    }
}

/// An older version as the base of an object of so many bytes, which is of no use but as a delta.
fn signed(older: &[u8], size: u64) -> Arc<SignedBase> {
    let parts = SignedParts::new(older.len() as u64, size, 1).unwrap();
    let base = Base::Signature(parts.sign(0, older, true).unwrap());
    let request = Request { base, is_guess: true, outlines: MAX_OUTLINES };
    Arc::new(SignedBase { bytes: older.to_vec().into(), request })
}
