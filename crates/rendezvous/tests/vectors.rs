//! The published test vectors of the rendezvous: `docs/formats/vectors/rendezvous.txt`.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::node_id::hex;
use towpath_content::ticket::BoundSecret;
use towpath_link::Identity;
use towpath_rendezvous::message::{ToClient, ToServer};
use towpath_rendezvous::{HolderEntry, SignedEntry, TopicKeys};

/// The lines of the file as words, without comments and empty ones.
fn lines() -> Vec<Vec<&'static str>> {
    let text = include_str!("../../../docs/formats/vectors/rendezvous.txt");
    let lines = text.lines().map(|line| line.split('#').next().unwrap().split_whitespace().collect());
    let lines: Vec<Vec<_>> = lines.filter(|words: &Vec<_>| !words.is_empty()).collect();
    assert!(lines.len() > 20, "the file is there and has vectors");
    lines
}

/// The bytes that hexadecimal digits stand for; `-` is none.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.trim_matches('-').as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn keys(root: &str, secret: &str) -> TopicKeys {
    let root = Oid::from_bytes(&bytes(root)).unwrap();
    TopicKeys::new(&root, &BoundSecret::from_bytes(&bytes(secret)).unwrap())
}

/// The texts of a list with commas; `-` is none.
fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|text| *text != "-").collect()
}

fn holder([flags, has, addresses, outside, relays]: [&str; 5]) -> HolderEntry {
    let parsed = |text| list(text).into_iter().map(|address| address.parse().unwrap()).collect();
    let is = |flag| flags.parse::<u8>().unwrap() & flag != 0;
    HolderEntry {
        has_all: is(1),
        serves: is(2),
        awaits_calls: is(4),
        has: has.parse().unwrap(),
        addresses: parsed(addresses),
        outside: parsed(outside),
        relays: list(relays).into_iter().map(str::to_owned).collect(),
    }
}

#[test]
fn published_entries_are_written_sealed_signed_and_opened() {
    let (mut identity, mut of) = (None, None);
    for line in lines() {
        match line[..] {
            ["node", key, node] => {
                let read = Identity::from_pkcs8(&bytes(key)).unwrap();
                assert_eq!(read.node_id().to_string(), node);
                identity = Some(read);
            }
            ["topic", root, secret, topic] => {
                let keys = keys(root, secret);
                assert_eq!(hex(&keys.topic().0), topic);
                of = Some(keys);
            }
            ["entry", number, expires, nonce, flags, has, addresses, outside, relays, signed] => {
                let said = holder([flags, has, addresses, outside, relays]);
                let (identity, keys) = (identity.as_ref().unwrap(), of.as_ref().unwrap());
                let times = (number.parse().unwrap(), expires.parse().unwrap());
                let nonce = bytes(nonce).try_into().unwrap();
                let entry = SignedEntry::new(identity, keys, times, Some(&said), nonce);
                assert_eq!(hex(&entry.to_bytes()), signed);
                assert_eq!(SignedEntry::verified(&bytes(signed)).unwrap().open(keys), Some(said));
            }
            ["end", number, expires, signed] => {
                let (identity, keys) = (identity.as_ref().unwrap(), of.as_ref().unwrap());
                let times = (number.parse().unwrap(), expires.parse().unwrap());
                let end = SignedEntry::new(identity, keys, times, None, [0; 12]);
                assert_eq!(hex(&end.to_bytes()), signed);
                assert!(SignedEntry::verified(&bytes(signed)).unwrap().is_end());
            }
            ["later-entry", signed, flags, has, addresses, outside, relays] => {
                let opened = SignedEntry::verified(&bytes(signed)).unwrap().open(of.as_ref().unwrap());
                assert_eq!(opened, Some(holder([flags, has, addresses, outside, relays])));
            }
            ["refused-entry", signed] => {
                assert!(SignedEntry::verified(&bytes(signed)).is_err(), "{signed}");
            }
            ["sealed-for-nobody", signed] => {
                assert_eq!(SignedEntry::verified(&bytes(signed)).unwrap().open(of.as_ref().unwrap()), None);
            }
            ["to-server" | "to-client" | "refused-to-server" | "refused-to-client", ..] => {}
            _ => panic!("{line:?}"),
        }
    }
    assert!(identity.is_some() && of.is_some());
}

#[test]
fn published_messages_are_read_and_written() {
    let mut count = 0;
    for line in lines() {
        let [what, kind, body] = line[..] else { continue };
        let Ok(kind) = kind.parse() else { continue };
        let body = Bytes::from(bytes(body));
        let to_server = ToServer::from_frame(kind, &body);
        let to_client = ToClient::from_frame(kind, &body);
        match what {
            "to-server" => assert_eq!(to_server.unwrap().unwrap().to_frame(), (kind, body)),
            "to-client" => assert_eq!(to_client.unwrap().unwrap().to_frame(), (kind, body)),
            "refused-to-server" => assert!(to_server.is_err(), "{line:?}"),
            "refused-to-client" => assert!(to_client.is_err(), "{line:?}"),
            _ => panic!("{line:?}"),
        }
        count += 1;
    }
    assert!(count > 20, "{count}");
}
