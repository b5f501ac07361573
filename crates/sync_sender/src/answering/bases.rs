//! What the receiver has of files that it is about to ask for: kept until it does.

use std::collections::BTreeMap;

use towpath_content::delta::exchange::Request;

use crate::message::DeltaMessage;

/// Bytes of signatures of files that were not answered yet, at most.
const MOST_BASES: usize = 16 << 20;
/// What a request takes besides.
const COST: usize = 256;

/// Requests that tell of bases, by entry.
#[derive(Default)]
pub(super) struct PendingRequests {
    requests: BTreeMap<u64, Request>,
    bytes: usize,
}

impl PendingRequests {
    /// False: they are too many, or not what they should be.
    pub(super) fn add(&mut self, message: &DeltaMessage) -> bool {
        let Ok(request) = Request::from_bytes(&message.bytes) else { return false };
        self.bytes += COST + request.base.signature_len();
        self.bytes <= MOST_BASES && self.requests.insert(message.entry, request).is_none()
    }

    /// For an ask; its signature still counts.
    pub(super) fn take(&mut self, entry: u64) -> Option<Request> {
        let request = self.requests.remove(&entry)?;
        self.bytes -= COST;
        Some(request)
    }

    /// These are of no more use.
    pub(super) fn answered(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use towpath_content::Oid;
    use towpath_content::delta::exchange::{Base, MAX_SIGNATURE_LEN};
    use towpath_protocol::packing;

    use super::*;
    use crate::message::{Bases, Message};

    fn message(entry: u64, base: Base) -> DeltaMessage {
        let request = Request { base, is_guess: false, outlines: 0 };
        DeltaMessage { entry, bytes: request.to_bytes().into() }
    }

    #[test]
    fn bases_that_are_none_or_too_many_are_refused() {
        let mut requests = PendingRequests::default();
        assert!(!requests.add(&DeltaMessage { entry: 1, bytes: Vec::new().into() }));
        let named = |entry| message(entry, Base::Named(Oid::of(b"x")));
        assert!(requests.add(&named(1)) && !requests.add(&named(1)));
        requests.take(1);
        assert!(requests.add(&named(1)), "it was asked for, and is lacking");
        assert!((2..).take_while(|entry| requests.add(&named(*entry))).count() <= MOST_BASES / COST);
    }

    #[test]
    fn a_base_keeps_nothing_else_of_its_message() {
        let request = message(1, Base::Signature(vec![7; 3])).bytes;
        let all = Bytes::from([&request[..], &[0; 100_000]].concat());
        let mut requests = PendingRequests::default();
        assert!(requests.add(&DeltaMessage { entry: 1, bytes: all.slice(..request.len()) }));
        assert!(all.is_unique());
        assert_eq!(requests.take(1).unwrap().to_bytes(), request);
    }

    #[test]
    fn signatures_count_until_their_files_are_answered() {
        let mut requests = PendingRequests::default();
        let signed = |entry| message(entry, Base::Signature(vec![7; MAX_SIGNATURE_LEN]));
        let most = (0..).take_while(|entry| requests.add(&signed(*entry))).count();
        assert!(most * MAX_SIGNATURE_LEN <= MOST_BASES);
        let taken = requests.take(0).unwrap();
        assert!(!requests.add(&signed(1000)), "it was not answered");
        requests.answered(3 * taken.base.signature_len());
        assert!(requests.add(&signed(1001)));
    }

    /// F4 of the reading of November 2026: 126 KB held 784 MB. Each message has few bytes, and 250 KiB once it is unpacked,
    /// of a field that nobody knows.
    #[test]
    fn what_is_kept_of_a_base_is_what_is_counted() {
        let bloated = |entry| {
            let bases = vec![message(entry, Base::Named(Oid::of(b"x")))];
            let mut bytes = Message::Bases(Bases { bases }).into_bytes().to_vec();
            // Field 999, a string.
            bytes.extend_from_slice(&[0xba, 0x3e, 0x80, 0xd0, 0x0f]);
            bytes.resize(bytes.len() + 250 * 1024, 0);
            Message::Packed(packing::pack(&bytes, 1).unwrap().into())
        };
        let (mut requests, mut weights) = (PendingRequests::default(), Vec::new());
        for entry in 0..1000 {
            let (Message::Bases(read), kept) = Message::read(bloated(entry).into_bytes()).unwrap() else {
                unreachable!()
            };
            assert!(kept > 250 << 10, "what it is counted as: {kept}");
            assert!(requests.add(&read.bases[0]));
            weights.push(read.bases[0].bytes.clone());
        }
        assert!(weights.iter().all(Bytes::is_unique), "no base keeps its message");
    }
}
