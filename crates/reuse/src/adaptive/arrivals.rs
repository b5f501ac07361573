//! The group that the disk is expected to bring last, without estimating all groups at each event.
//!
//! An estimate of a group holds until something begins or ends on the disk, which happens hundreds of times a
//! second; estimating one means looking at all that is planned. So what was expected is kept in its order, and a look
//! estimates anew only the last ones, until one of them stays the last, and some others in turn, whose arrival may have
//! moved further away. Few groups are all estimated at each look.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::groups::GroupId;

/// Groups that a look estimates from the last one on, and in turn.
const LAST: usize = 8;
const IN_TURN: usize = 8;

/// Estimate of one group.
#[derive(Clone, Copy)]
struct KnownArrival {
    /// Seconds since the transfer began; endless before it was estimated.
    arrival: f64,
    /// The plan when it was estimated.
    plan: Option<u64>,
}

/// Expected arrivals of all groups that have something to ask for.
#[derive(Default)]
pub struct GroupArrivals {
    known: BTreeMap<GroupId, KnownArrival>,
    /// The latest at the end, and of those that are as late the first.
    order: BTreeSet<(u64, Reverse<GroupId>)>,
    plan: u64,
    turn: GroupId,
}

impl GroupArrivals {
    /// A group has something to ask for, for the first time or again.
    pub fn waits(&mut self, id: GroupId) {
        if !self.known.contains_key(&id) {
            self.keep(id, KnownArrival { arrival: f64::INFINITY, plan: None });
        }
    }

    /// Notes that the disk's work has changed, or its plan.
    pub fn changed(&mut self) {
        self.plan += 1;
    }

    /// Something was found of a group.
    pub fn changed_for(&mut self, id: GroupId) {
        if let Some(known) = self.known.get_mut(&id) {
            known.plan = None;
        }
    }

    /// The group that comes last, and in how many seconds, at a time in seconds. `waits` tells whether it has something
    /// to ask for still, `estimate` in how many seconds it is expected.
    pub fn latest(
        &mut self,
        at: f64,
        waits: impl Fn(GroupId) -> bool,
        mut estimate: impl FnMut(GroupId) -> f64,
    ) -> Option<(GroupId, f64)> {
        self.estimate_in_turn(at, &waits, &mut estimate);
        let mut best: Option<(GroupId, f64)> = None;
        let mut left = LAST;
        while let Some((_, Reverse(id))) = self.order.last().copied() {
            if !waits(id) {
                self.forget(id);
                continue;
            }
            match self.fresh(id, at) {
                Some(arrival) => return Some((id, arrival - at)),
                None if left == 0 => break,
                None => left -= 1,
            }
            let eta = self.estimate(id, at, &mut estimate);
            if best.is_none_or(|(_, latest)| eta > latest) {
                best = Some((id, eta));
            }
        }
        best
    }

    fn estimate_in_turn(
        &mut self,
        at: f64,
        waits: &impl Fn(GroupId) -> bool,
        estimate: &mut impl FnMut(GroupId) -> f64,
    ) {
        let behind = self.known.range(self.turn..).chain(self.known.range(..self.turn));
        let turn: Vec<_> = behind.map(|(id, _)| *id).take(IN_TURN).collect();
        self.turn = turn.last().map_or(0, |last| last + 1);
        for id in turn {
            if !waits(id) {
                self.forget(id);
            } else if self.fresh(id, at).is_none() {
                self.estimate(id, at, estimate);
            }
        }
    }

    /// Expected arrival of a group, if that was estimated by what is planned now and is not over.
    fn fresh(&self, id: GroupId, at: f64) -> Option<f64> {
        let KnownArrival { arrival, plan } = self.known.get(&id)?;
        (*plan == Some(self.plan) && *arrival > at).then_some(*arrival)
    }

    fn estimate(&mut self, id: GroupId, at: f64, estimate: &mut impl FnMut(GroupId) -> f64) -> f64 {
        self.forget(id);
        let eta = estimate(id);
        self.keep(id, KnownArrival { arrival: at + eta, plan: Some(self.plan) });
        eta
    }

    fn keep(&mut self, id: GroupId, known: KnownArrival) {
        self.known.insert(id, known);
        self.order.insert((key(known.arrival), Reverse(id)));
    }

    fn forget(&mut self, id: GroupId) {
        if let Some(KnownArrival { arrival, .. }) = self.known.remove(&id) {
            self.order.remove(&(key(arrival), Reverse(id)));
        }
    }
}

/// Times are positive, so their bits are in the same order as they.
fn key(arrival: f64) -> u64 {
    arrival.max(0.0).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(groups: u64) -> GroupArrivals {
        let mut arrivals = GroupArrivals::default();
        (0..groups).for_each(|id| arrivals.waits(id));
        arrivals
    }

    #[test]
    fn few_groups_are_all_judged_after_each_change() {
        let mut arrivals = arrivals(IN_TURN as u64);
        let mut expected = [3.0, 9.0, 4.0, 9.0, 1.0, 2.0, 5.0, 6.0];
        assert_eq!(
            arrivals.latest(0.0, |_| true, |id| expected[id as usize]),
            Some((1, 9.0)),
            "the first of two"
        );
        expected[4] = 10.0;
        assert_eq!(arrivals.latest(0.0, |_| true, |_| panic!("nothing changed")), Some((1, 9.0)));
        arrivals.changed();
        assert_eq!(arrivals.latest(1.0, |_| true, |id| expected[id as usize]), Some((4, 10.0)));
        arrivals.changed_for(4);
        assert_eq!(
            arrivals.latest(2.0, |_| true, |id| if id == 4 { 0.5 } else { panic!("{id}") }),
            Some((1, 8.0))
        );
        assert_eq!(arrivals.latest(2.0, |id| id != 1, |_| 0.0), Some((3, 8.0)), "all of one was asked for");
    }

    /// 88 CPU seconds went into 4,000 files whose directories had other names: all were estimated at each of 15,000
    /// changes.
    #[test]
    fn a_look_costs_the_same_however_many_groups_there_are() {
        for groups in [100, 10_000] {
            let (mut arrivals, mut most) = (arrivals(groups), 0);
            for look in 0..1000_u64 {
                let mut estimated = 0;
                arrivals.changed();
                arrivals.waits(look % groups);
                let found = arrivals.latest(
                    look as f64,
                    |id| id != (look + 1) % groups,
                    |id| {
                        estimated += 1;
                        (id * 7919 % groups) as f64
                    },
                );
                assert!(found.is_some());
                most = most.max(estimated);
            }
            assert!(most <= LAST + IN_TURN, "{most}");
        }
    }

    #[test]
    fn the_last_of_many_is_found_in_time() {
        let mut arrivals = arrivals(1000);
        let late =
            |changed: bool| move |id| if changed && id == 777 { 50.0 } else { 10.0 - id as f64 / 1000.0 };
        let looks = |arrivals: &mut GroupArrivals, changed| {
            (0..1000).position(|_| {
                arrivals.changed();
                let (id, _) = arrivals.latest(0.0, |_| true, late(changed)).unwrap();
                id == if changed { 777 } else { 0 }
            })
        };
        assert!(looks(&mut arrivals, false).is_some_and(|looks| looks < 1000 / LAST));
        assert!(looks(&mut arrivals, true).is_some_and(|looks| looks < 1000 / IN_TURN + 2));
    }
}
