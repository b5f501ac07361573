//! Events for the dealer, and the actions that it answers with.

use std::ops::Range;
use std::time::Duration;

use towpath_transfer::{Outcome, Tag};

/// Names a source within its transfer; never used twice.
pub type SourceNumber = u32;

/// Names a place that can be opened within its transfer; never used twice.
pub type HintId = u32;

/// Facts of a source as its driver knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceFacts {
    /// Bytes that it likes to have under way.
    pub window: u64,
    /// Time from a question to its answer's first byte.
    pub round_trip: Duration,
    /// As in DNS SRV records: those with a larger number are for when all others are in trouble.
    pub priority: u16,
    /// Price of a byte, in any unit. What costs more is asked only for what nothing cheaper has.
    pub price: u32,
    /// What it sends can be judged by itself. No want is cut so that another kind of source can bring a part of it in time.
    pub proves: bool,
}

/// Part of the root's space that a source says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceHolding {
    /// All of it.
    Everything,
    /// These bytes.
    Parts(Vec<Range<u64>>),
}

/// A want, and its place in the root's space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedRange {
    /// The want.
    pub tag: Tag,
    /// Its bytes. Empty for the only piece of an empty object.
    pub range: Range<u64>,
}

/// A want, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DealtPart {
    /// The want.
    pub tag: Tag,
    /// The bytes, counted from the want's begin.
    pub part: Range<u64>,
}

/// Something happened.
#[derive(Debug, Clone)]
pub enum DealerEvent {
    /// A source is there.
    SourceAdded {
        /// The source.
        source: SourceNumber,
        /// Facts of it.
        facts: SourceFacts,
        /// Bytes that it has.
        holding: SourceHolding,
    },
    /// Its facts are others now.
    Changed {
        /// The source.
        source: SourceNumber,
        /// All of them.
        facts: SourceFacts,
    },
    /// It is gone, and brings nothing of what it was asked for.
    Gone {
        /// The source.
        source: SourceNumber,
    },
    /// It is being brought the first bytes of the root's space, up to here, and will have them soon; 0: it promises nothing.
    Promises {
        /// The source.
        source: SourceNumber,
        /// The end of these bytes.
        end: u64,
    },
    /// It has these bytes, too.
    Have {
        /// The source.
        source: SourceNumber,
        /// The bytes.
        added: Vec<Range<u64>>,
    },
    /// These are wanted.
    Wanted {
        /// The wants.
        wants: Vec<WantedRange>,
        /// Bytes that will be wanted later: the end is not near as long as there are any.
        to_come: u64,
    },
    /// These are wanted, and a source that has everything was asked for them already, before others were there.
    UnderWay {
        /// The source.
        source: SourceNumber,
        /// The wants.
        wants: Vec<WantedRange>,
        /// Time at which it was asked, or brought something last.
        since: Duration,
    },
    /// These are no longer wanted.
    Withdrawn(Vec<Tag>),
    /// Bytes came, and were right.
    Arrived {
        /// Source that brought them.
        source: SourceNumber,
        /// As it was asked for.
        part: DealtPart,
    },
    /// Bytes did not come, and will not.
    NotBrought {
        /// Source that was asked.
        source: SourceNumber,
        /// As it was asked for.
        part: DealtPart,
        /// How it ended instead.
        outcome: Outcome,
    },
    /// Bytes came, and were wrong. If they had [`Self::Arrived`] before, the part is an empty one.
    Corrupt {
        /// Source that brought them.
        source: SourceNumber,
        /// As it was asked for. If it counted as arrived before, it has to be wanted again.
        part: DealtPart,
    },
    /// The window of a source is another one now.
    Room {
        /// The source.
        source: SourceNumber,
        /// Bytes that it likes to have under way.
        window: u64,
    },
    /// A place where a source can be had, which is not open yet.
    Hinted {
        /// The place.
        hint: HintId,
        /// As in DNS SRV records: the smallest number comes first.
        priority: u16,
        /// As in DNS SRV records: the larger, the likelier it is first among those of one priority.
        weight: u16,
    },
    /// The time that [`super::Dealer::wake`] named has come.
    Tick,
}

/// An action to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DealerAction {
    /// Ask a source for these, in this order. Each ends with one event: arrived, not brought, or corrupt.
    Ask {
        /// The source.
        source: SourceNumber,
        /// Wants and parts of wants.
        wants: Vec<DealtPart>,
    },
    /// A source need not bring these any more. Each still ends with its event.
    Cancel {
        /// The source.
        source: SourceNumber,
        /// As they were asked for.
        wants: Vec<DealtPart>,
    },
    /// Close a source: it brings what is wrong. No event of it is expected.
    Drop(SourceNumber),
    /// Open this place.
    Open(HintId),
}
