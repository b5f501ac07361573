//! Wants with a basis between two ends of a connection.

use std::sync::Arc;

use towpath_content::delta::Signature;
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
    Some(Arc::new(SignedBase { bytes: Bytes::copy_from_slice(old), signature: signature.into() }))
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
fn what_resembles_a_basis_comes_as_its_delta() {
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
    let good = WireWant {
        oid: oid_field(&oid),
        offset: Some(0),
        len: 1000,
        basis: Some(Bytes::from_static(b"?")),
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
        (vec![WireWant { basis: Some(vec![0; wire::MAX_BASIS + 1].into()), ..good.clone() }], "impossible"),
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
        (wants.clone(), delta(1, 0), false),
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
