//! A first piece that is asked for before its object is known.

use towpath_content::delta::exchange::{Base, Request};
use towpath_transfer::SignedBase;

use super::*;

/// Asks what the object is and for its first piece.
fn ask(end: &mut End, now: Instant, oid: Oid) {
    end.session.prove(&oid, &SECRET.prove(&BINDING, &end.node, &oid));
    let (root, name) = (oid_field(&oid), oid_field(&oid));
    end.session.ask(Question::Describe(Describe { root, oid: name, ..Describe::default() }));
    end.session.get_ahead(now, &oid, (&oid, true));
    end.settle();
}

/// Wants this piece or none of those that were asked for.
fn claim(end: &mut End, now: Instant, wants: &mut Vec<Want>) -> Option<u32> {
    let claimed = end.session.claim(now, wants);
    end.settle();
    claimed
}

fn delivered(end: &End) -> Vec<&Delivery> {
    let deliveries = end.effects.iter().filter_map(|effect| match effect {
        Effect::Delivery { delivery, .. } => Some(delivery),
        _ => None,
    });
    deliveries.collect()
}

#[test]
fn it_comes_once_whenever_it_is_claimed() {
    for pieces in [1, 3] {
        let ((store, oid, data), now) = (store(pieces), Instant::now());
        let all = {
            let (mut a, mut b) = pair(&store, now);
            ask(&mut a, now, oid);
            drive(now, &mut a, &mut b, usize::MAX).len()
        };
        for cut in 0..=all {
            let (mut a, mut b) = pair(&store, now);
            ask(&mut a, now, oid);
            drive(now, &mut a, &mut b, cut);
            assert!(delivered(&a).is_empty(), "nobody wants it");
            let mut wanted = wants(oid, &data);
            assert_eq!(claim(&mut a, now, &mut wanted), Some(2));
            assert_eq!(wanted.len(), pieces - 1);
            assert_eq!(claim(&mut a, now, &mut wanted), None);
            drive(now, &mut a, &mut b, usize::MAX);
            let delivery = delivered(&a)[0];
            assert_eq!((delivered(&a).len(), delivery.tag), (1, 0), "claimed after {cut} messages");
            assert_eq!(delivery.payload.bytes(), &data[..data.len().min(PIECE)]);
            assert_eq!(delivery.proof.is_some(), pieces > 1, "a short object needs none");
            assert!(a.ended().contains(&(2, Ok(()))));
            assert_eq!((a.session.ended(), b.session.ended()), (None, None));
        }
    }
}

#[test]
fn it_is_given_up_when_only_others_are_wanted() {
    let ((store, oid, data), now) = (store(3), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    ask(&mut a, now, oid);
    drive(now, &mut a, &mut b, 4);
    let (_, other, _) = self::store(1);
    assert_eq!(claim(&mut a, now, &mut wants(other, &data)), None);
    let mut others = wants(oid, &data).split_off(1);
    assert_eq!(claim(&mut a, now, &mut others), None);
    assert_eq!(others.len(), 2, "they are asked for as ever");
    let is_cancel = |frame: &Frame| matches!(Body::from_frame(frame.body.clone()), Ok(Body::Cancel(_)));
    assert!(a.out.iter().any(is_cancel));
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!(claim(&mut a, now, &mut wants(oid, &data)), None);
    assert!(delivered(&a).is_empty());
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
}

#[test]
fn it_is_given_up_when_it_may_be_here_or_is_wanted_as_a_delta() {
    for (is_delta, pieces) in [(false, 3), (true, 1), (true, 3)] {
        let ((store, oid, data), now) = (store(pieces), Instant::now());
        let give_up = |end: &mut End| {
            let mut wanted = wants(oid, &data);
            if is_delta {
                let base = Base::Signature(Vec::new());
                let request = Request { base, is_guess: false, outlines: 0 };
                wanted[0].base = Some(Arc::new(SignedBase { bytes: Bytes::new(), request }));
            } else {
                end.session.get_ahead(now, &oid, (&self::store(2).1, false));
                end.settle();
                assert!(end.out.is_empty(), "another object's");
                end.session.get_ahead(now, &oid, (&oid, false));
            }
            (claim(end, now, &mut wanted), wanted.len())
        };
        let is_cancel = |frame: &Frame| matches!(Body::from_frame(frame.body.clone()), Ok(Body::Cancel(_)));
        let (mut a, mut b) = pair(&store, now);
        ask(&mut a, now, oid);
        drive(now, &mut a, &mut b, 4);
        a.out.clear();
        assert_eq!(give_up(&mut a), (None, pieces), "it is asked for as ever");
        assert!(a.out.iter().any(is_cancel));
        let (mut a, mut b) = pair(&store, now);
        ask(&mut a, now, oid);
        drive(now, &mut a, &mut b, usize::MAX);
        assert_eq!(give_up(&mut a), (Some(2), pieces - 1), "all of it has come");
    }
}

#[test]
fn what_is_refused_is_asked_for_again_and_what_is_lost_is_told() {
    let ((store, oid, data), now) = (store(1), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    a.session.get_ahead(now, &oid, (&oid, true));
    a.settle();
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!(claim(&mut a, now, &mut wants(oid, &data)), None, "its right was not shown");

    for claims_first in [true, false] {
        let (mut a, mut b) = pair(&store, now);
        ask(&mut a, now, oid);
        drive(now, &mut a, &mut b, 3);
        if claims_first {
            claim(&mut a, now, &mut wants(oid, &data));
        }
        a.close("lost");
        assert_eq!(a.ends().len(), usize::from(claims_first));
        assert_eq!(claim(&mut a, now, &mut wants(oid, &data)), None);
        a.session.get_ahead(now, &oid, (&oid, true));
        assert_eq!(claim(&mut a, now, &mut wants(oid, &data)), None, "the connection has ended");
    }
}

/// A peer that sends more than a piece gets a cancellation; one whose data make no piece loses the connection.
#[test]
fn no_more_is_kept_than_a_piece() {
    let ((store, oid, data), now) = (store(1), Instant::now());
    let frame = |offset, len| {
        let suggested = 0;
        let header =
            DataHeader { request: 2, want: 0, piece: 0, offset, suggested, zeros: false, encoding: 0 };
        Outgoing::data(&header, vec![0; len].into()).to_frame()
    };
    for parts in [vec![(0, PIECE / 2), (0, PIECE)], (0..100).map(|at| (at, 1)).collect()] {
        let (mut a, mut b) = pair(&store, now);
        ask(&mut a, now, oid);
        b.out.truncate(1);
        drive(now, &mut b, &mut a, 1);
        a.out.clear();
        parts.into_iter().for_each(|(offset, len)| a.receive(now, frame(offset, len)));
        assert_eq!((a.session.ended(), a.out.len()), (None, 1), "one cancellation");
        assert_eq!(claim(&mut a, now, &mut wants(oid, &data)), None);
    }
    let (mut a, mut b) = pair(&store, now);
    ask(&mut a, now, oid);
    drive(now, &mut b, &mut a, 1);
    a.receive(now, frame(77, 1));
    assert_eq!(claim(&mut a, now, &mut wants(oid, &data)), Some(2));
    assert_eq!(a.session.ended(), Some("sent a piece in the wrong order"));
    assert_eq!((a.ends(), a.ended().len()), (vec![(0, Some(LOST))], 2));
}
