//! The published test vectors, `docs/formats/vectors/chunking/`.

use super::tests::{lengths, noise};
use super::*;
use crate::node_id::hex;

const PARAMETERS: &str = include_str!("../../../../docs/formats/vectors/chunking/parameters.txt");
const REFUSED: &str = include_str!("../../../../docs/formats/vectors/chunking/refused.txt");
const CUTS: &str = include_str!("../../../../docs/formats/vectors/chunking/cuts.txt");

/// Lines without comments and empty ones.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).filter(|line| !line.is_empty())
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// Parameters as the vectors write them for people.
fn meaning(parameters: Parameters) -> String {
    match parameters {
        Parameters::Fixed { len } => format!("fixed {len}"),
        Parameters::Gear { min, avg, max } => format!("gear {min} {avg} {max}"),
        Parameters::Rabin { min, avg, max } => format!("rabin {min} {avg} {max}"),
        Parameters::Given => "given".into(),
    }
}

#[test]
fn published_parameters_are_read_and_written() {
    let mut count = 0;
    for line in lines(PARAMETERS) {
        let (digits, text) = line.split_once(' ').unwrap();
        let parameters = Parameters::from_bytes(&bytes(digits)).unwrap();
        assert_eq!((meaning(parameters).as_str(), hex(&parameters.to_bytes()).as_str()), (text, digits));
        count += 1;
    }
    assert!(count > 3);
}

#[test]
fn published_bad_parameters_are_refused() {
    assert!(lines(REFUSED).count() > 10);
    for line in lines(REFUSED) {
        assert!(Parameters::from_bytes(&bytes(line)).is_err(), "{line}");
    }
}

#[test]
fn published_cuts_are_made() {
    let mut input = Vec::new();
    for line in lines(CUTS) {
        let Some((digits, expected)) = line.split_once(':') else {
            let (kind, len) = line.split_once(' ').unwrap();
            let len = len.parse().unwrap();
            input = if kind == "zeros" { vec![0; len] } else { noise(b"towpath", len) };
            continue;
        };
        let expected: Vec<usize> = expected.split_whitespace().map(|len| len.parse().unwrap()).collect();
        let parameters = Parameters::from_bytes(&bytes(digits)).unwrap();
        assert_eq!(lengths(parameters, &input), expected, "{digits} of {} bytes", input.len());
    }
}
