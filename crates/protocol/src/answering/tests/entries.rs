//! Questions for entries: which are taken, what is kept of them, and the signatures that are expected.

use towpath_content::delta::exchange::{Base, MAX_SIGNATURE_LEN, Request};
use towpath_transfer::offer::EntryQuery;

use super::*;
use crate::wire::{MAX_BASES_LEN, MAX_ENTRIES, WireSignature};

/// Somebody whom an offer answers.
fn asker() -> Answering {
    let mut answering = stranger();
    answering.set_offer(true);
    answering
}

fn based(base: Base) -> Bytes {
    Request { base, is_guess: false, outlines: 0 }.to_bytes().into()
}

fn entry(number: u64) -> WireWant {
    WireWant { entry: Some(number), ..WireWant::default() }
}

/// One that has a base in parts, of which so many signatures follow.
fn in_parts(ahead: u64) -> WireWant {
    WireWant { base: based(Base::Parts { count: 16, ahead }), ..entry(7) }
}

fn signed(len: usize) -> WireWant {
    WireWant { base: based(Base::Signature(vec![1; len])), ..entry(7) }
}

fn ask(request: u32, wants: Vec<WireWant>) -> Body {
    Body::Get(Get { request, wants, inline: 4000, pack: 99, ..Get::default() })
}

fn signature(request: u32, want: u32) -> Body {
    let bytes = NextSignature::Signed(vec![1; 10]).to_bytes().into();
    Body::Signature(WireSignature { request, want, bytes })
}

/// The questions that are to be answered; else the code of the refusal.
fn asks(taken: Result<Taken, String>) -> Result<Vec<EntryAsk>, Option<u32>> {
    match taken {
        Ok(Taken::Entries(asks)) => Ok(asks),
        taken => Err(code(taken)),
    }
}

const fn tag(request: u32, want: u32) -> EntryTag {
    EntryTag { request, want }
}

#[test]
fn an_offer_is_asked_what_a_peer_asks_and_without_one_it_is_to_ask_later() {
    let mut answering = stranger();
    let wants = || vec![WireWant { compare: true, ..entry(3) }, in_parts(2)];
    assert_eq!(asks(answering.take(ask(1, wants()), &Keys)), Err(Some(2)));
    assert!(!answering.is_known());
    answering.set_offer(true);
    let asked = asks(answering.take(ask(2, wants()), &Keys)).unwrap();
    let base = Request { base: Base::Parts { count: 16, ahead: 2 }, is_guess: false, outlines: 0 };
    // Packing beyond what zstd does in little memory is nothing that a peer may wish for.
    let query = |entry, compare, base| EntryQuery { entry, compare, inline: 4000, pack: 19, base };
    assert_eq!(asked[0], EntryAsk { tag: tag(2, 0), query: query(3, true, None) });
    assert_eq!(asked[1], EntryAsk { tag: tag(2, 1), query: query(7, false, Some(base)) });
    assert!(answering.is_known() && asked.len() == 2);
}

#[test]
fn a_stranger_that_asks_for_entries_where_none_are_offered_leaves_soon() {
    let (mut answering, received) = (stranger(), Received::default());
    for request in 0..MOST_REFUSALS as u32 {
        let taken = answering.take(received.read(ask(request, vec![signed(1000); 9])), &Keys);
        assert_eq!((asks(taken), received.held(), answering.asked()), (Err(Some(2)), 0, 0));
    }
    assert!(answering.take(ask(99, vec![entry(1)]), &Keys).is_err());
}

#[test]
fn requests_that_no_asker_makes_end_the_connection() {
    let root = oid_field(&ROOT);
    let get = |wants| Get { request: 1, wants, ..Get::default() };
    let limit = vec![entry(1); MAX_ENTRIES];
    assert!(asks(asker().take(Body::Get(get(limit)), &Keys)).is_ok());
    for (get, words) in [
        (get(vec![entry(1); MAX_ENTRIES + 1]), "entries with"),
        (get(vec![signed(MAX_BASES_LEN / 2), signed(MAX_BASES_LEN / 2)]), "entries with"),
        (Get { root, ..get(vec![entry(1)]) }, "under a root"),
        (get(vec![entry(1), piece(&ROOT, 0)]), "something else"),
        (get(vec![piece(&ROOT, 0), entry(1)]), "something else"),
        (get(vec![WireWant { entry: Some(1), ..piece(&ROOT, 0) }]), "something else"),
        (get(vec![WireWant { block: Some(0), ..entry(1) }]), "something else"),
        (get(vec![WireWant { base: Bytes::from_static(b"?"), ..entry(1) }]), "bad base"),
        (get(vec![signed(MAX_SIGNATURE_LEN + 1)]), "bad base"),
    ] {
        for mut answering in [stranger(), asker()] {
            let error = answering.take(Body::Get(get.clone()), &Keys).err().unwrap_or_default();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}

#[test]
fn bases_that_are_kept_are_bounded_apart_from_other_requests() {
    let (mut answering, received) = (asker(), Received::default());
    let rest = MAX_BASES_LEN - MAX_SIGNATURE_LEN - 6;
    let long = |request| ask(request, vec![signed(MAX_SIGNATURE_LEN), signed(rest)]);
    let mut kept = 0;
    while let Ok(asked) = asks(answering.take(received.read(long(kept)), &Keys)) {
        assert!(asked.len() == 2 && received.held() == 0);
        kept += 1;
    }
    assert_eq!(kept as usize, MOST_ASKED / MAX_BASES_LEN - 1);
    assert!(answering.asked() <= MOST_ASKED && answering.kept() == 0);
    assert_eq!(asks(answering.take(long(kept), &Keys)), Err(Some(2)));
    // Data can be asked for all the same.
    assert_eq!(code(answering.take(get(999, vec![piece(&OFFERED, 0)]), &Keys)), None);
    answering.end_ask(tag(0, 0));
    answering.end_ask(tag(0, 1)).unwrap();
    assert!(asks(answering.take(long(kept), &Keys)).is_ok());
}

/// A session has 48 calls of 256 entries under way.
#[test]
fn what_an_honest_client_asks_of_an_offer_at_once_is_kept() {
    let mut answering = asker();
    for request in 0..48 {
        let mut wants = vec![signed(500); MAX_ENTRIES];
        wants[0] = signed(64 << 10);
        assert!(asks(answering.take(ask(request, wants), &Keys)).is_ok(), "{request}");
    }
}

#[test]
fn a_request_ends_with_its_last_question() {
    let mut answering = asker();
    asks(answering.take(ask(5, vec![entry(1); 3]), &Keys)).unwrap();
    for want in [2, 2, 0, 9] {
        assert_eq!(answering.end_ask(tag(5, want)), None);
    }
    assert!(answering.awaits(tag(5, 1)) && !answering.awaits(tag(5, 0)) && answering.is_under_way(5));
    assert_eq!(answering.end_ask(tag(5, 1)), Some(Body::Done(RequestOnly { request: 5 })));
    assert_eq!(answering.end_ask(tag(5, 1)), None);
    assert!(!answering.is_under_way(5) && answering.asked() == 0);
}

#[test]
fn nobody_awaits_what_was_cancelled_or_lost() {
    let mut answering = asker();
    asks(answering.take(ask(5, vec![entry(1)]), &Keys)).unwrap();
    asks(answering.take(ask(6, vec![entry(1)]), &Keys)).unwrap();
    answering.take(Body::Cancel(WireCancel { request: 5, ..WireCancel::default() }), &Keys).unwrap();
    assert!(!answering.awaits(tag(5, 0)) && answering.awaits(tag(6, 0)));
    assert!(answering.end_ask(tag(5, 0)).is_some(), "its end is told");
    answering.close();
    assert!(!answering.awaits(tag(6, 0)) && !answering.is_under_way(6));
}

/// The outcome of a signature for want 0 or 1 of request 5, of which want 0 promised one, after `before`.
fn sign(before: impl Fn(&mut Answering), request: u32, want: u32) -> Result<(), String> {
    let mut answering = asker();
    asks(answering.take(ask(5, vec![in_parts(1), in_parts(3)]), &Keys)).unwrap();
    before(&mut answering);
    answering.take(signature(request, want), &Keys).map(|_| ())
}

#[test]
fn signatures_come_that_were_promised_or_wanted_and_no_others() {
    let one = |answering: &mut Answering| drop(answering.take(signature(5, 0), &Keys).unwrap());
    assert_eq!(sign(|_| (), 5, 0), Ok(()));
    assert!(sign(one, 5, 0).unwrap_err().contains("nobody waits for"));
    let wanted = |answering: &mut Answering| {
        one(answering);
        answering.expect_signatures(tag(5, 0), 1);
        assert!(
            answering.take_signature(tag(5, 0)).is_some() && answering.take_signature(tag(5, 0)).is_none()
        );
    };
    assert_eq!(sign(wanted, 5, 0), Ok(()));
    assert!(sign(|_| (), 5, 2).unwrap_err().contains("nobody waits for"));
    assert!(sign(|_| (), 6, 0).unwrap_err().contains("nothing that it asked for"));
    let end_one = |answering: &mut Answering| assert!(answering.end_ask(tag(5, 0)).is_none());
    assert_eq!(sign(end_one, 5, 0), Ok(()), "it was on its way");
    let end = |answering: &mut Answering| {
        end_one(answering);
        answering.end_ask(tag(5, 1)).unwrap();
        answering.expect_signatures(tag(5, 1), 1);
    };
    assert_eq!(sign(end, 5, 1), Ok(()), "so was this");
    let refused = |answering: &mut Answering| {
        answering.set_offer(false);
        assert_eq!(asks(answering.take(ask(6, vec![in_parts(1)]), &Keys)), Err(Some(2)));
    };
    assert_eq!(sign(refused, 6, 0), Ok(()), "it follows what was refused");
    let bad = WireSignature { request: 5, want: 0, bytes: Bytes::from_static(b"?") };
    let mut answering = asker();
    asks(answering.take(ask(5, vec![in_parts(1)]), &Keys)).unwrap();
    assert!(answering.take(Body::Signature(bad), &Keys).err().unwrap().contains("bad signature"));
}

#[test]
fn signatures_of_what_has_ended_are_not_kept() {
    let mut answering = asker();
    asks(answering.take(ask(5, vec![in_parts(16); 7]), &Keys)).unwrap();
    for want in 0..6 {
        assert_eq!(answering.end_ask(tag(5, want)), None);
    }
    let bytes = Bytes::from(NextSignature::Signed(vec![1; MAX_SIGNATURE_LEN]).to_bytes());
    for at in 0..6 * 16 {
        let signature = WireSignature { request: 5, want: at / 16, bytes: bytes.clone() };
        assert!(answering.take(Body::Signature(signature), &Keys).is_ok(), "{at} of 18 MiB");
    }
    assert!(answering.end_ask(tag(5, 6)).is_some());
    let left = format!("{:?}", answering.asks);
    assert!(left.contains("inboxes: {}") && left.contains("bytes: 0"), "nor expected: {left}");
}
