//! Questions for entries that are being answered: which of them have ended, and the signatures that their answers wait for.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use towpath_content::delta::exchange::{NextSignature, Request};
use towpath_transfer::offer::EntryQuery;

use crate::asks::{EntryAsk, EntryTag};
use crate::signatures::Signatures;
use crate::wire::{Get, MAX_BASES_LEN, MAX_ENTRIES, WireSignature, WireWant};

/// Bytes that a question counts for, beside those of its base.
const ASK: usize = 128;
/// Highest level of packing that a peer may wish for: zstd's, above which memory grows without need.
const MOST_PACKED: u32 = 19;

/// See the head of this module.
#[derive(Debug, Default)]
pub(super) struct OpenAsks {
    /// Questions of each request that have not ended.
    open: BTreeMap<u32, BTreeSet<u32>>,
    signatures: Signatures,
    /// The highest number of a request for entries so far.
    last: u32,
}

impl OpenAsks {
    /// Notes that a request was made, to be answered or not.
    pub(super) fn note(&mut self, request: u32) {
        self.last = self.last.max(request);
    }

    /// These are to be answered.
    pub(super) fn begin(&mut self, request: u32, asks: &[EntryAsk]) {
        self.open.insert(request, asks.iter().map(|ask| ask.tag.want).collect());
        for EntryAsk { tag, query } in asks {
            self.expect(*tag, query.base.as_ref().map_or(0, |request| request.base.ahead()));
        }
    }

    /// True if a question has not ended.
    pub(super) fn contains(&self, tag: EntryTag) -> bool {
        self.open.get(&tag.request).is_some_and(|wants| wants.contains(&tag.want))
    }

    /// Ends a question, which changes nothing if it has ended; true if it was the last one of its request.
    pub(super) fn end(&mut self, tag: EntryTag) -> bool {
        let Some(wants) = self.open.get_mut(&tag.request) else { return false };
        if wants.remove(&tag.want) {
            self.signatures.forget(tag);
        }
        wants.is_empty()
    }

    /// Ends a request.
    pub(super) fn end_request(&mut self, request: u32) {
        self.open.remove(&request);
        self.signatures.end(request);
    }

    /// So many more signatures were requested, or are about to be.
    pub(super) fn expect(&mut self, tag: EntryTag, more: u64) {
        self.signatures.expect(tag, more);
    }

    /// Takes a signature; one for a request that has ended is passed over, as it may have been on its way.
    pub(super) fn recv(&mut self, message: &WireSignature) -> Result<(), String> {
        let WireSignature { request, want, bytes } = message;
        if !self.open.contains_key(request) {
            return match *request <= self.last {
                true => Ok(()),
                false => Err("sent a signature for nothing that it asked for".into()),
            };
        }
        let signature =
            NextSignature::from_bytes(bytes).map_err(|error| format!("sent a bad signature: {error}"))?;
        self.signatures.recv(EntryTag { request: *request, want: *want }, signature)
    }

    /// The next signature of a question, if it has come.
    pub(super) fn take(&mut self, tag: EntryTag) -> Option<NextSignature> {
        self.signatures.take(tag)
    }
}

/// True if a request asks for entries.
pub(super) fn has_entries(get: &Get) -> bool {
    get.wants.iter().any(|want| want.entry.is_some())
}

/// Bytes that the questions of a request keep.
pub(super) fn kept(get: &Get) -> usize {
    get.wants.iter().map(|want| ASK + want.base.len()).sum()
}

/// The questions of a request. Errors are reasons to close the connection.
pub(super) fn asks(get: &Get) -> Result<Vec<EntryAsk>, String> {
    let bases = get.base_bytes();
    if get.wants.len() > MAX_ENTRIES || bases > MAX_BASES_LEN {
        return Err(format!("asked for {} entries with {bases} bytes of bases at once", get.wants.len()));
    }
    if !get.root.is_empty() {
        return Err("asked for entries under a root".into());
    }
    get.wants.iter().zip(0..).map(|(want, at)| ask(get, want, at)).collect()
}

fn ask(get: &Get, want: &WireWant, at: u32) -> Result<EntryAsk, String> {
    let WireWant { entry, base, compare, .. } = want;
    let (entry, base, compare) = (*entry, base.clone(), *compare);
    let is_alone = *want == WireWant { entry, base: base.clone(), compare, ..WireWant::default() };
    let entry = entry.filter(|_| is_alone).ok_or("asked for an entry and something else in one")?;
    let base = match base.is_empty() {
        true => None,
        false => Some(Request::from_bytes(&base).map_err(|error| format!("asked with a bad base: {error}"))?),
    };
    let (inline, pack) = (get.inline, get.pack.min(MOST_PACKED));
    let query = EntryQuery { entry, compare, inline, pack, base };
    Ok(EntryAsk { tag: EntryTag { request: get.request, want: at }, query })
}
