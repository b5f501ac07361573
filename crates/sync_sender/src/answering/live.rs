//! Large files that the index does not know: named by a live object at once and hashed while their first pieces
//! travel.

use std::error::Error;
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};
use towpath_content::Oid;
use towpath_protocol::Replies;
use towpath_store::About;

use super::super::threads;
use super::Answering;
use super::outbox::AnswerQueue;
use crate::reading::{Ask, UnreadFile};
use towpath_content::lock::lock;

impl Answering {
    /// Names a large file by a live object and hashes it meanwhile.
    pub(super) fn stream(self: &Arc<Self>, ask: Ask, replies: &Arc<Replies>) {
        let (this, replies) = (Arc::clone(self), Arc::clone(replies));
        let large = Arc::clone(&self.large);
        self.runtime.spawn(async move {
            let Ok(_permit) = large.acquire_owned().await else { return };
            let working = threads::spawn(move || {
                if let Err(error) = this.stream_blocking(&ask, &replies) {
                    tracing::debug!(%error, "a large file could not be offered");
                }
            });
            let _ = working.await;
        });
    }

    /// The live object of a large file that is being hashed, if it was asked for before.
    pub(super) fn hashed_now(&self, ask: &Ask) -> Option<Oid> {
        let mut tree = lock(&self.tree);
        let names = &tree.wanted_file(ask.query.entry)?.oids;
        names.iter().find(|oid| oid.is_live() && !ask.query.compare).copied()
    }

    fn stream_blocking(&self, ask: &Ask, replies: &Arc<Replies>) -> Result<(), Box<dyn Error>> {
        let mut random = [0; 32];
        getrandom(&mut random[..], GetRandomFlags::empty())?;
        let live = Oid::Live(random);
        let (located, path) = (&ask.located, ask.located.whole_path());
        let opened = located.open().map_err(UnreadFile::from);
        let file = opened.inspect_err(|error| self.refuse(ask, error, replies))?;
        let answer = self.named(ask, live);
        let out = AnswerQueue::new(replies, &self.runtime);
        self.send_answers(vec![answer], &out)?;
        out.errands.finish()?;
        let put = self.store.put_open_file(file, &path, &live, &About::default()).map_err(UnreadFile::from);
        // It stays on offer: the receiver is to learn from the store that it is lost, and may have reported it already.
        let (content, _) = put.inspect_err(|error| {
            if let Some(file) = lock(&self.tree).wanted_file(ask.query.entry) {
                file.is_told = true;
                self.tell_failed(located, error);
            }
        })?;
        // From here on the receiver may ask for it by its content.
        self.offer_entry(ask.query.entry, content);
        Ok(())
    }
}
