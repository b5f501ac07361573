//! Files that go in parts: as patches of an older version that is here, or as deltas of what the receiver signed, which
//! come in two steps where that saves much.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use towpath_api::ApiError;
use towpath_plugins::packing;

use super::Answering;
use crate::copy::message::{Delta, Message};
use crate::copy::patching::make_all;
use crate::copy::reading::{Older, part_of};
use crate::copy::source::Located;
use crate::copy::{deltas, finer};

/// Bytes of outlines and literals of one file that are held until the receiver answers, at most.
const MOST_OUTLINED: usize = 16 << 20;

impl Answering {
    /// The content of a file as patches of parts of an older version.
    pub(super) fn say_patches(&self, entry: u64, located: &Located, older: &Older) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        let Ok(file) = located.open() else { return given_up() };
        let hardest = self.pack.load(Ordering::Relaxed).max(1) as i32;
        let make = |index, level| older.patch(index, &file, &*self.store, level);
        match make_all(older.parts, hardest, make, |patch| self.say_part(delta.clone(), patch))? {
            true => Ok(()),
            false => given_up(),
        }
    }

    /// The content of a file as deltas of what the receiver signed, one part at a time.
    pub(super) fn say_parts(&self, entry: u64, located: &Located, base: &[Bytes]) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        // If it changed, the receiver learns so when it fetches it.
        let Ok(file) = located.open() else { return given_up() };
        let (mut held, mut outlined) = (0, Vec::new());
        let count = base.len() as u64;
        let make = |index: u64, _| {
            let range = deltas::part(located.stamp.size, count, index)?;
            let made = deltas::make(base.get(index as usize)?, &part_of(&file, range)?)?;
            let packed = self.packed_part(&made);
            Some((made, packed))
        };
        let is_made = make_all(count, 0, make, |(made, packed)| {
            let is_packed = packed.is_some();
            match self.outline(&made, packed.as_ref().unwrap_or(&made).len(), held) {
                Some((outline, literals)) => {
                    held += outline.len() + literals.len();
                    outlined.push(literals);
                    self.outlines.told();
                    self.say_part(Delta { is_outline: true, ..delta.clone() }, outline)
                }
                None => self.say_part(Delta { is_packed, ..delta.clone() }, packed.unwrap_or(made)),
            }
        })?;
        match is_made {
            true => self.say_literals(&delta, outlined),
            false => {
                // Those answers must not be taken for another file's.
                outlined.iter().try_for_each(|_| self.outlines.next().map(drop))?;
                given_up()
            }
        }
    }

    /// A part's delta in two steps, if the receiver takes that and it pays. `held`: bytes of those before it.
    fn outline(&self, made: &[u8], packed: usize, held: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let is_possible = self.takes_outlines.load(Ordering::Relaxed) && held + made.len() <= MOST_OUTLINED;
        if is_possible { finer::split(made, packed) } else { None }
    }

    /// The literals of outlines, as deltas of what the receiver signs for each.
    fn say_literals(&self, delta: &Delta, outlined: Vec<Vec<u8>>) -> Result<(), ApiError> {
        let mut is_wanted = true;
        for literals in outlined {
            // Each is answered, also if no more is wanted.
            let answer = self.outlines.next()?;
            let made = deltas::make(&answer.signature, &literals);
            let Some(made) = made.filter(|_| is_wanted && answer.entry == delta.entry) else {
                is_wanted = false;
                continue;
            };
            let packed = self.packed_part(&made);
            let is_packed = packed.is_some();
            self.say_part(Delta { is_packed, ..delta.clone() }, packed.unwrap_or(made))?;
        }
        if is_wanted {
            return Ok(());
        }
        self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }))
    }

    fn packed_part(&self, made: &[u8]) -> Option<Vec<u8>> {
        let level = self.pack.load(Ordering::Relaxed) as i32;
        if level > 0 { packing::pack(made, level) } else { None }
    }
}
