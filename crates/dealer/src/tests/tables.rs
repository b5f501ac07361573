//! Single decisions: which run is chosen, when it is borrowed, who comes first, and what is cancelled.

use std::ops::Range;
use std::time::Duration;

use towpath_transfer::{Outcome, Tag};

use crate::event::{
    DealerAction, DealerEvent, DealtPart, SourceFacts, SourceHolding, SourceNumber, WantedRange,
};
use crate::runs::RUN;
use crate::sources::DealtSource;
use crate::state::DealerState;
use crate::{Dealer, borrowing, choosing};

const MS: Duration = Duration::from_millis(1);

const fn facts(runs: u64) -> SourceFacts {
    SourceFacts { window: runs * RUN, round_trip: MS, priority: 0, price: 0, proves: true }
}

/// Wants of a run each.
fn wants(tags: Range<Tag>) -> Vec<WantedRange> {
    tags.map(|tag| WantedRange { tag, range: tag * RUN..(tag + 1) * RUN }).collect()
}

const fn whole(tag: Tag) -> DealtPart {
    DealtPart { tag, part: 0..RUN }
}

/// Runs of the root's space.
fn parts(runs: &[(u64, u64)]) -> SourceHolding {
    SourceHolding::Parts(runs.iter().map(|(start, end)| start * RUN..end * RUN).collect())
}

/// Half a run.
fn half(start: u64) -> Vec<Range<u64>> {
    std::iter::once(start..start + RUN / 2).collect()
}

/// A dealer, and what it asked sources for.
struct Desk {
    dealer: Dealer,
    now: Duration,
    asked: Vec<(SourceNumber, Tag)>,
    cancelled: Vec<(SourceNumber, Tag)>,
    others: Vec<DealerAction>,
    came: Vec<Tag>,
}

impl Desk {
    fn new() -> Self {
        let (asked, cancelled, others, came) = Default::default();
        Self { dealer: Dealer::new(1), now: Duration::ZERO, asked, cancelled, others, came }
    }

    /// Tells an event one millisecond later, and what is to be told at once.
    fn tell(&mut self, event: DealerEvent) {
        self.now += MS;
        let mut actions = self.dealer.handle(self.now, event);
        for _ in 0..20 {
            actions.extend(self.dealer.handle(self.now, DealerEvent::Tick));
        }
        for action in actions {
            match action {
                DealerAction::Ask { source, wants } => {
                    self.asked.extend(wants.into_iter().map(|part| (source, part.tag)));
                }
                DealerAction::Cancel { source, wants } => {
                    self.cancelled.extend(wants.into_iter().map(|part| (source, part.tag)));
                }
                other => self.others.push(other),
            }
        }
    }

    fn add(&mut self, source: SourceNumber, facts: SourceFacts, holding: SourceHolding) {
        self.tell(DealerEvent::SourceAdded { source, facts, holding });
    }

    fn want(&mut self, tags: Range<Tag>) {
        self.tell(DealerEvent::Wanted { wants: wants(tags), to_come: 0 });
    }

    fn arrive(&mut self, source: SourceNumber, tag: Tag) {
        self.came.push(tag);
        self.tell(DealerEvent::Arrived { source, part: whole(tag) });
    }

    /// So many runs come of source 1, in the order in which it was asked for them.
    fn arrive_as_asked(&mut self, numbers: Range<usize>) {
        for number in numbers {
            let tag = self.asked_of(1)[number];
            self.arrive(1, tag);
        }
    }

    fn is_missing(&self, tag: Tag) -> bool {
        !self.came.contains(&tag)
    }

    fn asked_of(&self, source: SourceNumber) -> Vec<Tag> {
        self.asked.iter().filter(|asked| asked.0 == source).map(|asked| asked.1).collect()
    }
}

#[test]
fn until_something_is_known_one_source_is_relied_on() {
    let unreached = |runs| SourceFacts { price: 9, ..facts(runs) };
    let all = || SourceHolding::Everything;
    for (what, first, first_then, second, second_holds, asked) in [
        ("the first", facts(4), None, facts(4), all(), [4, 1]),
        ("not one that is not reached", unreached(4), None, facts(4), all(), [0, 4]),
        ("nor one that shows so later", facts(4), Some(unreached(4)), facts(4), all(), [4, 4]),
        ("though it says only what it has", unreached(4), None, facts(4), parts(&[(0, 20)]), [0, 4]),
        ("but who has everything comes first", facts(4), None, facts(4), parts(&[(0, 20)]), [4, 1]),
    ] {
        let mut desk = Desk::new();
        desk.add(1, first, all());
        if let Some(facts) = first_then {
            desk.want(0..4);
            desk.tell(DealerEvent::Changed { source: 1, facts });
        }
        desk.add(2, second, second_holds);
        desk.want(0..12);
        assert_eq!([1, 2].map(|source| desk.asked_of(source).len()), asked, "{what}");
    }
}

/// Where bytes cost money, or to see what borrowing brings.
#[test]
fn who_asks_once_leaves_to_the_slow_one_what_it_owes() {
    for asks_once in [false, true] {
        let mut desk = Desk::new();
        if asks_once {
            desk.dealer.ask_once();
        }
        (1..=2).for_each(|source| desk.add(source, facts(4), SourceHolding::Everything));
        desk.want(0..8);
        // The second one brings nothing, and the first one all that is left.
        while let Some(&tag) = desk.asked_of(1).iter().find(|tag| desk.is_missing(**tag)) {
            desk.arrive(1, tag);
        }
        let of_both = desk.asked_of(2).into_iter().filter(|tag| desk.asked_of(1).contains(tag)).count();
        assert_eq!(of_both == 0, asks_once, "{:?}", desk.asked);
        assert_eq!(desk.dealer.is_complete(), !asks_once);
    }
}

#[test]
fn one_that_was_behind_is_relied_on_when_the_one_in_front_is_not_reached() {
    let mut desk = Desk::new();
    desk.add(1, facts(4), SourceHolding::Everything);
    desk.add(2, SourceFacts { price: 2, ..facts(4) }, parts(&[(0, 20)]));
    desk.tell(DealerEvent::Changed { source: 1, facts: SourceFacts { price: 9, ..facts(4) } });
    desk.want(0..12);
    assert_eq!([1, 2].map(|source| desk.asked_of(source).len()), [0, 4]);
}

#[test]
fn one_in_front_takes_over_what_those_behind_owe_once_it_brings_something() {
    let dear = |runs| SourceFacts { price: 2, ..facts(runs) };
    for (what, holding, cancelled) in
        [("it has everything", SourceHolding::Everything, 0..7), ("it has some", parts(&[(0, 4)]), 0..3)]
    {
        let mut desk = Desk::new();
        desk.add(1, dear(8), SourceHolding::Everything);
        desk.want(0..8);
        assert_eq!(desk.asked_of(1).len(), 8);
        desk.add(2, facts(8), holding);
        assert_eq!(desk.cancelled, [], "{what}: it brought nothing yet");
        let tag = desk.asked_of(2)[0];
        desk.arrive(2, tag);
        let given_up: Vec<_> = desk.cancelled.iter().filter(|(source, _)| *source == 1).collect();
        assert_eq!(given_up.len(), cancelled.len() + 1, "{what}");
        assert_eq!(desk.asked_of(2).len(), cancelled.len() + 1, "{what}");
        assert_eq!(desk.asked_of(1).len(), 8, "{what}: it is asked for nothing again");
    }
}

/// A state in which each source has shown a rate, bytes a second, and owes nothing.
fn state(sources: &[(f64, SourceFacts, SourceHolding)]) -> DealerState {
    let mut state = DealerState::new(1);
    for (id, (rate, facts, holding)) in (0..).zip(sources) {
        state.add_source(0.0, id, *facts, holding.clone());
        let source = state.sources.get_mut(id).unwrap();
        source.pace.begins(0.0);
        source.pace.brought(1.0, *rate as u64);
        source.record.right();
        state.sources.update(id, 1.0);
    }
    state.tell_lots(1000);
    state
}

/// Whoever comes later finds some of each stretch left, whichever it has.
#[test]
fn stretches_that_would_come_as_late_are_brought_evenly() {
    let mut desk = Desk::new();
    desk.add(1, facts(12), parts(&[(0, 10), (20, 30), (40, 50)]));
    desk.want(0..50);
    let asked = desk.asked_of(1);
    let of = |stretch: Range<Tag>| asked.iter().filter(|tag| stretch.contains(tag)).count();
    assert_eq!([of(0..10), of(20..30), of(40..50)], [4, 4, 4], "{asked:?}");
}

/// It may come back: until then others bring what it does not have.
#[test]
fn what_one_had_who_went_away_is_left_for_last() {
    let mut desk = Desk::new();
    desk.add(1, facts(15), parts(&[(0, 20)]));
    desk.add(2, facts(4), parts(&[(0, 5)]));
    desk.tell(DealerEvent::Gone { source: 2 });
    desk.want(0..20);
    let asked = desk.asked_of(1);
    assert!(asked.len() == 15 && asked.iter().all(|&tag| tag >= 5), "{asked:?}");
    (0..15).for_each(|number| desk.arrive(1, asked[number]));
    let mut all = desk.asked_of(1);
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>(), "and if it does not, they bring that, too");
}

#[test]
fn the_run_that_would_come_last_is_chosen() {
    let (mb, all) = (1e6, SourceHolding::Everything);
    let reserve = SourceFacts { priority: 1, ..facts(4) };
    let dear = SourceFacts { price: 1, ..facts(4) };
    for (what, sources, chosen) in [
        ("file order, of one", vec![(mb, facts(4), all.clone())], Some(0)),
        (
            "what nobody else has",
            vec![(mb, facts(4), all.clone()), (mb, facts(4), parts(&[(0, 7)]))],
            Some(7),
        ),
        (
            "what a slow one has, too",
            vec![
                (mb, facts(4), all.clone()),
                (9.0 * mb, facts(4), parts(&[(0, 3), (4, 8)])),
                (0.1 * mb, facts(4), parts(&[(3, 4)])),
            ],
            Some(3),
        ),
        (
            "what one other has before what two have",
            vec![
                (mb, facts(4), parts(&[(0, 8)])),
                (mb, facts(4), parts(&[(0, 5), (6, 8)])),
                (mb, facts(4), parts(&[(0, 8)])),
            ],
            Some(5),
        ),
        ("nothing that it does not have", vec![(mb, facts(4), parts(&[(8, 9)]))], None),
        (
            "a reserve: nothing that others have",
            vec![(mb, reserve, all.clone()), (mb, facts(4), all.clone())],
            None,
        ),
        ("a dear one, too", vec![(mb, dear, all.clone()), (mb, facts(4), all.clone())], None),
        (
            "a reserve: what nobody has",
            vec![(mb, reserve, all.clone()), (mb, facts(4), parts(&[(0, 6), (7, 8)]))],
            Some(6),
        ),
        ("a reserve alone", vec![(mb, reserve, all)], Some(0)),
    ] {
        let mut state = state(&sources);
        state.want(&wants(0..8));
        let run = choosing::choose(&mut state, 0, 1.0).map(|chosen| chosen.run);
        let tag = run.map(|run| state.runs.get(run).unwrap().range().start / RUN);
        assert_eq!(tag, chosen, "{what}");
    }
}

/// Source 0 has nothing to do. Source 1 was asked for one run, and source 2 for the same or for others.
#[test]
fn a_run_is_borrowed_where_it_is_worth_it() {
    let rate = RUN as f64;
    let all = SourceHolding::Everything;
    for (what, here, there, twice, has, borrows) in [
        ("there as soon", rate, rate, None, all.clone(), None),
        ("a little sooner here", 1.3 * rate, rate, None, all.clone(), None),
        ("sooner here", 1.6 * rate, rate, None, all.clone(), Some(None)),
        ("but it has nothing of it", 9.0 * rate, rate, None, parts(&[(1, 9)]), None),
        ("two are asked, one will do", 2.0 * rate, 0.1 * rate, Some(rate), all.clone(), None),
        ("two are asked, and both are slow", 9.0 * rate, rate, Some(0.5 * rate), all, Some(Some(2))),
    ] {
        let holdings = [
            (here, has),
            (there, SourceHolding::Everything),
            (twice.unwrap_or(1.0), SourceHolding::Everything),
        ];
        let sources = holdings.map(|(rate, holding)| (rate, facts(4), holding));
        let mut state = state(&sources);
        state.want(&wants(0..1));
        for source in [Some(1), twice.map(|_| 2)].into_iter().flatten() {
            state.ask(1.0, source, 0);
        }
        let borrowed = borrowing::borrow(&mut state, 0, 1.001).map(|borrowed| borrowed.instead_of);
        assert_eq!(borrowed, borrows, "{what}");
    }
}

#[test]
fn nothing_is_borrowed_while_the_best_could_be_asked_for_something_new() {
    for (what, window, waits, borrows) in [
        ("it has room, and something waits", 4, 2, false),
        ("it has no room", 1, 2, true),
        ("nothing waits", 4, 1, true),
    ] {
        let rate = RUN as f64;
        let mut state = state(&[
            (4.0 * rate, facts(4), parts(&[(0, 1)])),
            (9.0 * rate, facts(window), SourceHolding::Everything),
            (0.1 * rate, facts(4), parts(&[(0, 1)])),
        ]);
        state.want(&wants(0..waits));
        state.ask(1.0, 2, 0);
        if window == 1 {
            state.want(&wants(7..8));
            state.ask(1.0, 1, waits);
        }
        assert_eq!(borrowing::borrow(&mut state, 0, 1.001).is_some(), borrows, "{what}");
    }
}

#[test]
fn before_anything_came_the_first_one_is_relied_on_and_the_others_are_tried_with_one_run() {
    let mut desk = Desk::new();
    for source in 1..=3 {
        desk.add(source, facts(4), SourceHolding::Everything);
    }
    desk.want(0..40);
    let asked = [1, 2, 3].map(|source| desk.asked_of(source).len());
    assert_eq!(asked, [4, 1, 1]);
    let second = desk.asked_of(2)[0];
    desk.arrive(2, second);
    assert_eq!(desk.asked_of(2).len(), 5, "as many as it likes");
}

#[test]
fn the_losers_want_alone_is_cancelled() {
    let mut desk = Desk::new();
    desk.add(1, facts(1), SourceHolding::Everything);
    desk.want(0..3);
    assert_eq!(desk.asked_of(1), [0], "as much as it likes");
    desk.add(2, facts(8), SourceHolding::Everything);
    desk.arrive(2, 1);
    desk.arrive(2, 2);
    desk.now += Duration::from_secs(2);
    desk.tell(DealerEvent::Tick);
    assert_eq!(desk.asked_of(2), [1, 2, 0], "then what the silent one was asked for");
    desk.arrive(2, 0);
    assert_eq!(desk.cancelled, [(1, 0)]);
    assert!(desk.dealer.is_complete());
    desk.tell(DealerEvent::NotBrought { source: 1, part: whole(0), outcome: Outcome::Cancelled });
    desk.want(3..5);
    assert_eq!(desk.asked.len(), 6, "its room is free again");
}

#[test]
fn what_a_source_was_asked_for_while_it_was_alone_is_lent_to_one_that_joins() {
    let mut desk = Desk::new();
    desk.add(1, facts(8), SourceHolding::Everything);
    desk.add(2, facts(8), SourceHolding::Everything);
    desk.tell(DealerEvent::UnderWay { source: 1, wants: wants(0..8), since: Duration::ZERO });
    assert_eq!(desk.asked_of(2), [7], "the last one, to try");
    desk.arrive(2, 7);
    assert_eq!(desk.cancelled, [(1, 7)]);
    assert!(desk.asked_of(2).len() > 2 && desk.asked_of(1).is_empty(), "{:?}", desk.asked);
}

#[test]
fn what_a_source_does_not_bring_is_asked_of_another() {
    let not_brought = |outcome| DealerEvent::NotBrought { source: 1, part: whole(0), outcome };
    for (what, end, drops) in [
        ("gone", DealerEvent::Gone { source: 1 }, false),
        ("not here", not_brought(Outcome::NotHere), false),
        ("refused", not_brought(Outcome::Refused(String::new())), false),
        ("later", not_brought(Outcome::RetryLater(900 * MS)), false),
        ("changed", not_brought(Outcome::SourceChanged), true),
        ("corrupt", DealerEvent::Corrupt { source: 1, part: whole(0) }, false),
    ] {
        let mut desk = Desk::new();
        desk.add(1, facts(8), SourceHolding::Everything);
        desk.want(0..1);
        assert_eq!(desk.asked, [(1, 0)]);
        desk.tell(end);
        desk.add(2, facts(8), SourceHolding::Everything);
        assert_eq!(desk.asked_of(2), [0], "{what}");
        assert_eq!(desk.others, if drops { vec![DealerAction::Drop(1)] } else { vec![] }, "{what}");
    }
}

#[test]
fn a_liar_gets_nothing_until_its_ban_is_over_and_is_dropped_in_the_end() {
    let mut desk = Desk::new();
    desk.add(1, facts(8), parts(&[(0, 100)]));
    // Whoever has something else is no reason to ask a liar.
    desk.add(2, facts(8), parts(&[(200, 300)]));
    for ban in [4, 16, 64] {
        desk.asked.clear();
        desk.want(ban..ban + 1);
        assert_eq!(desk.asked, [(1, ban)]);
        desk.tell(DealerEvent::Corrupt { source: 1, part: whole(ban) });
        desk.want(ban + 1..ban + 2);
        desk.now += Duration::from_secs(ban - 1);
        desk.tell(DealerEvent::Tick);
        assert_eq!(desk.asked.len(), 1, "for {ban} s");
        desk.tell(DealerEvent::Withdrawn(vec![ban + 1]));
        desk.now += Duration::from_secs(1);
    }
    assert_eq!(desk.others, []);
    desk.want(1..2);
    desk.tell(DealerEvent::Corrupt { source: 1, part: whole(1) });
    assert_eq!(desk.others, [DealerAction::Drop(1)]);
}

/// Bytes are checked after they came: by then a liar was asked for its window.
#[test]
fn a_liar_that_was_taken_for_good_loses_what_it_was_asked_for_with_its_first_piece_that_is_checked() {
    let mut desk = Desk::new();
    // The first one is relied on, the second one is tried with one piece.
    desk.add(2, facts(8), parts(&[(200, 300)]));
    desk.add(1, facts(8), parts(&[(0, 100)]));
    desk.want(0..8);
    let (_, tag) = desk.asked[0];
    assert_eq!(desk.asked.len(), 1);
    desk.tell(DealerEvent::Arrived { source: 1, part: whole(tag) });
    assert_eq!(desk.asked.len(), 8);
    let checked = DealtPart { tag: Tag::MAX, part: 0..0 };
    desk.tell(DealerEvent::Corrupt { source: 1, part: checked });
    assert_eq!(desk.cancelled.len(), 7, "{:?}", desk.cancelled);
}

#[test]
fn where_all_lie_none_is_waited_for() {
    let mut desk = Desk::new();
    [1, 2].into_iter().for_each(|liar| desk.add(liar, facts(8), SourceHolding::Everything));
    for tag in 0..8 {
        desk.asked.clear();
        desk.want(tag..tag + 1);
        let (liar, _) = desk.asked[0];
        desk.tell(DealerEvent::Corrupt { source: liar, part: whole(tag) });
        desk.tell(DealerEvent::Withdrawn(vec![tag]));
        for (source, tag) in std::mem::take(&mut desk.cancelled) {
            desk.tell(DealerEvent::NotBrought { source, part: whole(tag), outcome: Outcome::Cancelled });
        }
    }
    assert_eq!(desk.others.len(), 2, "both are dropped");
    assert!(desk.now < Duration::from_secs(1));
}

#[test]
fn what_is_cancelled_twice_is_owed_no_more_when_it_has_ended_twice() {
    let mut source = DealtSource::new(facts(8), None, 0);
    source.cancels(&whole(1));
    source.cancels(&whole(1));
    let ended = [(); 3].map(|()| source.cancelled(&whole(1)));
    assert_eq!(ended, [Some(RUN), Some(RUN), None]);
}

#[test]
fn what_is_no_longer_wanted_is_cancelled_where_it_was_asked_for() {
    let mut desk = Desk::new();
    desk.add(1, facts(8), SourceHolding::Everything);
    desk.want(0..4);
    let asked = desk.asked_of(1);
    desk.tell(DealerEvent::Withdrawn(vec![0, 1, 2, 3]));
    assert_eq!(desk.cancelled, asked.iter().map(|tag| (1, *tag)).collect::<Vec<_>>());
    assert!(desk.dealer.is_complete() && desk.dealer.wake(desk.now).is_none());
}

#[test]
fn what_a_source_gains_is_asked_of_it() {
    let mut desk = Desk::new();
    desk.add(1, facts(8), parts(&[(1, 2)]));
    desk.want(0..3);
    assert_eq!(desk.asked_of(1), [1]);
    assert_eq!(desk.dealer.expected(desk.now, 0), None, "nobody has it");
    desk.arrive(1, 1);
    // Half of a want is a part of it.
    desk.tell(DealerEvent::Have { source: 1, added: half(0) });
    assert_eq!(desk.asked_of(1), [1, 0]);
    assert!(desk.dealer.expected(desk.now, 0).is_some() && desk.dealer.expected(desk.now, RUN - 1).is_none());
    desk.tell(DealerEvent::Arrived { source: 1, part: DealtPart { tag: 0, part: 0..RUN / 2 } });
    desk.tell(DealerEvent::Have { source: 1, added: half(RUN / 2) });
    assert_eq!(desk.asked_of(1), [1, 0, 0]);
}

#[test]
fn the_end_is_not_near_while_more_will_be_wanted() {
    for (to_come, asked) in [(0, false), (1 << 30, true)] {
        let mut desk = Desk::new();
        // Of a source that proves nothing no part is asked.
        desk.add(2, SourceFacts { proves: false, ..facts(4) }, SourceHolding::Everything);
        desk.want(0..1);
        desk.now += Duration::from_secs(3);
        desk.arrive(2, 0);
        desk.add(1, facts(64), SourceHolding::Everything);
        desk.want(1..33);
        for tag in desk.asked_of(1) {
            desk.now += 9 * MS;
            desk.arrive(1, tag);
        }
        desk.tell(DealerEvent::Withdrawn((1..33).collect()));
        for (source, tag) in std::mem::take(&mut desk.cancelled) {
            desk.tell(DealerEvent::NotBrought { source, part: whole(tag), outcome: Outcome::Cancelled });
        }
        let before = desk.asked_of(2).len();
        desk.tell(DealerEvent::Wanted { wants: wants(200..400), to_come });
        assert_eq!(desk.asked_of(2).len() > before, asked, "{to_come} to come");
    }
}

#[test]
fn an_empty_object_is_asked_for() {
    let mut desk = Desk::new();
    desk.add(1, facts(8), SourceHolding::Everything);
    desk.tell(DealerEvent::Wanted { wants: vec![WantedRange { tag: 7, range: 0..0 }], to_come: 0 });
    assert_eq!(desk.asked, [(1, 7)]);
    desk.tell(DealerEvent::Arrived { source: 1, part: DealtPart { tag: 7, part: 0..0 } });
    assert!(desk.dealer.is_complete());
}

#[test]
fn places_of_the_next_priority_are_opened_when_nobody_serves() {
    let mut desk = Desk::new();
    for (hint, priority) in [(1, 0), (2, 5)] {
        desk.tell(DealerEvent::Hinted { hint, priority, weight: 1 });
    }
    assert_eq!(desk.others, [DealerAction::Open(1)]);
    desk.add(1, facts(8), SourceHolding::Everything);
    desk.now += Duration::from_secs(9);
    desk.tell(DealerEvent::Tick);
    assert_eq!(desk.others.len(), 1, "the first serves");
    desk.tell(DealerEvent::Gone { source: 1 });
    assert_eq!(desk.others, [DealerAction::Open(1), DealerAction::Open(2)]);
}

#[test]
fn the_sum_is_that_of_all_in_front() {
    let mut desk = Desk::new();
    desk.add(1, facts(8), SourceHolding::Everything);
    desk.add(2, facts(4), SourceHolding::Everything);
    desk.add(3, SourceFacts { priority: 9, ..facts(100) }, SourceHolding::Everything);
    let sum = desk.dealer.sum();
    assert_eq!((sum.sources, sum.window), (2, 12 * RUN));
    desk.tell(DealerEvent::Room { source: 2, window: RUN });
    assert_eq!(desk.dealer.sum().window, 9 * RUN);
    for source in [1, 2] {
        desk.tell(DealerEvent::Gone { source });
    }
    assert_eq!(desk.dealer.sum().window, 100 * RUN);
}

/// One in front that is being brought all eight runs and has three of them, and a reserve that has everything.
fn desk_of_a_promise() -> Desk {
    let mut desk = Desk::new();
    desk.add(1, facts(4), parts(&[(0, 3)]));
    desk.tell(DealerEvent::Promises { source: 1, end: 8 * RUN });
    desk.add(2, SourceFacts { priority: 1, ..facts(4) }, SourceHolding::Everything);
    desk.want(0..8);
    desk.arrive_as_asked(0..3);
    desk
}

#[test]
fn what_one_in_front_will_have_soon_is_not_asked_of_the_reserve() {
    let mut desk = desk_of_a_promise();
    assert_eq!((desk.asked_of(1).len(), desk.asked_of(2)), (3, Vec::new()));
    desk.tell(DealerEvent::Have { source: 1, added: std::iter::once(3 * RUN..8 * RUN).collect() });
    desk.arrive_as_asked(3..8);
    assert_eq!((desk.asked_of(1).len(), desk.asked_of(2)), (8, Vec::new()), "nor borrowed by it at the end");
    assert!(desk.dealer.is_complete());
}

#[test]
fn the_reserve_brings_what_was_promised_once_nobody_can_count_on_that() {
    for (what, event) in [
        ("the promise is taken back", DealerEvent::Promises { source: 1, end: 0 }),
        ("the source goes", DealerEvent::Gone { source: 1 }),
    ] {
        let mut desk = desk_of_a_promise();
        desk.tell(event);
        (0..5).for_each(|_| desk.tell(DealerEvent::Tick));
        assert!(!desk.asked_of(2).is_empty(), "{what}");
    }
}

#[test]
fn what_one_in_front_lacks_after_all_is_asked_of_the_reserve() {
    let mut desk = Desk::new();
    desk.add(1, facts(4), SourceHolding::Everything);
    desk.add(2, SourceFacts { priority: 1, ..facts(4) }, SourceHolding::Everything);
    desk.want(0..2);
    desk.tell(DealerEvent::NotBrought { source: 1, part: whole(0), outcome: Outcome::NotHere });
    desk.arrive(1, 1);
    assert_eq!(desk.asked_of(2), [0]);
    desk.arrive(2, 0);
    assert!(desk.dealer.is_complete());
}
