//! Chunks that a region of a local file likely resembles are asked for as deltas against it.

use std::ops::Range;
use std::sync::Arc;

use towpath_transfer::want::Group;
use towpath_transfer::{Origin, Tag, Want};

use super::Driver;
use crate::adaptive::benefit::delta_pays;
use crate::adaptive::neighbours::{Region, same_place};
use crate::adaptive::signing::signed_base;
use crate::policy::network::Network;
use crate::policy::table::MISSES;
use towpath_disk_search::FilePosition;

/// State of a want as a delta.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaState {
    Untried,
    Requested,
    /// The answer was of no use: it is requested as it is.
    Failed,
}

/// Wants that had a region: how many of them it was of use for, and for how many not.
#[derive(Default)]
pub(super) struct RegionUses {
    useful: u64,
    vain: u64,
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
            let bytes = offset..offset + len;
            let region = self.neighbours.region(&oid, &bytes);
            let region = region.or_else(|| self.in_same_place(&run.first()?.group, &bytes));
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

    /// The same place of an older version, which likely has what nothing around was found of: its changes are close to each other
    /// then, and each chunk has one.
    fn in_same_place(&self, group: &Group, run: &Range<u64>) -> Option<Region> {
        if self.regions.vain > self.regions.useful + MISSES {
            return None;
        }
        let places = [&group.destination, &group.older].into_iter().flatten();
        let mut older = places.filter_map(|path| Some((path, (*self.destinations.get(path)?)?)));
        let (path, size) = older.next()?;
        same_place(&FilePosition { path: Arc::from(path.as_path()), offset: 0, size }, group.size?, run)
    }

    /// A want is here; whether its region spared any of it, if it had one.
    pub(super) fn region_proved(&mut self, tag: Tag, is_useful: bool) {
        if self.open.get(&tag).is_some_and(|open| open.delta == DeltaState::Requested) {
            *if is_useful { &mut self.regions.useful } else { &mut self.regions.vain } += 1;
        }
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
        self.region_proved(tag, false);
        let open = self.open.get_mut(&tag).filter(|open| open.delta == DeltaState::Requested);
        open.map(|open| open.delta = DeltaState::Failed).is_some()
    }
}

/// Signs regions, each for the run of wants that likely resembles it. What cannot be read helps nobody.
pub(super) async fn sign(wants: &mut [Want], likely: Vec<(Range<usize>, Region)>, network: Network) {
    let (runs, regions): (Vec<_>, Vec<_>) = likely.into_iter().unzip();
    let lens = runs.iter().map(|run| wants[run.clone()].iter().map(|want| want.id.len()).sum());
    let work: Vec<(Region, u64)> = regions.into_iter().zip(lens).collect();
    let sign = move |(region, len): (Region, u64)| signed_base(&region, len, false, network);
    let signing = move || work.into_iter().map(sign).collect::<Vec<_>>();
    let signed = tokio::task::spawn_blocking(signing).await.unwrap_or_default();
    for (run, base) in runs.into_iter().zip(signed) {
        wants[run].iter_mut().for_each(|want| want.base.clone_from(&base));
    }
}
