//! Files that go in parts: as patches of an older version that is here, or as deltas of what the receiver signs.

use std::fs::File;
use std::sync::atomic::Ordering;

use towpath_content::delta::exchange::{PatchParts, ResponderAction};
use towpath_protocol::packing;
use towpath_reuse::policy::compression_level::likes_outlines;

use super::Answering;
use crate::error::CopyError;
use crate::exchange::{Exchange, make_patch, read_part};
use crate::patching::make_all;
use crate::source::Located;

impl Answering {
    /// What goes behind the reply. If the file changed, the receiver learns so when it fetches it.
    pub(super) fn send_exchange(
        &self,
        entry: u64,
        located: &Located,
        mut exchange: Box<Exchange>,
    ) -> Result<(), CopyError> {
        let file = located.open().ok();
        loop {
            match exchange.responder.poll() {
                ResponderAction::Send(run) => self.send_run(entry, &run)?,
                ResponderAction::Read(range) => {
                    let bytes = file.as_ref().and_then(|file| read_part(file, range));
                    exchange.responder.read(bytes);
                }
                ResponderAction::Pack(delta) => {
                    let packed = self.packed_part(delta);
                    exchange.responder.packed(packed, likes_outlines(&self.delivered(&self.control)));
                }
                ResponderAction::AwaitSignature => {
                    let signature = self.signatures.next(entry)?;
                    exchange.responder.signature(signature);
                }
                ResponderAction::MakePatches(parts) => {
                    self.send_patches(entry, file.as_ref(), &mut exchange, parts)?;
                }
                // The reply is sent.
                ResponderAction::Reply(_) | ResponderAction::FindBase(_) | ResponderAction::End => break,
            }
        }
        self.signatures.forget(entry);
        Ok(())
    }

    fn send_patches(
        &self,
        entry: u64,
        file: Option<&File>,
        exchange: &mut Exchange,
        parts: PatchParts,
    ) -> Result<(), CopyError> {
        let hardest = self.pack.load(Ordering::Relaxed).max(1) as i32;
        let Exchange { base, responder } = exchange;
        let make = |index, level| make_patch(*base, parts, index, file?, &*self.store, level);
        let is_made = make_all(parts.count(), hardest, make, |patch| {
            let is_going_on = responder.patched(Some(patch));
            while let ResponderAction::Send(run) = responder.poll() {
                self.send_run(entry, &run)?;
            }
            Ok(is_going_on)
        })?;
        if !is_made {
            responder.patched(None);
        }
        Ok(())
    }

    fn packed_part(&self, delta: &[u8]) -> Option<Vec<u8>> {
        let level = self.level(&self.control);
        if level > 0 { packing::pack(delta, level) } else { None }
    }
}
