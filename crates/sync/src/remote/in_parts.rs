//! Files that come as deltas or patches of what lies here: whole with their answer, or in parts behind it.

use towpath_content::Oid;
use towpath_content::delta::exchange::{DeltaRun, NextSignature, NotDue, Reply, RequesterEnd};
use towpath_transfer::session::EntryNext;
use towpath_transfer::{FetchError, SourceId};

use super::RemoteSupplier;
use super::answered::RemoteFile;
use super::told::ToldProgress;
use crate::delta_receiver::{DeltaReceiver, ExchangeStep, MadePart};
use crate::delta_requests::DescribedBase;
use crate::error::CopyError;
use crate::file::CopyFile;
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
        let RemoteFile { supplier, file, receiver, told, source, .. } = self;
        let Some(receiver) = receiver else { return EntryNext::Over };
        let end = loop {
            match receiver.next() {
                ExchangeStep::Wait => return EntryNext::More,
                ExchangeStep::Send(signature) => send(&signature),
                ExchangeStep::Write(part) => {
                    receiver.is_open = receiver.is_open || supplier.opens(file, told);
                    if !receiver.is_open || !supplier.take_part(file, &receiver.oid, &part, (told, source)) {
                        // The sender may wait for signatures all the same.
                        receiver.requester.abandon();
                        receiver.is_failed = true;
                    }
                }
                ExchangeStep::End(_) if receiver.is_failed => {
                    self.receiver = None;
                    return EntryNext::Over;
                }
                ExchangeStep::End(end) => break end,
            }
        };
        self.end_delta(end)
    }

    /// Nothing more comes so.
    fn end_delta(&mut self, end: RequesterEnd) -> EntryNext {
        let Some(receiver) = self.receiver.take() else { return EntryNext::Over };
        match end {
            RequesterEnd::Same => self.take_base(receiver.oid),
            RequesterEnd::Written => self.finish_delta(receiver.oid),
            RequesterEnd::GivenUp | RequesterEnd::UnknownBase => self.give_up(&receiver),
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

    /// The file is what lies in its place, but for its metadata.
    fn take_base(&mut self, oid: Oid) -> EntryNext {
        let (file, supplier) = (&self.file, &self.supplier);
        let taken = file.parts().begin().and_then(|()| file.parts().take_base());
        if let Err(error) = taken {
            tracing::debug!(%oid, %error, "what lies here could not be read: the file is fetched");
            file.parts().drop_all();
            return self.fetch_instead(oid);
        }
        self.told.expect(file.size(), &supplier.progress);
        self.told.count(0..file.size(), 0, (&self.source, &supplier.progress));
        if file.base().is_found() {
            supplier.candidates.proved_base(true);
        }
        self.finish_delta(oid)
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
        self.fetch(oid)
    }
}

/// What progress was told of a file, and where it comes from.
type ToldOf<'a> = (&'a mut ToldProgress, &'a SourceId);

impl RemoteSupplier {
    /// Makes room for a file's parts; false: the file has ended.
    fn opens(&self, file: &CopyFile, told: &mut ToldProgress) -> bool {
        if let Err(error) = file.parts().begin() {
            file.fail(&error);
            return false;
        }
        told.expect(file.size(), &self.progress);
        true
    }

    /// A part of a file; false: the file has ended.
    fn take_part(&self, file: &CopyFile, oid: &Oid, part: &MadePart, (told, source): ToldOf<'_>) -> bool {
        let (offset, content) = (part.offset, &part.content[..]);
        let taken = match file.passes(&self.processors, oid, offset, content) {
            Err(outcome) => Err(FetchError::Ended(outcome)),
            Ok(()) => file.parts().take(offset, content).map_err(|error| {
                file.fail(&error);
                FetchError::Abandoned
            }),
        };
        if let Err(error) = taken {
            file.parts().drop_all();
            if !matches!(error, FetchError::Abandoned) {
                file.ended(&error);
            }
            return false;
        }
        // Of several parts the first one tells, once.
        if offset == 0 && told.is_nothing() && file.base().is_found() {
            self.candidates.proved_base(part.came <= content.len() as u64 / 2);
        }
        let range = offset..offset + content.len() as u64;
        told.count(range, part.came, (source, &self.progress));
        true
    }
}

fn not_due(error: NotDue) -> CopyError {
    violation(&error.to_string())
}
