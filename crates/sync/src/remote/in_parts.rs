//! Files that come as deltas or patches of what lies here: whole with their answer, or in parts behind it.

use towpath_content::Oid;
use towpath_content::delta::exchange::{DeltaRun, NextSignature, NotDue, Reply, RequesterEnd};
use towpath_protocol::steps::RequesterStep;
use towpath_transfer::FetchError;
use towpath_transfer::session::EntryNext;

use super::answered::RemoteFile;
use crate::delta_receiver::DeltaReceiver;
use crate::delta_requests::DescribedBase;
use crate::error::CopyError;
use crate::message::violation;

impl RemoteFile {
    /// The file begins to come as what it has over its base, or has come so.
    pub(super) fn begin_delta(
        &mut self,
        oid: Oid,
        reply: Reply,
        described: DescribedBase,
    ) -> Result<EntryNext, CopyError> {
        let mut requester = described.requester;
        if described.oid.is_some() {
            self.supplier.delta_requests.named(true);
        }
        requester.recv_reply(reply, self.file.size()).map_err(not_due)?;
        let Some(base) = self.file.base().open() else {
            // The sender goes on: what it sends of this file is passed over.
            return Ok(self.fetch_instead(oid));
        };
        self.receiver = Some(DeltaReceiver { oid, base, requester, is_open: false, is_failed: false });
        // It has nothing to answer before it has a run.
        Ok(self.go_on(&mut |_| {}))
    }

    /// The next run.
    pub(super) fn take_run(
        &mut self,
        run: &[u8],
        send: &mut dyn FnMut(&NextSignature),
    ) -> Result<EntryNext, CopyError> {
        let run = DeltaRun::from_bytes(run).map_err(|error| violation(&error.to_string()))?;
        let Some(receiver) = &mut self.receiver else { return Err(violation("a part of nothing")) };
        let in_steps = run.wanted() > 0 && self.supplier.delta_requests.likes_steps();
        receiver.requester.recv_run(run, in_steps).map_err(not_due)?;
        Ok(self.go_on(send))
    }

    /// Does what can be done.
    fn go_on(&mut self, send: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        let Some(mut receiver) = self.receiver.take() else { return EntryNext::Over };
        loop {
            match receiver.next() {
                RequesterStep::Wait => {
                    self.receiver = Some(receiver);
                    return EntryNext::More;
                }
                RequesterStep::Send(signature) => send(&signature),
                RequesterStep::Write { offset, bytes, came } => {
                    if !self.opens(&mut receiver) || !self.take_part(&receiver.oid, offset, &bytes, came) {
                        // The sender may wait for signatures all the same.
                        receiver.requester.abandon();
                        receiver.is_failed = true;
                    }
                }
                RequesterStep::End(_) if receiver.is_failed => return EntryNext::Over,
                RequesterStep::End(RequesterEnd::Same) => return self.take_base(receiver.oid),
                RequesterStep::End(RequesterEnd::Written) => return self.finish_delta(receiver.oid),
                RequesterStep::End(RequesterEnd::GivenUp | RequesterEnd::UnknownBase) => {
                    return self.give_up(&receiver);
                }
            }
        }
    }

    /// Nothing comes of a delta.
    pub(super) fn give_up(&mut self, receiver: &DeltaReceiver) -> EntryNext {
        tracing::debug!(oid = %receiver.oid, "nothing came of a delta: the file is fetched");
        if receiver.is_open {
            self.file.parts().drop_all();
        }
        self.fetch_instead(receiver.oid)
    }

    /// The connection of a delta was lost. It goes on over another one, with what came as the front of its base, unless it was
    /// lost at the same place before, or what came lies farther behind.
    pub(super) fn go_on_elsewhere(&mut self, receiver: &DeltaReceiver) -> EntryNext {
        let here = self.file.parts().keep();
        let at = here.unwrap_or_default();
        if here == Some(0) || self.lost_at.is_some_and(|before| at <= before) {
            tracing::debug!(oid = %receiver.oid, "a delta was interrupted: the rest of the file is fetched");
            return self.fetch(receiver.oid);
        }
        tracing::debug!(oid = %receiver.oid, at, "a delta was interrupted, and goes on");
        self.lost_at = Some(at);
        self.ask_for_delta(false)
    }

    /// The file is its older version, but for its metadata.
    fn take_base(&mut self, oid: Oid) -> EntryNext {
        if !self.is_made_here(self.file.base().take(&oid)) {
            return self.fetch_instead(oid);
        }
        if self.file.base().is_found() {
            self.supplier.candidates.proved_base(true);
        }
        self.supplier.delta_requests.made(&self.file, 0);
        EntryNext::Over
    }

    fn finish_delta(&mut self, oid: Oid) -> EntryNext {
        match self.file.parts().finish(&oid) {
            Ok(true) => {
                self.supplier.delta_requests.made(&self.file, self.told.came());
                self.supplier.progress.with(|progress| progress.objects += 1);
            }
            Ok(false) => return self.fetch_instead(oid),
            Err(error) => self.file.fail(&error),
        }
        EntryNext::Over
    }

    /// The older version was of no use.
    fn fetch_instead(&mut self, oid: Oid) -> EntryNext {
        self.missed();
        self.bring(oid, None)
    }

    /// Makes room for parts, the first time; false: the file has ended.
    fn opens(&mut self, receiver: &mut DeltaReceiver) -> bool {
        if !receiver.is_open {
            if let Err(error) = self.file.parts().begin() {
                self.file.fail(&error);
                return false;
            }
            self.told.expect(self.file.size(), &self.supplier.progress);
            receiver.is_open = true;
        }
        true
    }

    /// A part, for which `came` bytes came; false: the file has ended.
    fn take_part(&mut self, oid: &Oid, offset: u64, content: &[u8], came: u64) -> bool {
        let (file, supplier) = (&self.file, &self.supplier);
        if let Err(outcome) = file.passes(&supplier.processors, oid, offset, content) {
            file.parts().drop_all();
            file.ended(&FetchError::Ended(outcome));
            return false;
        }
        if let Err(error) = file.parts().take(offset, content) {
            file.parts().drop_all();
            file.fail(&error);
            return false;
        }
        // Of several parts the first one tells, once.
        if offset == 0 && self.told.is_nothing() && file.base().is_found() {
            supplier.candidates.proved_base(came <= content.len() as u64 / 2);
        }
        let range = offset..offset + content.len() as u64;
        self.told.count(range, came, (&self.source, &supplier.progress));
        true
    }
}

fn not_due(error: NotDue) -> CopyError {
    violation(&error.to_string())
}
