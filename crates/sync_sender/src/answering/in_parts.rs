//! Files that go in parts: as patches of an older version that is here, or as deltas of what the receiver signs.

use std::fs::File;
use std::sync::Arc;

use towpath_content::delta::exchange::{NextSignature, PatchParts, ResponderAction};
use towpath_content::lock::lock;
use towpath_protocol::offer::EntryTag;
use towpath_protocol::{Delivered, packing};
use towpath_reuse::policy::compression_level::likes_outlines;
use towpath_reuse::policy::table::LATE;

use super::Answering;
use super::outbox::AnswerQueue;
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
        out: &AnswerQueue,
    ) -> Result<(), CopyError> {
        let file = located.open().ok();
        loop {
            match exchange.responder.poll() {
                ResponderAction::Send(run) => out.send(out.replies.run(tag, &run))?,
                ResponderAction::Read(range) => {
                    let bytes = file.as_ref().and_then(|file| read_part(file, range));
                    exchange.responder.read(bytes);
                }
                ResponderAction::Pack(delta) => {
                    let packed = self.packed_part(delta, out);
                    exchange.responder.packed(packed, likes_outlines(&self.delivered(&out.replies)));
                }
                ResponderAction::AwaitSignature => {
                    let signature = self.next_signature(tag, out)?;
                    exchange.responder.signature(signature);
                }
                ResponderAction::MakePatches(parts) => {
                    self.send_patches(tag, file.as_ref(), &mut exchange, parts, out)?;
                }
                // The reply is sent.
                ResponderAction::Reply(_) | ResponderAction::FindBase(_) | ResponderAction::End => break,
            }
        }
        out.end(tag)
    }

    fn send_patches(
        &self,
        tag: EntryTag,
        file: Option<&File>,
        exchange: &mut Exchange,
        parts: PatchParts,
        out: &AnswerQueue,
    ) -> Result<(), CopyError> {
        let hardest = lock(&self.state).pack.unwrap_or(0).max(1) as i32;
        // What the receiver asks for is all that is known of the network before anything was delivered, and patches take so
        // little of it that this may be long.
        let level = |is_waited_for| match self.delivered(&out.replies) {
            Delivered { fastest: None, .. } => hardest,
            delivered if is_waited_for || delivered.late >= LATE => hardest,
            _ => self.level(&out.replies).max(1),
        };
        let Exchange { base, responder } = exchange;
        let make = |index, level| make_patch(*base, parts, index, file?, &*self.store, level);
        let is_made = make_all(parts.count(), level, make, |patch| {
            let is_going_on = responder.patched(Some(patch));
            while let ResponderAction::Send(run) = responder.poll() {
                out.send(out.replies.run(tag, &run))?;
            }
            Ok(is_going_on)
        })?;
        if !is_made {
            responder.patched(None);
        }
        Ok(())
    }

    /// Waits for the receiver, as long as the copy goes on.
    fn next_signature(&self, tag: EntryTag, out: &AnswerQueue) -> Result<NextSignature, CopyError> {
        let (replies, over) = (Arc::clone(&out.replies), self.over.clone());
        let next = async move { over.run_until_cancelled(replies.next_signature(tag)).await.flatten() };
        out.errands.wait_for(next)?.ok_or_else(hung_up)
    }

    fn packed_part(&self, delta: &[u8], out: &AnswerQueue) -> Option<Vec<u8>> {
        let level = self.level(&out.replies);
        if level > 0 { packing::pack(delta, level) } else { None }
    }
}
