//! Wants that an object needs next: pieces in order, a bounded number ahead; what may be here already is
//! compared first, as far as that is of use; chunks of a recipe stand in for pieces.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use towpath_content::pieces::{Layout, MIN_LOG2};

use super::active::{Active, ObjectPhase};
use super::table::ObjectTable;
use super::work::Job;
use crate::claim::RecipeChunk;
use crate::want::{ObjectKey, ObjectOffset, Origin, Tag, Want, WantId};

/// Wants and rechecks of one object that are out at once, at most.
pub(super) const AHEAD: usize = 512;

impl ObjectTable {
    /// Adds wants for an object until enough are out.
    pub(super) fn plan_ahead(&mut self, key: ObjectKey) {
        let (now, at_once) = (Instant::now(), self.chunks_at_once);
        while let Some(active) = self.objects.get_mut(&key) {
            let out = self.ledger.coverage().open_wants(key) + active.rechecking.len();
            let is_enough = out >= AHEAD && !(at_once && active.is_at_chunks());
            if active.phase != ObjectPhase::Fetching || is_enough {
                return;
            }
            let Some(layout) = active.want_layout() else { return };
            let limit = if active.object.layout().is_some() { active.end(&layout) } else { active.signed };
            if active.cursor < limit {
                let index = active.cursor;
                active.cursor += 1;
                self.plan_piece(key, layout, index, now);
            } else if let Some(chunk) = active.take_chunk() {
                self.plan_chunk(key, &layout, &chunk, now);
            } else {
                return;
            }
        }
    }

    /// A piece that may be here is to be compared. Others are wanted, unless chunks are.
    fn plan_piece(&mut self, key: ObjectKey, layout: Layout, index: u64, now: Instant) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        let range = layout.range(index);
        let may_be_here = !range.is_empty() && active.existing.covers(&range);
        if may_be_here && active.object.expected(index).is_some() {
            return active.comparison.add(index);
        }
        if active.recipe.is_none() {
            let oid = active.object.content().unwrap_or(active.object.oid);
            self.add(key, WantId::Piece { oid, layout, index }, range.start, now);
        }
    }

    /// A chunk is wanted unless its bytes come another way.
    fn plan_chunk(&mut self, key: ObjectKey, layout: &Layout, chunk: &RecipeChunk, now: Instant) {
        let Some(active) = self.objects.get(&key) else { return };
        let gaps = self.ledger.gaps_beside_pieces(key, &(chunk.offset..chunk.offset + u64::from(chunk.len)));
        let is_read_back = |gap: &Range<u64>| {
            let mut pieces = gap.start / layout.piece_len()..gap.end.div_ceil(layout.piece_len());
            pieces.all(|index| active.rechecking.contains_key(&index) || active.comparison.is_left(index))
        };
        if !gaps.iter().all(is_read_back) {
            let range = chunk.offset..chunk.offset + u64::from(chunk.len);
            let tag = self.add(key, chunk.id(), chunk.offset, now);
            let here = tag.and_then(|tag| self.partial_pieces.chunk(key, tag, &range));
            here.into_iter().for_each(|delivery| self.delivery(delivery, None));
        }
    }

    /// Chunks that were left out, for a piece was to bring them, are wanted after all.
    pub(super) fn plan_chunks_in(&mut self, key: ObjectKey, range: &Range<u64>) {
        let Some(active) = self.objects.get(&key) else { return };
        let (Some(layout), Some(recipe)) = (active.object.layout(), &active.recipe) else { return };
        let planned = &recipe.chunks[..active.next_chunk.min(recipe.chunks.len())];
        let from = planned.partition_point(|chunk| chunk.offset + u64::from(chunk.len) <= range.start);
        let touched: Vec<RecipeChunk> =
            planned[from..].iter().take_while(|chunk| chunk.offset < range.end).copied().collect();
        for chunk in touched {
            self.plan_chunk(key, &layout, &chunk, Instant::now());
        }
    }

    fn add(&mut self, key: ObjectKey, id: WantId, offset: u64, now: Instant) -> Option<Tag> {
        let group = Arc::clone(&self.objects.get(&key)?.object.group);
        Some(self.ledger.add(id, ObjectOffset { object: key, offset }, &group, now))
    }

    /// What is said of a want when it is requested, as it comes and goes: the value of a piece, and where a chunk lies in an object
    /// for which its source can be asked.
    pub(super) fn locate(&self, want: &mut Want) {
        match want.id {
            WantId::Piece { oid, layout, index } if layout.count() > 1 && !oid.is_live() => {
                let mut objects = want.positions.iter().filter_map(|it| self.objects.get(&it.object));
                want.value = objects.find_map(|active| active.object.expected(index));
            }
            WantId::Piece { .. } | WantId::Block { .. } => {}
            WantId::Chunk { .. } => {
                let located = want.positions.iter().find_map(|position| {
                    let object = &self.objects.get(&position.object)?.object;
                    let origin = Origin { oid: object.content()?, offset: position.offset };
                    Some((origin, Arc::clone(&object.group)))
                });
                if let Some((origin, group)) = located {
                    (want.origin, want.group) = (Some(origin), group);
                }
            }
        }
    }

    /// Chunks were written here: pieces that they have filled are read back and compared with their values. One
    /// that comes as such at this moment, or is being read, may have been right before the chunk was
    /// written, and is looked at when that is over.
    pub(super) fn check_filled_pieces(&mut self, position: ObjectOffset, len: u64) {
        let ObjectOffset { object, offset } = position;
        let Some(active) = self.objects.get_mut(&object).filter(|active| active.recipe.is_some()) else {
            return;
        };
        let (Some(layout), Some(have)) = (active.object.layout(), self.ledger.coverage().have(object)) else {
            return;
        };
        let touched = offset / layout.piece_len()..(offset + len).div_ceil(layout.piece_len());
        for index in touched.clone() {
            let under_way = [active.rechecking.get_mut(&index), active.writing_pieces.get_mut(&index)];
            under_way.into_iter().flatten().for_each(|spoilt| *spoilt = true);
        }
        let filled: Vec<u64> = touched.filter(|&index| have.covers(&layout.range(index))).collect();
        filled.into_iter().for_each(|index| self.recheck(object, index));
    }

    /// Reads a piece back; once more if it is being read already, since it was written to.
    pub(super) fn recheck(&mut self, key: ObjectKey, index: u64) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        match active.rechecking.entry(index) {
            Entry::Occupied(mut written) => drop(written.insert(true)),
            Entry::Vacant(slot) => {
                slot.insert(false);
                self.jobs.send(Job::Recheck { object: Arc::clone(&active.object), index });
            }
        }
    }

    /// A piece that chunks filled was read back; true unless it is to be once more.
    pub(super) fn rechecked(&mut self, key: ObjectKey, index: u64, good: bool) -> bool {
        let Some(active) = self.objects.get_mut(&key) else { return false };
        if active.rechecking.remove(&index) == Some(true) {
            self.recheck(key, index);
            return false;
        }
        if good {
            active.has_piece(index);
        } else {
            let range = active.object.piece_range(index);
            self.distrust(key, index, range);
        }
        true
    }

    /// A chunk cannot be had: the pieces it is part of are wanted instead.
    pub(super) fn fall_back(&mut self, position: ObjectOffset, len: u64) {
        let Some(active) = self.objects.get(&position.object) else { return };
        let (Some(oid), Some(layout)) = (active.object.content(), active.object.layout()) else { return };
        let now = Instant::now();
        for index in
            position.offset / layout.piece_len()..(position.offset + len).div_ceil(layout.piece_len())
        {
            let range = layout.range(index);
            let is_compared =
                self.objects.get(&position.object).is_some_and(|active| active.is_compared(index));
            let have = self.ledger.coverage().have(position.object);
            if !is_compared && have.is_none_or(|have| !have.covers(&range)) {
                self.add(position.object, WantId::Piece { oid, layout, index }, range.start, now);
            }
        }
    }

    /// Distrusts a piece that chunks filled and that is not the piece: the recipe's maker is to blame, and it is
    /// fetched as such.
    fn distrust(&mut self, key: ObjectKey, index: u64, range: Range<u64>) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        if let Some(recipe) = &active.recipe {
            tracing::warn!(maker = %recipe.maker, index, "a recipe's chunks do not make up the object");
            self.root.report_corrupt(&recipe.maker);
        }
        active.existing.remove(range.clone());
        active.announced.iter().for_each(|announced| announced.distrusted(range.clone()));
        self.ledger.uncover(key, range.clone());
        self.add_piece(key, index, range.start);
    }

    pub(super) fn add_piece(&mut self, key: ObjectKey, index: u64, start: u64) -> Option<Tag> {
        let active = self.objects.get(&key)?;
        let oid = active.object.content().unwrap_or(active.object.oid);
        let layout = active.want_layout()?;
        self.add(key, WantId::Piece { oid, layout, index }, start, Instant::now())
    }
}

impl Active {
    /// True if a piece is about to be compared, and wanted only if it is not in its place.
    fn is_compared(&self, index: u64) -> bool {
        let is_under_way = self.rechecking.contains_key(&index) || self.comparison.is_left(index);
        self.recipe.is_none() && is_under_way
    }

    /// True if nothing but chunks is left to plan.
    fn is_at_chunks(&self) -> bool {
        self.recipe.is_some() && self.object.layout().is_some_and(|layout| self.cursor >= layout.count())
    }

    fn take_chunk(&mut self) -> Option<RecipeChunk> {
        let chunk = *self.recipe.as_ref()?.chunks.get(self.next_chunk)?;
        self.next_chunk += 1;
        Some(chunk)
    }

    /// Leaves out what its target does not want.
    pub(super) fn narrow(&mut self, layout: &Layout) {
        let part = self.object.target.part().filter(|part| !part.is_empty() && layout.count() > 1);
        self.part = part.map(|part| {
            let end = part.end.min(layout.size()).div_ceil(layout.piece_len());
            (part.start / layout.piece_len()).min(end)..end
        });
        self.cursor = self.part.as_ref().map_or(0, |part| part.start);
    }

    /// End of its pieces.
    pub(super) fn end(&self, layout: &Layout) -> u64 {
        self.part.as_ref().map_or(layout.count(), |part| part.end)
    }

    /// The bytes of its pieces.
    pub(super) fn wanted(&self, layout: &Layout) -> Range<u64> {
        match &self.part {
            Some(part) => part.start * layout.piece_len()..layout.size().min(part.end * layout.piece_len()),
            None => 0..layout.size(),
        }
    }

    /// True if every piece and chunk was planned.
    pub(super) fn planned_all(&self, layout: &Layout) -> bool {
        let chunks = self.recipe.as_ref().map_or(0, |recipe| recipe.chunks.len());
        self.cursor >= self.end(layout) && self.comparison.is_over() && self.next_chunk >= chunks
    }

    /// The layout that wants of this object carry: the real one, or that of the part signed so far.
    pub(super) fn want_layout(&self) -> Option<Layout> {
        self.object.layout().or_else(|| Layout::of(self.signed << MIN_LOG2).ok())
    }
}
