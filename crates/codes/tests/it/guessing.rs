//! A guesser against many hosts: how often it is right, and that each wrong guess is told.

use std::time::Instant;

use towpath_codes::attempts::{Renewal, Renewals};
use towpath_codes::code::USUAL_WORDS;
use towpath_codes::exchange::{CodeWay, GuestStep, HostStep};
use towpath_codes::{Code, CodeGuest, CodeHost, Entropy};
use towpath_content::NodeId;

use crate::support::{GUEST, HOST, TICKET, entropy};

/// Guesses and their results.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    tries: u32,
    right: u32,
    voids_told: u32,
    guessers_told: u32,
}

/// A guess at a fresh code for a mailbox that the guesser knows.
fn guess(tally: &mut Tally, entropy: &mut Entropy) {
    let code = Code::random(7, USUAL_WORDS, entropy);
    let guess = Code::random(7, USUAL_WORDS, entropy);
    let [host_seed, guest_seed] = [entropy.array(), entropy.array()].map(|seed| Entropy::from_seed(&seed));
    let mut host = CodeHost::new(&code, HOST, TICKET.into(), false, host_seed).unwrap();
    let mut guest = CodeGuest::new(&guess, GUEST, guest_seed);
    let GuestStep::Answer(answer) = guest.receive(host.offer(), &CodeWay::Carried) else {
        panic!("no answer")
    };
    tally.tries += 1;
    match host.receive(&answer, &CodeWay::Carried) {
        HostStep::Sold { .. } => {
            assert_eq!(code, guess);
            tally.right += 1;
        }
        HostStep::Void { send } => {
            assert_ne!(code, guess);
            tally.voids_told += 1;
            let step = guest.receive(&send[0], &CodeWay::Carried);
            tally.guessers_told += u32::from(matches!(step, GuestStep::Failed(_)));
        }
        step => panic!("{step:?}"),
    }
}

fn tally(tries: u32) -> Tally {
    let (mut tally, mut entropy) = (Tally::default(), entropy(500));
    (0..tries).for_each(|_| guess(&mut tally, &mut entropy));
    tally
}

/// One in 2^20 is right, and more than one in 2^16 is not allowed.
fn check(tally: &Tally) {
    assert!(u64::from(tally.right) << 16 <= u64::from(tally.tries), "{tally:?}");
    let wrong = tally.tries - tally.right;
    assert_eq!((tally.voids_told, tally.guessers_told), (wrong, wrong), "{tally:?}");
}

#[test]
fn two_thousand_guesses_are_wrong_and_each_is_told() {
    check(&tally(2000));
}

/// Prints what it counted: `cargo test --release -p towpath-codes --test it -- --ignored --nocapture million`.
#[test]
#[ignore = "takes minutes"]
fn a_million_guesses_with_real_exchanges() {
    let begin = Instant::now();
    let tally = tally(1_000_000);
    println!("{tally:?} in {:.1} s", begin.elapsed().as_secs_f64());
    check(&tally);
}

/// The exchange compares words and nothing else, as the tests above show; so the words alone, a million times.
#[test]
fn a_million_codes_are_guessed_as_seldom_as_their_bits_say() {
    let mut entropy = entropy(501);
    let mut is_same =
        || Code::random(7, USUAL_WORDS, &mut entropy) == Code::random(7, USUAL_WORDS, &mut entropy);
    let right = (0..1_000_000).filter(|_| is_same()).count();
    assert!(right <= 15, "{right} of a million, where 2^-16 are 15");
}

/// A host of a new offer for this code.
fn host(code: &Code, is_verified: bool, entropy: &mut Entropy) -> CodeHost {
    let seed = Entropy::from_seed(&entropy.array());
    CodeHost::new(code, HOST, TICKET.into(), is_verified, seed).unwrap()
}

/// What a guest with this code does to a host.
fn come(code: &Code, node: NodeId, host: &mut CodeHost, entropy: &mut Entropy) -> HostStep {
    let mut guest = CodeGuest::new(code, node, Entropy::from_seed(&entropy.array()));
    let GuestStep::Answer(answer) = guest.receive(host.offer(), &CodeWay::Carried) else {
        panic!("no answer")
    };
    host.receive(&answer, &CodeWay::Carried)
}

/// Somebody counts mailboxes and spoils each code at once. The guest types the fourth renewal, and gets through.
#[test]
fn a_host_under_attack_gets_through_with_the_code_that_stands() {
    let (mut entropy, mut renewals) = (entropy(502), Renewals::new(USUAL_WORDS, false));
    let mut code = Code::random(7, USUAL_WORDS, &mut entropy);
    let (mut shown, mut is_verified) = (1, false);
    for _ in 0..40 {
        let mut attacked = host(&code, is_verified, &mut entropy);
        let guess = Code::random(7, USUAL_WORDS, &mut entropy);
        let step = come(&guess, NodeId([9; 32]), &mut attacked, &mut entropy);
        assert!(matches!(step, HostStep::Void { .. }), "{step:?}");
        match renewals.void() {
            Renewal::NewCode { words, is_verified: verify } => {
                code = Code::random(7, words, &mut entropy);
                (shown, is_verified) = (shown + 1, verify);
            }
            Renewal::SameCode => {}
            Renewal::End => panic!("ended"),
        }
    }
    assert_eq!((shown, code.bits(), is_verified), (5, 30, true), "codes that people had to read out");
    // The guest has its offer already when the next guess is made, at another host of the same code.
    let [mut own, mut attacked] = [(); 2].map(|()| host(&code, is_verified, &mut entropy));
    let guess = Code::random(7, USUAL_WORDS, &mut entropy);
    come(&guess, NodeId([9; 32]), &mut attacked, &mut entropy);
    let step = come(&code, GUEST, &mut own, &mut entropy);
    assert!(matches!(step, HostStep::Compare { guest: GUEST, .. }), "{step:?}");
}
