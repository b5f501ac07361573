//! What goes to the receiver for one file, by what was read of it.

use bytes::Bytes;
use towpath_api::copy::FailureKind;
use towpath_content::Oid;
use towpath_content::tree::Time;
use towpath_store::FileRecord;

use super::{Answering, Asked, INLINE};
use crate::message::Answer;
use crate::reading::{Ask, OlderFile, Read, Signed, UnreadFile, now};
use crate::source::Located;
use crate::talk::FailedEntry;
use towpath_content::delta::exchange::parts as deltas;
use towpath_content::lock::lock;
use towpath_targets::index_record::store_stamp;

/// What goes to the receiver for one file that was read.
pub(super) enum Reply {
    /// An answer that says it all.
    Whole(Answer),
    /// A patch too long for its answer.
    Patch(Answer, Vec<u8>),
    /// A delta in parts, of what is signed so.
    Parts(Answer, Located, Signed),
    /// Patches of parts of what is here.
    Patches(Answer, Located, OlderFile),
}

impl Answering {
    pub(super) fn reply(&self, read: Result<Read, UnreadFile>, ask: Ask) -> Reply {
        let Ask { entry, mut located, base, compare, .. } = ask;
        let read = match read {
            Ok(read) => read,
            Err(error) => return Reply::Whole(self.refused(entry, &located, &error)),
        };
        if let Some(record) = hashed(&read) {
            located.stamp = now(&located.stamp, &record.stamp);
        }
        Reply::Whole(match read {
            Read::Hashed(record) => {
                let answer = self.named(entry, located.clone(), record.oid);
                let is_short = |base: &Signed| deltas::part(record.stamp.size, base.parts(), 0).is_some();
                if let Some(base) = base.filter(|base| !compare && is_short(base)) {
                    return Reply::Parts(Answer { parts: base.parts() as u32, ..answer }, located, base);
                }
                answer
            }
            Read::Changed(record, delta) => {
                let answer = self.named(entry, located, record.oid);
                Answer { content: delta.into(), is_delta: true, ..answer }
            }
            Read::Patched(record, patch) => {
                let answer = Answer { is_patch: true, ..self.named(entry, located, record.oid) };
                if patch.len() > INLINE as usize {
                    return Reply::Patch(Answer { parts: 1, ..answer }, patch);
                }
                Answer { content: patch.into(), ..answer }
            }
            Read::InParts(record, older) => {
                let answer = self.named(entry, located.clone(), record.oid);
                let answer = Answer { is_patch: true, parts: older.parts as u32, ..answer };
                return Reply::Patches(answer, located, older);
            }
            Read::Same(record) => {
                let answer = self.named(entry, located, record.oid);
                Answer { oid: Bytes::new(), is_same: true, ..answer }
            }
            Read::Lacking => {
                lock(&self.lacking).insert(entry, located);
                Answer { entry, lacks_base: true, ..Answer::default() }
            }
            Read::Whole(stamp, content) => {
                located.stamp = now(&located.stamp, &stamp);
                self.whole(entry, located, content)
            }
        })
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
        Read::Hashed(record)
        | Read::Same(record)
        | Read::Changed(record, _)
        | Read::Patched(record, _)
        | Read::InParts(record, _) => Some(record.clone()),
        Read::Whole(..) | Read::Lacking => None,
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
