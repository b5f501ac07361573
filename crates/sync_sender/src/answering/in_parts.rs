//! Files that go in parts: as patches of an older version that is here, or as deltas of what the receiver signs.

use std::fs::File;
use std::sync::atomic::Ordering;

use towpath_content::delta::exchange::{DeltaRun, NextSignature, PatchParts, ResponderAction};
use towpath_protocol::offer::EntryTag;
use towpath_protocol::{Replies, packing};
use towpath_reuse::policy::compression_level::likes_outlines;

use super::Answering;
use crate::error::CopyError;
use crate::exchange::{Exchange, make_patch, read_part};
use crate::message::hung_up;
use crate::patching::make_all;
use crate::source::Located;

impl Answering {
    /// What goes behind the reply. If the file changed, the receiver learns so when it fetches it.
    pub(super) fn send_exchange(
        &self,
        tag: EntryTag,
        located: &Located,
        mut exchange: Box<Exchange>,
        replies: &Replies,
    ) -> Result<(), CopyError> {
        let file = located.open().ok();
        loop {
            match exchange.responder.poll() {
                ResponderAction::Send(run) => self.send_run(tag, &run, replies)?,
                ResponderAction::Read(range) => {
                    let bytes = file.as_ref().and_then(|file| read_part(file, range));
                    exchange.responder.read(bytes);
                }
                ResponderAction::Pack(delta) => {
                    let packed = self.packed_part(delta, replies);
                    exchange.responder.packed(packed, likes_outlines(&self.delivered(replies)));
                }
                ResponderAction::AwaitSignature => {
                    let signature = self.next_signature(tag, replies)?;
                    exchange.responder.signature(signature);
                }
                ResponderAction::MakePatches(parts) => {
                    self.send_patches(tag, file.as_ref(), &mut exchange, parts, replies)?;
                }
                // The reply is sent.
                ResponderAction::Reply(_) | ResponderAction::FindBase(_) | ResponderAction::End => break,
            }
        }
        replies.end(tag);
        Ok(())
    }

    fn send_patches(
        &self,
        tag: EntryTag,
        file: Option<&File>,
        exchange: &mut Exchange,
        parts: PatchParts,
        replies: &Replies,
    ) -> Result<(), CopyError> {
        let hardest = self.pack.load(Ordering::Relaxed).max(1) as i32;
        let Exchange { base, responder } = exchange;
        let make = |index, level| make_patch(*base, parts, index, file?, &*self.store, level);
        let is_made = make_all(parts.count(), hardest, make, |patch| {
            let is_going_on = responder.patched(Some(patch));
            while let ResponderAction::Send(run) = responder.poll() {
                self.send_run(tag, &run, replies)?;
            }
            Ok(is_going_on)
        })?;
        if !is_made {
            responder.patched(None);
        }
        Ok(())
    }

    fn send_run(&self, tag: EntryTag, run: &DeltaRun<'_>, replies: &Replies) -> Result<(), CopyError> {
        self.runtime.block_on(replies.send_run(tag, run)).map_err(|_| hung_up())
    }

    /// Waits for the receiver, as long as the copy goes on.
    fn next_signature(&self, tag: EntryTag, replies: &Replies) -> Result<NextSignature, CopyError> {
        let next = self.over.run_until_cancelled(replies.next_signature(tag));
        self.runtime.block_on(next).flatten().ok_or_else(hung_up)
    }

    fn packed_part(&self, delta: &[u8], replies: &Replies) -> Option<Vec<u8>> {
        let level = self.level(replies);
        if level > 0 { packing::pack(delta, level) } else { None }
    }
}
