//! Whoever carries the messages sees all of them and changes what it likes. It gets no ticket, nobody gets one who should
//! not, and nobody takes a wrong one.

use proptest::prelude::*;
use towpath_codes::exchange::message::CodeMessage;
use towpath_codes::exchange::{CodeWay, GuestStep, HostStep};
use towpath_content::NodeId;

use crate::support::{GUEST, HOST, TICKET, code, direct, guest, host, sent};

/// What came of an exchange whose messages pass `change`, which is told which of the four it sees.
fn run(verify: bool, ways: [CodeWay; 2], mut change: impl FnMut(usize, Vec<u8>) -> Vec<u8>) -> [bool; 2] {
    let code = code("7-otter-lagoon");
    let (mut host, mut guest) = (host(&code, verify, 20), guest(&code, 20));
    let offer = change(0, host.offer().to_vec());
    let GuestStep::Answer(answer) = guest.receive(&offer, &ways[1]) else { return [false; 2] };
    let mut step = host.receive(&change(1, answer), &ways[0]);
    let mut to_guest = sent(&step);
    let mut is_same = true;
    if let HostStep::Compare { fingerprint, .. } = step {
        let shown = guest.receive(&change(2, to_guest.remove(0)), &ways[1]);
        is_same = shown == GuestStep::Compare(fingerprint);
        let Some(next) = host.accept().filter(|_| is_same) else { return [false; 2] };
        (to_guest, step) = (sent(&next), next);
    }
    let is_sold = matches!(step, HostStep::Sold { guest: GUEST, .. });
    assert!(is_sold || matches!(step, HostStep::Void { .. } | HostStep::Ignored(_)), "{step:?}");
    let first = if verify { 3 } else { 2 };
    let steps =
        to_guest.into_iter().enumerate().map(|(at, it)| guest.receive(&change(first + at, it), &ways[1]));
    let has_ticket = steps.fold(false, |has, step| match step {
        GuestStep::Ticket { host, text } => {
            assert_eq!((host, text.as_str()), (HOST, TICKET));
            true
        }
        _ => has,
    });
    [is_sold, has_ticket && is_same]
}

#[test]
fn without_a_liar_it_comes_through() {
    for (verify, ways) in
        [(false, direct()), (true, direct()), (false, [CodeWay::Carried; 2]), (true, [CodeWay::Carried; 2])]
    {
        assert_eq!(run(verify, ways, |_, message| message), [true; 2]);
    }
}

#[test]
fn one_bit_changed_anywhere_and_there_is_no_ticket() {
    let mut lens = Vec::new();
    run(true, [CodeWay::Carried; 2], |_, message| {
        lens.push(message.len());
        message
    });
    assert_eq!(lens.len(), 4);
    for (which, len) in lens.into_iter().enumerate() {
        // Each byte once, each bit of a byte at one of eight.
        for at in 0..len {
            let flipped = |seen: usize, mut message: Vec<u8>| {
                if seen == which {
                    message[at] ^= 1 << (at % 8);
                }
                message
            };
            let came = run(true, [CodeWay::Carried; 2], flipped);
            assert!(!came[1], "bit {} of byte {at} of message {which}", at % 8);
        }
    }
}

/// A carrier that puts itself between the ends by its own node id, without the words.
#[test]
fn another_node_put_into_the_messages_makes_the_code_void() {
    let liar = NodeId([9; 32]);
    for which in [0, 1] {
        let came = run(false, [CodeWay::Carried; 2], |seen, message| {
            if seen != which {
                return message;
            }
            match CodeMessage::from_bytes(&message).unwrap() {
                CodeMessage::Offer(mut offer) => {
                    offer.node = liar;
                    CodeMessage::Offer(offer).to_bytes()
                }
                CodeMessage::Answer { element, confirmation, .. } => {
                    CodeMessage::Answer { node: liar, element, confirmation }.to_bytes()
                }
                other => other.to_bytes(),
            }
        });
        assert_eq!(came, [false; 2], "{which}");
    }
}

#[test]
fn a_carrier_cannot_take_the_fingerprint_away() {
    let code = code("7-otter-lagoon");
    for is_verified in [true, false] {
        let (mut host, mut guest) = (host(&code, is_verified, 40), guest(&code, 40));
        let Ok(CodeMessage::Offer(mut offer)) = CodeMessage::from_bytes(host.offer()) else {
            panic!("no offer")
        };
        offer.is_verified = !is_verified;
        let step = guest.receive(&CodeMessage::Offer(offer).to_bytes(), &CodeWay::Carried);
        let GuestStep::Answer(answer) = step else { panic!("{step:?}") };
        let step = host.receive(&answer, &CodeWay::Carried);
        assert!(matches!(step, HostStep::Void { .. }), "{step:?}");
    }
}

/// It has guessed the words, and plays guest to the host and host to the guest: the fingerprints are not the same.
#[test]
fn somebody_in_between_who_knows_the_words_shows_in_the_fingerprints() {
    let code = code("7-otter-lagoon");
    for seed in 0..20 {
        let (mut host, mut guest) = (host(&code, true, 100 + seed), guest(&code, 200 + seed));
        let (mut false_host, mut false_guest) =
            (crate::support::host(&code, true, 300 + seed), crate::support::guest(&code, 400 + seed));
        let GuestStep::Answer(to_host) = false_guest.receive(host.offer(), &CodeWay::Carried) else {
            panic!()
        };
        let GuestStep::Answer(to_false) = guest.receive(false_host.offer(), &CodeWay::Carried) else {
            panic!()
        };
        let HostStep::Compare { fingerprint, .. } = host.receive(&to_host, &CodeWay::Carried) else {
            panic!()
        };
        let step = false_host.receive(&to_false, &CodeWay::Carried);
        let GuestStep::Compare(shown) = guest.receive(&sent(&step)[0], &CodeWay::Carried) else { panic!() };
        assert_ne!(shown, fingerprint);
    }
}

proptest! {
    /// Real messages of several exchanges with one code, in any order, cut and repeated, and bytes that are none.
    #[test]
    fn a_mix_of_real_and_false_messages_never_panics_or_sells_wrongly(
        mix in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0usize..400, any::<Vec<u8>>()), 1..12),
    ) {
        let code = code("7-otter-lagoon");
        let (mut one, mut two) = (host(&code, false, 30), host(&code, true, 31));
        let (mut guest_of_one, mut guest_of_two) = (guest(&code, 30), guest(&code, 31));
        let mut real = vec![one.offer().to_vec(), two.offer().to_vec()];
        for (guest, host) in [(&mut guest_of_one, &mut one), (&mut guest_of_two, &mut two)] {
            let GuestStep::Answer(answer) = guest.receive(host.offer(), &CodeWay::Carried) else { panic!() };
            real.extend(sent(&host.receive(&answer, &CodeWay::Carried)));
            real.push(answer);
        }
        let (mut fresh_host, mut fresh_guest) = (host(&code, false, 32), guest(&code, 33));
        for (to_host, which, len, noise) in mix {
            let message = which.get(&real);
            let message = if len < 200 { [&message[..len.min(message.len())], &noise].concat() } else { message.clone() };
            if to_host {
                let step = fresh_host.receive(&message, &CodeWay::Carried);
                prop_assert!(!matches!(step, HostStep::Sold { .. } | HostStep::Compare { .. }), "{:?}", step);
            } else if let GuestStep::Answer(answer) = fresh_guest.receive(&message, &CodeWay::Carried) {
                real.push(answer);
            }
        }
    }
}
