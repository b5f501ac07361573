//! Shares of entries that go to each of several links. Nobody knows how many bytes an entry has, so
//! what counts is how many a link answers in a second: the next goes to the link that would have answered it first, and waits if
//! all have enough.
//!
//! Once none waits, the last ones that a slow or late link owes are lent to another one, as many as that would answer sooner. Both
//! go on, the one from the front, the other from the end, so hardly any comes twice.
//!
//! A new link is asked for one entry until it has answered. A slow one so costs the time that it takes for that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Names a link among those of one peer; never used twice.
pub(super) type LinkKey = u64;

/// Entries that the first link is asked for before it is measured.
const FIRST: usize = 512;
/// A link is asked for what it answers in this time, so that one that stalls keeps little waiting.
const AHEAD: Duration = Duration::from_secs(1);
/// And at least for so many.
const LEAST: usize = 16;
/// Time over which answers are counted.
const MEASURED: Duration = Duration::from_millis(50);
/// The shortest one that counts.
const SHORTEST: Duration = Duration::from_micros(100);

/// Time by which another link must be sooner, at least, before it is lent anything: less is chance.
const SOONER: Duration = Duration::from_millis(100);

/// Names a question for an entry; each is higher than those before.
pub(super) type AskNumber = u64;

/// See the head of this module. Handed the time.
#[derive(Default)]
pub(super) struct EntryShares {
    links: BTreeMap<LinkKey, LinkLoad>,
    next: AskNumber,
}

/// Entries that one link owes and another one would answer sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LateEntries {
    /// Those with this number or a higher one, unless they were lent.
    pub(super) from: AskNumber,
    /// Who would.
    pub(super) sooner: LinkKey,
}

/// Entries of one link.
#[derive(Default)]
struct LinkLoad {
    /// Asked for and not answered.
    owed: BTreeSet<AskNumber>,
    /// Those of them that no other link was lent.
    lone: BTreeSet<AskNumber>,
    /// Answers in a second, if that is known.
    rate: Option<f64>,
    /// Answers since then, which are not in the rate.
    counted: (Option<Instant>, usize),
    /// When it answered last, or was asked while it owed nothing, and how many it answered at once.
    heard: Option<(Instant, usize)>,
}

/// What a link may be asked for at a moment.
struct LinkOffer {
    owed: usize,
    rate: Option<f64>,
}

impl LinkOffer {
    /// Seconds until it would have answered one more beside those that it is given. `leads`: it is the first, of which all is
    /// asked until it is measured.
    fn wait(&self, leads: bool, given: usize) -> f64 {
        match self.rate {
            Some(rate) => (self.owed + given + 1) as f64 / rate.max(f64::MIN_POSITIVE),
            // The first one has the first; others are tried with what it need not have.
            None if leads && self.owed + given == 0 => -2.0,
            None if leads => 0.0,
            None => -1.0,
        }
    }

    /// True if it may be asked for one more beside those.
    fn has_room(&self, leads: bool, given: usize) -> bool {
        let most = match self.rate {
            Some(rate) => LEAST.max((rate * AHEAD.as_secs_f64()) as usize),
            None if leads => FIRST,
            None => 1,
        };
        self.owed + given < most
    }
}

impl LinkLoad {
    fn offer(&self, now: Instant) -> LinkOffer {
        LinkOffer { owed: self.owed.len(), rate: self.rate(now) }
    }

    /// Answers in a second: fewer than before, if for a while fewer came.
    fn rate(&self, now: Instant) -> Option<f64> {
        let at_most = self.at_most(now);
        self.rate.map(|rate| rate.min(at_most))
    }

    /// Answers in a second, at most, by what came while some were owed.
    fn at_most(&self, now: Instant) -> f64 {
        let since = self.counted.0.filter(|_| !self.owed.is_empty());
        let span = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if span > MEASURED { (self.counted.1 + 1) as f64 / span.as_secs_f64() } else { f64::INFINITY }
    }

    /// Seconds for which it was silent beyond those that it takes for as many as it answers at once. Who is silent for long is so for as long
    /// again, whatever it owes.
    fn overdue(&self, now: Instant) -> f64 {
        let Some(((heard, at_once), rate)) = self.heard.zip(self.rate) else { return 0.0 };
        (now.saturating_duration_since(heard).as_secs_f64() - at_once.max(1) as f64 / rate).max(0.0)
    }

    /// The first of those that another one would answer sooner, if it answered them from the end and this one from the front.
    fn late_from(&self, other: &LinkOffer, now: Instant) -> Option<AskNumber> {
        let (own, other_rate) = (self.rate(now).unwrap_or_else(|| self.at_most(now)), other.rate?);
        let overdue = self.overdue(now);
        let is_late = |(behind, _): &(usize, &AskNumber)| {
            let own_time = overdue.max((self.lone.len() - behind) as f64 / own.max(f64::MIN_POSITIVE));
            let other_time = other.wait(false, *behind);
            own_time > other_time + SOONER.as_secs_f64() && other_rate > 0.0 && other.has_room(false, *behind)
        };
        self.lone.iter().rev().enumerate().take_while(is_late).last().map(|(_, number)| *number)
    }

    /// Notes that these are not owed any more; returns how many were.
    fn forget(&mut self, numbers: &[AskNumber]) -> usize {
        for number in numbers {
            self.lone.remove(number);
        }
        numbers.iter().filter(|number| self.owed.remove(number)).count()
    }

    /// These are asked of others. It is as slow as it was until now, also where it was not measured, or it would be the first to be asked
    /// once it speaks again.
    fn given_up(&mut self, numbers: &[AskNumber], now: Instant) {
        let at_most = self.at_most(now);
        self.rate = self.rate.map(|rate| rate.min(at_most)).or(Some(at_most).filter(|rate| rate.is_finite()));
        self.counted = (Some(now), 0);
        self.forget(numbers);
    }

    fn answered(&mut self, numbers: &[AskNumber], now: Instant) {
        let count = self.forget(numbers);
        self.heard = Some((now, count));
        let (since, before) = self.counted;
        let answers = before + count;
        let span = now.saturating_duration_since(since.unwrap_or(now));
        self.counted.1 = answers;
        if span >= MEASURED || self.owed.is_empty() {
            let new = answers as f64 / span.max(SHORTEST).as_secs_f64();
            self.rate = Some(self.rate.map_or(new, |rate| (rate + new) / 2.0));
            self.counted = (Some(now), 0);
        }
    }
}

impl EntryShares {
    /// Deals so many entries out to these links, in their order, or as many of them as there is room for. Returns the numbers of the
    /// questions that each is asked.
    pub(super) fn deal(
        &mut self,
        links: &[LinkKey],
        count: usize,
        now: Instant,
    ) -> Vec<(LinkKey, Range<AskNumber>)> {
        let offers: Vec<LinkOffer> =
            links.iter().map(|link| self.links.entry(*link).or_default().offer(now)).collect();
        let mut shares = vec![0; links.len()];
        for _ in 0..count {
            let wait = |at: &usize| offers[*at].wait(*at == 0, shares[*at]);
            let free = (0..links.len()).filter(|&at| offers[at].has_room(at == 0, shares[at]));
            let Some(best) = free.min_by(|one, other| wait(one).total_cmp(&wait(other))) else { break };
            shares[best] += 1;
        }
        let shares = links.iter().copied().zip(shares).filter(|(_, share)| *share > 0);
        shares.map(|(link, share)| (link, self.ask(link, share, now))).collect()
    }

    /// What a link owes that has not been measured.
    pub(super) fn owed_unmeasured(&self, link: LinkKey) -> Option<usize> {
        self.links.get(&link).map_or(Some(0), |load| load.rate.is_none().then_some(load.owed.len()))
    }

    /// So many more are asked of a link.
    fn ask(&mut self, link: LinkKey, count: usize, now: Instant) -> Range<AskNumber> {
        let numbers = self.next..self.next + count as u64;
        self.next = numbers.end;
        let load = self.links.entry(link).or_default();
        if load.owed.is_empty() {
            load.counted = (Some(now), 0);
            load.heard = Some((now, 0));
        }
        load.owed.extend(numbers.clone());
        load.lone.extend(numbers.clone());
        numbers
    }

    /// What this link owes, and another one of `links` would answer sooner.
    pub(super) fn late(&self, link: LinkKey, links: &[LinkKey], now: Instant) -> Option<LateEntries> {
        let load = self.links.get(&link).filter(|load| !load.lone.is_empty())?;
        let others = links.iter().filter(|other| **other != link);
        let late = others.filter_map(|&sooner| {
            let from = load.late_from(&self.links.get(&sooner)?.offer(now), now)?;
            Some(LateEntries { from, sooner })
        });
        late.min_by_key(|late| late.from)
    }

    /// These, which a link owes, are asked of another one, too. Returns their numbers there. Nobody else is lent them.
    pub(super) fn lend(
        &mut self,
        numbers: &[AskNumber],
        (link, to): (LinkKey, LinkKey),
        now: Instant,
    ) -> Range<AskNumber> {
        self.keep(link, numbers);
        let lent = self.ask(to, numbers.len(), now);
        self.keep(to, &lent.clone().collect::<Vec<_>>());
        lent
    }

    /// These are not for others.
    pub(super) fn keep(&mut self, link: LinkKey, numbers: &[AskNumber]) {
        if let Some(load) = self.links.get_mut(&link) {
            for number in numbers {
                load.lone.remove(number);
            }
        }
    }

    /// A link answered these.
    pub(super) fn answered(&mut self, link: LinkKey, numbers: &[AskNumber], now: Instant) {
        if let Some(load) = self.links.get_mut(&link) {
            load.answered(numbers, now);
        }
    }

    /// A link does not answer these.
    pub(super) fn not_answered(&mut self, link: LinkKey, numbers: &[AskNumber]) {
        if let Some(load) = self.links.get_mut(&link) {
            load.forget(numbers);
        }
    }

    /// A link was quiet: these are asked of others.
    pub(super) fn given_up(&mut self, link: LinkKey, numbers: &[AskNumber], now: Instant) {
        if let Some(load) = self.links.get_mut(&link) {
            load.given_up(numbers, now);
        }
    }

    /// A link is gone.
    pub(super) fn gone(&mut self, link: LinkKey) {
        self.links.remove(&link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn dealt(
        shares: &mut EntryShares,
        links: &[LinkKey],
        count: usize,
        now: Instant,
    ) -> Vec<(LinkKey, usize)> {
        let dealt = shares.deal(links, count, now).into_iter();
        dealt.map(|(link, numbers)| (link, numbers.count())).collect()
    }

    /// The first ones that it owes.
    fn owed(shares: &EntryShares, link: LinkKey, count: usize) -> Vec<AskNumber> {
        shares.links.get(&link).map_or(Vec::new(), |load| load.owed.iter().copied().take(count).collect())
    }

    fn answer(shares: &mut EntryShares, link: LinkKey, count: usize, now: Instant) {
        let numbers = owed(shares, link, count);
        shares.answered(link, &numbers, now);
    }

    /// Seconds that so many entries take by links of these rates and round trips, asked for as a session does: calls of up to
    /// 256, a few thousand ahead. And how many each one answered.
    fn simulated(links: &[(f64, Duration)], entries: usize) -> (f64, Vec<usize>) {
        let (mut shares, start) = (EntryShares::default(), Instant::now());
        let keys: Vec<LinkKey> = (0..links.len() as u64).collect();
        let (mut left, mut now) = (entries, start);
        let mut queues: Vec<std::collections::VecDeque<Instant>> = vec![Default::default(); links.len()];
        let (mut done, mut ready) = (vec![0; links.len()], vec![start; links.len()]);
        while done.iter().sum::<usize>() < entries {
            let owed: usize = queues.iter().map(std::collections::VecDeque::len).sum();
            let count = left.min(256).min(4096_usize.saturating_sub(owed));
            for (link, share) in dealt(&mut shares, &keys, count, now) {
                left -= share;
                let at = link as usize;
                for _ in 0..share {
                    let begin = ready[at].max(now + links[at].1);
                    ready[at] = begin + Duration::from_secs_f64(1.0 / links[at].0);
                    queues[at].push_back(ready[at]);
                }
            }
            now += TICK;
            for (at, queue) in queues.iter_mut().enumerate() {
                let came = queue.iter().take_while(|due| **due <= now).count();
                queue.drain(..came);
                done[at] += came;
                if came > 0 {
                    answer(&mut shares, at as u64, came, now);
                }
            }
        }
        ((now - start).as_secs_f64(), done)
    }

    /// Of a copy of one file there is one question, and nobody knows yet whether the second link leads anywhere.
    #[test]
    fn the_only_entry_is_asked_of_the_first_link() {
        let now = Instant::now();
        assert_eq!(dealt(&mut EntryShares::default(), &[1, 2], 1, now), [(1, 1)]);
        assert_eq!(dealt(&mut EntryShares::default(), &[1, 2], 100, now), [(1, 99), (2, 1)]);
    }

    #[test]
    fn links_bring_what_they_can_and_the_slow_one_holds_nothing_up() {
        let (near, far) = (TICK * 5, TICK * 60);
        for (links, entries, most) in [
            (&[(2000.0, near)][..], 10_000, 1.02),
            (&[(2000.0, near), (2000.0, near)], 10_000, 1.1),
            (&[(2000.0, near), (200.0, near)], 10_000, 1.1),
            (&[(200.0, near), (2000.0, near)], 10_000, 1.3),
            (&[(2000.0, near), (2000.0, far)], 10_000, 1.2),
            (&[(2000.0, near), (20.0, far)], 10_000, 1.1),
            (&[(1000.0, near), (500.0, near), (250.0, far)], 10_000, 1.15),
        ] {
            let best = entries as f64 / links.iter().map(|(rate, _)| rate).sum::<f64>();
            let (took, done) = simulated(links, entries);
            assert!(took <= best * most + 0.1, "{links:?}: {took} s of {best} s, {done:?}");
        }
    }

    #[test]
    fn one_that_brings_nothing_any_more_is_asked_for_little() {
        let (mut shares, start) = (EntryShares::default(), Instant::now());
        let at = |millis| start + TICK * millis;
        assert_eq!(dealt(&mut shares, &[1, 2], 100, at(0)), [(1, 99), (2, 1)]);
        answer(&mut shares, 2, 1, at(100));
        answer(&mut shares, 1, 99, at(100));
        assert_eq!(dealt(&mut shares, &[1, 2], 100, at(100)), [(1, 99), (2, 1)], "as fast as they were");
        answer(&mut shares, 2, 1, at(200));
        assert_eq!(dealt(&mut shares, &[1, 2], 9, at(2000)), [(2, 9)], "the first one has long owed all");
        assert_eq!(dealt(&mut shares, &[1, 2], 1000, at(2000)), [(2, 7)], "the others wait");
        shares.gone(1);
        answer(&mut shares, 2, 16, at(2500));
        assert_eq!(dealt(&mut shares, &[2], 5, at(2500)), [(2, 5)]);
    }

    #[test]
    fn one_that_was_quiet_is_not_the_first_to_be_asked_once_it_speaks_again() {
        for is_measured in [true, false] {
            let (mut shares, start) = (EntryShares::default(), Instant::now());
            let at = |millis| start + TICK * millis;
            assert_eq!(dealt(&mut shares, &[1, 2], 101, at(0)), [(1, 100), (2, 1)]);
            answer(&mut shares, 2, 1, at(100));
            if is_measured {
                answer(&mut shares, 1, 100, at(100));
                assert_eq!(dealt(&mut shares, &[1], 100, at(100)), [(1, 100)]);
            }
            let owed = owed(&shares, 1, 100);
            shares.given_up(1, &owed, at(1400));
            assert_eq!(dealt(&mut shares, &[1, 2], 5, at(1400)), [(2, 5)], "measured: {is_measured}");
            answer(&mut shares, 2, 5, at(1500));
            assert_eq!(dealt(&mut shares, &[1], 100, at(1500)), [(1, LEAST)], "measured: {is_measured}");
        }
    }

    #[test]
    fn what_the_first_link_need_not_have_waits_for_others_to_come() {
        let (mut shares, now) = (EntryShares::default(), Instant::now());
        assert_eq!(dealt(&mut shares, &[], 1, now), []);
        assert_eq!(dealt(&mut shares, &[4], 5000, now), [(4, FIRST)]);
        assert_eq!(dealt(&mut shares, &[4, 7], 5000, now), [(7, 1)]);
    }

    /// Two links of 1,000 entries a second; the second one owes 500 when nothing waits any more.
    #[test]
    fn the_last_ones_of_a_slow_or_late_link_are_lent_as_many_as_the_other_one_answers_sooner() {
        for (what, came, after, most) in [
            ("as fast as before, and the other one is idle", 200, 200, 100),
            ("half as fast", 100, 200, 234),
            ("a tenth", 20, 200, 428),
            ("nothing comes", 0, 600, 500),
        ] {
            let (mut shares, start) = (EntryShares::default(), Instant::now());
            let at = |millis| start + TICK * millis;
            let link = || LinkLoad { rate: Some(1000.0), ..LinkLoad::default() };
            shares.links = [(1, link()), (2, link())].into();
            let numbers = shares.deal(&[2], 500, at(1000)).remove(0).1;
            if came > 0 {
                answer(&mut shares, 2, came, at(1000 + after));
                // Its rate is a mean of two.
                shares.links.get_mut(&2).unwrap().rate =
                    Some(f64::from(came as u32) * 1000.0 / f64::from(after));
            }
            let late = shares.late(2, &[1, 2], at(1000 + after));
            let lent = late.map_or(0, |late| (numbers.end - late.from) as usize);
            assert!(lent <= most && lent + 10 >= most, "{what}: {lent} are lent, of {most}");
            if let Some(LateEntries { from, sooner }) = late {
                assert_eq!(sooner, 1, "{what}");
                let late: Vec<AskNumber> = (from..numbers.end).collect();
                shares.lend(&late, (2, sooner), at(1000 + after));
                assert_eq!(shares.late(2, &[1, 2], at(1000 + after)), None, "{what}: once is enough");
                assert_eq!(shares.late(1, &[1, 2], at(1000 + after)), None, "{what}: nothing is lent on");
            }
        }
    }

    /// It answers many at once, so the last few seemed to come soon, for as long as it was silent already.
    #[test]
    fn the_last_few_of_a_link_that_fell_silent_are_lent_at_once() {
        let (mut shares, start) = (EntryShares::default(), Instant::now());
        let at = |millis| start + TICK * millis;
        let link = || LinkLoad { rate: Some(1000.0), ..LinkLoad::default() };
        shares.links = [(1, link()), (2, link())].into();
        let numbers = shares.deal(&[2], 21, at(0)).remove(0).1;
        answer(&mut shares, 2, 16, at(16));
        assert_eq!(shares.late(2, &[1, 2], at(100)), None, "it is no later than by chance");
        let late = LateEntries { from: numbers.start + 16, sooner: 1 };
        assert_eq!(shares.late(2, &[1, 2], at(150)), Some(late), "all that it owes");
    }
}
