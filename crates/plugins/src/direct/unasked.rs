//! Wants that wait for a connection before they are asked for, and which of them are cancelled meanwhile: nobody is asked for
//! these.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use towpath_content::lock::lock;
use towpath_transfer::{Tag, Want};

/// Those of all calls of a plugin.
#[derive(Default)]
pub struct Unasked {
    /// True for those that were cancelled.
    waiting: Mutex<HashMap<Tag, bool>>,
}

/// Those of one call, until they are asked for or the call is given up.
pub struct UnaskedCall<'a> {
    unasked: &'a Unasked,
    tags: Vec<Tag>,
}

impl Unasked {
    /// A call whose wants wait from now on.
    pub fn wait(&self, wants: &[Want]) -> UnaskedCall<'_> {
        let tags: Vec<Tag> = wants.iter().map(|want| want.tag).collect();
        lock(&self.waiting).extend(tags.iter().map(|tag| (*tag, false)));
        UnaskedCall { unasked: self, tags }
    }

    /// Cancels those with these tags.
    pub fn cancel(&self, tags: &[Tag]) {
        let mut waiting = lock(&self.waiting);
        for tag in tags {
            waiting.entry(*tag).and_modify(|is_cancelled| *is_cancelled = true);
        }
    }
}

impl UnaskedCall<'_> {
    /// The wait is over: takes what was cancelled out of `wants`, and returns it.
    pub fn end(mut self, wants: &mut Vec<Want>) -> Vec<Want> {
        let cancelled = self.take();
        let (out, kept) = std::mem::take(wants).into_iter().partition(|want| cancelled.contains(&want.tag));
        *wants = kept;
        out
    }

    /// Forgets them; those that were cancelled.
    fn take(&mut self) -> HashSet<Tag> {
        let mut waiting = lock(&self.unasked.waiting);
        self.tags.drain(..).filter(|tag| waiting.remove(tag).unwrap_or(false)).collect()
    }
}

impl Drop for UnaskedCall<'_> {
    fn drop(&mut self) {
        self.take();
    }
}
