//! What goes to the receiver for one file, by what was read of it.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use towpath_api::copy::FailureKind;
use towpath_content::Oid;
use towpath_content::delta::exchange::Reply;
use towpath_content::tree::Time;
use towpath_store::FileRecord;

use super::{Answering, Asked};
use crate::events::FailedEntry;
use crate::exchange::Exchange;
use crate::message::Answer;
use crate::reading::{Ask, Read, UnreadFile, now};
use crate::source::Located;
use towpath_content::lock::lock;
use towpath_targets::index_record::store_stamp;

impl Answering {
    /// The answer for one file that was read, and what goes behind it.
    pub(super) fn reply(
        &self,
        read: Result<Read, UnreadFile>,
        ask: Ask,
    ) -> (Answer, Option<(Located, Box<Exchange>)>) {
        let Ask { entry, mut located, .. } = ask;
        let read = match read {
            Ok(read) => read,
            Err(error) => return (self.refused(entry, &located, &error), None),
        };
        if let Some(record) = hashed(&read) {
            located.stamp = now(&located.stamp, &record.stamp);
        }
        let answer = match read {
            Read::Hashed(record) => self.named(entry, located, record.oid),
            Read::Changed(record, reply, exchange) => {
                return self.changed(entry, located, &record, &reply, exchange);
            }
            Read::Whole(stamp, content) => {
                located.stamp = now(&located.stamp, &stamp);
                self.whole(entry, located, content)
            }
        };
        (answer, None)
    }

    /// The same for one of which the receiver has an older version.
    fn changed(
        &self,
        entry: u64,
        located: Located,
        record: &FileRecord,
        reply: &Reply,
        exchange: Box<Exchange>,
    ) -> (Answer, Option<(Located, Box<Exchange>)>) {
        let bytes = Bytes::from(reply.to_bytes());
        if *reply == Reply::UnknownBase {
            self.misses.fetch_add(1, Ordering::Relaxed);
            lock(&self.lacking).insert(entry, located);
            return (Answer { entry, reply: bytes, ..Answer::default() }, None);
        }
        let mut answer = Answer { reply: bytes, ..self.named(entry, located.clone(), record.oid) };
        if *reply == Reply::Same {
            answer.oid = Bytes::new();
        }
        (answer, (*reply == Reply::InParts).then_some((located, exchange)))
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

    /// A file whose content goes with its name: nothing of it will be fetched.
    fn whole(&self, entry: u64, located: Located, content: Vec<u8>) -> Answer {
        let oid = Oid::of(&content);
        let answer = answer_of(entry, &located, &oid, content.into());
        lock(&self.asked).entry(entry).or_insert_with(|| Asked::new(located));
        answer
    }

    pub(super) fn named(&self, entry: u64, located: Located, oid: Oid) -> Answer {
        let answer = answer_of(entry, &located, &oid, Bytes::new());
        self.offers.add(oid);
        lock(&self.asked).entry(entry).or_insert_with(|| Asked::new(located)).oids.insert(oid);
        answer
    }

    pub(super) fn refused(&self, entry: u64, located: &Located, error: &UnreadFile) -> Answer {
        self.tell_failed(located, error);
        Answer { entry, ..Answer::default() }
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

fn answer_of(entry: u64, located: &Located, oid: &Oid, content: Bytes) -> Answer {
    let Time { seconds, nanos } = located.stamp.modified;
    let oid = Bytes::copy_from_slice(&oid.to_bytes());
    Answer {
        entry,
        oid,
        size: located.stamp.size,
        seconds,
        nanos,
        is_sparse: located.is_sparse,
        content,
        ..Answer::default()
    }
}
