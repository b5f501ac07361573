//! Files that come as deltas or patches of what lies here: whole with their answer, or in parts behind it.

use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::delta::exchange::{DeltaRun, NextSignature, NotDue, Reply, RequesterEnd};
use towpath_transfer::FetchError;
use towpath_transfer::plugin::THIS_MACHINE;

use super::RemoteSupplier;
use crate::delta_receiver::{DeltaReceiver, MadePart, Standing};
use crate::delta_requests::DescribedBase;
use crate::error::CopyError;
use crate::file::CopyFile;
use crate::message::{DeltaMessage, Message, violation};
use towpath_content::lock::lock;

impl RemoteSupplier {
    /// A file begins to come as what it has over its base, or has come so.
    pub(super) fn begin_delta(
        &self,
        file: Arc<CopyFile>,
        oid: Oid,
        reply: Reply,
        described: DescribedBase,
    ) -> Result<(), CopyError> {
        let mut requester = described.requester;
        if described.oid.is_some() {
            self.delta_requests.named(true);
        }
        requester.recv_reply(reply, file.size()).map_err(not_due)?;
        let Some((base, _)) = file.base() else {
            // The sender goes on: what it sends of this file is passed over.
            self.fetch_instead(file, oid);
            return Ok(());
        };
        let mut receiver = DeltaReceiver { file, oid, base, requester, is_open: false, is_failed: false };
        match self.work(&mut receiver) {
            // It has nothing to answer before it has a run.
            Standing::Waits | Standing::Sends(_) => match lock(&self.receiver).replace(receiver) {
                None => Ok(()),
                Some(_) => Err(violation("a file before another one is complete")),
            },
            standing => {
                self.end_delta(receiver, &standing);
                Ok(())
            }
        }
    }

    /// The next run of a file that comes in parts.
    pub fn take_delta(&self, message: &DeltaMessage) -> Result<(), CopyError> {
        let run = DeltaRun::from_bytes(&message.bytes).map_err(|error| violation(&error.to_string()))?;
        let entry = message.entry;
        let is_current = {
            let mut slot = lock(&self.receiver);
            match slot.as_mut().filter(|receiver| receiver.file.wanted().entry == entry) {
                None => false,
                Some(receiver) => {
                    let in_steps = run.wanted() > 0 && self.delta_requests.likes_steps();
                    receiver.requester.recv_run(run, in_steps).map_err(not_due)?;
                    true
                }
            }
        };
        match is_current {
            true => self.go_on(entry),
            // It is not wanted so any more, but the sender waits for an answer to each.
            false => (0..run.wanted()).try_for_each(|_| self.send_signature(entry, &NextSignature::GivenUp)),
        }
    }

    /// Does what a run led to. Nothing is sent or fetched while the file is locked, as that may wait.
    fn go_on(&self, entry: u64) -> Result<(), CopyError> {
        loop {
            let (standing, ended) = {
                let mut slot = lock(&self.receiver);
                let Some(receiver) = slot.as_mut() else { return Ok(()) };
                let standing = self.work(receiver);
                let is_over = matches!(standing, Standing::Over(_) | Standing::Failed);
                (standing, if is_over { slot.take() } else { None })
            };
            match (standing, ended) {
                (Standing::Sends(signature), _) => self.send_signature(entry, &signature)?,
                (standing, Some(receiver)) => {
                    self.end_delta(receiver, &standing);
                    return Ok(());
                }
                (_, None) => return Ok(()),
            }
        }
    }

    /// Behind what is being asked for.
    fn send_signature(&self, entry: u64, signature: &NextSignature) -> Result<(), CopyError> {
        let _in_turn = lock(&self.signing);
        self.send_signature_now(entry, signature)
    }

    pub(super) fn send_signature_now(&self, entry: u64, signature: &NextSignature) -> Result<(), CopyError> {
        self.send(Message::NextSignature(DeltaMessage { entry, bytes: signature.to_bytes().into() }))
    }

    /// Does what can be done of a file.
    fn work(&self, receiver: &mut DeltaReceiver) -> Standing {
        receiver.work(|file, oid, part, is_open| {
            if !*is_open && !self.opens(file) {
                return false;
            }
            *is_open = true;
            self.take_part(file, oid, part)
        })
    }

    /// Nothing more comes of a file so.
    fn end_delta(&self, receiver: DeltaReceiver, standing: &Standing) {
        let DeltaReceiver { file, oid, is_open, .. } = receiver;
        match standing {
            Standing::Over(RequesterEnd::Same) => self.take_base(file, oid),
            Standing::Over(RequesterEnd::Written) => self.finish_delta(file, oid),
            Standing::Over(RequesterEnd::GivenUp | RequesterEnd::UnknownBase) => {
                tracing::debug!(%oid, "nothing came of a delta: the file is fetched");
                if is_open {
                    file.drop_parts();
                    self.progress.with(|progress| progress.expected -= file.size());
                }
                self.fetch_instead(file, oid);
            }
            Standing::Waits | Standing::Sends(_) | Standing::Failed => {}
        }
    }

    /// Makes room for a file's parts; false: the file has ended.
    fn opens(&self, file: &CopyFile) -> bool {
        if let Err(error) = file.begin_parts() {
            file.fail(&error);
            return false;
        }
        self.progress.with(|progress| progress.expected += file.size());
        true
    }

    /// A file is what lies in its place, but for its metadata.
    fn take_base(&self, file: Arc<CopyFile>, oid: Oid) {
        let taken = file.begin_parts().and_then(|()| file.take_base());
        if let Err(error) = taken {
            tracing::debug!(%oid, %error, "what lies here could not be read: the file is fetched");
            file.drop_parts();
            return self.fetch_instead(file, oid);
        }
        self.progress.with(|progress| progress.expected += file.size());
        self.progress.brought(&THIS_MACHINE.into(), file.size());
        self.delta_requests.saved(file.size());
        if file.has_found_base() {
            self.candidates.proved_base(true);
        }
        self.finish_delta(file, oid);
    }

    /// A part of a file; false: the file has ended.
    fn take_part(&self, file: &CopyFile, oid: &Oid, part: &MadePart) -> bool {
        let (offset, content) = (part.offset, &part.content[..]);
        let taken = match file.passes(&self.processors, oid, offset, content) {
            Err(outcome) => Err(FetchError::Ended(outcome)),
            Ok(()) => file.take_part(offset, content).map_err(|error| {
                file.fail(&error);
                FetchError::Abandoned
            }),
        };
        if let Err(error) = taken {
            file.drop_parts();
            if !matches!(error, FetchError::Abandoned) {
                file.ended(&error);
            }
            return false;
        }
        let came = part.came.min(content.len() as u64);
        // Of several parts the first one tells.
        if offset == 0 && file.has_found_base() {
            self.candidates.proved_base(came <= content.len() as u64 / 2);
        }
        self.progress.brought(&self.source, came);
        self.progress.brought(&THIS_MACHINE.into(), content.len() as u64 - came);
        self.delta_requests.saved(content.len() as u64 - came);
        true
    }

    fn finish_delta(&self, file: Arc<CopyFile>, oid: Oid) {
        match file.finish_parts(&oid) {
            Ok(true) => {
                self.delta_requests.made();
                self.progress.with(|progress| progress.objects += 1);
            }
            Ok(false) => {
                self.progress.with(|progress| progress.expected -= file.size());
                self.fetch_instead(file, oid);
            }
            Err(error) => file.fail(&error),
        }
    }

    /// The older version was of no use.
    fn fetch_instead(&self, file: Arc<CopyFile>, oid: Oid) {
        self.missed(&file);
        self.fetch(file, oid);
    }

    /// What was made of older versions: files, and bytes that did not have to come.
    pub fn made_of_older(&self) -> (u64, u64) {
        self.delta_requests.account()
    }
}

fn not_due(error: NotDue) -> CopyError {
    violation(&error.to_string())
}
