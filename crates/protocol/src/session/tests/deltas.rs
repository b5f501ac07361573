//! Runs of bytes with a base between two ends of a connection.

use std::sync::Arc;

use towpath_content::delta::Signature;
use towpath_content::delta::exchange::{Base, MAX_OUTLINES, Request, SignedParts};
use towpath_transfer::{Origin, SignedBase};

use super::super::super::requests::GetRequest;
use super::*;

/// A store with an object, and another version of its bytes.
fn edited() -> (Arc<MemoryStore>, Oid, Vec<u8>, Vec<u8>) {
    let (store, live) = (Arc::new(MemoryStore::new()), Oid::Live([4; 32]));
    let new: Vec<u8> = (0..1000u32).flat_map(|at| *Oid::of(&at.to_le_bytes()).digest()).collect();
    store.put_init(&live, &About::default()).unwrap();
    store.put_data(&live, &new).unwrap();
    let oid = store.put_commit(&live).unwrap();
    let old = [&new[..9000], &new[9100..20_000], b"more", &new[20_000..]].concat();
    (store, oid, new, old)
}

fn signed_base(old: &[u8], signature: Option<Vec<u8>>) -> Option<Arc<SignedBase>> {
    let signature = signature.unwrap_or_else(|| Signature::of(old, 256, 32_000).unwrap().to_bytes());
    Some(based(old, signature, (false, 0)))
}

fn based(old: &[u8], signature: Vec<u8>, (is_guess, outlines): (bool, usize)) -> Arc<SignedBase> {
    let request = Request { base: Base::Signature(signature), is_guess, outlines };
    Arc::new(SignedBase { bytes: Bytes::copy_from_slice(old), request })
}

/// Two chunks that are all of the object.
fn chunks(oid: Oid, new: &[u8], base: Option<&Arc<SignedBase>>) -> Vec<Want> {
    let chunk = |bytes: &[u8], offset: u64| Want {
        origin: Some(Origin { oid, offset }),
        base: base.cloned(),
        ..Want::new(offset, WantId::Chunk { hash: *Oid::of(bytes).digest(), len: bytes.len() as u32 })
    };
    let (front, back) = new.split_at(15_000);
    vec![chunk(front, 0), chunk(back, 15_000)]
}

fn ask(end: &mut End, now: Instant, oid: Oid, wants: Vec<Want>) {
    end.session.prove(&oid, &SECRET.prove(&BINDING, &end.node, &oid));
    end.session.get(now, GetRequest::new(&oid, wants, true));
    end.settle();
}

/// The result: bytes put together, bytes of them saved, and bytes that crossed.
fn brought(store: &Arc<MemoryStore>, oid: Oid, wants: Vec<Want>) -> (Vec<u8>, u64, usize) {
    let now = Instant::now();
    let (mut a, mut b) = pair(store, now);
    ask(&mut a, now, oid, wants);
    let crossed = drive(now, &mut a, &mut b, usize::MAX).iter().map(|frame| frame.body.len()).sum();
    let (mut bytes, mut saved) = (Vec::new(), 0);
    for effect in a.effects.drain(..) {
        let Effect::Delivery { delivery, .. } = effect else { continue };
        assert_eq!(delivery.tag, bytes.len() as u64);
        let Payload::Bytes(found) = delivery.payload else { panic!() };
        bytes.extend_from_slice(&found);
        saved += delivery.saved;
    }
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
    (bytes, saved, crossed)
}

#[test]
fn what_resembles_a_base_comes_as_its_delta() {
    let (store, oid, new, old) = edited();
    let (bytes, saved, crossed) = brought(&store, oid, chunks(oid, &new, signed_base(&old, None).as_ref()));
    assert!(bytes == new && saved > 30_000 && crossed < 4000, "{saved} saved, {crossed} crossed");
    let (bytes, saved, crossed) = brought(&store, oid, chunks(oid, &new, None));
    assert!(bytes == new && saved == 0 && crossed > new.len());
}

#[test]
fn what_does_not_resemble_it_or_is_no_signature_comes_as_it_is() {
    let (store, oid, new, old) = edited();
    let noise: Vec<u8> = (0..1000u32).flat_map(|at| *Oid::of(&[1, at as u8, 7]).digest()).collect();
    let huge = [&[1u8, 16, 1, 0xff, 0xff, 0xff, 7][..], &[0; 1000]].concat();
    for base in [
        signed_base(&noise, None),
        signed_base(&old, Some(b"no signature".to_vec())),
        signed_base(&old, Some(huge)),
    ] {
        let (bytes, saved, crossed) = brought(&store, oid, chunks(oid, &new, base.as_ref()));
        assert!(bytes == new && saved == 0 && crossed > new.len(), "{crossed}");
    }
}

#[test]
fn impossible_bases_end_the_connection() {
    let ((store, oid, ..), now) = (edited(), Instant::now());
    let request = |base| Request { base, is_guess: false, outlines: 0 }.to_bytes().into();
    let signed = |signature: &[u8]| -> Bytes { request(Base::Signature(signature.to_vec())) };
    let named: Bytes = request(Base::Named(oid));
    let good = WireWant {
        oid: oid_field(&oid),
        offset: Some(0),
        len: 1000,
        base: signed(b"?"),
        ..WireWant::default()
    };
    let send = |wants| {
        let (_, mut b) = pair(&store, now);
        b.send_at(now, hello(&config()));
        b.send_at(now, Body::Get(Get { request: 1, root: oid_field(&oid), wants, ..Get::default() }));
        b.session.ended().map(String::from)
    };
    assert_eq!(send(vec![good.clone(); wire::MAX_BASES]), None);
    for (wants, words) in [
        (vec![WireWant { len: wire::MAX_DELTA_SPAN + 1, ..good.clone() }], "impossible"),
        (vec![WireWant { base: named, ..good.clone() }], "impossible"),
        (vec![WireWant { base: Bytes::from_static(b"?"), ..good.clone() }], "impossible"),
        (
            vec![WireWant { base: signed(&vec![0; wire::MAX_BASES_LEN / 2]), ..good.clone() }; 2],
            "too many deltas",
        ),
        (vec![WireWant { offset: None, len: 0, count: 1, ..good.clone() }], "impossible"),
        (vec![good; wire::MAX_BASES + 1], "too many deltas"),
    ] {
        assert!(send(wants).is_some_and(|why| why.contains(words)), "{words}");
    }
}

#[test]
fn deltas_that_nobody_asked_for_end_the_connection() {
    let ((store, oid, new, old), now) = (edited(), Instant::now());
    let delta = |request, want| wire::Delta { request, want, ..wire::Delta::default() };
    let wants = chunks(oid, &new, signed_base(&old, None).as_ref());
    for (wants, message, is_fatal) in [
        (wants.clone(), wire::Delta { bytes: Bytes::from_static(&[2]), ..delta(1, 0) }, false),
        (wants.clone(), delta(1, 0), true),
        (wants.clone(), delta(2, 0), true),
        (wants, delta(1, 1), true),
        (chunks(oid, &new, None), delta(1, 0), true),
    ] {
        let (mut a, _) = pair(&store, now);
        a.send_at(now, hello(&config()));
        ask(&mut a, now, oid, wants);
        a.send_at(now, Body::Delta(message));
        assert_eq!(a.session.ended().is_some(), is_fatal);
        let again =
            |effect: &Effect| matches!(effect, Effect::Outcome { outcome: Outcome::RetryLater(_), .. });
        assert_eq!(a.effects.iter().filter(|effect| again(effect)).count(), 2);
    }
}

/// A piece of several is checked by its value, as no proof comes with a run of bytes.
#[test]
fn a_piece_whose_value_is_known_comes_as_a_delta_of_what_lies_around_its_place() {
    let (store, live) = (Arc::new(MemoryStore::new()), Oid::Live([4; 32]));
    let new: Vec<u8> = (0..20_000u32).flat_map(|at| *Oid::of(&at.to_le_bytes()).digest()).collect();
    store.put_init(&live, &About::default()).unwrap();
    store.put_data(&live, &new).unwrap();
    let oid = store.put_commit(&live).unwrap();
    let layout = Layout::of(new.len() as u64).unwrap();
    let piece = layout.range(1).start as usize..layout.range(1).end as usize;
    let old = [&new[piece.start - 5000..piece.start + 1000], b"more", &new[piece.start + 1000..piece.end]];
    let base =
        signed_base(&old.concat(), Some(Signature::of(&old.concat(), 1024, PIECE).unwrap().to_bytes()));
    let want =
        |value| Want { base: base.clone(), value, ..Want::new(0, WantId::Piece { oid, layout, index: 1 }) };
    let value = layout.value(1, &new[piece.clone()]);
    for (value, is_delta) in [(Some(value), true), (None, false)] {
        let (bytes, saved, crossed) = brought(&store, oid, vec![want(value)]);
        assert!(bytes == new[piece.clone()]);
        assert_eq!(
            (saved > 250_000, crossed < 8000),
            (is_delta, is_delta),
            "{saved} saved, {crossed} crossed"
        );
    }
    let (bytes, ..) = brought(&store, oid, vec![want(Some([7; 32]))]);
    assert!(bytes.is_empty(), "it is asked for again");
}

/// The object as its one piece.
fn piece(oid: Oid, new: &[u8], base: Option<Arc<SignedBase>>) -> Vec<Want> {
    let layout = Layout::of(new.len() as u64).unwrap();
    let id = WantId::Piece { oid, layout, index: 0 };
    let group = Arc::default();
    vec![Want { group, base, ..Want::new(0, id) }]
}

#[test]
fn an_object_of_one_piece_comes_as_a_delta_if_it_resembles_its_base() {
    let (store, oid, new, old) = edited();
    let (bytes, saved, crossed) = brought(&store, oid, piece(oid, &new, signed_base(&old, None)));
    assert!(bytes == new && saved > 30_000 && crossed < 4000, "{saved} saved, {crossed} crossed");
    let noise: Vec<u8> = (0..1000u32).flat_map(|at| *Oid::of(&[1, at as u8, 7]).digest()).collect();
    for base in [None, signed_base(&noise, None), signed_base(&old, Some(b"no signature".to_vec()))] {
        let (bytes, saved, crossed) = brought(&store, oid, piece(oid, &new, base));
        assert!(bytes == new && saved == 0 && crossed > new.len(), "{crossed}");
    }
}

/// A file with a change of some bytes in each 60,000, and its older version.
fn scattered() -> (Arc<MemoryStore>, Oid, Vec<u8>, Vec<u8>) {
    let (store, live) = (Arc::new(MemoryStore::new()), Oid::Live([4; 32]));
    let old: Vec<u8> = (0..60_000u32).flat_map(|at| *Oid::of(&at.to_le_bytes()).digest()).collect();
    let mut new = old.clone();
    (9000..new.len() - 300).step_by(60_000).for_each(|at| new[at..at + 300].fill(7));
    store.put_init(&live, &About::default()).unwrap();
    store.put_data(&live, &new).unwrap();
    (Arc::clone(&store), store.put_commit(&live).unwrap(), new, old)
}

/// All of an object as one run, with a base that is signed as copies sign theirs.
fn whole(oid: Oid, new: &[u8], old: &[u8], outlines: usize) -> Want {
    let (from, to) = (old.len() as u64, new.len() as u64);
    let signature = SignedParts::new(from, to, 1).unwrap().sign(0, old, outlines > 0).unwrap();
    Want {
        origin: Some(Origin { oid, offset: 0 }),
        base: Some(based(old, signature, (true, outlines))),
        ..Want::new(0, WantId::Chunk { hash: *oid.digest(), len: new.len() as u32 })
    }
}

#[test]
fn scattered_changes_come_in_steps_of_which_each_is_a_get() {
    let (store, oid, new, old) = scattered();
    let (bytes, saved, one_step) = brought(&store, oid, vec![whole(oid, &new, &old, 0)]);
    assert!(bytes == new && saved > 1_000_000, "{saved} saved");
    let (bytes, saved, in_steps) = brought(&store, oid, vec![whole(oid, &new, &old, MAX_OUTLINES)]);
    assert!(bytes == new && saved as usize + in_steps > new.len() && 2 * in_steps < one_step);
    assert!(saved as usize + 60_000 > new.len(), "{saved} saved, {in_steps} crossed, {one_step} in one step");
}

#[test]
fn an_object_that_is_of_use_as_a_delta_alone_does_not_come_if_little_is_alike() {
    let (store, oid, new, _) = scattered();
    let other: Vec<u8> = (0..60_000u32).flat_map(|at| *Oid::of(&[7, at as u8]).digest()).collect();
    let now = Instant::now();
    let (mut a, mut b) = pair(&store, now);
    ask(&mut a, now, oid, vec![whole(oid, &new, &other, MAX_OUTLINES)]);
    let crossed: usize = drive(now, &mut a, &mut b, usize::MAX).iter().map(|frame| frame.body.len()).sum();
    let is_end = |effect: &Effect| matches!(effect, Effect::Outcome { outcome: Outcome::NotHere, .. });
    assert!(a.effects.iter().any(is_end) && crossed < 6000, "{crossed}: the signature went");
}

/// Two ends after an outline came: the next step is requested. The numbers of both requests.
fn outlined() -> (End, End, (u32, u32), Instant) {
    let ((store, oid, new, old), now) = (scattered(), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    ask(&mut a, now, oid, vec![whole(oid, &new, &old, 1)]);
    for _ in 0..100 {
        drive(now, &mut a, &mut b, 1);
        let goes_on = a.effects.iter().find_map(|effect| match effect {
            Effect::GoesOn { request, by } => Some((*request, *by)),
            _ => None,
        });
        if let Some(numbers) = goes_on {
            assert_eq!(a.ends(), []);
            return (a, b, numbers, now);
        }
    }
    panic!("no outline came");
}

#[test]
fn a_connection_that_is_lost_in_the_middle_of_the_steps_ends_their_want() {
    let (mut a, _, (first, by), _) = outlined();
    assert_eq!(a.ended(), [(first, Ok(()))]);
    a.close("lost");
    assert_eq!(a.ends(), [(0, Some(LOST))]);
    assert_eq!(a.ended(), [(first, Ok(())), (by, Ok(()))]);
}

#[test]
fn whoever_gives_the_first_request_up_gives_up_its_steps() {
    let (mut a, mut b, (first, by), now) = outlined();
    a.session.give_up(first);
    a.settle();
    assert_eq!(a.ends(), [(0, Some(LOST))]);
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!((a.ended().len(), a.session.ended(), b.session.ended()), (2, None, None));
    assert_eq!(a.ended()[1], (by, Ok(())));
}

#[test]
fn a_want_that_is_cancelled_in_the_middle_of_its_steps_ends_once() {
    let (mut a, mut b, _, now) = outlined();
    a.session.cancel(0, &[0]);
    a.settle();
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!((a.ends().len(), a.session.ended(), b.session.ended()), (1, None, None));
}

#[test]
fn steps_that_were_not_asked_for_end_the_connection() {
    let delta = |request, bytes: &'static [u8]| {
        Body::Delta(wire::Delta { request, want: 0, bytes: Bytes::from_static(bytes) })
    };
    for (what, is_next, bytes) in [
        ("a run of the step before", false, &[0, 7][..]),
        ("a part where literals are due", true, &[1, 1, 0, 7]),
        ("one more signature", true, &[1, 3, 0, 1, 7]),
    ] {
        let (mut a, _, (first, by), now) = outlined();
        a.send_at(now, delta(if is_next { by } else { first }, bytes));
        // What is said of a request that has ended is passed over.
        assert_eq!(a.session.ended().is_some(), is_next, "{what}");
    }
    let (mut a, _, (_, by), now) = outlined();
    a.send_at(now, delta(by, &[1, 1, 2, 7]));
    assert_eq!((a.ends(), a.session.ended()), (vec![(0, Some(LOST))], None), "it makes nothing");
}
