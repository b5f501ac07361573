//! Entries of the other side's offer that were asked for on a connection, by the numbers of their requests. Pure.
//!
//! A want waits for one content, or for an outcome. If its content says that the rest comes in parts, runs may follow until
//! the request ends, or another want's content says so.

use std::collections::BTreeMap;

use bytes::Bytes;
use towpath_content::delta::exchange::Reply;
use towpath_transfer::offer::{EntryBody, EntryContent, EntryQuery, EntryWant};
use towpath_transfer::{Outcome, Tag};

use super::effect::{Effect, LOST};
use super::outbox::SessionOutbox;
use crate::incoming::ContentsCame;
use crate::requests::Violation;
use crate::window::ReceiveWindow;
use crate::wire::{Body, ContentCredit, Get, WireOutcome, WireRun, WireSignature, WireWant};

/// Entries that the peer answers.
#[derive(Default)]
pub(super) struct OpenEntries {
    open: BTreeMap<u32, Vec<AskedEntry>>,
    /// Count of contents and runs.
    window: ReceiveWindow,
    /// The want that came in parts last, by its request and index: the peer sends one after the other, as each takes memory.
    in_parts: Option<(u32, u32)>,
}

struct AskedEntry {
    tag: Tag,
    state: AskedState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedState {
    /// Its content or an outcome is to come.
    Waits,
    /// Runs may come.
    InParts,
    Ended,
}

impl OpenEntries {
    /// Entries get the number of their request; the message that asks.
    pub(super) fn begin(&mut self, request: u32, wants: &[EntryWant]) -> Get {
        let asked = |want: &EntryWant| AskedEntry { tag: want.tag, state: AskedState::Waits };
        self.open.insert(request, wants.iter().map(asked).collect());
        let (inline, pack) = wants.first().map_or((0, 0), |want| (want.query.inline, want.query.pack));
        let wants = wants.iter().map(|want| wire_want(&want.query)).collect();
        Get { request, wants, inline, pack, ..Get::default() }
    }

    /// True if one is under way.
    pub(super) fn contains(&self, request: u32) -> bool {
        self.open.contains_key(&request)
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.open.keys().copied()
    }

    /// Contents came.
    pub(super) fn contents(
        &mut self,
        came: ContentsCame,
        outbox: &mut SessionOutbox,
    ) -> Result<(), Violation> {
        let ContentsCame { request, contents, kept, cost } = came;
        self.came(request, cost, outbox)?;
        let Some(asked) = self.open.get_mut(&request) else {
            self.took(cost, outbox);
            return Ok(());
        };
        let take = |(want, content): (u32, EntryContent)| {
            let tag = take_content(asked, want, &content)?;
            Ok((want, tag, content))
        };
        let contents = contents.into_iter().map(take).collect::<Result<Vec<_>, Violation>>()?;
        let is_in_parts = |content: &EntryContent| content.body == EntryBody::Delta(Reply::InParts);
        let in_parts: Vec<_> =
            contents.iter().filter(|(.., content)| is_in_parts(content)).map(|(want, ..)| *want).collect();
        let contents = contents.into_iter().map(|(_, tag, content)| (tag, content)).collect();
        outbox.push(Effect::Contents { request, contents, kept, cost });
        in_parts.into_iter().for_each(|want| self.begin_parts((request, want), outbox));
        Ok(())
    }

    /// A want comes in parts from here on: no more comes of the one before.
    fn begin_parts(&mut self, next: (u32, u32), outbox: &mut SessionOutbox) {
        let Some((request, want)) = self.in_parts.replace(next) else { return };
        let asked = self.open.get_mut(&request).and_then(|asked| asked.get_mut(want as usize));
        if let Some(asked) = asked.filter(|asked| asked.state == AskedState::InParts) {
            asked.state = AskedState::Ended;
            outbox.push(Effect::Outcome { request, tag: asked.tag, outcome: LOST });
        }
    }

    /// A run came.
    pub(super) fn run(
        &mut self,
        run: WireRun,
        cost: usize,
        outbox: &mut SessionOutbox,
    ) -> Result<(), Violation> {
        let WireRun { request, want, bytes: run } = run;
        self.came(request, cost, outbox)?;
        let Some(asked) = self.open.get(&request) else {
            self.took(cost, outbox);
            return Ok(());
        };
        let in_parts = |asked: &&AskedEntry| asked.state == AskedState::InParts;
        let tag = asked.get(want as usize).filter(in_parts).ok_or(Violation::Unasked)?.tag;
        outbox.push(Effect::Run { request, tag, run, cost });
        Ok(())
    }

    /// Counts a message about a request.
    fn came(&mut self, request: u32, cost: usize, outbox: &SessionOutbox) -> Result<(), Violation> {
        match self.window.recv(cost) {
            true => outbox.was_put(request),
            false => Err(Violation::OverWindow),
        }
    }

    /// A message that counts for so much was taken.
    pub(super) fn took(&mut self, cost: usize, outbox: &mut SessionOutbox) {
        if let Some(bytes) = self.window.took(cost) {
            outbox.push(Effect::SendFirst(Body::ContentCredit(ContentCredit { bytes })));
        }
    }

    /// An outcome of one want, or of all, of a request that was put; false if it asked for no entries, or has ended. It also ends
    /// what comes in parts, of which nobody waits for more than the end of the request.
    pub(super) fn outcome(
        &mut self,
        message: &WireOutcome,
        outbox: &mut SessionOutbox,
    ) -> Result<bool, Violation> {
        let request = message.request;
        let Some(asked) = self.open.get_mut(&request) else { return Ok(false) };
        // A peer that cancels by itself is asked again.
        let outcome = Some(message.outcome()).filter(|outcome| *outcome != Outcome::Cancelled);
        let which = match message.want {
            Some(want) => std::slice::from_mut(asked.get_mut(want as usize).ok_or(Violation::Unasked)?),
            None => &mut asked[..],
        };
        end(request, which, &outcome.unwrap_or(LOST), outbox);
        Ok(true)
    }

    /// Ends a request: what waits is to be asked for again. False if it is not under way.
    pub(super) fn finish(&mut self, request: u32, outbox: &mut SessionOutbox) -> bool {
        let Some(mut asked) = self.open.remove(&request) else { return false };
        end(request, &mut asked, &LOST, outbox);
        outbox.push(Effect::Ended { request, result: Ok(()) });
        true
    }

    /// Sends a signature, unless nobody needs it any more.
    pub(super) fn sign(&self, request: u32, want: u32, bytes: Bytes, outbox: &mut SessionOutbox) {
        let asked = self.open.get(&request).and_then(|asked| asked.get(want as usize));
        if asked.is_some_and(|asked| asked.state != AskedState::Ended) {
            outbox.follow(request, Body::Signature(WireSignature { request, want, bytes }));
        }
    }
}

/// The tag of a want that waits for its content, which came.
fn take_content(asked: &mut [AskedEntry], want: u32, content: &EntryContent) -> Result<Tag, Violation> {
    let waits = |asked: &&mut AskedEntry| asked.state == AskedState::Waits;
    let asked = asked.get_mut(want as usize).filter(waits).ok_or(Violation::Unasked)?;
    asked.state = match content.body {
        EntryBody::Delta(Reply::InParts) => AskedState::InParts,
        _ => AskedState::Ended,
    };
    Ok(asked.tag)
}

/// Ends wants; those that wait get this outcome.
fn end(request: u32, asked: &mut [AskedEntry], outcome: &Outcome, outbox: &mut SessionOutbox) {
    for asked in asked {
        if std::mem::replace(&mut asked.state, AskedState::Ended) == AskedState::Waits {
            outbox.push(Effect::Outcome { request, tag: asked.tag, outcome: outcome.clone() });
        }
    }
}

fn wire_want(query: &EntryQuery) -> WireWant {
    let base = query.base.as_ref().map(|base| base.to_bytes().into()).unwrap_or_default();
    WireWant { entry: Some(query.entry), base, compare: query.compare, ..WireWant::default() }
}
