//! Which holder is asked for what, and what becomes of the answers. Pure: who calls it tells it events and the time, and asks what it says.
//!
//! All objects of one call are dealt out at once; what is known of the holders stays from call to call. An object is asked for whole, so a
//! want of the dealer is one object, and the root's space is all objects one behind the other as they were wanted.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use towpath_dealer::{
    Dealer, DealerAction, DealerEvent, DealtPart, SourceFacts, SourceHolding, SourceNumber, WantedRange,
};
use towpath_transfer::{Outcome, Tag};

use crate::holder::{AskedObjects, DrawError, HolderEvent, HolderFault, WantedObject};
use crate::window::HolderWindow;

/// Decides who comes first among equals.
const SEED: u64 = 1;

/// How a holder stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderStanding {
    /// It did not answer yet.
    Connecting,
    /// It can be asked.
    Open,
    /// Nothing more is asked of it.
    Gone(HolderFault),
}

/// What became of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderReport {
    /// Where it is, as `NODE@HOST:PORT`.
    pub place: String,
    /// Objects that it gave.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How it stands.
    pub standing: HolderStanding,
}

/// Objects to be asked of a holder, in this order.
#[derive(Debug)]
pub(crate) struct DrawStep {
    pub source: SourceNumber,
    pub objects: AskedObjects,
}

/// Holders, and the objects that are drawn from them.
#[derive(Debug)]
pub struct Drawing {
    dealer: Dealer,
    holders: Vec<DrawnHolder>,
    /// The objects of this call; the first has the number `first`.
    wanted: Vec<WantedObject>,
    first: Tag,
    /// What came: an object, or that nobody has it.
    drawn: Vec<Option<Option<Bytes>>>,
    left: usize,
    /// Who has not what is left.
    missed: HashMap<Tag, BTreeSet<SourceNumber>>,
    /// End of the root's space.
    end: u64,
}

#[derive(Debug)]
struct DrawnHolder {
    report: HolderReport,
    window: HolderWindow,
    /// What it was asked for: the bytes of each, and how many answers will come. The dealer may ask once more for what it has cancelled,
    /// and each question has an answer of its own.
    owed: HashMap<Tag, (u64, u32)>,
}

impl DrawnHolder {
    fn owe(&mut self, part: &DealtPart) {
        self.owed.entry(part.tag).or_insert((part.part.end, 0)).1 += 1;
    }

    /// The bytes of what one answer is about; none if there was no such question.
    fn answered(&mut self, tag: Tag) -> Option<u64> {
        let (bytes, answers) = self.owed.get_mut(&tag)?;
        let bytes = *bytes;
        *answers -= 1;
        if *answers == 0 {
            self.owed.remove(&tag);
        }
        Some(bytes)
    }
}

impl Drawing {
    /// From holders at these places, none of which is connected.
    pub fn new(places: Vec<String>) -> Self {
        let holder = |place| DrawnHolder {
            report: HolderReport { place, objects: 0, bytes: 0, standing: HolderStanding::Connecting },
            window: HolderWindow::new(Duration::ZERO),
            owed: HashMap::new(),
        };
        Self {
            dealer: Dealer::new(SEED),
            holders: places.into_iter().map(holder).collect(),
            wanted: Vec::new(),
            first: 0,
            drawn: Vec::new(),
            left: 0,
            missed: HashMap::new(),
            end: 0,
        }
    }

    /// What became of each holder so far.
    pub fn reports(&self) -> Vec<HolderReport> {
        self.holders.iter().map(|holder| holder.report.clone()).collect()
    }

    /// Begins to draw these. What was drawn before was taken, or there is no holder.
    pub(crate) fn want(&mut self, now: Duration, wanted: &[WantedObject]) -> Vec<DrawStep> {
        self.first += self.wanted.len() as Tag;
        self.wanted = wanted.to_vec();
        self.drawn = vec![None; wanted.len()];
        (self.left, self.missed) = (wanted.len(), HashMap::new());
        let mut wants = Vec::with_capacity(wanted.len());
        for (tag, object) in (self.first..).zip(wanted) {
            let begin = self.end;
            self.end += bytes_of(object);
            wants.push(WantedRange { tag, range: begin..self.end });
        }
        self.handle(now, DealerEvent::Wanted { wants, to_come: 0 })
    }

    /// All that was wanted, if it came or nobody has it.
    pub(crate) fn drawn(&mut self) -> Result<Option<Vec<Option<Bytes>>>, DrawError> {
        if self.left == 0 {
            return Ok(Some(std::mem::take(&mut self.drawn).into_iter().map(Option::flatten).collect()));
        }
        let mut faults = self.holders.iter().map(|holder| match &holder.report.standing {
            HolderStanding::Gone(fault) => Some((&holder.report.place, fault)),
            _ => None,
        });
        let Some(first) = faults.next() else { return Err(DrawError::None) };
        // The worst one is told: that one lied says more than that another was not reached.
        let worst = faults.try_fold(first, |worst, fault| {
            let (worst, fault) = (worst?, fault?);
            Some(Some(if fault.1.weight() > worst.1.weight() { fault } else { worst }))
        });
        let Some((place, fault)) = worst.flatten() else { return Ok(None) };
        let (place, fault) = (place.clone(), fault.clone());
        Err(DrawError::NoHolder { count: self.holders.len(), place, fault })
    }

    /// Time until [`Self::tick`], unless something happens before.
    pub(crate) fn wake(&self, now: Duration) -> Option<Duration> {
        self.dealer.wake(now).map(|at| at.saturating_sub(now))
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<DrawStep> {
        self.handle(now, DealerEvent::Tick)
    }

    /// Something happened to a holder.
    pub(crate) fn take(&mut self, now: Duration, source: SourceNumber, event: HolderEvent) -> Vec<DrawStep> {
        let is_gone = |holder: &DrawnHolder| matches!(holder.report.standing, HolderStanding::Gone(_));
        let Some(holder) = self.holders.get_mut(source as usize).filter(|holder| !is_gone(holder)) else {
            return Vec::new();
        };
        match event {
            HolderEvent::Connected { round_trip } => {
                holder.report.standing = HolderStanding::Open;
                holder.window = HolderWindow::new(round_trip);
                let window = holder.window.bytes();
                let facts = SourceFacts { window, round_trip, priority: 0, price: 0, proves: false };
                let holding = SourceHolding::Everything;
                self.handle(now, DealerEvent::SourceAdded { source, facts, holding })
            }
            HolderEvent::Gave { tag, object } => {
                let Some(bytes) = holder.answered(tag) else { return Vec::new() };
                let part = DealtPart { tag, part: 0..bytes };
                match object {
                    Some(object) => self.came(now, source, part, object),
                    None => self.misses(now, source, part),
                }
            }
            HolderEvent::Ended(fault) => {
                let steps = self.handle(now, DealerEvent::Gone { source });
                self.close(now, source, fault, steps)
            }
        }
    }

    fn came(&mut self, now: Duration, source: SourceNumber, part: DealtPart, object: Bytes) -> Vec<DrawStep> {
        let bytes = part.part.end;
        let mut window = None;
        if let Some(holder) = self.holders.get_mut(source as usize) {
            holder.report.objects += 1;
            holder.report.bytes += object.len() as u64;
            window = holder.window.brought(now, bytes);
        }
        self.settle(part.tag, Some(object));
        let mut steps = self.handle(now, DealerEvent::Arrived { source, part });
        if let Some(window) = window {
            steps.extend(self.handle(now, DealerEvent::Room { source, window }));
        }
        steps
    }

    fn misses(&mut self, now: Duration, source: SourceNumber, part: DealtPart) -> Vec<DrawStep> {
        let tag = part.tag;
        if self.is_left(tag) {
            self.missed.entry(tag).or_default().insert(source);
        }
        // What the last holder lacks nobody has. That is no reason to do without it.
        let outcome = if self.is_last(source) { Outcome::Cancelled } else { Outcome::NotHere };
        let mut steps = self.give_up(now, vec![tag]);
        steps.extend(self.handle(now, DealerEvent::NotBrought { source, part, outcome }));
        steps
    }

    /// True if no other holder can be asked, now or later.
    fn is_last(&self, source: SourceNumber) -> bool {
        let is_gone = |holder: &DrawnHolder| matches!(holder.report.standing, HolderStanding::Gone(_));
        (0..).zip(&self.holders).all(|(other, holder)| other == source || is_gone(holder))
    }

    /// Nothing more is asked of a holder.
    fn close(
        &mut self,
        now: Duration,
        source: SourceNumber,
        fault: HolderFault,
        mut steps: Vec<DrawStep>,
    ) -> Vec<DrawStep> {
        if let Some(holder) = self.holders.get_mut(source as usize) {
            holder.report.standing = HolderStanding::Gone(fault);
            holder.owed.clear();
        }
        // It may have been the last that could have had something.
        let missed = self.missed.keys().copied().collect();
        steps.extend(self.give_up(now, missed));
        steps
    }

    /// Of these, what no holder has that is left is missing.
    fn give_up(&mut self, now: Duration, tags: Vec<Tag>) -> Vec<DrawStep> {
        let is_missing = |tag: &Tag| {
            let Some(missed) = self.missed.get(tag) else { return false };
            let mut holders = (0..).zip(&self.holders);
            holders.all(|(source, holder)| {
                missed.contains(&source) || matches!(holder.report.standing, HolderStanding::Gone(_))
            })
        };
        let missing: Vec<Tag> = tags.into_iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Vec::new();
        }
        missing.iter().for_each(|tag| self.settle(*tag, None));
        self.handle(now, DealerEvent::Withdrawn(missing))
    }

    fn is_left(&self, tag: Tag) -> bool {
        self.drawn.get(tag.wrapping_sub(self.first) as usize).is_some_and(Option::is_none)
    }

    /// An object came, or is missing. One that was asked for twice may come again.
    fn settle(&mut self, tag: Tag, object: Option<Bytes>) {
        if self.is_left(tag) {
            self.drawn[(tag - self.first) as usize] = Some(object);
            self.left -= 1;
            self.missed.remove(&tag);
        }
    }

    fn handle(&mut self, now: Duration, event: DealerEvent) -> Vec<DrawStep> {
        let mut steps = Vec::new();
        for action in self.dealer.handle(now, event) {
            match action {
                DealerAction::Ask { source, wants } => steps.extend(self.ask(now, source, &wants)),
                // No question can be taken back. Its answer comes and ends it.
                DealerAction::Cancel { .. } => {}
                DealerAction::Drop(source) => {
                    steps = self.close(now, source, HolderFault::Lacking, steps);
                }
                // Nobody hints at places.
                DealerAction::Open(_) => {}
            }
        }
        steps
    }

    fn ask(&mut self, now: Duration, source: SourceNumber, wants: &[DealtPart]) -> Option<DrawStep> {
        let holder = self.holders.get_mut(source as usize)?;
        if holder.owed.is_empty() {
            holder.window.begins(now);
        }
        wants.iter().for_each(|part| holder.owe(part));
        let (wanted, first) = (&self.wanted, self.first);
        let object = |part: &DealtPart| {
            let object = wanted.get(part.tag.wrapping_sub(first) as usize)?;
            Some((part.tag, object.name))
        };
        Some(DrawStep { source, objects: wants.iter().filter_map(object).collect() })
    }
}

/// Bytes of an object in the root's space.
fn bytes_of(object: &WantedObject) -> u64 {
    u64::from(object.length.max(1))
}

#[cfg(test)]
mod tests;
