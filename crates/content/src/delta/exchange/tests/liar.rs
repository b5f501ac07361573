//! One of the two lies: what is not due is refused, what is wrong is given up, and no more memory is taken than the bound.

use super::*;

const SIZE: u64 = 100_000;

fn request(base: Base) -> Request {
    Request { base, is_guess: false, outlines: 2 }
}

fn signed() -> Base {
    Base::Signature(b"signature".to_vec())
}

fn part(wants_signature: bool) -> StepOf {
    StepOf::NextPart { wants_signature }
}

fn delta(of: StepOf) -> DeltaStep {
    DeltaStep::Delta { of, is_packed: false }
}

fn outline(of: StepOf) -> DeltaStep {
    DeltaStep::Outline { of, further: 1 }
}

/// A lie of a responder.
enum Lie {
    Reply(Reply, u64),
    Run(DeltaStep, usize),
    More(usize),
}

fn tell(requester: &mut Requester, lie: &Lie) -> Result<(), NotDue> {
    let bytes = vec![7; MAX_RUN_LEN];
    match lie {
        Lie::Reply(reply, size) => requester.recv_reply(reply.clone(), *size),
        Lie::Run(step, len) => requester.recv_run(DeltaRun::Last(*step, &bytes[..*len]), true),
        Lie::More(count) => (0..*count).try_for_each(|_| requester.recv_run(DeltaRun::More(&bytes), true)),
    }
}

#[test]
fn what_a_responder_may_not_send_is_refused() {
    let named = || Base::Named(Oid::of(b"x"));
    let parts = || Base::Parts { count: 2, ahead: 1 };
    let in_parts = || Lie::Reply(Reply::InParts, SIZE);
    let whole = || Reply::Whole(b"delta".to_vec());
    let too_many = || (0..MAX_OUTLINES).map(|_| Lie::Run(outline(StepOf::Literals), 1));
    let deep = [in_parts(), Lie::Run(outline(part(false)), 1)].into_iter().chain(too_many());
    for (base, lies, words) in [
        (signed(), vec![Lie::Reply(Reply::Same, SIZE)], "a base that nobody named"),
        (parts(), vec![Lie::Reply(Reply::UnknownBase, SIZE)], "a base that nobody named"),
        (parts(), vec![Lie::Reply(whole(), SIZE)], "parts that came as one"),
        (named(), vec![Lie::Reply(whole(), 20 << 20)], "parts that came as one"),
        (signed(), vec![Lie::Reply(Reply::InParts, u64::MAX)], "too many or too long"),
        (signed(), vec![Lie::Reply(Reply::InParts, (1 << 24) + 1)], "too many or too long"),
        (parts(), vec![Lie::Reply(Reply::InParts, (2 << 24) + 1)], "too many or too long"),
        (named(), vec![Lie::Reply(Reply::InParts, u64::MAX)], "too many or too long"),
        (signed(), vec![in_parts(), in_parts()], "a second reply"),
        (signed(), vec![Lie::Run(delta(part(false)), 9)], "before the reply"),
        (signed(), vec![in_parts(), Lie::Run(delta(StepOf::Literals), 9)], "literals of no outline"),
        (signed(), vec![in_parts(), Lie::Run(DeltaStep::Patch, 9)], "a patch of what was signed"),
        (named(), vec![in_parts(), Lie::Run(delta(part(false)), 9)], "a delta of what was named"),
        (named(), vec![in_parts(), Lie::Run(outline(part(false)), 9)], "a delta of what was named"),
        (signed(), vec![in_parts(), Lie::Run(delta(part(true)), 9)], "more signatures than there are parts"),
        (
            parts(),
            vec![in_parts(), Lie::Run(outline(part(true)), 9), Lie::Run(outline(part(true)), 9)],
            "more signatures than there are parts",
        ),
        (
            signed(),
            vec![in_parts(), Lie::Run(outline(part(false)), 9), Lie::Run(outline(part(false)), 9)],
            "more parts than there are",
        ),
        (signed(), deep.collect(), "more outlines than a part may have"),
        (signed(), vec![in_parts(), Lie::More(137)], "longer than what it makes"),
    ] {
        let mut requester = Requester::new(&request(base), SIZE);
        let (last, before) = lies.split_last().unwrap();
        before.iter().for_each(|lie| tell(&mut requester, lie).unwrap());
        let refused = tell(&mut requester, last).unwrap_err();
        assert!(refused.to_string().contains(words), "{words}: {refused}");
        while let RequesterAction::Send(sent) = requester.poll() {
            assert_eq!(sent, NextSignature::GivenUp);
        }
        assert_eq!(requester.poll(), RequesterAction::End(RequesterEnd::GivenUp), "{words}");
        assert_eq!(requester.held(), 0);
    }
}

#[test]
fn outlines_of_many_parts_are_bounded_together() {
    let mut requester = Requester::new(&request(Base::Parts { count: 16, ahead: 16 }), SIZE);
    requester.recv_reply(Reply::InParts, SIZE).unwrap();
    let (mut held, run) = (0, vec![7; MAX_RUN_LEN]);
    let refused = (0..16).find_map(|_| {
        let most = (0..40).try_for_each(|_| requester.recv_run(DeltaRun::More(&run), true));
        let last = requester.recv_run(DeltaRun::Last(outline(part(false)), &run), true);
        held = held.max(requester.held());
        most.and(last).err()
    });
    assert!(refused.unwrap().to_string().contains("more outlines"));
    assert!(held <= REQUESTER_HOLDS, "{held}");
}

/// What the requester makes of one step, with a base that is there.
fn step_with(base: Base, step: DeltaStep, bytes: &[u8]) -> Vec<NextSignature> {
    let mut requester = Requester::new(&request(base), SIZE);
    requester.recv_reply(Reply::InParts, SIZE).unwrap();
    requester.recv_run(DeltaRun::Last(step, bytes), true).unwrap();
    let mut sent = Vec::new();
    loop {
        match requester.poll() {
            RequesterAction::Read(range) => {
                let bytes = noise(1, (range.end - range.start) as usize);
                requester.read(Some(bytes));
            }
            RequesterAction::Unpack { packed, limit } => {
                let unpacked = zstd::bulk::decompress(packed, limit as usize).ok();
                requester.unpacked(unpacked);
            }
            RequesterAction::ApplyPatch { patch, base, len } => {
                let made = patch::apply(patch, base, len as usize).ok();
                requester.patched(made);
            }
            RequesterAction::Send(signature) => sent.push(signature),
            action => {
                assert_eq!(action, RequesterAction::End(RequesterEnd::GivenUp));
                return sent;
            }
        }
    }
}

#[test]
fn steps_that_make_nothing_are_given_up_and_refuse_the_signatures_that_they_want() {
    let packed = |of| DeltaStep::Delta { of, is_packed: true };
    let parts = || Base::Parts { count: 2, ahead: 1 };
    let zeros = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
    for (base, step, bytes, refused) in [
        (signed(), delta(part(false)), &b"no delta"[..], 0),
        (parts(), delta(part(true)), b"no delta", 1),
        (parts(), delta(part(true)), b"", 1),
        (signed(), packed(part(false)), b"no frame", 0),
        (parts(), packed(part(true)), &zeros, 1),
        (signed(), outline(part(false)), b"no outline", 1),
        (parts(), outline(part(true)), b"no outline", 2),
        (Base::Named(Oid::of(b"x")), DeltaStep::Patch, b"no patch", 0),
    ] {
        let sent = step_with(base, step, bytes);
        assert_eq!(sent, vec![NextSignature::GivenUp; refused], "{step:?}");
    }
}

#[test]
fn a_file_that_can_not_be_written_is_abandoned_and_its_signatures_are_refused() {
    let base = noise(1, 200_000);
    let scene = Scene::of(&base, &base, Describe::Parts { count: 2, ahead: 1 });
    let request = scene.request();
    let mut requester = Requester::new(&request, base.len() as u64);
    requester.recv_reply(Reply::InParts, base.len() as u64).unwrap();
    let signature = SignedParts::new(200_000, 200_000, 2).unwrap().sign(0, &base[..100_000], false).unwrap();
    let made = parts::make(&signature, &base[..100_000]).unwrap();
    requester.recv_run(DeltaRun::Last(delta(part(true)), &made), false).unwrap();
    assert_eq!(requester.poll(), RequesterAction::Read(0..100_000));
    requester.read(Some(base[..100_000].to_vec()));
    assert!(matches!(requester.poll(), RequesterAction::Write { offset: 0, .. }));
    requester.give_up();
    assert_eq!(requester.poll(), RequesterAction::Send(NextSignature::GivenUp));
    assert_eq!(requester.poll(), RequesterAction::End(RequesterEnd::GivenUp));
}

#[test]
fn what_comes_behind_the_end_is_refused_or_passed_over() {
    let mut requester = Requester::new(&request(signed()), SIZE);
    requester.recv_reply(Reply::GivenUp, SIZE).unwrap();
    for (run, refused) in [
        (DeltaRun::More(b"x"), 0),
        (DeltaRun::GivenUp, 0),
        (DeltaRun::Last(delta(part(true)), b"x"), 1),
        (DeltaRun::Last(outline(part(true)), b"x"), 2),
    ] {
        requester.recv_run(run, true).unwrap();
        for _ in 0..refused {
            assert_eq!(requester.poll(), RequesterAction::Send(NextSignature::GivenUp));
        }
        assert_eq!(requester.poll(), RequesterAction::End(RequesterEnd::GivenUp));
    }
    assert!(requester.recv_reply(Reply::InParts, SIZE).is_err());
}

/// What a responder with a file sends to a requester whose signatures are these.
fn answer(base: Base, signatures: &[NextSignature]) -> (Option<Reply>, bool) {
    let file = noise(1, 3 << 20);
    let mut responder = Responder::new(request(base), &Oid::of(&file), file.len() as u64);
    let (mut reply, mut given_up, mut signatures) = (None, false, signatures.iter());
    loop {
        assert!(responder.held() <= RESPONDER_HOLDS);
        match responder.poll() {
            ResponderAction::Reply(told) => reply = Some(told),
            ResponderAction::Send(run) => given_up |= run == DeltaRun::GivenUp,
            ResponderAction::Read(range) => responder.read(Some(file[usize_range(range)].to_vec())),
            ResponderAction::Pack(_) => responder.packed(None, true),
            ResponderAction::AwaitSignature => match signatures.next() {
                Some(signature) => responder.signature(signature.clone()),
                None => return (reply, given_up),
            },
            ResponderAction::FindBase(_) => responder.found(Some(u64::MAX)),
            ResponderAction::MakePatches(_) => assert!(!responder.patched(None)),
            ResponderAction::End => return (reply, given_up),
        }
    }
}

#[test]
fn requesters_that_lie_are_given_up() {
    let parts = || Base::Parts { count: 3, ahead: 3 };
    let none = || NextSignature::Signed(b"none".to_vec());
    // Blocks of another base, and as many as a signature has at most.
    let false_one = crate::delta::Signature::of(&noise(9, 1 << 20), 64, 1 << 20).unwrap().to_bytes();
    let false_one = || NextSignature::Signed(false_one.clone());
    assert_eq!(answer(signed(), &[]), (Some(Reply::InParts), true), "a signature that is none");
    assert_eq!(answer(Base::Signature(Vec::new()), &[]), (Some(Reply::InParts), true));
    assert_eq!(answer(parts(), &[none()]), (Some(Reply::InParts), true));
    assert_eq!(answer(parts(), &[NextSignature::GivenUp]), (Some(Reply::InParts), true));
    assert_eq!(answer(parts(), &[false_one(), false_one(), false_one()]), (Some(Reply::InParts), false));
    assert_eq!(answer(parts(), &[false_one(), none()]), (Some(Reply::InParts), true));
    assert_eq!(answer(Base::Named(Oid::of(b"x")), &[]), (Some(Reply::UnknownBase), false), "far too large");
}

#[test]
fn a_responder_does_what_it_is_told_only_when_it_asked() {
    let file = noise(1, 3 << 20);
    let parts = Base::Parts { count: 3, ahead: 3 };
    let mut responder = Responder::new(request(parts), &Oid::of(&file), file.len() as u64);
    assert!(!responder.patched(Some(vec![1])));
    responder.packed(None, true);
    assert_eq!(responder.poll(), ResponderAction::Reply(Reply::InParts));
    responder.signature(NextSignature::Signed(b"one".to_vec()));
    // Before the file was read for the first one.
    responder.signature(NextSignature::Signed(b"two".to_vec()));
    assert_eq!(responder.poll(), ResponderAction::Send(DeltaRun::GivenUp));
    assert_eq!(responder.poll(), ResponderAction::End);
}
