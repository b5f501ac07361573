use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, MAX_OUTLINES, SignedParts};
use towpath_content::delta::{Signature, block_len};

use super::*;

/// Bytes that resemble nothing.
fn noise(seed: u8, len: usize) -> Vec<u8> {
    let blocks = (0..len.div_ceil(32) as u32)
        .flat_map(|at| *Oid::of(&[&[seed][..], &at.to_le_bytes()].concat()).digest());
    blocks.take(len).collect()
}

fn request(base: &[u8], target: usize) -> Request {
    let block = block_len(base.len(), target, &Default::default());
    let signature = Signature::of(base, block, target).unwrap().to_bytes();
    Request { base: Base::Signature(signature), is_guess: false, outlines: 0 }
}

/// The outcome of the runs of a step, and the bytes that came.
fn take(
    request: &Request,
    base: &[u8],
    len: u64,
    runs: &VecDeque<Bytes>,
) -> Result<(StepTaken, u64), StepError> {
    let mut step = ComingStep::new(&request.to_bytes(), &Bytes::copy_from_slice(base), len).unwrap();
    let mut taken = StepTaken::More;
    for run in runs {
        assert!(matches!(taken, StepTaken::More), "it was over");
        taken = step.recv(run)?;
    }
    Ok((taken, step.came()))
}

fn made(request: &Request, base: &[u8], target: &[u8]) -> (Vec<u8>, u64) {
    let runs = make(request.clone(), target).unwrap();
    match take(request, base, target.len() as u64, &runs).unwrap() {
        (StepTaken::Made(bytes), came) => (bytes.to_vec(), came),
        _ => panic!("it is not made"),
    }
}

#[test]
fn what_resembles_comes_as_little_and_is_made_again() {
    let base = noise(1, 40_000);
    for middle in [noise(2, 3000), b"text that can be packed ".repeat(125)] {
        let target = [&base[..17_000], &middle, &base[19_000..]].concat();
        let (bytes, came) = made(&request(&base, target.len()), &base, &target);
        assert!(bytes == target && came < middle.len() as u64 + 1500, "{came}");
    }
}

#[test]
fn a_delta_of_many_runs_is_put_together() {
    let base = noise(1, 2 << 20);
    let target = [&base[..1 << 20], &noise(2, 700_000)].concat();
    let request = request(&base, target.len());
    assert!(make(request.clone(), &target).unwrap().len() > 4);
    let (bytes, came) = made(&request, &base, &target);
    assert!(bytes == target && came > 700_000);
}

#[test]
fn what_does_not_resemble_goes_as_it_is() {
    let (base, target) = (noise(1, 40_000), noise(2, 40_000));
    let signed = |signature: &[u8]| Request {
        base: Base::Signature(signature.to_vec()),
        is_guess: false,
        outlines: 0,
    };
    assert_eq!(make(request(&base, target.len()), &target), None);
    assert_eq!(make(signed(b"no signature"), &target), None);
    assert_eq!(make(signed(b""), &target), None);
}

#[test]
fn scattered_changes_come_in_steps_each_of_which_is_requested_by_itself() {
    let base = noise(1, 2 << 20);
    let mut target = base.clone();
    (9000..target.len() - 300).step_by(60_000).for_each(|at| target[at..at + 300].fill(7));
    let signature = SignedParts::new(2 << 20, 2 << 20, 1).unwrap().sign(0, &base, true).unwrap();
    let mut next = Request { base: Base::Signature(signature), is_guess: true, outlines: MAX_OUTLINES };
    let one_step = make(Request { outlines: 0, ..next.clone() }, &target).unwrap();
    let one_step: usize = one_step.iter().map(Bytes::len).sum();
    let mut all = 0;
    for steps in 1.. {
        let runs = make(next.clone(), &target).unwrap();
        let (taken, came) = take(&next, &base, target.len() as u64, &runs).unwrap();
        all += came as usize;
        match taken {
            StepTaken::Outlined(base) => next = Request::from_bytes(&base).unwrap(),
            StepTaken::Made(bytes) => {
                assert!(bytes == target && steps > 1 && 3 * all < one_step, "{steps} {all} {one_step}");
                return;
            }
            _ => panic!("it is not made"),
        }
    }
}

#[test]
fn deltas_that_lie_make_nothing() {
    let base = noise(1, 40_000);
    let target = [&base[..20_000], b"new", &base[20_000..]].concat();
    let (request, len) = (request(&base, target.len()), target.len() as u64);
    let good = make(request.clone(), &target).unwrap();
    let (kind, bytes) = (&good[0][..3], &good[0][3..]);
    let of = |head: &[u8], bytes: &[u8]| VecDeque::from([Bytes::from([head, bytes].concat())]);
    let is_useless = |base: &[u8], len: u64, runs: &VecDeque<Bytes>| match take(&request, base, len, runs) {
        Ok((StepTaken::Useless, _)) => true,
        Ok((StepTaken::Made(bytes), _)) => bytes != target,
        _ => false,
    };
    assert!(is_useless(&base, len + 1, &good) && is_useless(&base[..10_000], len, &good));
    for cut in 0..bytes.len() {
        assert!(is_useless(&base, len, &of(kind, &bytes[..cut])), "{cut}");
    }
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    assert!(is_useless(&base, 1 << 20, &of(&[1, 2, 0], &bomb)), "packed");
    assert!(is_useless(&base, len, &of(&[2], b"")), "given up");
    assert!(is_useless(&base, len, &of(&[1, 3, 0, 0], b"no outline")));
}

#[test]
fn what_is_not_due_or_too_long_is_a_violation() {
    let base = noise(1, 40_000);
    let request = request(&base, 40_000);
    let violation = |runs: &[&[u8]]| {
        let runs = runs.iter().map(|run| Bytes::copy_from_slice(run)).collect();
        take(&request, &base, 40_000, &runs).err()
    };
    for (what, run) in [
        ("nothing", &b""[..]),
        ("no run", &[9]),
        ("a patch of what was signed", &[1, 0, 0, 7]),
        ("literals of no outline", &[1, 1, 2, 7]),
        ("one signature more", &[1, 1, 1, 7]),
    ] {
        assert_eq!(violation(&[run]), Some(StepError::NoDelta), "{what}");
    }
    let more = [&[0][..], &[7; 30_000]].concat();
    assert_eq!(violation(&[&more]), None, "more may come");
    assert_eq!(violation(&[&more, &more]), Some(StepError::TooLong));
    for base in [Base::Parts { count: 1, ahead: 1 }, Base::Named(Oid::of(b"x"))] {
        let request = Request { base, ..request.clone() };
        assert!(ComingStep::new(&request.to_bytes(), &Bytes::new(), 9).is_none());
    }
}
