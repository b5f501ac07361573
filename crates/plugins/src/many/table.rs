//! The wants that are out, the sources, and the dealer between them. No I/O: what is to be done is taken out as orders.
//!
//! The dealer knows wants as byte ranges of one space, the root's. Wants of other objects, the files of a tree say, get their place
//! behind it, in the order in which they are wanted: those that follow each other in a file, or in small files one behind the
//! other, lie side by side and are asked for together. They also get
//! tags that are never used again, while a session asks for a want again under its old one: what comes late of the first
//! time is nobody's.

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towpath_content::Oid;
use towpath_transfer::gathering::PieceParts;
use towpath_transfer::source::Sink;
use towpath_transfer::{Delivery, Outcome, Payload, Source, SourceId, Tag, Want, WantId};

use super::call::{DealtCall, HeldBack};
use super::lone::AdoptedTags;
use super::open::OpenSources;
use super::places::{FoundKey, FoundPlaces};
use super::to_come::BytesToCome;
use crate::near::NearHolding;
use towpath_dealer::{Dealer, DealerAction, DealerEvent, DealtPart, SourceHolding, WantedRange};

/// Names that sources give themselves in deliveries: more are not told apart when one is blamed.
const MOST_NAMES: usize = 1024;
/// The first tag: sessions have smaller ones, which a source that is alone sees.
const FIRST_TAG: Tag = 1 << 63;
/// Where the places of wants begin that are not the root's: no object is as large.
const BEHIND_ROOT: u64 = 1 << 62;
/// Something to be done outside of the lock.
pub(super) enum SourceOrder {
    /// Ask a source for wants, as soon as this call's sink keeps up, if one is named.
    Ask { number: u32, source: Arc<dyn Source>, wants: Vec<Want>, after: Option<Arc<DealtCall>> },
    /// Tell it that some need not come.
    Cancel { source: Arc<dyn Source>, tags: Vec<Tag> },
    /// Ask a source whether it has the root at all.
    Open { number: u32, source: Arc<dyn Source> },
    /// End a want that nobody has: its sink is told first, then its call.
    End { awaited: Awaited, tag: Tag, outcome: Outcome },
    /// Close a source for good.
    Close { source: Arc<dyn Source>, why: &'static str },
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
    /// What came of it in parts.
    parts: Option<PieceParts>,
    /// It is a part of the root itself, not of one of its files.
    is_of_root: bool,
}

impl DealtWant {
    /// The first byte that is wanted, counted from its begin.
    fn begin(&self) -> u64 {
        self.want.part.as_ref().map_or(0, |part| part.start)
    }

    /// True if a part of it can be asked for.
    fn can_be_cut(&self) -> bool {
        // A part comes without a proof, and by its object's name: of a live one whole pieces alone, and of a chunk whose place is known.
        let is_named = match self.want.id {
            WantId::Piece { oid, .. } => !oid.is_live(),
            WantId::Chunk { .. } => self.want.origin.is_some_and(|origin| !origin.oid.is_live()),
            WantId::Block { .. } => false,
        };
        is_named && !self.want.undivided
    }

    /// Takes in what `delivery` brought, which was asked for `part`. Returns true if all of it is there.
    fn gather(&mut self, part: &Range<u64>, delivery: &Delivery) -> bool {
        let (begin, len) = (self.begin(), self.want.missing_len());
        let bytes = match &delivery.payload {
            Payload::Bytes(bytes) | Payload::Hashed(bytes) => bytes.clone(),
            other => other.to_bytes(part.end - part.start).into_owned().into(),
        };
        // Whoever does not know what to do with a part delivers all.
        let start = if bytes.len() as u64 == self.want.id.len() { 0 } else { begin + part.start };
        let parts = self.parts.get_or_insert_with(|| PieceParts::new(begin..begin + len));
        parts.add(start, &bytes, &delivery.source)
    }
}

/// Whoever waits for a want that came.
pub(super) struct Awaited {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) call: Arc<DealtCall>,
}

impl Awaited {
    /// Tells the end of a want. A call that had ended before its sink heard of that would have left a want without an end.
    pub(super) fn end(self, tag: Tag, outcome: Outcome) {
        self.sink.outcome(tag, outcome);
        self.call.one_ended();
    }
}

/// See the head of this module.
pub(super) struct SourceTable {
    pub(super) dealer: Dealer,
    pub(super) open: OpenSources,
    pub(super) places: FoundPlaces,
    wants: HashMap<Tag, DealtWant>,
    /// Tags among sources, by those of the session.
    tags: HashMap<Tag, Tag>,
    /// Parts of wants that sources are asked for, by the tags that these have there.
    cut: HashMap<Tag, DealtPart>,
    adopted: AdoptedTags,
    /// Wants that sources are asked for as soon as a sink keeps up.
    pub(super) held_back: HeldBack,
    names: BTreeMap<SourceId, u32>,
    orders: Vec<SourceOrder>,
    to_come: BytesToCome,
    /// A site's cache is in front of all others.
    has_near: bool,
    next_number: u32,
    next_position: u64,
    next_tag: Tag,
}

impl SourceTable {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dealer: Dealer::new(seed),
            open: OpenSources::default(),
            places: FoundPlaces::default(),
            wants: HashMap::new(),
            tags: HashMap::new(),
            cut: HashMap::new(),
            adopted: AdoptedTags::default(),
            held_back: HeldBack::default(),
            names: BTreeMap::new(),
            orders: Vec::new(),
            to_come: BytesToCome::default(),
            has_near: false,
            next_number: 0,
            next_position: BEHIND_ROOT,
            next_tag: FIRST_TAG,
        }
    }

    /// A source that is there and has everything; or the site's cache: it comes before all others, which are in reserve from then on.
    /// Returns its number.
    pub(super) fn add(&mut self, now: Duration, source: Arc<dyn Source>, near: Option<NearHolding>) -> u32 {
        let number = self.number();
        let (holding, promised) = match near {
            Some(NearHolding::Coming { size }) => (SourceHolding::Parts(Vec::new()), size),
            Some(NearHolding::Everything) | None => (SourceHolding::Everything, 0),
        };
        self.opened(now, number, source, 0, holding);
        if promised > 0 {
            self.handle(now, DealerEvent::Promises { source: number, end: promised });
        }
        self.has_near |= near.is_some();
        number
    }

    /// A finder found a source under a new key: it waits to be opened. SRV's priority and weight say when.
    pub(super) fn found(
        &mut self,
        now: Duration,
        key: FoundKey,
        source: Arc<dyn Source>,
        (priority, weight): (u16, u16),
    ) {
        let number = self.number();
        if self.places.add(key, number, source, priority) {
            self.handle(now, DealerEvent::Hinted { hint: number, priority, weight });
        }
    }

    /// A finder took a source away: it is asked no more, and what it was asked for goes elsewhere.
    pub(super) fn removed(&mut self, now: Duration, key: FoundKey) {
        let Some(number) = self.places.remove(key) else { return };
        if let Some(source) = self.open.remove(number) {
            let tags = self.wants.keys().chain(self.cut.keys()).copied().collect();
            self.held_back.gone(number);
            self.orders.push(SourceOrder::Cancel { source: Arc::clone(&source), tags });
            self.orders.push(SourceOrder::Close { source, why: "it is not named any more" });
            self.handle(now, DealerEvent::Gone { source: number });
        }
        self.end_what_nobody_brings(now);
    }

    /// Ends all wants if no source is left: all were dropped, for what they brought or said.
    fn end_what_is_left(&mut self, now: Duration) {
        if self.open.len() == 0 {
            self.end_what_nobody_brings(now);
        }
    }

    /// Ends wants that waited for a source that might still have been found, or for one that was taken away.
    pub(super) fn end_what_nobody_brings(&mut self, now: Duration) {
        let over = self.wants.keys().filter_map(|tag| Some((*tag, self.end_of(now, *tag)?)));
        for (tag, outcome) in over.collect::<Vec<_>>() {
            self.end(now, tag, outcome);
        }
    }

    /// The source of a place answered, and has so much of the root; or nothing.
    pub(super) fn answered(&mut self, now: Duration, number: u32, holding: Option<SourceHolding>) {
        let place = self.places.take(number);
        match place.zip(holding) {
            Some((place, holding)) => self.opened(now, number, place.source, place.priority, holding),
            None => self.end_what_nobody_brings(now),
        }
    }

    /// A source has these bytes of the root, too.
    pub(super) fn has_more(&mut self, now: Duration, number: u32, added: Vec<Range<u64>>) {
        if self.open.get(number).is_some() {
            self.handle(now, DealerEvent::Have { source: number, added });
        }
    }

    fn opened(
        &mut self,
        now: Duration,
        number: u32,
        source: Arc<dyn Source>,
        priority: u16,
        holding: SourceHolding,
    ) {
        let facts = self.open.add(number, source, (u16::from(self.has_near), priority));
        self.handle(now, DealerEvent::SourceAdded { source: number, facts, holding });
        // With another one there it matters what the others cost by now.
        self.wanted(now, Vec::new(), 0);
    }

    /// The source, with its number, if there is one only and no other one to wait for.
    pub(super) fn only(&self) -> Option<(u32, Arc<dyn Source>)> {
        let is_settled = self.places.is_settled() && self.wants.is_empty();
        // One that was found may be taken away in the middle of a call.
        self.open.only().filter(|(number, _)| is_settled && !self.places.may_go(*number))
    }

    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// Bytes that all sources like to have under way; `None` before any said so.
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
        let (call, ranges) = self.take_in(root, wants, &sink);
        let bytes = ranges.iter().map(|want| want.range.end - want.range.start).sum();
        self.wanted(now, ranges, bytes);
        self.end_what_is_left(now);
        call
    }

    /// Takes in wants that a source was asked for while it was alone, and brings since a while. The call has a tag for each.
    pub(super) fn adopt(
        &mut self,
        now: Duration,
        root: &Oid,
        (number, wants, since): (u32, Vec<Want>, Duration),
        sink: &Arc<dyn Sink>,
    ) -> Arc<DealtCall> {
        let named: Vec<Tag> = wants.iter().map(|want| want.tag).collect();
        let (call, wants) = self.take_in(root, wants, sink);
        self.adopted.add(number, call.tags.iter().copied().zip(named));
        self.handle(now, DealerEvent::UnderWay { source: number, wants, since });
        call
    }

    /// Gives wants their places and tags.
    fn take_in(
        &mut self,
        root: &Oid,
        wants: Vec<Want>,
        sink: &Arc<dyn Sink>,
    ) -> (Arc<DealtCall>, Vec<WantedRange>) {
        let call = DealtCall::new((self.next_tag..).take(wants.len()).collect());
        let mut ranges = Vec::with_capacity(wants.len());
        for want in wants {
            self.to_come.note(&want);
            let (tag, len) = (self.next_tag, want.missing_len());
            let place = place_in(root, &want);
            let begin = place.unwrap_or_else(|| {
                self.next_position += len;
                self.next_position - len
            });
            self.next_tag += 1;
            self.tags.insert(want.tag, tag);
            ranges.push(WantedRange { tag, range: begin..begin + len });
            let (sink, call, named) = (Arc::clone(sink), Arc::clone(&call), want.tag);
            let want = Want { tag, ..want };
            let is_of_root = place.is_some() && want.group.coverage.is_none();
            let dealt = DealtWant { want, named, sink, call, failed: Vec::new(), parts: None, is_of_root };
            self.wants.insert(tag, dealt);
        }
        (call, ranges)
    }

    /// Ends a want that nobody brings.
    fn end(&mut self, now: Duration, tag: Tag, outcome: Outcome) {
        let Some(want) = self.take(tag) else { return };
        self.handle(now, DealerEvent::Withdrawn(vec![tag]));
        let awaited = Awaited { sink: want.sink, call: want.call };
        self.orders.push(SourceOrder::End { awaited, tag: want.named, outcome });
    }

    /// Tells the dealer of wants, and how much is likely to follow: what is left of the last object, or as much as lately.
    /// Before that, which sources cost something else, or like other amounts under way by now.
    fn wanted(&mut self, now: Duration, wants: Vec<WantedRange>, bytes: u64) {
        for (source, facts) in self.open.changed() {
            self.handle(now, DealerEvent::Changed { source, facts });
        }
        let to_come = self.to_come.bytes(now, bytes);
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

    /// These are not wanted any more. Returns who is to be told so of each, as with [`SourceOrder::End`].
    pub(super) fn cancel(&mut self, now: Duration, named: &[Tag]) -> Vec<(Awaited, Tag)> {
        let tags: Vec<Tag> = named.iter().filter_map(|named| self.tags.get(named).copied()).collect();
        let mut cancelled = Vec::new();
        for want in tags.iter().filter_map(|&tag| self.take(tag)) {
            cancelled.push((Awaited { sink: want.sink, call: want.call }, want.named));
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

    /// A source brought a want of `len` bytes, or a part of one. Returns what is to be delivered, and to whom, if all of it is there
    /// and still wanted.
    pub(super) fn arrived(
        &mut self,
        now: Duration,
        number: u32,
        delivery: Delivery,
        len: u64,
    ) -> Option<(Awaited, Delivery)> {
        if self.names.len() < MOST_NAMES && self.names.get(&delivery.source) != Some(&number) {
            self.names.insert(delivery.source.clone(), number);
        }
        self.adopted.take(number, delivery.tag);
        let cut = self.cut.remove(&delivery.tag);
        let part = cut.clone().unwrap_or(DealtPart { tag: delivery.tag, part: 0..len });
        let is_whole = match (&cut, self.wants.get_mut(&part.tag)) {
            (Some(cut), Some(want)) => want.gather(&cut.part, &delivery),
            _ => true,
        };
        let tag = part.tag;
        let wanted = if is_whole { self.take(tag) } else { None };
        self.handle(now, DealerEvent::Arrived { source: number, part });
        let DealtWant { sink, named, call, parts, .. } = wanted?;
        // The rest may be on its way from others.
        self.handle(now, DealerEvent::Withdrawn(vec![tag]));
        let delivery = match parts.filter(|_| cut.is_some()).and_then(PieceParts::into_payload) {
            Some((payload @ Payload::Gathered(_), source)) => {
                Delivery { tag: named, payload, source, proof: None, ..delivery }
            }
            Some((payload, source)) => Delivery { tag: named, payload, source, ..delivery },
            None => Delivery { tag: named, ..delivery },
        };
        Some((Awaited { sink, call }, delivery))
    }

    /// Where the front of a piece goes that will not come whole.
    pub(super) fn sink_of(&self, tag: Tag) -> Option<(Arc<dyn Sink>, Tag)> {
        let tag = self.cut.get(&tag).map_or(tag, |part| part.tag);
        self.wants.get(&tag).map(|want| (Arc::clone(&want.sink), want.named))
    }

    /// A source will not bring a want. It ends if no other one can.
    pub(super) fn not_brought(&mut self, now: Duration, number: u32, tag: Tag, len: u64, outcome: Outcome) {
        self.adopted.take(number, tag);
        let part = self.cut.remove(&tag).unwrap_or(DealtPart { tag, part: 0..len });
        let tag = part.tag;
        if let Some(want) = self.wants.get_mut(&tag) {
            want.failed.retain(|(who, _)| *who != number);
            if outcome != Outcome::Cancelled {
                want.failed.push((number, outcome.clone()));
            }
        }
        // A file of a tree may change: that source is as good as ever for all others.
        let outcome = match (outcome, self.wants.get(&tag)) {
            (Outcome::SourceChanged | Outcome::Gone, Some(want)) if !want.is_of_root => Outcome::NotHere,
            (outcome, _) => outcome,
        };
        self.handle(now, DealerEvent::NotBrought { source: number, part, outcome });
        self.end_what_is_left(now);
        let Some(failed) = self.wants.get(&tag).map(|want| &want.failed) else { return };
        if let Some(outcome) = self.end_of(now, tag) {
            self.end(now, tag, outcome);
        } else if self.open.numbers().all(|number| failed.iter().any(|(who, _)| *who == number)) {
            // Those that are open do not have it: the others need not wait for their turn.
            let places = self.places.ask_all().into_iter();
            self.orders.extend(places.map(|(number, source)| SourceOrder::Open { number, source }));
        }
    }

    /// How a want ends that those who were asked do not bring: not while any other may. Of a file of a tree that one who should have
    /// all lacks, those with parts are not waited for.
    fn end_of(&self, now: Duration, tag: Tag) -> Option<Outcome> {
        let want = self.wants.get(&tag).filter(|_| !self.places.may_find(now))?;
        let said = |number: u32| want.failed.iter().find(|(who, _)| *who == number).map(|(_, said)| said);
        let lacks = |(who, said): &(u32, Outcome)| {
            self.dealer.has_everything(*who) && !matches!(said, Outcome::RetryLater(_))
        };
        let is_lacked = !want.is_of_root && want.failed.iter().any(lacks);
        let mut worst = Outcome::NotHere;
        for number in self.open.numbers() {
            let said = match said(number) {
                None if is_lacked && !self.dealer.may_bring(number, tag) => continue,
                said => said?,
            };
            match (said, &worst) {
                // With others it is waited for here; alone, whoever wants it waits.
                (Outcome::RetryLater(_), _) if self.open.len() > 1 => return None,
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
            self.end_what_is_left(now);
        }
    }

    /// Time at which [`Self::tick`] is due.
    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        self.dealer.wake(now)
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        if self.places.is_over(now) {
            self.end_what_nobody_brings(now);
        }
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

    /// Tells the dealer what happened.
    pub(super) fn handle(&mut self, now: Duration, event: DealerEvent) {
        for action in self.dealer.handle(now, event) {
            tracing::trace!(?now, ?action, "dealt");
            let order = match action {
                DealerAction::Ask { source: number, wants } => {
                    self.ask(number, &wants);
                    None
                }
                DealerAction::Cancel { source, wants } => self.not_needed_of(source, &wants),
                DealerAction::Drop(number) => {
                    self.held_back.gone(number);
                    let why = "it is of no more use";
                    self.open.remove(number).map(|source| SourceOrder::Close { source, why })
                }
                DealerAction::Open(number) => {
                    self.places.ask(number).map(|source| SourceOrder::Open { number, source })
                }
            };
            self.orders.extend(order);
        }
    }

    /// Tells a source that it need not bring these.
    fn not_needed_of(&mut self, number: u32, parts: &[DealtPart]) -> Option<SourceOrder> {
        let source = self.open.get(number)?;
        let mut tags = Vec::with_capacity(parts.len());
        for part in parts {
            tags.push(self.adopted.take(number, part.tag).unwrap_or(part.tag));
        }
        // Another source may be asked for the same part by another tag, which this one does not know.
        tags.extend(self.cut.iter().filter(|(_, part)| parts.contains(part)).map(|(&tag, _)| tag));
        self.held_back.forget(number, &tags);
        Some(SourceOrder::Cancel { source, tags })
    }

    /// Asks for wants, or for parts of some: these under tags of their own. Those of calls whose sinks do not keep up wait.
    fn ask(&mut self, number: u32, parts: &[DealtPart]) {
        let Some(source) = self.open.get(number) else { return };
        let mut at_once = Vec::with_capacity(parts.len());
        let mut later: Vec<(Arc<DealtCall>, Vec<Want>)> = Vec::new();
        for part in parts {
            let Some(dealt) = self.wants.get(&part.tag) else { continue };
            let mut want = dealt.want.clone();
            if part.part != (0..want.missing_len()) && dealt.can_be_cut() {
                let begin = dealt.begin();
                (want.tag, want.part) = (self.next_tag, Some(begin + part.part.start..begin + part.part.end));
                want.base = None;
                self.cut.insert(self.next_tag, part.clone());
                self.next_tag += 1;
            }
            match later.iter_mut().find(|(call, _)| Arc::ptr_eq(call, &dealt.call)) {
                Some((_, wants)) => wants.push(want),
                None if dealt.call.is_behind() => later.push((Arc::clone(&dealt.call), vec![want])),
                None => at_once.push(want),
            }
        }
        later.iter().for_each(|(_, wants)| self.held_back.add(number, wants));
        let later = later.into_iter().map(|(call, wants)| (Some(call), wants));
        for (after, wants) in iter::once((None, at_once)).chain(later).filter(|(_, wants)| !wants.is_empty())
        {
            self.orders.push(SourceOrder::Ask { number, source: Arc::clone(&source), wants, after });
        }
    }
}

/// The first byte of a want in the root's space, if it is a part of the root or of a file whose place there is known. One that is
/// to come from one source lies behind it: of sources with parts nobody would have all of it.
fn place_in(root: &Oid, want: &Want) -> Option<u64> {
    if want.undivided {
        return None;
    }
    let from = want.part.as_ref().map_or(0, |part| part.start);
    let begin_of = |oid: Oid| want.group.in_root.or_else(|| (oid == *root).then_some(0));
    match want.id {
        WantId::Piece { oid, layout, index } => Some(begin_of(oid)? + layout.range(index).start + from),
        WantId::Chunk { .. } => want.origin.and_then(|origin| Some(begin_of(origin.oid)? + origin.offset)),
        WantId::Block { .. } => None,
    }
}

#[cfg(test)]
mod tests;
