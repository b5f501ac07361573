//! Answers, taken: a file is the same, comes whole with its name, begins to come as a delta, is made of another one, or
//! is fetched.

use std::sync::Arc;

use rayon::prelude::*;
use towpath_content::Oid;
use towpath_content::delta::exchange::Reply;
use towpath_content::tree::Time;
use towpath_transfer::plugin::THIS_MACHINE;
use towpath_transfer::session::OnDone;
use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest, Target};

use super::RemoteSupplier;
use crate::error::CopyError;
use crate::file::CopyFile;
use crate::message::{Answer, violation};
use towpath_content::lock::lock;
use towpath_reuse::candidates::renames::MAX_WAITING;

/// Answers that were sent once more and whose first ones did not come: far more than can be on the way when a connection
/// is lost.
const MOST_AGAIN: usize = 256 << 10;

impl RemoteSupplier {
    /// Takes a sender's answers, those with contents on all cores. Blocks while the session is busy.
    pub fn answered_all(&self, answers: Vec<Answer>) -> Result<(), CopyError> {
        let (whole, named): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::has_bytes);
        whole.par_iter().with_max_len(4).try_for_each(|answer| self.answered(answer))?;
        let mut lacking = Vec::new();
        for answer in named {
            match answer.reply()? {
                Some(Reply::UnknownBase) => lacking.push(answer.entry),
                _ => self.answered(&answer)?,
            }
        }
        self.ask_again(lacking)
    }

    /// Takes one answer. Blocks while the session is busy.
    pub fn answered(&self, answer: &Answer) -> Result<(), CopyError> {
        let Some(file) = self.take_asked(answer)? else { return Ok(()) };
        let exchange = match (answer.reply()?, self.delta_requests.answered(answer.entry)) {
            (None, None) => None,
            (Some(_), None) => return Err(violation("a delta of nothing")),
            (None | Some(Reply::GivenUp), Some(_)) => {
                self.missed(&file);
                None
            }
            (Some(reply), Some(described)) => Some((reply, described)),
        };
        let same = exchange.as_ref().filter(|(reply, _)| *reply == Reply::Same);
        let base = same.and_then(|(_, described)| described.oid);
        if answer.oid.is_empty() && base.is_none() {
            file.drop_it();
            return Ok(());
        }
        let oid = match base {
            Some(oid) => oid,
            None => Oid::from_bytes(&answer.oid).map_err(|error| violation(&error.to_string()))?,
        };
        if answer.nanos >= 1_000_000_000 {
            return Err(violation("a time that is none"));
        }
        file.learn(answer.size, Time { seconds: answer.seconds, nanos: answer.nanos });
        file.set_sparse(answer.is_sparse);
        if !file.is_to_come(&oid) {
            return Ok(());
        }
        if let Err(outcome) = file.passes(&self.processors, &oid, 0, &answer.content) {
            file.ended(&FetchError::Ended(outcome));
            return Ok(());
        }
        if let Some((reply, described)) = exchange {
            return self.begin_delta(file, oid, reply, described);
        }
        if answer.size == 0 {
            file.make_empty();
            return Ok(());
        }
        if !answer.content.is_empty() {
            self.take_content(&file, &oid, &answer.content);
            return Ok(());
        }
        if let Some(file) = self.take_lookalike(file, oid).and_then(|file| self.hold(file, oid)) {
            self.fetch(file, oid);
        }
        Ok(())
    }

    /// The file that is answered; none if it was before, as may be of one that was sent once more.
    fn take_asked(&self, answer: &Answer) -> Result<Option<Arc<CopyFile>>, CopyError> {
        let mut asked = lock(&self.asked);
        let mut overtaken = lock(&self.overtaken);
        match asked.as_mut().and_then(|asked| asked.remove(&answer.entry)) {
            Some(file) => {
                if answer.is_again && overtaken.insert(answer.entry) && overtaken.len() > MOST_AGAIN {
                    return Err(violation("more answers sent again than can have been lost"));
                }
                Ok(Some(file))
            }
            None if answer.is_again || overtaken.remove(&answer.entry) => Ok(None),
            None => Err(violation("an answer to nothing")),
        }
    }

    /// Makes a file of one that lies elsewhere in the destination; returned if it is not that.
    fn take_lookalike(&self, file: Arc<CopyFile>, oid: Oid) -> Option<Arc<CopyFile>> {
        if !file.has_lookalike() {
            return Some(file);
        }
        let taken = file.take_lookalike(&oid);
        self.candidates.proved_same(matches!(taken, Ok(true)));
        match taken {
            Ok(false) => return Some(file),
            Ok(true) => {
                self.progress.with(|progress| {
                    progress.expected += file.size();
                    progress.objects += 1;
                });
                self.progress.brought(&THIS_MACHINE.into(), file.size());
            }
            Err(error) => {
                tracing::debug!(%oid, %error, "what looks like a file could not be read: the file is fetched");
                file.drop_parts();
                return Some(file);
            }
        }
        None
    }

    /// Nothing was made of what was taken for an older version of a file, if that is what it was to be made of.
    pub(super) fn missed(&self, file: &CopyFile) {
        if file.has_found_base() {
            self.candidates.proved_base(false);
        }
    }

    fn take_content(&self, file: &CopyFile, oid: &Oid, content: &[u8]) {
        let bytes = content.len() as u64;
        self.progress.with(|progress| progress.expected += file.size());
        if file.take_content(oid, content, &self.source) {
            self.progress.brought(&self.source, bytes);
            self.progress.with(|progress| progress.objects += 1);
        }
    }

    /// Keeps a file that may have been renamed until it is known what only the destination has.
    fn hold(&self, file: Arc<CopyFile>, oid: Oid) -> Option<Arc<CopyFile>> {
        let mut held = lock(&self.held);
        match &mut *held {
            Some(held) if file.old_names().may_be() && !oid.is_live() && held.len() < MAX_WAITING => {
                held.push((file, oid));
                None
            }
            _ => Some(file),
        }
    }

    pub(super) fn fetch(&self, file: Arc<CopyFile>, oid: Oid) {
        let Some(session) = self.session.upgrade() else { return file.drop_it() };
        if file.old_names().may_be() {
            file.old_names().look(&oid);
        }
        let group = Arc::new(Group {
            path: file.wanted().shown.clone(),
            size: Some(file.size()),
            modified: Some(file.wanted().metadata.modified),
            destination: file.destination(),
            coverage: None,
        });
        let request = ObjectRequest {
            oid,
            size: (!oid.is_live()).then(|| file.size()),
            group,
            target: Arc::clone(&file) as Arc<dyn Target>,
            recipe: None,
        };
        let on_done: OnDone = Box::new(move |result: Result<Fetched, FetchError>| {
            if let Err(error) = result {
                file.ended(&error);
            }
        });
        self.runtime.block_on(session.submit(request, on_done));
    }
}
