//! Changes between two trees: a merge of two walks, in the order of both.
//!
//! Memory is bounded by the depth of the trees. Both walks are checked to be sorted and whole, so
//! that a walk that breaks off is an error and never looks like the removal of what it did not
//! come to; but changes are reported before the end is seen, so nothing should be deleted on their
//! account before the iterator has ended without error.

use std::cmp::Ordering;
use std::iter::Fuse;

use thiserror::Error;

use super::check::{TreeError, ensure};
use super::entry::*;
use super::walk::Walk;

/// One path at which two trees differ. No path is reported twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Components below the root; none for the root itself.
    pub path: Vec<Vec<u8>>,
    /// Its difference.
    pub what: What,
}

/// Difference at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Only in the new tree. If it is a directory, what is in it follows.
    Added(Entry),
    /// Only in the old tree. If it is a directory, what is in it follows.
    Removed(Entry),
    /// In both, but not the same. Where only one is a directory, what is in it follows.
    Changed {
        /// The entry in the old tree.
        old: Box<Entry>,
        /// The entry in the new tree.
        new: Box<Entry>,
        /// Kind, bytes of the file, target or device number differ. Where an OID is unknown, size
        /// and time of modification stand for the bytes.
        content: bool,
        /// Mode, owner, times, attributes or place of the holes differ, or only one has a hard
        /// link number. Two numbers are not compared, since they mean nothing in another tree.
        metadata: bool,
    },
}

/// One of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeSide {
    /// The one before.
    Old,
    /// The one after.
    New,
}

/// Reason that a difference can't be found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DifferenceError<E> {
    /// A walk failed by itself.
    #[error("{side:?} tree: {error}")]
    Walk {
        /// The side.
        side: TreeSide,
        /// Its iterator's error.
        error: E,
    },
    /// A walk is not that of a tree.
    #[error("{side:?} tree: {error}")]
    Tree {
        /// The side.
        side: TreeSide,
        /// The tree's error.
        error: TreeError,
    },
}

/// Tells what changed from `old` to `new`, two depth-first walks as a [`super::Decoder`] gives
/// them. `old` may have no events at all, which means that there was nothing.
pub fn difference<O, N, E>(old: O, new: N) -> Difference<O::IntoIter, N::IntoIter>
where
    O: IntoIterator<Item = Result<Event, E>>,
    N: IntoIterator<Item = Result<Event, E>>,
{
    Difference {
        old: DifferenceInput::new(TreeSide::Old, old.into_iter()),
        new: DifferenceInput::new(TreeSide::New, new.into_iter()),
        open: Vec::new(),
        path: Vec::new(),
        has_ended: false,
    }
}

/// The iterator that [`difference`] returns. It ends after the first error.
#[derive(Debug)]
pub struct Difference<O, N> {
    old: DifferenceInput<O>,
    new: DifferenceInput<N>,
    /// For each open directory, which tree has it.
    open: Vec<In>,
    /// The names of the open directories, without the root's.
    path: Vec<Vec<u8>>,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy)]
enum In {
    Old,
    New,
    Both,
}

impl<O, N, E> Iterator for Difference<O, N>
where
    O: Iterator<Item = Result<Event, E>>,
    N: Iterator<Item = Result<Event, E>>,
{
    type Item = Result<Change, DifferenceError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_ended {
            match self.step() {
                Ok(None) => {}
                Ok(Some(change)) => return Some(Ok(change)),
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<O, N, E> Difference<O, N>
where
    O: Iterator<Item = Result<Event, E>>,
    N: Iterator<Item = Result<Event, E>>,
{
    /// Takes an event from one walk or both.
    fn step(&mut self) -> Result<Option<Change>, DifferenceError<E>> {
        let next = match self.open.last() {
            Some(In::Old) => Some(In::Old),
            Some(In::New) => Some(In::New),
            Some(In::Both) | None => next_of_both(self.old.peek()?, self.new.peek()?),
        };
        Ok(match next {
            Some(In::Old) => self.old.take()?.and_then(|event| self.alone(event, TreeSide::Old)),
            Some(In::New) => self.new.take()?.and_then(|event| self.alone(event, TreeSide::New)),
            Some(In::Both) => {
                self.old.take()?.zip(self.new.take()?).and_then(|(old, new)| self.pair(old, new))
            }
            None => {
                self.has_ended = true;
                None
            }
        })
    }

    fn alone(&mut self, event: Event, side: TreeSide) -> Option<Change> {
        let Some(entry) = into_entry(event) else { return self.leave() };
        let path = self.path_to(&entry.name);
        if entry.kind == Kind::Directory {
            self.enter(&entry.name, if side == TreeSide::Old { In::Old } else { In::New });
        }
        let what = if side == TreeSide::Old { What::Removed(entry) } else { What::Added(entry) };
        Some(Change { path, what })
    }

    fn pair(&mut self, old: Event, new: Event) -> Option<Change> {
        let (Some(old), Some(new)) = (into_entry(old), into_entry(new)) else { return self.leave() };
        let (content, metadata) = (is_content_changed(&old, &new), is_metadata_changed(&old, &new));
        let path = (content || metadata).then(|| self.path_to(&new.name));
        match (old.kind == Kind::Directory, new.kind == Kind::Directory) {
            (true, true) => self.enter(&new.name, In::Both),
            (true, false) => self.enter(&new.name, In::Old),
            (false, true) => self.enter(&new.name, In::New),
            (false, false) => {}
        }
        let (old, new) = (Box::new(old), Box::new(new));
        path.map(|path| Change { path, what: What::Changed { old, new, content, metadata } })
    }

    fn path_to(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let last = (!self.open.is_empty()).then(|| name.to_vec());
        self.path.iter().cloned().chain(last).collect()
    }

    fn enter(&mut self, name: &[u8], side: In) {
        if !self.open.is_empty() {
            self.path.push(name.to_vec());
        }
        self.open.push(side);
    }

    fn leave(&mut self) -> Option<Change> {
        self.open.pop();
        self.path.pop();
        None
    }
}

fn into_entry(event: Event) -> Option<Entry> {
    match event {
        Event::Enter(entry) | Event::Leaf(entry) => Some(entry),
        Event::Leave => None,
    }
}

/// The walk that is behind the other where both are in the same directory, or at their root.
fn next_of_both(old: Option<&Event>, new: Option<&Event>) -> Option<In> {
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (Some(_), None) => return Some(In::Old),
        (None, Some(_)) => return Some(In::New),
        (Some(old), Some(new)) => (old, new),
    };
    Some(match (old.entry(), new.entry()) {
        (None, None) => In::Both,
        (Some(_), None) => In::Old,
        (None, Some(_)) => In::New,
        (Some(old), Some(new)) => match old.name.cmp(&new.name) {
            Ordering::Less => In::Old,
            Ordering::Greater => In::New,
            Ordering::Equal => In::Both,
        },
    })
}

fn is_content_changed(old: &Entry, new: &Entry) -> bool {
    match (&old.kind, &new.kind) {
        (Kind::File { size: a, oid: Some(x), .. }, Kind::File { size: b, oid: Some(y), .. }) => {
            a != b || x != y
        }
        (Kind::File { size: a, .. }, Kind::File { size: b, .. }) => {
            a != b || old.metadata.modified != new.metadata.modified
        }
        (old, new) => old != new,
    }
}

fn is_metadata_changed(old: &Entry, new: &Entry) -> bool {
    old.metadata != new.metadata
        || old.hard_link.is_some() != new.hard_link.is_some()
        || extents_of(&old.kind) != extents_of(&new.kind)
}

fn extents_of(kind: &Kind) -> Option<&[Extent]> {
    match kind {
        Kind::File { extents, .. } => extents.as_deref(),
        _ => None,
    }
}

/// One of the walks, with the event that comes next.
#[derive(Debug)]
struct DifferenceInput<I> {
    side: TreeSide,
    events: Fuse<I>,
    next: Option<Event>,
    walk: Walk,
}

impl<I: Iterator> DifferenceInput<I> {
    fn new(side: TreeSide, events: I) -> Self {
        Self { side, events: events.fuse(), next: None, walk: Walk::default() }
    }
}

impl<I, E> DifferenceInput<I>
where
    I: Iterator<Item = Result<Event, E>>,
{
    /// The next event; none after the last.
    fn peek(&mut self) -> Result<Option<&Event>, DifferenceError<E>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next.as_ref())
    }

    fn take(&mut self) -> Result<Option<Event>, DifferenceError<E>> {
        self.peek()?;
        Ok(self.next.take())
    }

    fn read(&mut self) -> Result<Option<Event>, DifferenceError<E>> {
        let side = self.side;
        let event = self.events.next().transpose().map_err(|error| DifferenceError::Walk { side, error })?;
        let checked = match &event {
            Some(event) => self.walk.step(event),
            None => self.check_end(),
        };
        checked.map(|()| event).map_err(|error| DifferenceError::Tree { side, error })
    }

    fn check_end(&self) -> Result<(), TreeError> {
        let was_nothing = self.side == TreeSide::Old && self.walk.is_new();
        ensure(was_nothing || self.walk.is_done(), "tree", "ends before its root does")
    }
}
