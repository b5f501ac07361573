//! Wants of a `Get` under way that nobody needs any more: what the peer is told, and how they end. A piece, a run of bytes
//! or a chunk is cancelled when all wants whose bytes come by it are given up; others go on.

use std::collections::HashSet;
use std::ops::Range;

use towpath_transfer::{Delivery, Outcome, Tag, Want};

use super::{GetUnderWay, Violation, WantRun, WantState, runs};
use crate::wire::{WireOutcome, WireWant, want_pieces};

/// What the peer is to be told after wants were given up.
#[derive(Debug, PartialEq, Eq)]
pub enum ToCancel {
    /// Nothing: it was told already, or other wants need the same bytes.
    Nothing,
    /// That these pieces are not needed, as [`want_pieces`] reads them.
    Pieces(Vec<u32>),
    /// That nothing of the request is needed.
    All,
}

/// States of wants that were asked for now.
pub(super) fn all_open(runs: &[WantRun]) -> Vec<Vec<WantState>> {
    runs.iter().map(|run| vec![WantState::Open; run.wants.len()]).collect()
}

impl WantRun {
    /// Its pieces, each with the wants whose bytes come by it.
    fn parts(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        (0..).map_while(|piece| Some((piece, self.part(piece)?.0)))
    }
}

impl GetUnderWay {
    /// Gives up wants of a request that the peer has. What does not come nevertheless ends as cancelled.
    pub fn give_up(&mut self, tags: &HashSet<Tag>) -> ToCancel {
        let (mut pieces, mut is_new) = (Vec::new(), false);
        for (index, (run, states)) in (0..).zip(self.runs.iter().zip(&mut self.states)) {
            for (piece, part) in run.parts() {
                let (wants, states) = (&run.wants[part.clone()], &mut states[part]);
                if give_up_open(wants, states, tags) {
                    is_new = true;
                    // Once for each piece: only its last open want comes here.
                    pieces.extend((!states.contains(&WantState::Open)).then_some([index, piece]));
                }
            }
        }
        let is_open = self.states.iter().flatten().any(|state| *state == WantState::Open);
        match is_new && !self.cancelled {
            true if !is_open => {
                self.cancelled = true;
                ToCancel::All
            }
            true if !pieces.is_empty() => ToCancel::Pieces(pieces.concat()),
            _ => ToCancel::Nothing,
        }
    }

    /// Takes wants out of a request that the peer does not have yet, and returns them.
    pub fn leave_out(&mut self, tags: &HashSet<Tag>) -> Vec<Tag> {
        let mut wants = self.runs.iter().flat_map(|run| &run.wants);
        if !wants.any(|want| tags.contains(&want.tag)) {
            return Vec::new();
        }
        let wants = self.runs.drain(..).flat_map(|run| run.wants);
        let (left_out, kept): (Vec<Want>, Vec<Want>) = wants.partition(|want| tags.contains(&want.tag));
        self.runs = runs(kept, self.by_bytes);
        self.states = all_open(&self.runs);
        left_out.iter().map(|want| want.tag).collect()
    }

    /// Its wants, as they go over the wire.
    pub fn wire_wants(&self) -> Vec<WireWant> {
        self.runs.iter().map(|run| run.wire.clone()).collect()
    }

    /// True if this side gave all of it up.
    pub const fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Gives out what has come of a piece in whose middle the peer stops, as this outcome says.
    pub fn take_front(&mut self, message: &WireOutcome) -> Option<Delivery> {
        let half = self.half.as_ref().map(|half| (half.want, half.piece))?;
        let is_named = want_pieces(&message.pieces)?.any(|piece| piece == half);
        if is_named { self.take_partial_piece() } else { None }
    }

    /// Ends the wants whose bytes would have come by these pieces.
    pub(super) fn end_pieces(
        &mut self,
        pieces: &[u32],
        outcome: &Outcome,
        end: &mut impl FnMut(Tag, Outcome),
    ) -> Result<(), Violation> {
        for (want, piece) in want_pieces(pieces).ok_or(Violation::Unasked)? {
            let run = self.runs.get(want as usize).ok_or(Violation::Unasked)?;
            let (wants, _) = run.part(piece).ok_or(Violation::Unasked)?;
            self.end_wants(want as usize, wants, outcome, end);
        }
        Ok(())
    }
}

/// Gives up those of some wants that are open and named; false if there are none.
fn give_up_open(wants: &[Want], states: &mut [WantState], tags: &HashSet<Tag>) -> bool {
    let mut is_any = false;
    for (want, state) in wants.iter().zip(states) {
        if *state == WantState::Open && tags.contains(&want.tag) {
            (*state, is_any) = (WantState::GivenUp, true);
        }
    }
    is_any
}
