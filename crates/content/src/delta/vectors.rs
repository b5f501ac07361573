//! The published test vectors, `docs/formats/vectors/delta/`.

use super::tests::noise;
use super::weak::WeakState;
use super::*;
use crate::node_id::hex;

const WEAK: &str = include_str!("../../../../docs/formats/vectors/delta/weak.txt");
const SIGNATURES: &str = include_str!("../../../../docs/formats/vectors/delta/signatures.txt");
const DELTAS: &str = include_str!("../../../../docs/formats/vectors/delta/deltas.txt");
const REFUSED: &str = include_str!("../../../../docs/formats/vectors/delta/refused.txt");

/// The lines of a file as words, without comments and empty ones.
fn lines(text: &str) -> Vec<Vec<&str>> {
    let words = text.lines().map(|line| line.split('#').next().unwrap_or("").split_whitespace().collect());
    let lines: Vec<Vec<_>> = words.filter(|words: &Vec<_>| !words.is_empty()).collect();
    assert!(lines.len() > 4, "the file is there and has vectors");
    lines
}

/// The bytes that hexadecimal digits stand for; `-` is none.
fn bytes(digits: &str) -> Vec<u8> {
    let digits = digits.trim_matches('-');
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// The bytes that an input's parts stand for.
fn input(text: &str) -> Vec<u8> {
    let part = |part: &str| match part.split(':').collect::<Vec<_>>()[..] {
        ["noise", from, to] => noise(b"towpath", number(to))[number(from)..].to_vec(),
        ["zeros", count] => vec![0; number(count)],
        _ => bytes(part),
    };
    text.split('+').flat_map(part).collect()
}

fn number(text: &str) -> usize {
    text.parse().unwrap()
}

#[test]
fn published_weak_sums_are_found() {
    for line in lines(WEAK) {
        let [data, sum] = line[..] else { panic!("{line:?}") };
        assert_eq!(format!("{:08x}", WeakState::of(&input(data)).weak()), sum, "{data}");
    }
}

#[test]
fn published_signatures_are_read_and_made() {
    for line in lines(SIGNATURES) {
        let [base, block, target, digits] = line[..] else { panic!("{line:?}") };
        let signature = Signature::of(&input(base), number(block) as u32, number(target)).unwrap();
        assert_eq!(hex(&signature.to_bytes()), digits, "{base}");
        assert_eq!(Signature::from_bytes(&bytes(digits)), Ok(signature));
    }
}

#[test]
fn published_deltas_are_read_made_and_applied() {
    for line in lines(DELTAS) {
        let [base, block, target, digits] = line[..] else { panic!("{line:?}") };
        let (base, target) = (input(base), input(target));
        let signature = Signature::of(&base, number(block) as u32, target.len()).unwrap();
        let delta = diff(&signature, &target).unwrap();
        assert_eq!(hex(&delta.to_bytes()), digits, "{line:?}");
        assert_eq!(Delta::from_bytes(&bytes(digits)).unwrap().apply(&base, target.len()), Ok(target));
    }
}

#[test]
fn published_bad_ones_are_refused() {
    for line in lines(REFUSED) {
        match line[..] {
            ["signature", digits] => assert!(Signature::from_bytes(&bytes(digits)).is_err(), "{digits}"),
            ["delta", digits] => assert!(Delta::from_bytes(&bytes(digits)).is_err(), "{digits}"),
            ["apply", base, expected, digits] => {
                let delta = Delta::from_bytes(&bytes(digits)).unwrap();
                assert!(delta.apply(&input(base), number(expected)).is_err(), "{digits}");
            }
            _ => panic!("{line:?}"),
        }
    }
}
