//! Patches of made and of random bytes, and what must be refused.

use proptest::prelude::*;

use super::*;
use crate::delta::tests::noise;

fn made(base: &[u8], target: &[u8]) -> Vec<u8> {
    let patch = make(base, target).unwrap();
    assert_eq!(apply(&patch, base, target.len()).unwrap(), target);
    patch
}

#[test]
fn a_table_of_changes() {
    let base = noise(b"base", 100_000);
    let new = noise(b"new", 1000);
    let moved = [&base[50_000..], &base[..50_000]].concat();
    let linked: Vec<u8> =
        base.iter().enumerate().map(|(at, byte)| byte.wrapping_add(u8::from(at % 20 == 0))).collect();
    let grown = [&base[..30_000], &new, &base[30_000..]].concat();
    for (what, target, most) in [
        ("the same", base.clone(), 20),
        ("empty", Vec::new(), 8),
        ("two halves changed places", moved, 40),
        ("shorter", base[10_000..90_000].to_vec(), 30),
        ("something new within", grown, 1040),
        ("one byte in twenty is another", linked, 100_020),
        ("nothing is the same", noise(b"other", 5000), 5020),
        ("zeros", vec![0; 10_000], 10_020),
    ] {
        let patch = made(&base, &target);
        assert!(patch.len() <= most, "{what}: {}", patch.len());
    }
    made(&[], &new);
    made(&[], &[]);
    made(&vec![0; 10_000], &vec![0; 9_000]);
}

#[test]
fn differences_of_what_was_linked_again_are_mostly_zero() {
    let base = noise(b"base", 100_000);
    let linked: Vec<u8> =
        base.iter().enumerate().map(|(at, byte)| byte.wrapping_add(u8::from(at % 20 == 0))).collect();
    let patch = made(&base, &linked);
    let zeros = patch.iter().filter(|byte| **byte == 0).count();
    assert!(zeros > 94_000, "{zeros}");
}

#[test]
fn each_lie_is_refused() {
    let base = [7u8; 100];
    let of = |ops: &[u8], differences: &[u8], literals: &[u8]| {
        let mut writer = Writer::new();
        writer.u8(VERSION).bytes(ops).bytes(differences).raw(literals);
        writer.into_bytes()
    };
    // Literals, displacement (zigzag), equal, corrected.
    for (what, patch, expected) in [
        ("nothing", Vec::new(), 0),
        ("another version", vec![2, 0, 0], 0),
        ("ops cut short", vec![VERSION, 9, 0], 0),
        ("an op cut short", of(&[0, 0, 5], b"", b""), 5),
        ("an op that does nothing", of(&[0, 0, 0, 0], b"", b""), 0),
        ("bytes before the base", of(&[0, 1, 5, 0], b"", b""), 5),
        ("bytes behind the base", of(&[0, 0, 101, 0], b"", b""), 101),
        ("corrected bytes behind the base", of(&[0, 0, 100, 1], b"x", b""), 101),
        ("a displacement behind the base", of(&[0, 0xca, 0x01, 0, 1], b"x", b""), 1),
        ("too few differences", of(&[0, 0, 0, 2], b"x", b""), 2),
        ("too many differences", of(&[0, 0, 0, 1], b"xy", b""), 1),
        ("too few literals", of(&[3, 0, 0, 0], b"", b"ab"), 3),
        ("too many literals", of(&[1, 0, 0, 0], b"", b"ab"), 1),
        ("fewer bytes than expected", of(&[0, 0, 5, 0], b"", b""), 6),
        ("more bytes than expected", of(&[0, 0, 5, 0], b"", b""), 4),
        ("a number over its limit", of(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0], b"", b""), 1),
        (
            "a displacement beyond all numbers",
            { of(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 0], b"", b"") },
            1,
        ),
    ] {
        assert!(apply(&patch, &base, expected).is_err(), "{what}");
    }
    assert_eq!(apply(&of(&[1, 4, 2, 1], b"\x01", b"a"), &base, 4).unwrap(), b"a\x07\x07\x08");
}

#[test]
fn time_does_not_depend_on_the_bytes() {
    // Windows that are alike everywhere, matches that are over at once, and pieces that are the same but for their ends.
    let periodic: Vec<u8> = (0..200_000u32).map(|at| (at % 24) as u8).collect();
    let broken: Vec<u8> =
        periodic.iter().enumerate().map(|(at, byte)| if at % 26 < 2 { 99 } else { *byte }).collect();
    made(&periodic, &broken);
    made(&broken, &periodic);
}

#[test]
fn what_is_too_long_has_no_patch() {
    assert_eq!(make(&vec![0; MAX_LEN + 1], b"x"), None);
}

proptest! {
    #[test]
    fn whatever_is_made_is_the_target(
        base in prop::collection::vec(0u8..4, 0..600),
        edits in prop::collection::vec((0usize..600, 0usize..80, any::<u8>()), 0..8),
    ) {
        let mut target = base.clone();
        for (at, len, byte) in edits {
            let at = at % (target.len() + 1);
            let end = (at + len / 2).min(target.len());
            target.splice(at..end, std::iter::repeat_n(byte, len % 40));
        }
        made(&base, &target);
        made(&target, &base);
    }

    #[test]
    fn any_bytes_are_read_or_refused(patch in prop::collection::vec(any::<u8>(), 0..60), len in 0usize..100) {
        if let Ok(target) = apply(&patch, &[1; 50], len) {
            prop_assert_eq!(target.len(), len);
        }
    }
}

/// Base, target and patch in hexadecimal digits, one of each a line. `UPDATE_VECTORS=1` writes them anew.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/patch.txt");

#[test]
fn vectors() {
    let base = noise(b"base", 80);
    let mut linked = base.clone();
    linked[40] = linked[40].wrapping_add(1);
    let grown = [&base[..40], b"new", &base[40..]].concat();
    let hex = |bytes: &[u8]| match bytes {
        [] => "-".to_owned(),
        bytes => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let lines = [base.clone(), linked, grown, b"else".to_vec(), Vec::new()]
        .map(|target| format!("{} {} {}\n", hex(&base), hex(&target), hex(&made(&base, &target))));
    let text = format!("# base, target, corrections; - is nothing\n{}", lines.concat());
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(VECTORS, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(VECTORS).unwrap(), text);
}
