//! From an older version in its own place to one that is followed: when pieces are found to be shifted, and the
//! root thinks it worth it, the object's samples are requested. Until they come nothing more is compared.

use super::active::{Active, ObjectPhase};
use super::questions::Questions;
use super::requests::Sampled;
use super::table::ObjectTable;
use crate::following::{SAMPLE_LEN, sample_count};
use crate::root::{OpenWays, RestWay};
use crate::source::Query;
use crate::want::ObjectKey;

/// Bytes of samples that a session keeps, at most.
const MOST_BYTES: u64 = 16 << 20;

impl ObjectTable {
    /// Asks for the samples of an object, if they are of use.
    pub(super) fn look_for_samples(&mut self, key: ObjectKey, questions: &Questions) {
        let Some(bytes) = self.objects.get(&key).and_then(Active::samples_of_use) else { return };
        let kept: u64 = self.objects.values().map(Active::samples_kept).sum();
        if kept + bytes > MOST_BYTES {
            return;
        }
        let Some(facts) = self.facts(key, OpenWays::SAMPLES) else { return };
        if facts.missing == 0 || self.root.advise(&facts).way != RestWay::Samples {
            return;
        }
        let query = Query { coverage: facts.group.coverage, samples: true, ..Query::about(facts.oid) };
        let now = self.meter.now();
        let Some(active) = self.objects.get_mut(&key) else { return };
        active.sampled = Sampled::Now;
        active.comparison.follow(Some(0), now);
        questions.samples(key, query, active.question.clone());
    }

    /// Some of an object's samples came; true if the object goes on by them.
    pub(super) fn samples(&mut self, key: ObjectKey, first: u64, bytes: &[u8]) -> bool {
        let now = self.meter.now();
        let Some(active) = self.objects.get_mut(&key).filter(|active| active.sampled == Sampled::Now) else {
            return false;
        };
        if !active.object.learn_samples(first, bytes) {
            tracing::warn!("a source sent wrong samples");
            return false;
        }
        let pieces = active.object.followed().as_ref().map_or(0, |followed| followed.samples.pieces());
        active.comparison.follow(Some(pieces), now);
        if first == 0 {
            // Pieces that were not in their place may be here all the same.
            let again = self.ledger.take_back_pieces(key);
            let comparison = self.objects.get_mut(&key).map(|active| &mut active.comparison);
            comparison.into_iter().for_each(|it| again.iter().for_each(|index| it.add(*index)));
        }
        true
    }

    /// No more come: what has none is compared where it should lie.
    pub(super) fn sampled(&mut self, key: ObjectKey) {
        let now = self.meter.now();
        let Some(active) = self.objects.get_mut(&key) else { return };
        active.sampled = Sampled::Over;
        active.comparison.follow(None, now);
    }
}

impl Active {
    /// Bytes of its samples, if it may be drawn from an older version that is followed.
    fn samples_of_use(&self) -> Option<u64> {
        let is_due = self.sampled == Sampled::No
            && self.phase == ObjectPhase::Fetching
            && self.recipe.is_none()
            && self.comparison.has_missed()
            && !self.comparison.is_over();
        let layout = self.object.layout().filter(|_| is_due)?;
        self.object.target.base().map(|_| sample_bytes(layout.size()))
    }

    /// Bytes of its samples that are kept, or may come.
    fn samples_kept(&self) -> u64 {
        let layout = self.object.layout().filter(|_| self.sampled != Sampled::No);
        layout.map_or(0, |layout| sample_bytes(layout.size()))
    }
}

fn sample_bytes(size: u64) -> u64 {
    (sample_count(size) * SAMPLE_LEN) as u64
}
