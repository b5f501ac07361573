//! Each step is requested by itself: no side keeps anything for the other, and what comes is the same.

use super::*;

/// What came of the steps towards a file, and what went: bytes, and how many steps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Steps {
    came: usize,
    went: usize,
    steps: usize,
}

/// The runs that answer a request; none if the file does not come so.
fn answer(request: &Request, file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut responder = Responder::of_step(request.clone(), file.len() as u64)?;
    let mut runs = Vec::new();
    loop {
        match responder.poll() {
            ResponderAction::Read(range) => {
                responder.read(Some(file[range.start as usize..range.end as usize].to_vec()));
            }
            ResponderAction::Pack(_) => responder.packed(None, true),
            ResponderAction::Send(DeltaRun::GivenUp) => return None,
            ResponderAction::Send(run) => runs.push(run.to_bytes()),
            ResponderAction::AwaitSignature | ResponderAction::End => return Some(runs),
            other => panic!("{other:?}"),
        }
    }
}

/// The request for the step that follows these runs, or the file that they make; none if they make none.
fn take(request: &Request, base: &[u8], size: u64, runs: &[Vec<u8>]) -> Option<Result<Vec<u8>, Request>> {
    let mut requester = Requester::new(request, base.len() as u64);
    requester.recv_reply(Reply::InParts, size).unwrap();
    for run in runs {
        requester.recv_run(DeltaRun::from_bytes(run).unwrap(), true).ok()?;
    }
    loop {
        match requester.poll() {
            RequesterAction::Read(range) => {
                requester.read(base.get(range.start as usize..range.end as usize).map(<[u8]>::to_vec));
            }
            RequesterAction::Send(NextSignature::Signed(signature)) => {
                return requester.ask_anew(signature).map(Err);
            }
            RequesterAction::Write { bytes, .. } => return Some(Ok(bytes)),
            RequesterAction::End(_) | RequesterAction::Send(NextSignature::GivenUp) => return None,
            other => panic!("{other:?}"),
        }
    }
}

fn first(base: &[u8], file: &[u8], outlines: usize, is_guess: bool) -> Request {
    let parts = SignedParts::new(base.len() as u64, file.len() as u64, 1).unwrap();
    let signature = parts.sign(0, base, outlines > 0).unwrap();
    Request { base: Base::Signature(signature), is_guess, outlines }
}

/// All steps of a file, each by messages as they are encoded.
fn made(base: &[u8], file: &[u8], outlines: usize) -> (Vec<u8>, Steps) {
    let (mut request, mut all) = (first(base, file, outlines, false), Steps::default());
    loop {
        let sent = request.to_bytes();
        let runs = answer(&Request::from_bytes(&sent).unwrap(), file).unwrap();
        all.steps += 1;
        all.went += sent.len();
        all.came += runs.iter().map(Vec::len).sum::<usize>();
        match take(&request, base, file.len() as u64, &runs).unwrap() {
            Ok(made) => return (made, all),
            Err(next) => request = next,
        }
    }
}

#[test]
fn a_file_is_made_in_as_many_steps_as_are_liked_and_two_are_the_shortest() {
    let base = noise(1, 3 << 20);
    let file = edited(&base, 48, 200);
    let all = [0, 1, 2].map(|outlines| {
        let (made, steps) = made(&base, &file, outlines);
        assert!(made == file, "{steps:?}");
        steps
    });
    assert_eq!([all[0].steps, all[1].steps], [1, 2], "{all:?}");
    assert!(all[2].steps >= 2, "{all:?}");
    // The first signature is the same.
    assert!(3 * all[1].came < all[0].came, "{all:?}");
    assert!(all[1].came + all[1].went < (all[0].came + all[0].went) / 2, "{all:?}");
}

#[test]
fn long_changes_that_lie_close_come_in_three_steps_of_which_each_has_the_outlines_before_it() {
    let base = noise(1, 8 << 20);
    let mut file = base.clone();
    for (seed, at) in (2..).zip((5_000..file.len() - (48 << 10)).step_by(34_567)) {
        let len = 10_000 + seed as usize * 997 % 14_000;
        file[at..at + len].copy_from_slice(&noise(seed, len));
    }
    let (made, steps) = made(&base, &file, MAX_OUTLINES);
    assert!(made == file && steps.steps == 3, "{steps:?}");
}

#[test]
fn what_is_no_step_or_resembles_nothing_is_not_answered() {
    let (base, file) = (noise(1, 300_000), noise(2, 300_000));
    assert_eq!(answer(&first(&base, &file, 2, true), &file), None, "nothing is alike");
    for base in [Base::Named(Oid::of(b"x")), Base::Parts { count: 1, ahead: 1 }] {
        let request = Request { base, is_guess: false, outlines: 2 };
        assert!(Responder::of_step(request, 300_000).is_none());
    }
    let outlined = |base_len, outline: &[u8], signature: &[u8]| {
        let (outlines, signature) = (vec![outline.to_vec()], signature.to_vec());
        Request { base: Base::Outlined { base_len, outlines, signature }, is_guess: false, outlines: 2 }
    };
    for request in [outlined(300_000, b"none", b"none"), outlined(u64::MAX, b"none", b"none")] {
        assert_eq!(answer(&request, &file), None);
    }
}

#[test]
fn outlines_and_signatures_that_lie_make_nothing_wrong() {
    let base = noise(1, 3 << 20);
    let file = edited(&base, 48, 200);
    let request = first(&base, &file, 1, true);
    let runs = answer(&request, &file).unwrap();
    let Some(Err(next)) = take(&request, &base, file.len() as u64, &runs) else { panic!("no outline") };
    let Base::Outlined { base_len, outlines, signature } = next.base.clone() else { panic!() };
    let with = |base_len, outlines: Vec<Vec<u8>>, signature: &[u8]| {
        let base = Base::Outlined { base_len, outlines, signature: signature.to_vec() };
        answer(&Request { base, ..next.clone() }, &file)
    };
    // Of another base, another outline, or another signature: it comes not at all, or as what the hash finds.
    assert_eq!(with(base_len / 2, outlines.clone(), &signature), None, "it copies what such a base has not");
    assert_eq!(with(base_len, [&outlines[..], &outlines[..]].concat(), &signature), None);
    assert_eq!(with(base_len, outlines.clone(), b"none"), None);
    let other = SignedParts::new(9000, 9000, 1).unwrap().sign(0, &noise(9, 9000), false).unwrap();
    let wrong = with(base_len, outlines, &other).unwrap();
    let taken = take(&next, &base, file.len() as u64, &wrong);
    assert!(taken == Some(Ok(file.clone())), "a wrong signature costs bytes");
    // What answers the request for the first step is none of the second.
    let taken = take(&next, &base, file.len() as u64, &runs);
    assert!(taken.is_none(), "there is no other part");
}
