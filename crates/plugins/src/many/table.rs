//! The wants that are out, the sources, and the dealer between them. No I/O: what is to be done is taken out as orders.
//!
//! The dealer knows wants as byte ranges of one space, the root's. Wants of other objects, the files of a tree say, get their place
//! behind it, in the order in which they are wanted: those that follow each other in a file, or in small files one behind the
//! other, lie side by side and are asked for together. They also get
//! tags that are never used again, while a session asks for a want again under its old one: what comes late of the first
//! time is nobody's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use towpath_content::{Hint, NodeId, Oid};
use towpath_transfer::source::Sink;
use towpath_transfer::want::ObjectKey;
use towpath_transfer::{Delivery, Outcome, Source, SourceId, SourceState, Tag, Want, WantId};

use crate::dealer::{Dealer, DealerAction, DealerEvent, DealtPart, SourceFacts, SourceHolding, WantedRange};

/// Nodes that are opened for one transfer, at most.
const MOST_NODES: usize = 256;
/// Names that sources give themselves in deliveries: more are not told apart when one is blamed.
const MOST_NAMES: usize = 1024;
/// The first tag: sessions have smaller ones, which a source that is alone sees.
const FIRST_TAG: Tag = 1 << 63;
/// Where the places of wants begin that are not the root's: no object is as large.
const BEHIND_ROOT: u64 = 1 << 62;
/// What was wanted in the last so long shows what will be wanted.
const RECENT: Duration = Duration::from_millis(500);

/// Something to be done outside of the lock.
pub(super) enum SourceOrder {
    /// Ask a source for wants.
    Ask { number: u32, source: Arc<dyn Source>, wants: Vec<Want> },
    /// Tell it that some need not come.
    Cancel { source: Arc<dyn Source>, tags: Vec<Tag> },
    /// Ask a source whether it has the root at all.
    Open { number: u32, source: Arc<dyn Source> },
    /// End a want that nobody has.
    End { sink: Arc<dyn Sink>, tag: Tag, outcome: Outcome },
    /// Close a source for good.
    Close(Arc<dyn Source>),
}

/// Wants that were handed over in one call.
pub(super) struct DealtCall {
    tags: Vec<Tag>,
    left: AtomicUsize,
    done: Notify,
}

impl DealtCall {
    /// Waits until each of its wants has ended.
    pub(super) async fn ended(&self) {
        let mut done = std::pin::pin!(self.done.notified());
        loop {
            done.as_mut().enable();
            if self.left.load(Ordering::Acquire) == 0 {
                return;
            }
            done.as_mut().await;
            done.set(self.done.notified());
        }
    }

    /// One of its wants has ended.
    pub(super) fn one_ended(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_waiters();
        }
    }
}

/// A want that has not ended.
struct DealtWant {
    /// With its tag among sources.
    want: Want,
    /// Its tag for whoever wants it.
    named: Tag,
    sink: Arc<dyn Sink>,
    call: Arc<DealtCall>,
    /// Sources that do not have it, and what they said.
    failed: Vec<(u32, Outcome)>,
}

/// Whoever waits for a want that came.
pub(super) struct Awaited {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) tag: Tag,
    pub(super) call: Arc<DealtCall>,
}

/// A source that counts.
struct OpenSource {
    source: Arc<dyn Source>,
    priority: u16,
    window: u64,
}

/// See the head of this module.
pub(super) struct SourceTable {
    dealer: Dealer,
    sources: BTreeMap<u32, OpenSource>,
    /// Nodes that are not open yet: asked about the root, or waiting for that.
    places: BTreeMap<u32, (Arc<dyn Source>, u16)>,
    nodes: BTreeSet<NodeId>,
    wants: HashMap<Tag, DealtWant>,
    /// Tags among sources, by those of the session.
    tags: HashMap<Tag, Tag>,
    names: BTreeMap<SourceId, u32>,
    orders: Vec<SourceOrder>,
    /// Object that was wanted last, and its bytes that were not wanted yet.
    rest: (ObjectKey, u64),
    /// Bytes that were wanted lately, and since when.
    recent: (u64, Duration),
    next_number: u32,
    next_position: u64,
    next_tag: Tag,
}

impl SourceTable {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dealer: Dealer::new(seed),
            sources: BTreeMap::new(),
            places: BTreeMap::new(),
            nodes: BTreeSet::new(),
            wants: HashMap::new(),
            tags: HashMap::new(),
            names: BTreeMap::new(),
            orders: Vec::new(),
            rest: (0, 0),
            recent: (0, Duration::ZERO),
            next_number: 0,
            next_position: BEHIND_ROOT,
            next_tag: FIRST_TAG,
        }
    }

    /// A source that has everything and is there.
    pub(super) fn add(&mut self, now: Duration, source: Arc<dyn Source>) {
        let number = self.number();
        self.opened(now, number, source, 0, SourceHolding::Everything);
    }

    /// A hint names `node`: if it is a new one, `make` makes the source that it is, which waits to be opened.
    pub(super) fn hinted(
        &mut self,
        now: Duration,
        node: NodeId,
        hint: &Hint,
        make: impl FnOnce() -> Arc<dyn Source>,
    ) {
        if self.nodes.len() >= MOST_NODES || !self.nodes.insert(node) {
            return;
        }
        let number = self.number();
        self.places.insert(number, (make(), hint.priority));
        let hinted = DealerEvent::Hinted { hint: number, priority: hint.priority, weight: hint.weight };
        self.handle(now, hinted);
    }

    /// The source of a place answered, and has so much of the root; or nothing.
    pub(super) fn answered(&mut self, now: Duration, number: u32, holding: Option<SourceHolding>) {
        let place = self.places.remove(&number);
        if let Some(((source, priority), holding)) = place.zip(holding) {
            self.opened(now, number, source, priority, holding);
        }
    }

    /// A source has these bytes of the root, too.
    pub(super) fn has_more(&mut self, now: Duration, number: u32, added: Vec<Range<u64>>) {
        self.handle(now, DealerEvent::Have { source: number, added });
    }

    fn opened(
        &mut self,
        now: Duration,
        number: u32,
        source: Arc<dyn Source>,
        priority: u16,
        holding: SourceHolding,
    ) {
        let state = source.state();
        let (facts, window) = (facts(&state), state.window);
        self.sources.insert(number, OpenSource { source, priority, window });
        self.handle(now, DealerEvent::SourceAdded { source: number, facts, holding });
    }

    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// The source, if there is one only and no other one to wait for.
    pub(super) fn only(&self) -> Option<Arc<dyn Source>> {
        let is_alone = self.sources.len() == 1 && self.places.is_empty() && self.wants.is_empty();
        self.sources.values().next().filter(|_| is_alone).map(|source| Arc::clone(&source.source))
    }

    /// All sources that count.
    pub(super) fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sources.values().map(|source| Arc::clone(&source.source)).collect()
    }

    /// The same, those first that should be asked first: the ones that were there from the start.
    pub(super) fn by_standing(&self) -> Vec<Arc<dyn Source>> {
        let mut sources: Vec<_> = self.sources.iter().collect();
        sources.sort_by_key(|(number, source)| {
            (source.source.state().trouble.is_some(), source.priority, **number)
        });
        sources.into_iter().map(|(_, source)| Arc::clone(&source.source)).collect()
    }

    /// Bytes that all of them like to have under way; `None` before any said so.
    pub(super) fn window(&self) -> Option<u64> {
        Some(self.dealer.sum().window).filter(|window| *window > 0)
    }

    /// Takes wants in; the call ends when each of them has.
    pub(super) fn want(
        &mut self,
        now: Duration,
        root: &Oid,
        wants: Vec<Want>,
        sink: Arc<dyn Sink>,
    ) -> Arc<DealtCall> {
        let tags = (self.next_tag..).take(wants.len()).collect();
        let call = Arc::new(DealtCall { left: AtomicUsize::new(wants.len()), tags, done: Notify::new() });
        let mut ranges = Vec::with_capacity(wants.len());
        for want in wants {
            self.note_rest(&want);
            let (tag, len) = (self.next_tag, want.missing_len());
            let begin = place_in(root, &want).unwrap_or_else(|| {
                self.next_position += len;
                self.next_position - len
            });
            self.next_tag += 1;
            self.tags.insert(want.tag, tag);
            ranges.push(WantedRange { tag, range: begin..begin + len });
            let (sink, call, named) = (Arc::clone(&sink), Arc::clone(&call), want.tag);
            let want = Want { tag, ..want };
            self.wants.insert(tag, DealtWant { want, named, sink, call, failed: Vec::new() });
        }
        let bytes = ranges.iter().map(|want| want.range.end - want.range.start).sum();
        self.wanted(now, ranges, bytes);
        if self.sources.is_empty() && self.places.is_empty() {
            // All were dropped, for what they brought or said.
            call.tags.iter().for_each(|&tag| self.end(now, tag, Outcome::NotHere));
        }
        call
    }

    /// Ends a want that nobody brings.
    fn end(&mut self, now: Duration, tag: Tag, outcome: Outcome) {
        let Some(want) = self.take(tag) else { return };
        self.handle(now, DealerEvent::Withdrawn(vec![tag]));
        want.call.one_ended();
        self.orders.push(SourceOrder::End { sink: want.sink, tag: want.named, outcome });
    }

    /// How much of its object a want leaves to be wanted. The object that was wanted last stands for all: of small ones, what was
    /// wanted lately tells more.
    fn note_rest(&mut self, want: &Want) {
        let Some(position) = want.positions.first() else { return };
        let size = match want.id {
            WantId::Piece { layout, .. } => layout.size(),
            WantId::Chunk { .. } | WantId::Block { .. } => want.group.size.unwrap_or(0),
        };
        let rest = size.saturating_sub(position.offset + want.id.len());
        let known = if self.rest.0 == position.object { self.rest.1 } else { rest };
        self.rest = (position.object, rest.min(known));
    }

    /// Tells the dealer of wants, and how much is likely to follow: what is left of the last object, or as much as lately.
    fn wanted(&mut self, now: Duration, wants: Vec<WantedRange>, bytes: u64) {
        let (sum, since) = self.recent;
        self.recent = match now.saturating_sub(since) > RECENT {
            true => (bytes, now),
            false => (sum + bytes, since),
        };
        let to_come = self.rest.1.max(self.recent.0);
        self.handle(now, DealerEvent::Wanted { wants, to_come });
    }

    /// Takes out a want that has ended, or need not.
    fn take(&mut self, tag: Tag) -> Option<DealtWant> {
        let want = self.wants.remove(&tag)?;
        if self.tags.get(&want.named) == Some(&tag) {
            self.tags.remove(&want.named);
        }
        Some(want)
    }

    /// These are not wanted any more. Returns where each is to be told so.
    pub(super) fn cancel(&mut self, now: Duration, named: &[Tag]) -> Vec<(Arc<dyn Sink>, Tag)> {
        let tags: Vec<Tag> = named.iter().filter_map(|named| self.tags.get(named).copied()).collect();
        let mut cancelled = Vec::new();
        for want in tags.iter().filter_map(|&tag| self.take(tag)) {
            want.call.one_ended();
            cancelled.push((want.sink, want.named));
        }
        self.handle(now, DealerEvent::Withdrawn(tags));
        cancelled
    }

    /// Nobody waits for a call any more.
    pub(super) fn give_up(&mut self, now: Duration, call: &DealtCall) {
        let left: Vec<Tag> = call.tags.iter().copied().filter(|tag| self.take(*tag).is_some()).collect();
        if !left.is_empty() {
            self.handle(now, DealerEvent::Withdrawn(left));
        }
    }

    /// A source brought a want of `len` bytes. Returns where it goes and under which tag, unless it is not wanted any more.
    pub(super) fn arrived(
        &mut self,
        now: Duration,
        number: u32,
        delivery: &Delivery,
        len: u64,
    ) -> Option<Awaited> {
        if self.names.len() < MOST_NAMES && self.names.get(&delivery.source) != Some(&number) {
            self.names.insert(delivery.source.clone(), number);
        }
        let part = DealtPart { tag: delivery.tag, part: 0..len };
        let wanted = self.take(delivery.tag);
        self.handle(now, DealerEvent::Arrived { source: number, part });
        wanted.map(|want| Awaited { sink: want.sink, tag: want.named, call: want.call })
    }

    /// Where the front of a piece goes that will not come whole.
    pub(super) fn sink_of(&self, tag: Tag) -> Option<(Arc<dyn Sink>, Tag)> {
        self.wants.get(&tag).map(|want| (Arc::clone(&want.sink), want.named))
    }

    /// A source will not bring a want. It ends if no other one can.
    pub(super) fn not_brought(&mut self, now: Duration, number: u32, tag: Tag, len: u64, outcome: Outcome) {
        if let Some(want) = self.wants.get_mut(&tag) {
            want.failed.retain(|(who, _)| *who != number);
            if outcome != Outcome::Cancelled {
                want.failed.push((number, outcome.clone()));
            }
        }
        let part = DealtPart { tag, part: 0..len };
        self.handle(now, DealerEvent::NotBrought { source: number, part, outcome });
        let is_over = self.wants.get(&tag).and_then(|want| self.end_of(&want.failed));
        if let Some(outcome) = is_over {
            self.end(now, tag, outcome);
        }
    }

    /// How a want ends that these sources do not bring: not while any other may.
    fn end_of(&self, failed: &[(u32, Outcome)]) -> Option<Outcome> {
        let said = |number: &u32| failed.iter().find(|(who, _)| who == number).map(|(_, outcome)| outcome);
        let mut worst = Outcome::NotHere;
        for number in self.sources.keys() {
            match (said(number)?, &worst) {
                // With others it is waited for here; alone, whoever wants it waits.
                (Outcome::RetryLater(_), _) if self.sources.len() > 1 => return None,
                (outcome, Outcome::NotHere) => worst = outcome.clone(),
                (Outcome::RetryLater(delay), _) => worst = Outcome::RetryLater(*delay),
                _ => {}
            }
        }
        Some(worst)
    }

    /// What a source delivered under this name was wrong.
    pub(super) fn corrupt(&mut self, now: Duration, source: &SourceId) {
        if let Some(&number) = self.names.get(source) {
            // The want has ended for the dealer. Whoever wanted it wants it again.
            let part = DealtPart { tag: Tag::MAX, part: 0..0 };
            self.handle(now, DealerEvent::Corrupt { source: number, part });
        }
    }

    /// Sources may like other amounts under way by now.
    fn look_at_windows(&mut self, now: Duration) {
        let mut changed = Vec::new();
        for (number, source) in &mut self.sources {
            let state = source.source.state();
            if state.window != source.window {
                source.window = state.window;
                changed.push((*number, facts(&state)));
            }
        }
        for (source, facts) in changed {
            self.handle(now, DealerEvent::Changed { source, facts });
        }
    }

    /// Time at which [`Self::tick`] is due.
    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        self.dealer.wake(now)
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        self.look_at_windows(now);
        self.wanted(now, Vec::new(), 0);
    }

    /// What is to be done now.
    pub(super) fn take_orders(&mut self) -> Vec<SourceOrder> {
        std::mem::take(&mut self.orders)
    }

    /// Of that, what sources need not bring any more.
    pub(super) fn take_cancellations(&mut self) -> Vec<(Arc<dyn Source>, Vec<Tag>)> {
        let (mut cancelled, mut others) = (Vec::new(), Vec::new());
        for order in self.take_orders() {
            match order {
                SourceOrder::Cancel { source, tags } => cancelled.push((source, tags)),
                other => others.push(other),
            }
        }
        self.orders = others;
        cancelled
    }

    fn handle(&mut self, now: Duration, event: DealerEvent) {
        for action in self.dealer.handle(now, event) {
            let order = match action {
                DealerAction::Ask { source: number, wants } => self.ask(number, &wants),
                DealerAction::Cancel { source: number, wants } => self.sources.get(&number).map(|source| {
                    let tags = wants.iter().map(|part| part.tag).collect();
                    SourceOrder::Cancel { source: Arc::clone(&source.source), tags }
                }),
                DealerAction::Drop(number) => {
                    self.sources.remove(&number).map(|source| SourceOrder::Close(source.source))
                }
                DealerAction::Open(number) => self
                    .places
                    .get(&number)
                    .map(|(source, _)| SourceOrder::Open { number, source: Arc::clone(source) }),
            };
            self.orders.extend(order);
        }
    }

    fn ask(&self, number: u32, parts: &[DealtPart]) -> Option<SourceOrder> {
        let source = Arc::clone(&self.sources.get(&number)?.source);
        let wants = parts.iter().filter_map(|part| Some(self.wants.get(&part.tag)?.want.clone())).collect();
        Some(SourceOrder::Ask { number, source, wants })
    }
}

/// The first byte of a want in the root's space, if it is a part of the root.
fn place_in(root: &Oid, want: &Want) -> Option<u64> {
    let from = want.part.as_ref().map_or(0, |part| part.start);
    match want.id {
        WantId::Piece { oid, layout, index } if oid == *root => Some(layout.range(index).start + from),
        WantId::Chunk { .. } => want.origin.filter(|origin| origin.oid == *root).map(|origin| origin.offset),
        WantId::Piece { .. } | WantId::Block { .. } => None,
    }
}

/// Facts of a source. Pieces are not cut into parts for it: a part comes without a proof.
fn facts(state: &SourceState) -> SourceFacts {
    let (window, round_trip) = (state.window, state.path.round_trip);
    SourceFacts { window, round_trip, priority: 0, price: 0, proves: false }
}

#[cfg(test)]
mod tests {
    use towpath_content::pieces::Layout;
    use towpath_transfer::source::Backlog;
    use towpath_transfer::{BoxFuture, ObjectOffset};

    use super::*;

    struct Nobody;

    impl Sink for Nobody {
        fn deliver(&self, _delivery: Delivery) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }

        fn outcome(&self, _tag: Tag, _outcome: Outcome) {}

        fn backpressure(&self) -> Backlog {
            Backlog::default()
        }
    }

    fn want(object: ObjectKey, size: u64, index: u64) -> Want {
        let layout = Layout::of(size).unwrap();
        let id = WantId::Piece { oid: Oid::of(&object.to_le_bytes()), layout, index };
        let positions = vec![ObjectOffset { object, offset: layout.range(index).start }];
        Want {
            tag: index,
            id,
            positions,
            group: Arc::default(),
            origin: None,
            base: None,
            part: None,
            undivided: false,
        }
    }

    #[test]
    fn without_any_source_a_want_ends_at_once() {
        let mut table = SourceTable::new(0);
        table.want(Duration::ZERO, &Oid::of(b""), vec![want(1, 1 << 20, 3)], Arc::new(Nobody));
        let orders = table.take_orders();
        assert!(matches!(&orders[..], [SourceOrder::End { tag: 3, outcome: Outcome::NotHere, .. }]));
        assert!(table.wants.is_empty() && table.tags.is_empty());
    }

    #[test]
    fn the_last_object_tells_how_much_is_to_come() {
        let mut table = SourceTable::new(0);
        for (object, index, rest) in [(1, 0, 768), (1, 2, 256), (1, 1, 256), (2, 0, 768), (2, 3, 0)] {
            table.note_rest(&want(object, 1 << 20, index));
            assert_eq!(table.rest, (object, rest << 10), "piece {index} of {object}");
        }
    }
}
