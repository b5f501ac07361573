//! One file, from the answer about its entry on: it is the same, comes whole with its name, as a delta, is made of another one,
//! or is fetched.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::delta::exchange::{NextSignature, Reply};
use towpath_transfer::SourceId;
use towpath_transfer::offer::{EntryBody, EntryContent, EntryQuery};
use towpath_transfer::session::{EntryNext, EntryTarget, OnDone};
use towpath_transfer::{FetchError, Fetched, ObjectRequest, Outcome};

use super::in_parts::ComingDelta;
use super::told::ToldProgress;
use super::{INLINE, RemoteSupplier};
use crate::delta_requests::DescribedBase;
use crate::error::CopyError;
use crate::file::CopyFile;
use crate::message::violation;
use towpath_content::lock::lock;
use towpath_reuse::candidates::renames::MAX_WAITING;
use towpath_reuse::candidates::rules::FileCandidate;

/// A file that was asked for.
pub(super) struct RemoteFile {
    pub(super) supplier: Arc<RemoteSupplier>,
    pub(super) file: Arc<CopyFile>,
    /// Its base, until the answer.
    described: Option<DescribedBase>,
    /// While it comes in parts.
    pub(super) receiver: Option<ComingDelta>,
    /// What progress knows of its parts.
    pub(super) told: ToldProgress,
    /// Where it comes from.
    pub(super) source: SourceId,
    /// Where its delta was when a connection was lost, if that happened.
    pub(super) lost_at: Option<u64>,
}

impl RemoteFile {
    pub(super) fn new(
        supplier: &Arc<RemoteSupplier>,
        file: Arc<CopyFile>,
        described: Option<DescribedBase>,
    ) -> Self {
        let (supplier, told) = (Arc::clone(supplier), ToldProgress::default());
        let source = supplier.source.clone();
        Self { supplier, file, described, receiver: None, told, source, lost_at: None }
    }

    /// The sender breaks the protocol: the copy ends.
    fn or_stop(&self, next: Result<EntryNext, CopyError>) -> EntryNext {
        next.unwrap_or_else(|error| {
            self.file.receiving().stop(error);
            EntryNext::Over
        })
    }

    /// Takes the answer.
    fn answered(&mut self, content: EntryContent) -> Result<EntryNext, CopyError> {
        let EntryContent { oid, size, modified, is_sparse, body } = content;
        let described = self.described.take();
        let base = match (&body, &described) {
            (EntryBody::Delta(_), None) => return Err(violation("a delta of nothing")),
            (EntryBody::Delta(Reply::UnknownBase), Some(described)) => return self.ask_again(described),
            // What is the same is called so, too.
            (EntryBody::Delta(Reply::Same), Some(described)) => described.oid,
            _ => None,
        };
        let oid = base.or(oid).ok_or_else(|| violation("a content without a name"))?;
        self.file.learn(size, modified, is_sparse);
        if !self.file.is_to_come(&oid) {
            return Ok(EntryNext::Over);
        }
        let whole = if let EntryBody::Whole(content) = &body { Some(content.clone()) } else { None };
        let inspected = whole.as_deref().unwrap_or_default();
        if let Err(outcome) = self.file.passes(&self.supplier.processors, &oid, 0, inspected) {
            self.file.ended(&FetchError::Ended(outcome));
            return Ok(EntryNext::Over);
        }
        match (body, described) {
            (EntryBody::Delta(reply), Some(described)) => return self.begin_delta(oid, reply, described),
            (_, Some(_)) => self.proved(false),
            (_, None) => {}
        }
        Ok(self.bring(oid, whole))
    }

    /// The file comes whole, now or later.
    pub(super) fn bring(&mut self, oid: Oid, whole: Option<Bytes>) -> EntryNext {
        self.told.take_back(&self.supplier.progress);
        if self.file.size() == 0 {
            self.file.make_empty();
        } else if let Some(content) = whole {
            if self.file.take_content(&oid, &content, &self.source) {
                self.came_whole(&self.source);
            }
        } else if !self.take_lookalike(&oid) && !self.supplier.hold(&self.file, oid) {
            return self.fetch(oid);
        }
        EntryNext::Over
    }

    /// The sender does not have what lies in the place of this file, by the name that this has here.
    fn ask_again(&mut self, described: &DescribedBase) -> Result<EntryNext, CopyError> {
        if described.oid.is_none() {
            return Err(violation("a base that nobody named is lacking"));
        }
        self.supplier.delta_requests.named(false);
        Ok(self.ask_for_delta(true))
    }

    /// Asks once more, for what the file has over its base as that is now.
    pub(super) fn ask_for_delta(&mut self, must_sign: bool) -> EntryNext {
        let requests = &self.supplier.delta_requests;
        let (base, described) =
            requests.requests(&[Arc::clone(&self.file)], must_sign).pop().flatten().unzip();
        self.described = described;
        let pack = requests.pack_level(self.supplier.compress);
        let entry = self.file.wanted().entry;
        EntryNext::Again(EntryQuery { entry, compare: false, inline: INLINE, pack, base })
    }

    /// Makes a file of one that lies elsewhere in the destination; false if there is none, or it is not that.
    fn take_lookalike(&self, oid: &Oid) -> bool {
        self.file.found().is_some_and(FileCandidate::is_same) && self.takes_base(oid)
    }

    /// Whether all of it was made of a file that is here, which then counts.
    pub(super) fn takes_base(&self, oid: &Oid) -> bool {
        let is_made = self.file.base().take(oid).unwrap_or_else(|error| {
            tracing::debug!(%error, "what lies here could not be read: the file is fetched");
            self.file.parts().drop_all();
            false
        });
        self.proved(is_made);
        if is_made {
            self.came_whole(&SourceId::this_machine());
        }
        is_made
    }

    /// All bytes of it came at once.
    fn came_whole(&self, source: &SourceId) {
        let (size, progress) = (self.file.size(), &self.supplier.progress);
        progress.with(|progress| {
            progress.expected += size;
            progress.objects += 1;
        });
        progress.brought(source, size);
    }

    /// Whether what was found for the file proved right, if something was.
    pub(super) fn proved(&self, is_hit: bool) {
        if let Some(found) = self.file.found() {
            self.supplier.candidates.proved(found.is_same(), is_hit);
        }
    }

    /// The file is fetched by its name.
    pub(super) fn fetch(&mut self, oid: Oid) -> EntryNext {
        self.told.take_back(&self.supplier.progress);
        EntryNext::Fetch(Box::new(fetch(Arc::clone(&self.file), oid)))
    }
}

impl EntryTarget for RemoteFile {
    fn comes_from(&mut self, source: &SourceId) {
        if source.path().is_some() && self.source != *source {
            self.source = source.clone();
        }
    }

    fn asked(&mut self, send: &mut dyn FnMut(&NextSignature)) {
        if let Some(described) = &self.described {
            self.supplier.delta_requests.sign_ahead(described, &self.file, send);
        }
    }

    fn content(&mut self, content: EntryContent) -> EntryNext {
        let next = self.answered(content);
        self.or_stop(next)
    }

    fn run(&mut self, run: Bytes, send: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        let next = self.take_run(&run, send);
        self.or_stop(next)
    }

    fn ended(&mut self, outcome: Outcome) -> EntryNext {
        match (self.receiver.take(), outcome) {
            (Some(receiver), Outcome::RetryLater(_)) => return self.go_on_elsewhere(&receiver),
            (Some(receiver), _) => return self.give_up(&receiver),
            // Its sender told why.
            (None, Outcome::NotHere) => self.file.drop_it(),
            (None, Outcome::RetryLater(waited)) => {
                let last_error = self.supplier.progress.snapshot().last_error;
                self.file.ended(&FetchError::Stalled { waited, last_error });
            }
            (None, outcome) => self.file.ended(&FetchError::Ended(outcome)),
        }
        EntryNext::Over
    }
}

impl RemoteSupplier {
    /// Keeps a file that may have been renamed until it is known what only the destination has; false: it is not kept.
    fn hold(&self, file: &Arc<CopyFile>, oid: Oid) -> bool {
        let mut lists = lock(&self.lists);
        let held = lists.held.as_mut().filter(|held| held.len() < MAX_WAITING);
        let held = held.filter(|_| file.old_names().may_be() && !oid.is_live());
        held.map(|held| held.push((Arc::clone(file), oid))).is_some()
    }

    /// Fetches a file that was kept.
    pub(super) fn fetch_held(&self, file: Arc<CopyFile>, oid: Oid) -> Result<(), CopyError> {
        let (session, (request, on_done)) = (Weak::clone(&self.session), fetch(file, oid));
        self.errands.hand(async move {
            match session.upgrade() {
                Some(session) => session.submit(request, on_done).await,
                None => on_done(Err(FetchError::Cancelled)),
            }
            Ok(())
        })
    }
}

/// A session's request for a file by its name.
fn fetch(file: Arc<CopyFile>, oid: Oid) -> (ObjectRequest, OnDone) {
    if file.old_names().may_be() {
        file.old_names().look(&oid);
    }
    let request = file.request(oid, file.group());
    let on_done: OnDone = Box::new(move |result: Result<Fetched, FetchError>| {
        if let Err(error) = result {
            file.ended(&error);
        }
    });
    (request, on_done)
}
