//! A file that goes as what it has over a base ([`towpath_content::delta::exchange`]): its responder, with the file and what is
//! in the store.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use towpath_content::Oid;
use towpath_content::delta::exchange::{PatchParts, Reply, Request, Responder, ResponderAction};
use towpath_reuse::delta::patches;
use towpath_store::{MAX_SPAN, State, Store};

/// See the head of this module.
pub struct Exchange {
    /// Decides on all messages.
    pub responder: Responder,
    /// The base, if it was named: then nothing that is sent waits for signatures.
    pub base: Option<Oid>,
}

impl Exchange {
    /// For a file of this name and size, which was requested so.
    pub fn new(request: Request, oid: &Oid, size: u64) -> Self {
        Self { base: request.base.oid(), responder: Responder::new(request, oid, size) }
    }

    /// The reply. `content`: all of a little file, if it is known. A base is looked for in `store`, if there is one.
    pub fn reply(
        &mut self,
        file: &File,
        mut content: Option<Vec<u8>>,
        store: Option<&dyn Store>,
        level: i32,
    ) -> Reply {
        loop {
            match self.responder.poll() {
                ResponderAction::Reply(reply) => return reply,
                ResponderAction::Read(range) => {
                    let content = content.take().filter(|content| content.len() as u64 == range.end);
                    self.responder.read(content);
                }
                ResponderAction::FindBase(oid) => {
                    let found = store.and_then(|store| size_of(&oid, store));
                    self.responder.found(found);
                }
                ResponderAction::MakePatches(parts) => {
                    let patch = store.and_then(|store| make_patch(self.base, parts, 0, file, store, level));
                    self.responder.patched(patch);
                }
                // Nothing else comes before a reply.
                _ => return Reply::GivenUp,
            }
        }
    }
}

/// One part of a file as a patch of `base`; none if one of them can't be read.
pub fn make_patch(
    base: Option<Oid>,
    parts: PatchParts,
    index: u64,
    file: &File,
    store: &dyn Store,
    level: i32,
) -> Option<Vec<u8>> {
    let base = read_object(&base?, parts.base(index)?, store)?;
    patches::patch(&base, &read_part(file, parts.target(index)?)?, level)
}

/// These bytes of a file; none if they can't be read.
pub fn read_part(file: &File, range: Range<u64>) -> Option<Vec<u8>> {
    let mut part = vec![0; usize::try_from(range.end - range.start).ok()?];
    file.read_exact_at(&mut part, range.start).ok().map(|()| part)
}

/// Bytes of an object, if all of it is here.
fn size_of(oid: &Oid, store: &dyn Store) -> Option<u64> {
    let have = store.have(oid).ok().filter(|have| have.state == State::Complete)?;
    Some(have.layout.size())
}

fn read_object(oid: &Oid, range: Range<u64>, store: &dyn Store) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).ok()?);
    let (mut at, mut span) = (range.start, Vec::new());
    while at < range.end {
        store.read_span(oid, at..range.end.min(at + MAX_SPAN), &mut span).ok()?;
        bytes.extend_from_slice(&span);
        at += span.len() as u64;
    }
    Some(bytes)
}
