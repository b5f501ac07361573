//! Events of an entry, as a worker hands them to its target.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use towpath_content::delta::exchange::{DeltaRun, NextSignature};

use super::entries::EntryKey;
use super::entry_target::{EntryNext, EntryTarget};
use super::events::{EntryMessage, SessionEvent};
use crate::offer::{EntryBody, EntryContent, SignatureWay};
use crate::want::{Outcome, Tag};

/// Weight of a content that comes without its bytes: the target may open a file for it.
const NAMED: u64 = 16 << 10;

/// Event of an entry.
pub(super) enum EntryEvent {
    /// It was asked for, and signatures were promised.
    Asked,
    /// Its content came.
    Content(EntryContent),
    /// A run came.
    Run(Bytes),
    /// Nothing more comes.
    Ended(Outcome),
}

/// The way of one entry's signatures.
#[derive(Clone)]
pub(super) struct TaggedWay {
    pub(super) tag: Tag,
    pub(super) way: Arc<dyn SignatureWay>,
}

/// An event for a worker.
pub(super) struct EntryJob {
    pub(super) key: EntryKey,
    pub(super) target: Box<dyn EntryTarget>,
    pub(super) event: EntryEvent,
    /// Room that the event takes, perhaps with others.
    pub(super) room: Option<Arc<OwnedSemaphorePermit>>,
    pub(super) way: Option<TaggedWay>,
}

impl TaggedWay {
    /// Answers so many signatures that are wanted.
    pub(super) fn give_up(&self, wanted: u64) {
        (0..wanted).for_each(|_| self.way.send(self.tag, &NextSignature::GivenUp));
    }
}

impl EntryJob {
    /// The bytes of a job that is known to be quick.
    pub(super) const fn weight(&self) -> Option<u64> {
        match &self.event {
            EntryEvent::Content(EntryContent { body: EntryBody::Whole(bytes), .. }) => {
                Some(bytes.len() as u64)
            }
            EntryEvent::Content(EntryContent { body: EntryBody::Named, .. }) => Some(NAMED),
            _ => None,
        }
    }

    /// Hands the event to the target.
    pub(super) fn perform(self) -> SessionEvent {
        let Self { key, mut target, event, room, way } = self;
        if let Some(source) = way.as_ref().and_then(|way| way.way.source()) {
            target.comes_from(source);
        }
        let mut send = |signature: &NextSignature| {
            way.iter().for_each(|way| way.way.send(way.tag, signature));
        };
        let next = match event {
            EntryEvent::Asked => {
                target.asked(&mut send);
                EntryNext::More
            }
            EntryEvent::Content(content) => target.content(content),
            EntryEvent::Run(run) => target.run(run, &mut send),
            EntryEvent::Ended(outcome) => match target.ended(outcome) {
                EntryNext::More => EntryNext::Over,
                next => next,
            },
        };
        drop(room);
        // A target that is needed no more is dropped here, for that may wait for a disk.
        let target = matches!(next, EntryNext::More | EntryNext::Again(_)).then_some(target);
        SessionEvent::Entry(EntryMessage::Done { key, target, next })
    }
}

/// Signatures that a run wants in answer.
pub(super) fn wanted_by_run(run: &[u8]) -> u64 {
    DeltaRun::from_bytes(run).map_or(0, |run| run.wanted() as u64)
}
