//! The two ends, and what each is told when something is wrong.

use towpath_codes::exchange::message::{CodeMessage, EndReason, MAX_MESSAGE, MAX_TICKET};
use towpath_codes::exchange::{CodeWay, GuestFailure, GuestStep, HostStep, TicketTooLong};
use towpath_codes::{CodeGuest, CodeHost};

use crate::support::{GUEST, HOST, TICKET, code, direct, entropy, guest, host, sent};

/// What a guest answers to a host's offer.
fn answer(host: &CodeHost, guest: &mut CodeGuest, way: &CodeWay) -> Vec<u8> {
    match guest.receive(host.offer(), way) {
        GuestStep::Answer(answer) => answer,
        step => panic!("{step:?}"),
    }
}

fn end(reason: EndReason) -> Vec<u8> {
    CodeMessage::End(reason).to_bytes()
}

#[test]
fn a_code_buys_the_ticket_by_mailbox_and_on_a_connection() {
    let code = code("7-otter-lagoon");
    for ways in [[CodeWay::Carried; 2], direct()] {
        let (mut host, mut guest) = (host(&code, false, 1), guest(&code, 1));
        let answer = answer(&host, &mut guest, &ways[1]);
        let step = host.receive(&answer, &ways[0]);
        assert!(matches!(&step, HostStep::Sold { guest: GUEST, send } if send.len() == 2), "{step:?}");
        let steps: Vec<_> = sent(&step).iter().map(|it| guest.receive(it, &ways[1])).collect();
        let ticket = GuestStep::Ticket { host: HOST, text: TICKET.into() };
        assert_eq!(steps, [GuestStep::Confirmed, ticket]);
    }
}

#[test]
fn with_verify_nothing_is_sold_before_the_person_has_accepted() {
    let code = code("7-otter-lagoon-owl");
    let (mut host, mut guest) = (host(&code, true, 2), guest(&code, 2));
    let answer = answer(&host, &mut guest, &CodeWay::Carried);
    let HostStep::Compare { guest: GUEST, send, fingerprint } = host.receive(&answer, &CodeWay::Carried)
    else {
        panic!("no fingerprint");
    };
    let [confirm] = &send[..] else { panic!("{send:?}") };
    assert_eq!(guest.receive(confirm, &CodeWay::Carried), GuestStep::Compare(fingerprint));
    assert_eq!(fingerprint.to_string().split(' ').count(), 4);
    let Some(HostStep::Sold { guest: GUEST, send }) = host.accept() else { panic!("not sold") };
    let ticket = GuestStep::Ticket { host: HOST, text: TICKET.into() };
    assert_eq!(guest.receive(&send[0], &CodeWay::Carried), ticket);
    assert_eq!(host.accept(), None, "once");
}

#[test]
fn fingerprints_that_differ_end_it_at_both_ends() {
    let code = code("7-otter-lagoon");
    let begun = || {
        let (mut host, mut guest) = (host(&code, true, 3), guest(&code, 3));
        let answer = answer(&host, &mut guest, &CodeWay::Carried);
        let step = host.receive(&answer, &CodeWay::Carried);
        guest.receive(&sent(&step)[0], &CodeWay::Carried);
        (host, guest, answer)
    };
    let (mut host, mut guest, answer) = begun();
    let told = guest.receive(&host.refuse(), &CodeWay::Carried);
    assert_eq!(told, GuestStep::Failed(GuestFailure::Differs));
    assert_eq!(host.accept(), None);
    assert_eq!(
        host.receive(&answer, &CodeWay::Carried),
        HostStep::Told { send: vec![end(EndReason::Spent)] }
    );

    let (mut host, mut guest, _) = begun();
    let step = host.receive(&guest.leave(), &CodeWay::Carried);
    assert_eq!(step, HostStep::Parted(EndReason::Differs));
    assert_eq!(host.accept(), None);
}

#[test]
fn one_wrong_guess_makes_the_code_void_for_good() {
    let right = code("7-otter-lagoon");
    for wrong in ["7-otter-owl", "7-lagoon-otter", "8-otter-lagoon", "7-otter-lagoon-owl"] {
        let (mut host, mut guesser) = (host(&right, false, 4), guest(&code(wrong), 5));
        let guess = answer(&host, &mut guesser, &CodeWay::Carried);
        let step = host.receive(&guess, &CodeWay::Carried);
        assert_eq!(step, HostStep::Void { send: vec![end(EndReason::WrongCode)] }, "{wrong}");
        let told = guesser.receive(&sent(&step)[0], &CodeWay::Carried);
        assert_eq!(told, GuestStep::Failed(GuestFailure::WrongCode));

        let mut honest = guest(&right, 6);
        let late = answer(&host, &mut honest, &CodeWay::Carried);
        let step = host.receive(&late, &CodeWay::Carried);
        assert_eq!(step, HostStep::Told { send: vec![end(EndReason::Spent)] });
        let told = honest.receive(&sent(&step)[0], &CodeWay::Carried);
        assert_eq!(told, GuestStep::Failed(GuestFailure::Spent));
    }
}

#[test]
fn who_comes_second_learns_that_the_code_is_spent() {
    let code = code("7-otter-lagoon");
    let (mut host, mut first, mut second) = (host(&code, false, 7), guest(&code, 7), guest(&code, 8));
    let answers =
        [answer(&host, &mut first, &CodeWay::Carried), answer(&host, &mut second, &CodeWay::Carried)];
    let sold = host.receive(&answers[0], &CodeWay::Carried);
    assert_eq!(
        host.receive(&answers[1], &CodeWay::Carried),
        HostStep::Told { send: vec![end(EndReason::Spent)] }
    );
    let again = host.receive(&answers[0], &CodeWay::Carried);
    assert_eq!(again, HostStep::Told { send: sent(&sold) }, "the first one is told again what it lost");
}

#[test]
fn a_guest_is_told_apart_what_went_wrong() {
    let reasons = [
        (EndReason::WrongCode, GuestFailure::WrongCode),
        (EndReason::Spent, GuestFailure::Spent),
        (EndReason::Differs, GuestFailure::Differs),
        (EndReason::Left, GuestFailure::Left),
        (EndReason::Nobody, GuestFailure::Nobody),
    ];
    for (reason, failure) in reasons {
        let mut guest = guest(&code("7-otter-lagoon"), 9);
        assert_eq!(guest.receive(&end(reason), &CodeWay::Carried), GuestStep::Failed(failure));
        assert_eq!(guest.receive(&end(reason), &CodeWay::Carried), GuestStep::Ignored, "once");
    }
    let mut one = guest(&code("7-otter-lagoon"), 9);
    let bad = one.receive(&[77], &CodeWay::Carried);
    assert!(matches!(bad, GuestStep::Failed(GuestFailure::BadMessage(_))), "{bad:?}");
    let mut other = guest(&code("7-otter-lagoon"), 9);
    let early = CodeMessage::Sealed(vec![0; 20]).to_bytes();
    assert_eq!(other.receive(&early, &CodeWay::Carried), GuestStep::Failed(GuestFailure::Unfit));
}

#[test]
fn a_connection_speaks_for_its_own_node_only_and_once() {
    let code = code("7-otter-lagoon");
    let [to_guest, to_host] = direct();
    let stranger = CodeWay::Direct { peer: HOST, binding: [7; 32] };
    let (mut host, mut first) = (host(&code, false, 10), guest(&code, 10));
    let mut deceived = guest(&code, 11);
    assert_eq!(deceived.receive(host.offer(), &to_guest), GuestStep::Failed(GuestFailure::Unfit));
    let answer = answer(&host, &mut first, &to_host);
    assert_eq!(host.receive(&answer, &stranger), HostStep::Ignored(None), "the answer of another node");
    let elsewhere = CodeWay::Direct { peer: GUEST, binding: [8; 32] };
    let step = host.receive(&answer, &elsewhere);
    assert!(matches!(step, HostStep::Void { .. }), "the answer of another connection: {step:?}");
}

#[test]
fn what_cannot_be_a_guess_leaves_the_host_waiting() {
    let code = code("7-otter-lagoon");
    let (mut host, mut guest) = (host(&code, false, 12), guest(&code, 12));
    let answer = answer(&host, &mut guest, &CodeWay::Carried);
    let offer = host.offer().to_vec();
    for noise in [&[][..], &[0], &answer[..answer.len() - 1], &offer, &vec![2; MAX_MESSAGE + 1]] {
        assert!(matches!(host.receive(noise, &CodeWay::Carried), HostStep::Ignored(_)));
    }
    assert_eq!(host.receive(&end(EndReason::Left), &CodeWay::Carried), HostStep::Ignored(None));
    assert!(matches!(host.receive(&answer, &CodeWay::Carried), HostStep::Sold { .. }));
}

#[test]
fn a_host_that_leaves_says_so_and_sells_nothing() {
    let code = code("7-otter-lagoon");
    let (mut host, mut guest) = (host(&code, false, 13), guest(&code, 13));
    let answer = answer(&host, &mut guest, &CodeWay::Carried);
    let told = guest.receive(&host.refuse(), &CodeWay::Carried);
    assert_eq!(told, GuestStep::Failed(GuestFailure::Left));
    assert_eq!(
        host.receive(&answer, &CodeWay::Carried),
        HostStep::Told { send: vec![end(EndReason::Spent)] }
    );
}

#[test]
fn a_ticket_is_as_long_as_it_may_be_and_no_longer() {
    let code = code("7-otter-lagoon");
    let of = |len| CodeHost::new(&code, HOST, "t".repeat(len), false, entropy(0));
    assert_eq!(of(MAX_TICKET + 1).err(), Some(TicketTooLong { found: MAX_TICKET + 1 }));
    let (mut host, mut guest) = (of(MAX_TICKET).unwrap(), guest(&code, 14));
    let answer = answer(&host, &mut guest, &CodeWay::Carried);
    let step = host.receive(&answer, &CodeWay::Carried);
    let last = sent(&step).iter().map(|it| guest.receive(it, &CodeWay::Carried)).last();
    assert!(matches!(last, Some(GuestStep::Ticket { text, .. }) if text.len() == MAX_TICKET));
}

#[test]
fn a_half_that_is_no_point_of_the_curve_is_a_wrong_guess_or_a_bad_offer() {
    let code = code("7-otter-lagoon");
    // No point has the second coordinate 2.
    let no_point: [u8; 32] = std::array::from_fn(|at| if at == 0 { 2 } else { 0 });
    let (mut host, mut guest) = (host(&code, false, 15), guest(&code, 15));
    let CodeMessage::Offer(mut offer) = CodeMessage::from_bytes(host.offer()).unwrap() else {
        panic!("no offer")
    };
    offer.element = no_point;
    let step = guest.receive(&CodeMessage::Offer(offer).to_bytes(), &CodeWay::Carried);
    assert_eq!(step, GuestStep::Failed(GuestFailure::Unfit));
    let answer = CodeMessage::Answer { node: GUEST, element: no_point, confirmation: [0; 32] };
    assert!(matches!(host.receive(&answer.to_bytes(), &CodeWay::Carried), HostStep::Void { .. }));
}
