//! Chunks that a region of a local file likely resembles are asked for as deltas against it.

use std::ops::Range;

use towpath_transfer::{Origin, Tag, Want};

use super::Driver;
use crate::adaptive::benefit::delta_pays;
use crate::adaptive::neighbours::Region;
use crate::adaptive::signing::signed_base;

/// State of a want as a delta.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaState {
    Untried,
    Requested,
    /// The answer was of no use: it is requested as it is.
    Failed,
}

impl Driver {
    /// Regions that runs of `wants`, which follow each other in an object, likely resemble, as far as it pays. Only
    /// peers to whom this machine's files may be known get their hashes.
    pub(super) fn match_regions(&mut self, wants: &[Want]) -> Vec<(Range<usize>, Region)> {
        if !self.search.scope.beyond_destination {
            return Vec::new();
        }
        let rate = self.scheduler.wire_rate(self.shared.now());
        let mut likely = Vec::new();
        let mut start = 0;
        for run in wants.chunk_by(|a, b| self.may_join(a, b)) {
            let numbers = start..start + run.len();
            start = numbers.end;
            let Some(Origin { oid, offset }) = run.first().and_then(|want| want.origin) else { continue };
            let len = run.iter().map(|want| want.id.len()).sum();
            let region = self.neighbours.region(&oid, &(offset..offset + len));
            let is_untried = run.first().is_some_and(|want| self.is_untried(want.tag));
            if let Some(region) = region.filter(|it| is_untried && delta_pays(rate, len, it.len())) {
                likely.push((numbers, region));
            }
        }
        let matched = likely.iter().flat_map(|(numbers, _)| &wants[numbers.clone()]);
        for want in matched {
            self.open.get_mut(&want.tag).into_iter().for_each(|open| open.delta = DeltaState::Requested);
        }
        likely
    }

    fn is_untried(&self, tag: Tag) -> bool {
        self.open.get(&tag).is_some_and(|open| open.delta == DeltaState::Untried)
    }

    /// True if `next` follows in the object of `want`, and is to be asked for alike.
    fn may_join(&self, want: &Want, next: &Want) -> bool {
        let ends = want.origin.map(|it| Origin { offset: it.offset + want.id.len(), ..it });
        ends.is_some() && ends == next.origin && self.is_untried(want.tag) == self.is_untried(next.tag)
    }

    /// True if a want was asked for as a delta; if so, it is not again.
    pub(super) fn gives_up_delta(&mut self, tag: Tag) -> bool {
        let open = self.open.get_mut(&tag).filter(|open| open.delta == DeltaState::Requested);
        open.map(|open| open.delta = DeltaState::Failed).is_some()
    }
}

/// Signs regions, each for the run of wants that likely resembles it. What cannot be read helps nobody.
pub(super) async fn sign(wants: &mut [Want], likely: Vec<(Range<usize>, Region)>) {
    let (runs, regions): (Vec<_>, Vec<_>) = likely.into_iter().unzip();
    let lens = runs.iter().map(|run| wants[run.clone()].iter().map(|want| want.id.len()).sum());
    let work: Vec<(Region, u64)> = regions.into_iter().zip(lens).collect();
    let sign = |(region, len): (Region, u64)| signed_base(&region, len);
    let signing = move || work.into_iter().map(sign).collect::<Vec<_>>();
    let signed = tokio::task::spawn_blocking(signing).await.unwrap_or_default();
    for (run, base) in runs.into_iter().zip(signed) {
        wants[run].iter_mut().for_each(|want| want.base.clone_from(&base));
    }
}
