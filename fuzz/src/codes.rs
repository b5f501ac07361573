//! Short codes: their text, the messages of an exchange, and both ends of one fed with anything.

use towpath_codes::exchange::message::{CodeMessage, MAX_MESSAGE};
use towpath_codes::exchange::{CodeWay, GuestStep, HostStep};
use towpath_codes::{Code, CodeError, CodeGuest, CodeHost, Entropy};
use towpath_content::NodeId;

use crate::input::{Source, Written};

/// A code as people type it.
pub fn code_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Code>() {
        Ok(code) => assert_eq!(code.to_string().parse(), Ok(code)),
        Err(error) => {
            assert!(error.to_string().len() < 200);
            if let CodeError::Word { meant: Some(meant), .. } = error {
                assert!(format!("1-{meant}-{meant}").parse::<Code>().is_ok());
            }
        }
    }
}

/// A message of either end.
pub fn code_message(data: &[u8]) {
    if let Ok(message) = CodeMessage::from_bytes(data) {
        assert!(data.len() <= MAX_MESSAGE);
        assert_eq!(message.to_bytes(), data);
    }
}

/// Two ends with the same code, whose random numbers are those of a seed.
fn ends(seed: u8) -> (CodeHost, CodeGuest) {
    let code: Code = "7-otter-lagoon".parse().expect("a valid code");
    let [for_host, for_guest] = [[seed; 32], [seed + 1; 32]].map(|seed| Entropy::from_seed(&seed));
    let host = CodeHost::new(&code, NodeId([5; 32]), "tow:ticket".into(), false, for_host);
    (host.expect("a short ticket"), CodeGuest::new(&code, NodeId([6; 32]), for_guest))
}

/// Messages to a host and a guest, among them those of another exchange with the same code: nothing is sold or bought by
/// what was said elsewhere, whatever comes.
pub fn code_exchange(data: &[u8]) {
    let (mut host, mut guest) = ends(3);
    let mut source = Source::new(data);
    for _ in 0..8 {
        if source.is_empty() {
            return;
        }
        let (to_host, message) = (source.byte() & 1 == 0, source.run());
        if to_host {
            let step = host.receive(message, &CodeWay::Carried);
            assert!(!matches!(step, HostStep::Sold { .. } | HostStep::Compare { .. }));
        } else {
            let step = guest.receive(message, &CodeWay::Carried);
            assert!(!matches!(step, GuestStep::Ticket { .. } | GuestStep::Confirmed));
        }
    }
}

pub fn texts() -> Vec<Vec<u8>> {
    ["7-otter-lagoon", "999999 Owl_owl\u{2014}owl", "7-oter-lagoon", "0-owl-owl"]
        .map(|it| it.as_bytes().to_vec())
        .into()
}

/// All that the ends of one exchange say.
pub fn messages() -> Vec<Vec<u8>> {
    let (mut host, mut guest) = ends(1);
    let GuestStep::Answer(answer) = guest.receive(host.offer(), &CodeWay::Carried) else { return Vec::new() };
    let HostStep::Sold { send, .. } = host.receive(&answer, &CodeWay::Carried) else { return Vec::new() };
    let end = vec![5, 1];
    [vec![host.offer().to_vec(), answer, end], send].concat()
}

pub fn exchanges() -> Vec<Vec<u8>> {
    let all = messages();
    let to =
        |side: u8| all.iter().fold(Written::default(), |written, it| written.rest(&[side]).run(it)).done();
    vec![to(0), to(1)]
}
