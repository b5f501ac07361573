//! The published test vectors of names, pieces, sums of blocks, statements and tickets: `docs/formats/vectors/`.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use ring::signature::{Ed25519KeyPair, KeyPair};
use towpath_content::delta::blocks::{BLOCKS_FRONT, BlockShape, BlockSummer};
use towpath_content::live::Statement;
use towpath_content::node_id::hex;
use towpath_content::pieces::{self, Layout, PieceTree};
use towpath_content::ticket::BoundSecret;
use towpath_content::withdrawal::Withdrawal;
use towpath_content::{NodeId, Oid, Ticket};

/// The lines of a file as words, without comments and empty ones.
fn lines(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap().split_whitespace().collect());
    let lines: Vec<Vec<_>> = lines.filter(|words: &Vec<_>| !words.is_empty()).collect();
    assert!(lines.len() > 5, "the file is there and has vectors");
    lines
}

/// The bytes that hexadecimal digits stand for; `-` is none.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.trim_matches('-').as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn array<const N: usize>(digits: &str) -> [u8; N] {
    bytes(digits).try_into().unwrap()
}

/// The first `len` bytes of BLAKE3's extended output for `towpath`.
fn input(len: u64) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    blake3::Hasher::new().update(b"towpath").finalize_xof().fill(&mut data);
    data
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

#[test]
fn published_oids_are_read_and_written() {
    for line in lines(include_str!("../../../docs/formats/vectors/oid.txt")) {
        match line[..] {
            ["hash", data, text] => assert_eq!(Oid::of(&bytes(data)).to_string(), text),
            ["oid", text, binary] => {
                let oid: Oid = text.parse().unwrap();
                assert_eq!(hex(&oid.to_bytes()), binary);
                assert_eq!(Oid::from_bytes(&bytes(binary)), Ok(oid));
            }
            ["refused-text", text] => assert!(text.parse::<Oid>().is_err(), "{text}"),
            ["refused-binary", binary] => assert!(Oid::from_bytes(&bytes(binary)).is_err(), "{binary}"),
            _ => panic!("{line:?}"),
        }
    }
}

#[test]
fn published_values_and_proofs_are_made_and_verified() {
    let (mut layout, mut data, mut values) = (Layout::of(0).unwrap(), Vec::new(), Vec::new());
    for line in lines(include_str!("../../../docs/formats/vectors/pieces.txt")) {
        match line[..] {
            ["layout", size, log2, count] => {
                let layout = Layout::of(number(size)).unwrap();
                assert_eq!(
                    (layout.piece_len(), layout.count()),
                    (1 << number(log2), number(count)),
                    "{size}"
                );
            }
            ["refused-layout", size] => assert!(Layout::of(number(size)).is_err(), "{size}"),
            ["input", size] => {
                (layout, data, values) = (Layout::of(number(size)).unwrap(), input(number(size)), Vec::new());
            }
            ["value", index, value] => {
                let range = layout.range(number(index));
                let found = layout.value(number(index), &data[range.start as usize..range.end as usize]);
                assert_eq!(hex(&found), value, "piece {index}");
                values.push(found);
            }
            ["oid", text] => {
                assert_eq!(Oid::of(&data).to_string(), text);
                assert_eq!(pieces::oid_of(&values).to_string(), text);
            }
            ["proof" | "refused-proof", from, to, proof] => {
                let (run, proof) = (number(from)..number(to), bytes(proof));
                let tree = PieceTree::new(layout, values.clone()).unwrap();
                let verified = pieces::verify(tree.oid().digest(), &layout, run.clone(), &proof);
                assert_eq!(verified.is_ok(), line[0] == "proof", "{line:?}");
                assert_eq!(tree.proof(run).is_ok_and(|made| made == proof), verified.is_ok(), "{line:?}");
            }
            _ => panic!("{line:?}"),
        }
    }
}

#[test]
fn published_statements_are_signed_and_verified() {
    let mut key = Ed25519KeyPair::from_seed_unchecked(&[0; 32]).unwrap();
    for line in lines(include_str!("../../../docs/formats/vectors/live.txt")) {
        let node = NodeId(key.public_key().as_ref().try_into().unwrap());
        match line[..] {
            ["seed", seed] => key = Ed25519KeyPair::from_seed_unchecked(&bytes(seed)).unwrap(),
            ["node", id] => assert_eq!(node.to_string(), id),
            ["statement", binary, signature] => {
                let statement = Statement::verified(&bytes(binary), &bytes(signature), &node).unwrap();
                assert_eq!(hex(&statement.to_bytes()), binary);
                assert_eq!(hex(key.sign(&statement.message()).as_ref()), signature);
            }
            ["refused", binary] => assert!(Statement::from_bytes(&bytes(binary)).is_err(), "{binary}"),
            ["refused-signature", binary, signature] => {
                assert!(Statement::from_bytes(&bytes(binary)).is_ok());
                assert!(
                    Statement::verified(&bytes(binary), &bytes(signature), &node).is_err(),
                    "{signature}"
                );
            }
            _ => panic!("{line:?}"),
        }
    }
}

#[test]
fn published_withdrawals_are_read_and_signed() {
    let mut key = Ed25519KeyPair::from_seed_unchecked(&[0; 32]).unwrap();
    for line in lines(include_str!("../../../docs/formats/vectors/withdrawal.txt")) {
        let node = NodeId(key.public_key().as_ref().try_into().unwrap());
        match line[..] {
            ["seed", seed] => key = Ed25519KeyPair::from_seed_unchecked(&bytes(seed)).unwrap(),
            ["node", id] => assert_eq!(node.to_string(), id),
            ["withdrawal", root, secret, time, binary, signature] => {
                let (root, secret) =
                    (root.parse().unwrap(), BoundSecret::from_bytes(&bytes(secret)).unwrap());
                let withdrawal = Withdrawal::new(root, &secret, time.parse().unwrap());
                assert_eq!(hex(&withdrawal.to_bytes()), binary);
                assert_eq!(hex(key.sign(&withdrawal.message()).as_ref()), signature);
                let verified = Withdrawal::verified(&bytes(binary), &bytes(signature), &node).unwrap();
                assert!(verified.is_of(&root, &secret));
            }
            ["refused", binary] => assert!(Withdrawal::from_bytes(&bytes(binary)).is_err(), "{binary}"),
            ["refused-signature", binary, signature] => {
                assert!(Withdrawal::from_bytes(&bytes(binary)).is_ok());
                let verified = Withdrawal::verified(&bytes(binary), &bytes(signature), &node);
                assert!(verified.is_err(), "{signature}");
            }
            _ => panic!("{line:?}"),
        }
    }
}

#[test]
fn published_tickets_and_proofs_are_read_and_made() {
    for line in lines(include_str!("../../../docs/formats/vectors/ticket.txt")) {
        match line[..] {
            ["ticket", text, oid, node, secret, ref hints @ ..] => {
                let ticket: Ticket = text.parse().unwrap();
                assert_eq!(ticket.to_string(), text);
                assert_eq!((ticket.oid.to_string(), ticket.node.to_string()), (oid.into(), node.into()));
                assert_eq!(ticket.secret.0, array(secret));
                let found = ticket
                    .hints
                    .iter()
                    .map(|hint| format!("{},{},{}", hint.priority, hint.weight, hint.method));
                assert_eq!(found.collect::<Vec<_>>(), hints);
            }
            ["terms", text, bound] => {
                let ticket: Ticket = text.parse().unwrap();
                assert_eq!(ticket.to_string(), text);
                assert_eq!(hex(&ticket.bound_secret().to_bytes()), bound);
            }
            ["enclosed", text, name, mode, seconds, nanos, content] => {
                let ticket: Ticket = text.parse().unwrap();
                assert_eq!(ticket.to_string(), text);
                let enclosed = ticket.enclosed.unwrap();
                assert_eq!((enclosed.name, enclosed.content), (bytes(name), bytes(content)));
                assert_eq!(enclosed.mode.map_or("-".into(), |mode| format!("{mode:o}")), mode);
                let modified =
                    enclosed.modified.map(|time| (time.seconds.to_string(), time.nanos.to_string()));
                assert_eq!(modified.unwrap_or(("-".into(), "-".into())), (seconds.into(), nanos.into()));
            }
            ["proof", secret, binding, prover, oid, proof] => {
                let (secret, prover, oid) = (
                    BoundSecret::from_bytes(&bytes(secret)).unwrap(),
                    prover.parse().unwrap(),
                    oid.parse().unwrap(),
                );
                assert_eq!(hex(&secret.prove(&array(binding), &prover, &oid)), proof);
                assert!(secret.check(&array(proof), &array(binding), &prover, &oid));
            }
            ["older", text, newer] => {
                assert_eq!(text.parse::<Ticket>().unwrap().to_string(), newer);
                assert!(newer.len() <= text.len(), "{newer}");
            }
            ["refused", text] => assert!(text.parse::<Ticket>().is_err(), "{text}"),
            _ => panic!("{line:?}"),
        }
    }
}

/// A shape of blocks by the two bytes in front of their sums.
fn shape(log2: &str, strong: &str) -> BlockShape {
    BlockShape::from_bytes(&[log2.parse().unwrap(), strong.parse().unwrap()]).unwrap()
}

#[test]
fn published_sums_of_blocks_are_made_and_read() {
    let summed = |shape, size: &str| {
        let mut summer = BlockSummer::new(shape);
        input(number(size)).chunks(700).for_each(|part| summer.add(part));
        summer.finish()
    };
    for line in lines(include_str!("../../../docs/formats/vectors/blocks.txt")) {
        match line[..] {
            ["shapes", size, large, large_strong, small, small_strong] => {
                let expected = (shape(large, large_strong), shape(small, small_strong));
                assert_eq!(BlockShape::for_size(number(size)), expected, "{size}");
            }
            ["sums", size, log2, strong, section] => {
                let (shape, section) = (shape(log2, strong), bytes(section));
                assert_eq!(hex(&summed(shape, size)), hex(&section), "{size} {log2} {strong}");
                assert_eq!(BlockShape::from_bytes(&section), Ok(shape));
                let sums = shape.sums(0, &section[BLOCKS_FRONT..]).unwrap();
                assert_eq!(sums.len() as u64, number(size) / shape.block_len());
            }
            ["part", size, log2, strong, from, to, part] => {
                let (shape, run) = (shape(log2, strong), number(from)..number(to));
                let place = shape.place_of(&run);
                let section = summed(shape, size);
                assert_eq!(section[place.start as usize..place.end as usize], bytes(part));
                let numbers: Vec<u64> =
                    shape.sums(run.start, &bytes(part)).unwrap().iter().map(|sum| sum.block.into()).collect();
                assert_eq!(numbers, run.collect::<Vec<_>>());
            }
            ["refused", section, ..] => {
                assert!(BlockShape::from_bytes(&bytes(section)).is_err(), "{line:?}");
            }
            ["refused-sums", log2, strong, sums, ..] => {
                assert!(shape(log2, strong).sums(0, &bytes(sums)).is_err(), "{line:?}");
            }
            _ => panic!("{line:?}"),
        }
    }
}
