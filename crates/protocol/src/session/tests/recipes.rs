//! Recipes and runs of bytes between two ends of a connection.

use super::*;
use towpath_transfer::claim::RecipeReader;

/// A store with one object of some pieces, no two alike, whose application gave small chunks.
fn finely_cut(pieces: usize) -> (Arc<MemoryStore>, Oid, Vec<u8>) {
    let (store, live) = (Arc::new(MemoryStore::new()), Oid::Live([4; 32]));
    let byte = |at: usize| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0];
    let data: Vec<u8> = (0..pieces * PIECE - 1000).map(byte).collect();
    store.put_init(&live, &About::default()).unwrap();
    for chunk in data.chunks(256) {
        store.put_data(&live, chunk).unwrap();
        store.put_boundary(&live).unwrap();
    }
    let oid = store.put_commit(&live).unwrap();
    (store, oid, data)
}

/// Asks for the recipe of `oid` and what else is known of it.
fn ask_for_recipe(end: &mut End, oid: Oid) -> u32 {
    end.session.prove(&oid, &SECRET.prove(&BINDING, &end.node, &oid));
    let (root, oid) = (oid_field(&oid), oid_field(&oid));
    let question =
        Describe { root, oid, values_from: Some(0), values_to: 9, recipe: true, ..Describe::default() };
    let request = end.session.ask(Question::Describe(question));
    end.settle();
    request
}

#[test]
fn a_recipe_comes_in_parts_after_what_else_is_asked() {
    let ((store, oid, data), now) = (finely_cut(4), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    ask_for_recipe(&mut a, oid);
    let frames = drive(now, &mut a, &mut b, usize::MAX);
    assert!(frames.iter().all(|frame| frame.body.len() <= wire::MAX_RECIPE_PART + 1024));
    let mut reader = RecipeReader::new(oid, data.len() as u64);
    let (mut kinds, mut parts) = (Vec::new(), 0);
    for effect in a.effects.drain(..) {
        let Effect::Answer { answer, .. } = effect else { continue };
        kinds.push(std::mem::discriminant(&answer));
        if let Description::Recipe(part) = answer {
            assert_eq!(part.maker, config().source);
            reader.take(part).unwrap();
            parts += 1;
        }
    }
    kinds.dedup();
    assert_eq!(kinds.len(), 3, "what it is, its values, its recipe");
    assert!(parts > 1, "{} bytes in one part", data.len());
    assert!(reader.finish().unwrap().unwrap().builds(data.len() as u64));
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
}

#[test]
fn the_connection_is_lost_at_every_message_of_a_recipe() {
    let ((store, oid, _), now) = (finely_cut(2), Instant::now());
    let run = |most| {
        let (mut a, mut b) = pair(&store, now);
        let request = ask_for_recipe(&mut a, oid);
        let count = drive(now, &mut a, &mut b, most).len();
        a.close("lost");
        b.close("lost");
        assert_eq!(a.ended().iter().map(|(ended, _)| *ended).collect::<Vec<_>>(), [request], "cut at {most}");
        assert!(b.answering.is_over(request));
        count
    };
    let count = run(usize::MAX);
    (0..count).for_each(|cut| assert_eq!(run(cut), cut));
}

#[test]
fn an_asker_that_goes_gets_no_more_of_a_recipe() {
    let ((store, oid, _), now) = (finely_cut(8), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    let request = ask_for_recipe(&mut a, oid);
    drive(now, &mut a, &mut b, 8);
    a.session.give_up(request);
    a.settle();
    let rest = drive(now, &mut a, &mut b, usize::MAX);
    let is_recipe = |frame: &Frame| matches!(Body::from_frame(frame.body.clone()), Ok(Body::Recipe(_)));
    assert!(rest.iter().filter(|frame| is_recipe(frame)).count() < 4, "{} frames came", rest.len());
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
}

#[test]
fn more_than_four_recipes_at_once_have_to_wait() {
    let ((store, oid, _), now) = (store(2), Instant::now());
    let (_, mut b) = pair(&store, now);
    b.send_at(now, hello(&config()));
    let question = |request| Describe {
        request,
        root: oid_field(&oid),
        oid: oid_field(&oid),
        recipe: true,
        ..Describe::default()
    };
    let proof = Bytes::copy_from_slice(&SECRET.prove(&BINDING, &NodeId([1; 32]), &oid));
    b.send_at(now, Body::Prove(Prove { root: oid_field(&oid), proof }));
    (1..=6).for_each(|request| b.send_at(now, Body::Describe(question(request))));
    let long: Vec<bool> = b.answers.iter().map(Answer::takes_long).collect();
    assert_eq!(long, [true, true, true, true, false, false]);
    b.out.clear();
    while b.answer() {}
    let bodies: Vec<_> = b.out.iter().map(|frame| Body::from_frame(frame.body.clone()).unwrap()).collect();
    let sent = |request| {
        let is_wait = |body: &&Body| matches!(body, Body::Outcome(o) if o.request == request && o.code == 2);
        bodies.iter().filter(is_wait).count()
    };
    assert_eq!((1..=6).map(sent).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1]);
    assert_eq!(b.session.ended(), None);
}

#[test]
fn recipes_that_nobody_asked_for_or_that_cannot_be_end_the_connection() {
    let ((store, oid, _), now) = (store(1), Instant::now());
    let part = |request, root: Option<usize>, nodes: &[usize]| {
        let bytes = |len: &usize| Bytes::from(vec![0; *len]);
        wire::Recipe { request, root: root.map(|len| bytes(&len)), nodes: nodes.iter().map(bytes).collect() }
    };
    for (part, words) in [
        (part(2, None, &[50]), Some("not asked for")),
        (part(9, None, &[50]), Some("not asked for")),
        (part(1, None, &[]), Some("too much or nothing")),
        (part(1, Some(0), &[0, 0]), Some("too much or nothing")),
        (part(1, Some(95), &[10]), Some("impossible recipe")),
        (part(1, None, &[11_781]), Some("impossible recipe")),
        (part(1, None, &[11_000; 6]), Some("too much or nothing")),
        (part(1, Some(80), &[11_000; 5]), None),
    ] {
        let (mut a, _) = pair(&store, now);
        a.send_at(now, hello(&config()));
        assert_eq!(ask_for_recipe(&mut a, oid), 1);
        a.session.ask(Question::Describe(Describe::default()));
        a.send_at(now, Body::Recipe(part));
        match words {
            Some(words) => assert!(a.session.ended().is_some_and(|why| why.contains(words)), "{words}"),
            None => assert_eq!(a.session.ended(), None),
        }
    }
    // Messages on their way to an asker that has gone are passed over.
    let (mut a, _) = pair(&store, now);
    a.send_at(now, hello(&config()));
    let request = ask_for_recipe(&mut a, oid);
    a.session.give_up(request);
    a.send_at(now, Body::Recipe(part(1, None, &[50])));
    assert_eq!(a.session.ended(), None);
}

#[test]
fn impossible_runs_of_bytes_end_the_connection() {
    let ((store, oid, _), now) = (store(1), Instant::now());
    let good = WireWant { oid: oid_field(&oid), offset: Some(0), len: 1, ..WireWant::default() };
    for want in [
        WireWant { len: 0, ..good.clone() },
        WireWant { len: wire::MAX_SPAN + 1, ..good.clone() },
        WireWant { len: u32::MAX, ..good.clone() },
        WireWant { offset: Some(u64::MAX), ..good.clone() },
        WireWant { offset: Some(1 << 44), ..good.clone() },
        WireWant { offset: None, ..good.clone() },
        WireWant { count: 1, ..good.clone() },
        WireWant { first: 1, ..good.clone() },
        WireWant { oid: Bytes::new(), ..good.clone() },
        WireWant { chunk: Bytes::from_static(&[1; 32]), ..good.clone() },
    ] {
        let (_, mut b) = pair(&store, now);
        b.send_at(now, hello(&config()));
        b.send_at(
            now,
            Body::Get(Get {
                request: 1,
                root: oid_field(&oid),
                wants: vec![good.clone(), want],
                ..Get::default()
            }),
        );
        assert!(b.session.ended().is_some_and(|why| why.contains("impossible run of bytes")));
    }
}
