//! Signatures that this side waits for while an entry goes in parts: for each question as many as it requested, in their
//! order. Pure.

use std::collections::BTreeMap;

use towpath_content::delta::exchange::{NextSignature, SignatureInbox};

use super::asks::EntryTag;

/// Bytes of signatures that nobody took yet, at most.
pub(super) const MOST_WAITING: usize = 16 << 20;

/// See the head of this module.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    inboxes: BTreeMap<EntryTag, SignatureInbox>,
    bytes: usize,
}

impl Signatures {
    /// So many more were requested of the other side, or are about to be.
    pub(super) fn expect(&mut self, tag: EntryTag, more: u64) {
        if more > 0 {
            self.inboxes.entry(tag).or_default().expect(more);
        }
    }

    /// Takes a signature, which somebody waits for or will. Errors are reasons to close the connection.
    pub(super) fn recv(&mut self, tag: EntryTag, signature: NextSignature) -> Result<(), String> {
        self.with(tag, |inbox| inbox.recv(signature)).map_err(|error| format!("sent {error}"))?;
        match self.bytes > MOST_WAITING {
            true => Err("sent more signatures than it may have entries".into()),
            false => Ok(()),
        }
    }

    /// The next signature of a question.
    pub(super) fn take(&mut self, tag: EntryTag) -> Option<NextSignature> {
        self.with(tag, SignatureInbox::take)
    }

    /// No signature of this question is of use any more.
    pub(super) fn forget(&mut self, tag: EntryTag) {
        self.with(tag, SignatureInbox::forget);
    }

    /// None of this request is expected any more.
    pub(super) fn end(&mut self, request: u32) {
        let tag = |want| EntryTag { request, want };
        let ended: Vec<_> = self.inboxes.range(tag(0)..=tag(u32::MAX)).map(|(tag, _)| *tag).collect();
        for tag in ended {
            self.bytes -= self.inboxes.remove(&tag).map_or(0, |inbox| inbox.held());
        }
    }

    /// Changes what is expected, and counts what that holds.
    fn with<T>(&mut self, tag: EntryTag, change: impl FnOnce(&mut SignatureInbox) -> T) -> T {
        let inbox = self.inboxes.entry(tag).or_default();
        let before = inbox.held();
        let result = change(inbox);
        self.bytes = self.bytes + inbox.held() - before;
        if inbox.is_done() {
            self.inboxes.remove(&tag);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::delta::exchange::MAX_SIGNATURE_LEN;

    use super::*;

    fn tag(want: u32) -> EntryTag {
        EntryTag { request: 7, want }
    }

    fn signed(bytes: usize) -> NextSignature {
        NextSignature::Signed(vec![0; bytes])
    }

    #[test]
    fn each_question_gets_its_signatures_in_their_order_and_no_others() {
        let mut signatures = Signatures::default();
        assert!(signatures.recv(tag(1), signed(1)).is_err(), "nothing was requested");
        [1, 2].into_iter().for_each(|want| signatures.expect(tag(want), 2));
        for (want, bytes) in [(1, 1), (2, 2), (1, 3)] {
            signatures.recv(tag(want), signed(bytes)).unwrap();
        }
        assert!(signatures.recv(tag(1), signed(4)).is_err());
        let came = [2, 1, 1].map(|want| signatures.take(tag(want)).unwrap().len());
        assert_eq!(came, [2, 1, 3]);
        assert_eq!(signatures.take(tag(2)), None);
        signatures.recv(tag(2), signed(9)).unwrap();
        signatures.end(7);
        assert_eq!((signatures.bytes, signatures.inboxes.len()), (0, 0));
        assert!(signatures.recv(tag(2), signed(1)).is_err());
    }

    #[test]
    fn what_nobody_wants_is_not_held_and_the_rest_is_bounded() {
        let mut signatures = Signatures::default();
        signatures.expect(tag(1), 200);
        (0..80).for_each(|_| signatures.recv(tag(1), signed(MAX_SIGNATURE_LEN)).unwrap());
        signatures.forget(tag(1));
        (80..200).for_each(|_| signatures.recv(tag(1), signed(MAX_SIGNATURE_LEN)).unwrap());
        assert!(signatures.recv(tag(1), signed(1)).is_err(), "all came");
        assert!(signatures.inboxes.is_empty());
        signatures.expect(tag(2), 200);
        assert!((0..200).any(|_| signatures.recv(tag(2), signed(MAX_SIGNATURE_LEN)).is_err()));
    }
}
