//! Honest machines make the file, whatever the order of their work; what is lost or stopped makes nothing wrong.

use proptest::prelude::*;

use super::*;

const PARTS: Describe = Describe::Parts { count: 3, ahead: 1 };
const ALL: [Describe; 3] = [Describe::Signature, Describe::Named, PARTS];

fn came(made: &Made) -> usize {
    let Made::File { came, .. } = made else { panic!("{made:?}") };
    *came
}

#[test]
fn a_changed_file_is_made_of_little() {
    let base = noise(1, 900_000);
    let inserted = [&base[..400_000], b"something new", &base[400_000..]].concat();
    for (what, file, most) in [
        ("the same", base.clone(), 3000),
        ("an insertion", inserted, 9000),
        ("a few changes", edited(&base, 5, 300), 20_000),
        ("shorter", base[..700_000].to_vec(), 210_000),
        ("nothing", Vec::new(), 100),
    ] {
        for describe in ALL {
            let made = Scene::of(&base, &file, describe).run();
            assert!(came(&made) < most, "{what}, {describe:?}: {made:?}");
        }
    }
}

#[test]
fn a_file_comes_whatever_its_base_is() {
    let file = noise(1, 300_000);
    for base in [Vec::new(), vec![0; 1], noise(2, 400_000)] {
        for describe in ALL {
            let made = Scene::of(&base, &file, describe).run();
            assert!(came(&made) < 310_000, "{} {describe:?}: {made:?}", base.len());
        }
    }
}

#[test]
fn a_name_that_is_known_makes_a_patch_and_another_one_is_refused() {
    let base = noise(1, 5 << 20);
    let scene = Scene::of(&base, &edited(&base, 40, 500), Describe::Named);
    let made = scene.clone().run();
    assert!(came(&made) < 30_000, "in parts: {made:?}");
    assert_eq!(Scene { has_base: false, ..scene }.run(), Made::UnknownBase);
    let same = Scene { has_base: false, ..Scene::of(&base, &base, Describe::Named) };
    assert_eq!(came(&same.run()), 1);
}

#[test]
fn scattered_changes_come_in_steps_as_little() {
    let base = noise(1, 6 << 20);
    let file = edited(&base, 150, 200);
    let scene = Scene::of(&base, &file, PARTS);
    let whole = came(&Scene { in_steps: false, ..scene.clone() }.run());
    let mut pair = scene.clone().begin();
    let steps = came(&pair.run(&mut |_, message| vec![message], |_| 0));
    assert!(pair.outlines >= 3 && 2 * steps < whole, "{} {steps} {whole}", pair.outlines);
    let refuses = Scene { outlines: 0, ..scene };
    assert!(came(&refuses.run()) > 2 * steps, "a requester that answers none gets none");
}

#[test]
fn long_changes_that_lie_close_come_in_three_steps() {
    let base = noise(1, 8 << 20);
    let mut file = base.clone();
    let mut new = 0;
    for (seed, at) in (2..).zip((5_000..file.len() - (48 << 10)).step_by(34_567)) {
        let len = 10_000 + seed as usize * 997 % 14_000;
        file[at..at + len].copy_from_slice(&noise(seed, len));
        new += len;
    }
    let mut pair = Scene::of(&base, &file, Describe::Parts { count: 1, ahead: 1 }).begin();
    let made = pair.run(&mut |_, message| vec![message], |_| 0);
    assert!(came(&made) < new + new / 50, "{made:?} for {new}");
    assert_eq!(pair.outlines, 2);
}

#[test]
fn a_guess_that_proves_wrong_is_given_up_before_much_came() {
    let (base, file) = (noise(1, 3 << 20), noise(2, 3 << 20));
    for describe in ALL {
        let scene = Scene { is_guess: true, ..Scene::of(&base, &file, describe) };
        let mut pair = scene.begin();
        assert_eq!(pair.run(&mut |_, message| vec![message], |_| 0), Made::GivenUp, "{describe:?}");
        assert!(pair.came < 10, "{describe:?}: {}", pair.came);
    }
}

#[test]
fn a_file_too_large_for_the_parts_of_its_base_is_given_up() {
    let request = Request { base: Base::Parts { count: 2, ahead: 1 }, is_guess: false, outlines: 0 };
    for (size, reply) in [(2 * MAX_PART_LEN, Reply::InParts), (u64::MAX, Reply::GivenUp)] {
        let mut responder = Responder::new(request.clone(), &Oid::of(b"x"), size);
        assert_eq!(responder.poll(), ResponderAction::Reply(reply), "{size}");
    }
    let mut requester = Requester::new(&request, 10);
    assert!(requester.recv_reply(Reply::InParts, 2 * MAX_PART_LEN + 1).is_err());
    assert_eq!(requester.poll(), RequesterAction::End(RequesterEnd::GivenUp));
}

#[test]
fn what_can_not_be_read_is_given_up() {
    let base = noise(1, 400_000);
    let file = edited(&base, 40, 100);
    for readable in [[0, 9], [1, 9], [9, 0], [9, 1]] {
        let scene = Scene { readable, ..Scene::of(&base, &file, PARTS) };
        assert_eq!(scene.run(), Made::GivenUp, "{readable:?}");
    }
    let scene = Scene { readable: [9, 0], ..Scene::of(&base, &file, Describe::Signature) };
    assert_eq!(scene.run(), Made::GivenUp);
}

/// Some bytes of a base, changed: of each edit its kind, where, and how many.
fn changed(base: &[u8], edits: &[(u8, usize, usize)]) -> Vec<u8> {
    let mut file = base.to_vec();
    for (number, (kind, at, len)) in edits.iter().enumerate() {
        let at = at % (file.len() + 1);
        let end = file.len().min(at + len);
        let new = if kind & 1 == 0 { noise(number as u64, *len) } else { Vec::new() };
        drop(file.splice(at..if kind & 2 == 0 { end } else { at }, new));
    }
    file
}

fn any_scene() -> impl Strategy<Value = Scene> {
    let edits = proptest::collection::vec((0u8..4, any::<usize>(), 0usize..2000), 0..60);
    let describe = prop_oneof![
        Just(Describe::Signature),
        Just(Describe::Named),
        (1u64..=16)
            .prop_flat_map(|count| { (1..=count).prop_map(move |ahead| Describe::Parts { count, ahead }) }),
    ];
    let flags = any::<[bool; 4]>();
    // Many little changes come in steps, and few do not.
    let scattered = prop_oneof![Just(0), 50usize..250];
    (0u64..9, 0usize..400_000, (edits, scattered), describe, flags, 0usize..3).prop_map(
        |(seed, len, (edits, scattered), describe, [is_guess, has_base, in_steps, packs], outlines)| {
            let base = noise(seed, len);
            let file = changed(&edited(&base, scattered, 9), &edits);
            Scene { is_guess, has_base, in_steps, packs, outlines, ..Scene::of(&base, &file, describe) }
        },
    )
}

/// Chooses by these numbers, over and over.
fn by(choices: Vec<usize>) -> impl FnMut(usize) -> usize {
    let mut choices = choices.into_iter().cycle();
    move |_| choices.next().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn honest_sides_make_the_file_in_any_order_of_their_work(
        scene in any_scene(),
        choices in proptest::collection::vec(0usize..4, 1..40),
    ) {
        let (is_guess, is_unknown) = (scene.is_guess, scene.describe == Describe::Named && !scene.has_base);
        let made = scene.begin().run(&mut |_, message| vec![message], by(choices));
        let is_right = match &made {
            Made::File { .. } => true,
            Made::GivenUp => is_guess,
            Made::UnknownBase => is_unknown,
            Made::Waiting => false,
        };
        prop_assert!(is_right, "{:?}", made);
    }

    #[test]
    fn a_connection_that_ends_makes_nothing_wrong(
        scene in any_scene(),
        at in 1usize..40,
        choices in proptest::collection::vec(0usize..4, 1..40),
    ) {
        let mut pair = scene.begin();
        let lose = &mut |number, message| if number < at { vec![message] } else { Vec::new() };
        let made = pair.run(lose, by(choices));
        prop_assert!(made != Made::Waiting || pair.sent > at, "{:?}", made);
    }

    #[test]
    fn what_comes_twice_late_or_changed_makes_nothing_wrong(
        scene in any_scene(),
        at in 1usize..20,
        lie in 0u8..4,
        place in any::<usize>(),
        choices in proptest::collection::vec(0usize..4, 1..40),
    ) {
        let mut late = None;
        let pass = &mut |number, message: Message| match (number == at, lie) {
            (true, 0) => vec![message.clone(), message],
            (true, 1) => {
                late = Some(message);
                Vec::new()
            }
            (true, 2) => Vec::new(),
            (true, _) => vec![flipped(message, place)],
            (false, _) => [Some(message), late.take()].into_iter().flatten().collect(),
        };
        // `run` compares what was made with the file, as callers do by its name.
        scene.begin().run(pass, by(choices));
    }
}

fn flipped(message: Message, place: usize) -> Message {
    let flip = |mut bytes: Vec<u8>| {
        let at = place % bytes.len().max(1);
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (place % 8));
        bytes
    };
    match message {
        Message::Signature(bytes) => Message::Signature(flip(bytes)),
        Message::Reply(bytes) => Message::Reply(flip(bytes)),
        Message::Run(bytes) => Message::Run(flip(bytes)),
    }
}

#[test]
fn a_loss_of_each_message_leaves_both_waiting() {
    let base = noise(1, 6 << 20);
    let scene = Scene::of(&base, &edited(&base, 150, 200), PARTS);
    let mut pair = scene.clone().begin();
    pair.run(&mut |_, message| vec![message], |_| 0);
    let all = pair.sent;
    assert!(all > 12, "{all}");
    for at in 1..all {
        let mut pair = scene.clone().begin();
        let lose = &mut |number, message| if number < at { vec![message] } else { Vec::new() };
        assert_eq!(pair.run(lose, |_| 0), Made::Waiting, "{at}");
    }
}
