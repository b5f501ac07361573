//! The published test vectors: `docs/formats/vectors/relay.txt`.

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_content::node_id::hex;
use towpath_relay::RelayPass;
use towpath_relay::message::RelayMessage;

/// The bytes that hexadecimal digits stand for; `-` is none.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.trim_matches('-').as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn published_messages_and_proofs_are_read_and_written() {
    let text = include_str!("../../../../docs/formats/vectors/relay.txt");
    let mut seen = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
        match words[..] {
            [] => continue,
            ["message", kind, body, ref debug @ ..] => {
                let message = RelayMessage::decode(kind.parse().unwrap(), Bytes::from(bytes(body))).unwrap();
                assert_eq!(format!("{message:?}").split_whitespace().collect::<Vec<_>>(), debug, "{line}");
                let (again, head, rest) = message.encode();
                assert_eq!(
                    (again.to_string(), hex(&[head, rest.to_vec()].concat())),
                    (kind.into(), hex(&bytes(body)))
                );
            }
            ["refused", kind, body] => {
                let decoded = RelayMessage::decode(kind.parse().unwrap(), Bytes::from(bytes(body)));
                assert!(decoded.is_err(), "{line}");
            }
            ["proof", pass, binding, node, proof] => {
                let (binding, node) = (bytes(binding).try_into().unwrap(), node.parse::<NodeId>().unwrap());
                assert_eq!(hex(&RelayPass::new(bytes(pass)).proof(&binding, &node).0), proof);
            }
            _ => panic!("{line}"),
        }
        seen += 1;
    }
    assert!(seen > 20, "the file is there and has vectors");
}
