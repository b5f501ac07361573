//! What goes to the receiver for one file, by what was read of it.

use towpath_api::copy::FailureKind;
use towpath_content::Oid;
use towpath_content::delta::exchange::Reply;
use towpath_protocol::Replies;
use towpath_protocol::offer::EntryTag;
use towpath_store::FileRecord;
use towpath_transfer::Outcome;
use towpath_transfer::offer::{EntryBody, EntryContent};

use super::{Answering, WantedFile};
use crate::events::FailedEntry;
use crate::exchange::Exchange;
use crate::reading::{Ask, Read, UnreadFile, now};
use crate::source::Located;
use towpath_content::lock::lock;
use towpath_targets::index_record::store_stamp;

/// An answer to an ask.
pub(super) type NamedAnswer = (EntryTag, EntryContent);

/// What goes behind a reply.
type InParts = (Located, Box<Exchange>);

impl Answering {
    /// The answer for one file that was read, and what goes behind it; none if it is refused.
    pub(super) fn reply(
        &self,
        read: Result<Read, UnreadFile>,
        mut ask: Ask,
        replies: &Replies,
    ) -> Option<(EntryContent, Option<InParts>)> {
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.refuse(ask.tag, &ask.located, &error, replies);
                return None;
            }
        };
        if let Some(record) = hashed(&read) {
            ask.located.stamp = now(&ask.located.stamp, &record.stamp);
        }
        let answer = match read {
            Read::Hashed(record) => self.named(&ask, record.oid).1,
            Read::Changed(record, reply, exchange) => {
                return Some(self.changed(ask, &record, reply, exchange));
            }
            Read::Whole(stamp, content) => {
                ask.located.stamp = now(&ask.located.stamp, &stamp);
                // Nothing of it will be fetched.
                answer_of(&ask.located, Some(Oid::of(&content)), EntryBody::Whole(content.into()))
            }
        };
        Some((answer, None))
    }

    /// The same for one of which the receiver has an older version.
    fn changed(
        &self,
        ask: Ask,
        record: &FileRecord,
        reply: Reply,
        exchange: Box<Exchange>,
    ) -> (EntryContent, Option<InParts>) {
        let is_in_parts = reply == Reply::InParts;
        let oid = match reply {
            Reply::UnknownBase => {
                lock(&self.state).misses += 1;
                None
            }
            // The receiver knows it by that name.
            Reply::Same => {
                self.named(&ask, record.oid);
                None
            }
            Reply::GivenUp | Reply::Whole(_) | Reply::InParts => self.named(&ask, record.oid).1.oid,
        };
        let answer = answer_of(&ask.located, oid, EntryBody::Delta(reply));
        (answer, is_in_parts.then_some((ask.located, exchange)))
    }

    /// The name of a file's content, if the index knows it and the content is not to go with it.
    pub(super) fn known(&self, ask: &Ask) -> Option<Oid> {
        let stamp = &ask.located.stamp;
        if stamp.size <= ask.inline {
            return None;
        }
        let path = ask.located.whole_path();
        let (dir, name) = (path.parent()?, path.file_name()?);
        self.store.known(dir, &[(name, store_stamp(stamp))]).ok()?.into_iter().next().flatten()
    }

    /// The name of a file's content, which may be fetched from here on.
    pub(super) fn named(&self, ask: &Ask, oid: Oid) -> NamedAnswer {
        if let Some(file) = lock(&self.tree).wanted_file(ask.entry) {
            self.offer(file, oid);
        }
        (ask.tag, answer_of(&ask.located, Some(oid), EntryBody::Named))
    }

    /// A file may be fetched by this name until it is settled.
    pub(super) fn offer(&self, file: &mut WantedFile, oid: Oid) {
        if file.oids.insert(oid) {
            self.offers.add(oid);
        }
    }

    /// A file can't be had; the person learns why.
    pub(super) fn refuse(&self, tag: EntryTag, located: &Located, error: &UnreadFile, replies: &Replies) {
        self.tell_failed(located, error);
        replies.refuse(tag, &Outcome::NotHere);
    }

    pub(super) fn tell_failed(&self, located: &Located, error: &UnreadFile) {
        let kind = if error.is_vanished() { FailureKind::Vanished } else { FailureKind::Other };
        let path = located.whole_path();
        let (path, fault) = (path.as_os_str().as_encoded_bytes().to_vec(), error.fault());
        self.events.failure(FailedEntry { path, fault, kind });
    }
}

/// What the index is to know of a file that was read.
pub(super) fn hashed(read: &Read) -> Option<FileRecord> {
    match read {
        Read::Hashed(record) | Read::Changed(record, ..) => Some(record.clone()),
        Read::Whole(..) => None,
    }
}

fn answer_of(located: &Located, oid: Option<Oid>, body: EntryBody) -> EntryContent {
    let (size, modified) = (located.stamp.size, located.stamp.modified);
    EntryContent { oid, size, modified, is_sparse: located.is_sparse, body }
}
