//! The published test vectors of codes: `docs/formats/vectors/code.txt`.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use towpath_codes::exchange::message::CodeMessage;
use towpath_codes::exchange::{CodeWay, Fingerprint, GuestStep, HostStep};
use towpath_codes::{Code, CodeGuest, CodeHost, Entropy, words};
use towpath_content::NodeId;
use towpath_content::node_id::hex;

/// The lines of the file as words, without comments and empty ones.
fn lines() -> Vec<Vec<&'static str>> {
    let text = include_str!("../../../docs/formats/vectors/code.txt");
    let lines = text.lines().map(|line| line.split('#').next().unwrap().split_whitespace().collect());
    let lines: Vec<Vec<_>> = lines.filter(|words: &Vec<_>| !words.is_empty()).collect();
    assert!(lines.len() > 20, "the file is there and has vectors");
    lines
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.trim_matches('-').as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn array(digits: &str) -> [u8; 32] {
    bytes(digits).try_into().unwrap()
}

/// Everything that two ends say to each other, as the lines of one exchange in the file.
fn exchange(code: &Code, binding: Option<[u8; 32]>, is_verified: bool, seeds: [[u8; 32]; 2]) -> Vec<String> {
    let [host_node, guest_node] = [NodeId([0x11; 32]), NodeId([0x22; 32])];
    let way = |peer| binding.map_or(CodeWay::Carried, |binding| CodeWay::Direct { peer, binding });
    let [host_seed, guest_seed] = seeds.map(|seed| Entropy::from_seed(&seed));
    let mut host = CodeHost::new(code, host_node, "tow:ticket".into(), is_verified, host_seed).unwrap();
    let mut guest = CodeGuest::new(code, guest_node, guest_seed);
    let mut said = vec![format!("offer {}", hex(host.offer()))];
    let GuestStep::Answer(answer) = guest.receive(host.offer(), &way(host_node)) else { panic!("no answer") };
    said.push(format!("answer {}", hex(&answer)));
    let (send, fingerprint) = match host.receive(&answer, &way(guest_node)) {
        HostStep::Sold { send, .. } => (send, None),
        HostStep::Compare { mut send, fingerprint, .. } => {
            let Some(HostStep::Sold { send: ticket, .. }) = host.accept() else { panic!("not sold") };
            send.extend(ticket);
            (send, Some(fingerprint))
        }
        step => panic!("{step:?}"),
    };
    said.extend(fingerprint.iter().map(|it: &Fingerprint| format!("fingerprint {it}")));
    let [confirm, sealed] = &send[..] else { panic!("{send:?}") };
    said.extend([format!("confirm {}", hex(confirm)), format!("sealed {}", hex(sealed))]);
    guest.receive(confirm, &way(host_node));
    let bought = GuestStep::Ticket { host: host_node, text: "tow:ticket".into() };
    assert_eq!(guest.receive(sealed, &way(host_node)), bought);
    said
}

#[test]
fn published_codes_words_and_messages_are_read_and_written() {
    for line in lines() {
        match line[..] {
            ["word", index, word] => assert_eq!(words::word(index.parse().unwrap()), word),
            ["words", hash] => {
                let all: Vec<&str> = (0..words::COUNT as u16).map(words::word).collect();
                assert_eq!(blake3::hash(all.join("\n").as_bytes()).to_string(), hash);
            }
            ["code", canonical, ref written @ ..] => {
                assert_eq!(written.join(" ").parse::<Code>().unwrap().to_string(), canonical);
            }
            ["refused-code", ref written @ ..] => {
                let written = written.join(" ");
                assert!(written.parse::<Code>().is_err(), "{written}");
            }
            ["message", digits] => {
                let message = CodeMessage::from_bytes(&bytes(digits)).unwrap();
                assert_eq!(hex(&message.to_bytes()), digits);
            }
            ["refused-message", digits] => {
                assert!(CodeMessage::from_bytes(&bytes(digits)).is_err(), "{digits}");
            }
            ["exchange", ..]
            | ["offer" | "answer" | "confirm" | "sealed", _]
            | ["fingerprint", _, _, _, _] => {}
            _ => panic!("{line:?}"),
        }
    }
}

#[test]
fn published_exchanges_are_held_again_word_for_word() {
    let mut expected: Vec<String> = Vec::new();
    let mut count = 0;
    for line in lines() {
        match line[..] {
            ["exchange", code, verify, binding, host_seed, guest_seed] => {
                assert!(expected.is_empty(), "left over: {expected:?}");
                let binding = (binding != "-").then(|| array(binding));
                let seeds = [host_seed, guest_seed].map(array);
                expected = exchange(&code.parse().unwrap(), binding, verify == "verified", seeds);
                expected.reverse();
                count += 1;
            }
            ["offer" | "answer" | "confirm" | "sealed" | "fingerprint", ..] => {
                assert_eq!(expected.pop(), Some(line.join(" ")));
            }
            _ => {}
        }
    }
    assert!(count == 3 && expected.is_empty(), "left over: {expected:?}");
}
