//! Every message's bytes, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::node_id::hex;

/// A message a line: type, bytes, meaning. `UPDATE_VECTORS=1` writes it anew.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/delta-exchange.txt");

/// Bytes that are no message.
const REFUSED: [(&str, &[u8], &str); 18] = [
    ("request", b"", "nothing"),
    ("request", b"\x04\x00\x00", "a base of no known kind"),
    ("request", b"\x01\x02\x00", "a guess that is neither"),
    ("request", b"\x01\x00\x03", "three outlines"),
    ("request", b"\x01\x00\x02\x01tow", "an OID that is none"),
    ("request", b"\x02\x00\x00\x11\x01", "17 parts"),
    ("request", b"\x02\x00\x00\x02\x03", "more signatures ahead than parts"),
    ("request", b"\x02\x00\x00\x02\x00", "no signature ahead"),
    ("request", b"\x02\x00\x00\x02\x01\x00", "a byte too many"),
    ("request", b"\x03\x00\x02\x09\x00signature", "no outline that came"),
    ("request", b"\x03\x00\x02\x09\x03\x01a\x01b\x01csignature", "three outlines that came"),
    ("request", b"\x03\x00\x02\x81\x80\x80\x08\x01\x01asignature", "a base of more than 16 MiB"),
    ("signature", b"\x00\x00", "no signature, and a byte"),
    ("reply", b"\x05", "a reply of no known kind"),
    ("reply", b"\x04\x02", "parts, and a byte"),
    ("run", b"\x01\x00\x01patch", "a patch that wants a signature"),
    ("run", b"\x01\x03\x02\x00outline", "an outline that two more may follow"),
    ("run", b"\x01\x01\x03delta", "a delta of nothing that is known"),
];

fn requests() -> Vec<(Request, &'static str)> {
    let named = Base::Named(Oid::of(b"x"));
    let signed = Base::Signature(b"signature".to_vec());
    let parts = Base::Parts { count: 3, ahead: 2 };
    let outlines = vec![b"outline".to_vec(), b"finer".to_vec()];
    let outlined = Base::Outlined { base_len: 300, outlines, signature: b"signature".to_vec() };
    vec![
        (Request { base: named, is_guess: false, outlines: 2 }, "a base by its name"),
        (
            Request { base: signed, is_guess: true, outlines: 0 },
            "a signature of what may be quite another file",
        ),
        (Request { base: parts, is_guess: false, outlines: 1 }, "three parts, two signed at once"),
        (
            Request { base: outlined, is_guess: true, outlines: 2 },
            "two outlines that came of 300 bytes, and a signature of what they leave",
        ),
    ]
}

fn replies() -> Vec<(Reply, &'static str)> {
    vec![
        (Reply::Same, "the file is its base"),
        (Reply::UnknownBase, "the base is not here"),
        (Reply::GivenUp, "given up"),
        (Reply::Whole(b"delta".to_vec()), "all of it as a delta"),
        (Reply::InParts, "it comes in parts"),
    ]
}

fn runs() -> Vec<(DeltaRun<'static>, &'static str)> {
    let part = |wants_signature| StepOf::NextPart { wants_signature };
    let delta = |of, is_packed| DeltaStep::Delta { of, is_packed };
    let outline = |of, further| DeltaStep::Outline { of, further };
    vec![
        (DeltaRun::More(b"front"), "the front of a step"),
        (DeltaRun::Last(DeltaStep::Patch, b"patch"), "a patch"),
        (DeltaRun::Last(delta(part(false), false), b"delta"), "a delta of the next part"),
        (
            DeltaRun::Last(delta(part(true), true), b"frame"),
            "a packed delta, and the next signature is wanted",
        ),
        (DeltaRun::Last(delta(StepOf::Literals, false), b"delta"), "a delta of an outline's literals"),
        (DeltaRun::Last(outline(part(false), 1), b"outline"), "an outline that another one may follow"),
        (DeltaRun::Last(outline(part(true), 0), b"outline"), "an outline, and the next signature is wanted"),
        (DeltaRun::Last(outline(StepOf::Literals, 0), b"outline"), "an outline of an outline's literals"),
        (DeltaRun::GivenUp, "given up"),
    ]
}

#[test]
fn the_bytes_are_those_in_the_file_and_come_back() {
    let mut text = String::new();
    let mut write = |kind, bytes: &[u8], what| text += &format!("{kind} {} # {what}\n", hex(bytes));
    for (message, what) in requests() {
        write("request", &message.to_bytes(), what);
        assert_eq!(Request::from_bytes(&message.to_bytes()), Ok(message));
    }
    let signed = NextSignature::Signed(b"signature".to_vec());
    for (message, what) in [(signed, "a signature"), (NextSignature::GivenUp, "no more should come so")] {
        write("signature", &message.to_bytes(), what);
        assert_eq!(NextSignature::from_bytes(&message.to_bytes()), Ok(message));
    }
    for (message, what) in replies() {
        write("reply", &message.to_bytes(), what);
        assert_eq!(Reply::from_bytes(&message.to_bytes()), Ok(message));
    }
    for (message, what) in runs() {
        write("run", &message.to_bytes(), what);
        assert_eq!(DeltaRun::from_bytes(&message.to_bytes()), Ok(message));
    }
    for (kind, bytes, what) in REFUSED {
        text +=
            &format!("refused {kind} {} # {what}\n", if bytes.is_empty() { "-".into() } else { hex(bytes) });
        assert!(!is_read(kind, bytes), "{what}");
    }
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(VECTORS, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(VECTORS).unwrap(), text);
}

fn is_read(kind: &str, bytes: &[u8]) -> bool {
    match kind {
        "request" => Request::from_bytes(bytes).is_ok(),
        "signature" => NextSignature::from_bytes(bytes).is_ok(),
        "reply" => Reply::from_bytes(bytes).is_ok(),
        _ => DeltaRun::from_bytes(bytes).is_ok(),
    }
}

#[test]
fn what_is_longer_than_it_may_be_is_refused() {
    for (kind, head, limit) in [
        ("request", &[0, 0, 0][..], MAX_SIGNATURE_LEN),
        ("request", &[3, 0, 0, 9, 1, 1, 7], MAX_SIGNATURE_LEN),
        ("signature", &[1], MAX_SIGNATURE_LEN),
        ("reply", &[3], MAX_WHOLE_LEN),
        ("run", &[0], MAX_RUN_LEN),
        ("run", &[1, 1, 0], MAX_RUN_LEN),
    ] {
        let of = |len| [head, &vec![7; len]].concat();
        assert!(is_read(kind, &of(limit)) && !is_read(kind, &of(limit + 1)), "{kind}");
    }
}

proptest! {
    #[test]
    fn a_message_has_one_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..40), first in 0u8..5) {
        let bytes = [&[first], &bytes[..]].concat();
        if let Ok(message) = Request::from_bytes(&bytes) {
            prop_assert_eq!(message.to_bytes(), bytes.clone());
        }
        if let Ok(message) = NextSignature::from_bytes(&bytes) {
            prop_assert_eq!(message.to_bytes(), bytes.clone());
        }
        if let Ok(message) = Reply::from_bytes(&bytes) {
            prop_assert_eq!(message.to_bytes(), bytes.clone());
        }
        if let Ok(message) = DeltaRun::from_bytes(&bytes) {
            prop_assert_eq!(message.to_bytes(), bytes);
        }
    }
}
