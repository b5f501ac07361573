//! What goes to the receiver for one file, by what was read of it.

use towpath_api::copy::FailureKind;
use towpath_content::Oid;
use towpath_content::delta::exchange::Reply;
use towpath_protocol::Replies;
use towpath_protocol::offer::EntryTag;
use towpath_store::Hashed;
use towpath_transfer::Outcome;
use towpath_transfer::offer::{EntryBody, EntryContent};

use super::Answering;
use crate::events::FailedEntry;
use crate::reading::{Ask, UnreadFile, now};
use crate::source::Located;
use towpath_content::lock::lock;
use towpath_targets::index_record::known_at;

/// An answer to an ask.
pub(super) type NamedAnswer = (EntryTag, EntryContent);

impl Answering {
    /// The answer for one file that was read.
    pub(super) fn reply(&self, ask: &mut Ask, hashed: Hashed, body: EntryBody) -> NamedAnswer {
        ask.located.stamp = now(&ask.located.stamp, &hashed.stamp);
        let oid = match &body {
            EntryBody::Delta(Reply::UnknownBase) => {
                lock(&self.state).misses += 1;
                None
            }
            // Nothing of it will be fetched.
            EntryBody::Whole(_) => Some(hashed.oid),
            EntryBody::Named | EntryBody::Delta(_) => Some(self.offer_entry(ask.query.entry, hashed.oid)),
        };
        // What is the same the receiver knows by the name of its base.
        let oid = oid.filter(|_| body != EntryBody::Delta(Reply::Same));
        (ask.tag, answer_of(&ask.located, oid, body))
    }

    /// The name of a file's content, if the index knows it and the content is not to go with it.
    pub(super) fn known(&self, ask: &Ask) -> Option<Oid> {
        let stamp = &ask.located.stamp;
        if stamp.size <= ask.query.inline.into() {
            None
        } else {
            known_at(&self.store, &ask.located.whole_path(), stamp)
        }
    }

    /// The name of a file's content, which may be fetched from here on.
    pub(super) fn named(&self, ask: &Ask, oid: Oid) -> NamedAnswer {
        let oid = self.offer_entry(ask.query.entry, oid);
        (ask.tag, answer_of(&ask.located, Some(oid), EntryBody::Named))
    }

    /// An entry's content may be fetched by this name until it is settled.
    pub(super) fn offer_entry(&self, entry: u64, oid: Oid) -> Oid {
        let mut tree = lock(&self.tree);
        if let Some(file) = tree.wanted_file(entry)
            && file.oids.insert(oid)
        {
            self.offers.add(oid);
        }
        oid
    }

    /// A file can't be had; the person learns why.
    pub(super) fn refuse(&self, ask: &Ask, error: &UnreadFile, replies: &Replies) {
        self.tell_failed(&ask.located, error);
        replies.refuse(ask.tag, &Outcome::NotHere);
    }

    pub(super) fn tell_failed(&self, located: &Located, error: &UnreadFile) {
        let kind = if error.is_vanished() { FailureKind::Vanished } else { FailureKind::Other };
        let path = located.whole_path();
        let (path, fault) = (path.as_os_str().as_encoded_bytes().to_vec(), error.fault());
        self.events.failure(FailedEntry { path, fault, kind });
    }
}

fn answer_of(located: &Located, oid: Option<Oid>, body: EntryBody) -> EntryContent {
    let (size, modified) = (located.stamp.size, located.stamp.modified);
    EntryContent { oid, size, modified, is_sparse: located.is_sparse, body }
}
