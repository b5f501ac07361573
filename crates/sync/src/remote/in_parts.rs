//! Files that come as deltas or patches of what lies here: whole with their answer, or in parts behind it.

use std::sync::Arc;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_transfer::FetchError;
use towpath_transfer::plugin::THIS_MACHINE;

use super::RemoteSupplier;
use crate::error::CopyError;
use crate::file::CopyFile;
use crate::incoming::{Incoming, Taken};
use crate::message::{Answer, Delta, Finer, Message, violation};
use towpath_content::lock::lock;

impl RemoteSupplier {
    /// A file comes as a delta, or several; so many parts of its base were `signed`.
    pub(super) fn begin_delta(
        &self,
        file: Arc<CopyFile>,
        oid: Oid,
        answer: &Answer,
        signed: u64,
    ) -> Result<(), CopyError> {
        if answer.is_same || answer.is_patch {
            self.changed.named(true);
        }
        if answer.is_same {
            self.take_base(file, oid);
            return Ok(());
        }
        if answer.parts > 0 {
            let begun = self.changed.begin(Arc::clone(&file), oid, answer, signed)?;
            let Some(incoming) = begun else {
                // The sender goes on: what it sends of this file is passed over.
                self.fetch_instead(file, oid);
                return Ok(());
            };
            if !self.opens(&file) {
                return Ok(());
            }
            return match lock(&self.incoming).replace(incoming) {
                None => Ok(()),
                Some(_) => Err(violation("a file before another one is complete")),
            };
        }
        let made = match answer.is_patch {
            true => self.changed.patched(&file, &answer.content),
            false => self.changed.whole(&file, &answer.content),
        };
        let Some(content) = made else {
            self.fetch_instead(file, oid);
            return Ok(());
        };
        if self.opens(&file) && self.take_part(&file, &oid, 0, &content, answer.content.len() as u64) {
            self.finish_delta(file, oid);
        }
        Ok(())
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
        self.changed.saved(file.size());
        if file.has_found_base() {
            self.candidates.proved_base(true);
        }
        self.finish_delta(file, oid);
    }

    /// The next run of a file that comes in parts.
    pub fn take_delta(&self, run: &Delta) -> Result<(), CopyError> {
        let outlined = self.take_run(run)?;
        if !(run.is_last && (run.is_outline || run.wants_next)) {
            return Ok(());
        }
        // The sender waits for an answer to each, and to what it wants besides.
        let _in_turn = lock(&self.signing);
        let answer = |signature| self.say(Message::Finer(Finer { entry: run.entry, signature }));
        if run.is_outline {
            answer(outlined.map_or_else(Bytes::new, Bytes::from))?;
        }
        if run.wants_next {
            let next = current(&mut lock(&self.incoming), run).map(|it| self.changed.sign_next(it));
            answer(next.transpose()?.unwrap_or_default())?;
        }
        Ok(())
    }

    /// Takes a run; if it was an outline's last, the signature to answer with.
    fn take_run(&self, run: &Delta) -> Result<Option<Vec<u8>>, CopyError> {
        let mut incoming = lock(&self.incoming);
        let Some(current) = current(&mut incoming, run) else { return Ok(None) };
        let taken = current.take(run)?;
        let (file, oid) = (Arc::clone(&current.file), current.oid);
        match taken {
            Taken::Some => {}
            Taken::Outline(signature) => return Ok(Some(signature)),
            Taken::Part { offset, content, came, is_last } => {
                let is_taken = self.take_part(&file, &oid, offset, &content, came);
                if is_last || !is_taken {
                    *incoming = None;
                }
                drop(incoming);
                if is_last && is_taken {
                    self.finish_delta(file, oid);
                }
            }
            Taken::Nothing => {
                *incoming = None;
                drop(incoming);
                tracing::debug!(%oid, given_up = run.is_given_up, "nothing came of a delta: the file is fetched");
                file.drop_parts();
                self.progress.with(|progress| progress.expected -= file.size());
                self.fetch_instead(file, oid);
            }
        }
        Ok(None)
    }

    /// A part of a file, of which `came` bytes came; false: the file has ended.
    fn take_part(&self, file: &CopyFile, oid: &Oid, offset: u64, content: &[u8], came: u64) -> bool {
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
        let came = came.min(content.len() as u64);
        // Of several parts the first one tells.
        if offset == 0 && file.has_found_base() {
            self.candidates.proved_base(came <= content.len() as u64 / 2);
        }
        self.progress.brought(&self.source, came);
        self.progress.brought(&THIS_MACHINE.into(), content.len() as u64 - came);
        self.changed.saved(content.len() as u64 - came);
        true
    }

    fn finish_delta(&self, file: Arc<CopyFile>, oid: Oid) {
        match file.finish_parts(&oid) {
            Ok(true) => {
                self.changed.made();
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
        self.changed.account()
    }
}

/// The file that a run is of, if it is still wanted so.
fn current<'a>(incoming: &'a mut Option<Incoming>, run: &Delta) -> Option<&'a mut Incoming> {
    incoming.as_mut().filter(|incoming| incoming.file.wanted().entry == run.entry)
}
