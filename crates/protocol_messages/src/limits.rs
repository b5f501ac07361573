//! Limits of control messages, checked before decoding: a part of two bytes takes up to two
//! hundred in memory, and most messages are far shorter than a frame may be.

use towpath_content::DecodeError;
use towpath_content::codec::invalid;
use towpath_content::delta::exchange::{MAX_RUN_LEN, MAX_SIGNATURE_LEN};
use towpath_content::live::MAX_VALUES;
use towpath_link::frame::MAX_FRAME;
use towpath_transfer::metadata::{MAX_KEY, MAX_KEYS, MAX_VALUE};

use super::MAX_MESSAGE;
use super::{
    MAX_BESIDE, MAX_CONTENTS, MAX_ENCODINGS, MAX_ENTRIES, MAX_PIECES, MAX_PROOF_RUN, MAX_RANGES,
    MAX_RECIPE_PART, MAX_SAMPLES, MAX_TICKET, MAX_WANTS, MAX_WORDS,
};
use crate::counting::{Top, has_at_most, top};

/// The highest number of a message.
const HIGHEST: u32 = 29;
const HELLO: u32 = 1;
const GOODBYE: u32 = 12;
const CONTENTS: u32 = 21;
/// Names in a hello, known or not.
const MAX_CAPABILITIES: usize = 1024;
/// The shortest node but that of an empty object.
const LEAST_NODE: usize = 32;
/// Bytes that name as many pieces as a request may have: a want's index and a piece take up to two bytes each, and
/// four in memory.
const NAMES: usize = 4 * MAX_PIECES;
/// Room for what stands around long fields, and for fields of later versions.
const AROUND: usize = 1024;

/// Most bytes, and how many of which parts, by the numbers of the fields that lead to them.
type MessageLimit = (usize, &'static [(&'static [u32], usize)]);

/// True if a frame body is a hello or a goodbye, the only ones that come first.
pub fn may_come_first(frame: &[u8]) -> bool {
    matches!(top(frame, HIGHEST), Top::One(HELLO | GOODBYE))
}

/// True if a frame body is contents of entries.
pub fn has_contents(frame: &[u8]) -> bool {
    top(frame, HIGHEST) == Top::One(CONTENTS)
}

/// Refuses what is no message, more than one, or more than a message of its kind may be.
pub(super) fn check(frame: &[u8]) -> Result<(), DecodeError> {
    let number = match top(frame, HIGHEST) {
        Top::One(number) => number,
        Top::Nothing => return Err(invalid("message", "is of an unknown kind")),
        Top::Several => return Err(invalid("message", "is more than one")),
        Top::Garbage => return Err(invalid("message", "is not Protocol Buffers")),
    };
    let (bytes, parts) = limit(number);
    if frame.len() > bytes + AROUND {
        return Err(invalid("message", "is longer than one of its kind may be"));
    }
    match parts.iter().all(|(part, most)| has_at_most(frame, &[&[number], *part].concat(), *most)) {
        true => Ok(()),
        false => Err(invalid("message", "has more parts than one of its kind may have")),
    }
}

/// Limit of messages of a kind.
const fn limit(number: u32) -> MessageLimit {
    match number {
        HELLO => (MAX_WORDS, &[(&[3], MAX_CAPABILITIES), (&[5], MAX_ENCODINGS)]),
        4 => (2 * MAX_KEYS * (MAX_KEY + MAX_VALUE), &[(&[8], MAX_KEYS)]),
        5 => (32 * (MAX_PROOF_RUN + MAX_BESIDE), &[]),
        6 => (32 * MAX_VALUES, &[]),
        // A bound is a place in an object: at most seven bytes of a varint, and eight in memory.
        7 => (2 * 7 * MAX_RANGES, &[]),
        8 => (MAX_FRAME, &[(&[3], MAX_WANTS)]),
        9 => (MAX_WORDS + NAMES, &[]),
        10 => (NAMES, &[]),
        GOODBYE => (MAX_WORDS, &[]),
        15 => (MAX_MESSAGE, &[]),
        18 => (2 * MAX_RECIPE_PART, &[(&[3], MAX_RECIPE_PART / LEAST_NODE)]),
        20 => (MAX_SAMPLES, &[]),
        CONTENTS => (MAX_CONTENTS, &[(&[2, 1], MAX_ENTRIES)]),
        19 | 22 => (MAX_RUN_LEN, &[]),
        23 => (MAX_SIGNATURE_LEN, &[]),
        29 => (MAX_TICKET, &[]),
        _ => (0, &[]),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::*;
    use super::*;

    fn read(body: &Body) -> Result<Body, String> {
        Body::from_frame(body.clone().to_frame()).map_err(|error| error.to_string())
    }

    fn words(body: &Body) -> String {
        read(body).err().unwrap_or_default()
    }

    fn content(len: usize) -> WireContent {
        WireContent { body: Some(ContentBody::Whole(vec![1; len].into())), ..WireContent::default() }
    }

    fn listed(contents: Vec<WireContent>) -> Body {
        Body::Contents(Contents { request: 1, body: Some(ContentsBody::List(ContentList { contents })) })
    }

    fn packed(len: usize) -> Body {
        Body::Contents(Contents { request: 1, body: Some(ContentsBody::Packed(vec![1; len].into())) })
    }

    #[test]
    fn the_most_that_each_kind_may_be_is_read() {
        let based = vec![WireWant { base: vec![1; 1024].into(), ..WireWant::default() }; MAX_ENTRIES];
        let pieces = [MAX_WANTS as u32 - 1, MAX_PIECES as u32 - 1].repeat(MAX_PIECES);
        let key = |at: usize| KeyValue { key: format!("{at:064}"), value: vec![0xff; MAX_VALUE] };
        let most = [
            Body::Hello(Hello {
                capabilities: vec!["capability".into(); 100],
                encodings: vec!["x".repeat(64); 126],
                ..Hello::default()
            }),
            Body::Description(Description {
                name: vec![b'x'; 255],
                metadata: (0..MAX_KEYS).map(key).collect(),
                ..Description::default()
            }),
            Body::Proof(ProofOf {
                first: u64::MAX,
                count: u64::MAX,
                nodes: vec![1; 32 * (MAX_PROOF_RUN + MAX_BESIDE)].into(),
                ..ProofOf::default()
            }),
            Body::Stated(Stated {
                statement: vec![1; 32 * MAX_VALUES + 64].into(),
                signature: vec![1; 64].into(),
                ..Stated::default()
            }),
            Body::Have(Have { bounds: vec![(1 << 44) - 1; 2 * MAX_RANGES], ..Have::default() }),
            Body::Get(Get { wants: vec![WireWant::default(); MAX_WANTS], ..Get::default() }),
            Body::Get(Get {
                wants: vec![
                    WireWant {
                        base: vec![1; MAX_BASES_LEN / MAX_BASES].into(),
                        ..WireWant::default()
                    };
                    MAX_BASES
                ],
                ..Get::default()
            }),
            Body::Outcome(WireOutcome { reason: "x".repeat(1000), ..WireOutcome::default() }),
            Body::Outcome(WireOutcome { pieces: pieces.clone(), ..WireOutcome::default() }),
            Body::Cancel(WireCancel { request: u32::MAX, pieces }),
            Body::ControlData(ControlData { message: vec![1; MAX_MESSAGE].into() }),
            Body::Recipe(Recipe { nodes: vec![vec![1; 36].into(); 1800], ..Recipe::default() }),
            Body::Recipe(Recipe { nodes: vec![vec![1; MAX_RECIPE_PART].into()], ..Recipe::default() }),
            Body::Delta(Delta { bytes: vec![1; MAX_RUN_LEN + 4].into(), ..Delta::default() }),
            Body::Samples(Samples { bytes: vec![1; MAX_SAMPLES].into(), ..Samples::default() }),
            Body::Get(Get { wants: based, ..Get::default() }),
            listed(vec![content(1000); MAX_ENTRIES]),
            listed(vec![content(MAX_CONTENTS)]),
            packed(MAX_CONTENTS),
            Body::Run(WireRun { bytes: vec![1; MAX_RUN_LEN + 4].into(), ..WireRun::default() }),
            Body::Signature(WireSignature {
                bytes: vec![1; MAX_SIGNATURE_LEN + 1].into(),
                ..WireSignature::default()
            }),
            Body::ContentCredit(ContentCredit { bytes: u64::MAX }),
            Body::Bring(WireBring { request: 1, ticket: vec![1; MAX_TICKET].into() }),
        ];
        for body in most {
            assert_eq!(words(&body), "");
        }
    }

    #[test]
    fn messages_longer_than_their_kind_may_be_are_not_decoded() {
        let long = Bytes::from(vec![b'x'; 300 << 10]);
        let text = "x".repeat(300 << 10);
        let describe = Describe { root: long.clone(), ..Describe::default() };
        for body in [
            Body::Hello(Hello { software: text.clone(), ..Hello::default() }),
            Body::Prove(Prove { root: long.clone(), ..Prove::default() }),
            Body::Describe(describe.clone()),
            Body::Watch(describe),
            Body::Description(Description { name: long.to_vec(), ..Description::default() }),
            Body::Proof(ProofOf { nodes: long.clone(), ..ProofOf::default() }),
            Body::Stated(Stated { statement: long.clone(), ..Stated::default() }),
            Body::Have(Have { bounds: vec![1; 300 << 10], ..Have::default() }),
            Body::Outcome(WireOutcome { reason: text.clone(), ..WireOutcome::default() }),
            Body::Cancel(WireCancel { request: 1, pieces: vec![0; 300 << 10] }),
            Body::Goodbye(Goodbye { reason: text }),
            Body::ControlData(ControlData { message: long.clone() }),
            Body::Recipe(Recipe { nodes: vec![long.clone()], ..Recipe::default() }),
            Body::Delta(Delta { bytes: long.clone(), ..Delta::default() }),
            Body::Samples(Samples { bytes: long.clone(), ..Samples::default() }),
            listed(vec![content(300 << 10)]),
            packed(300 << 10),
            Body::Run(WireRun { bytes: long.clone(), ..WireRun::default() }),
            Body::Bring(WireBring { request: 1, ticket: long.clone() }),
            Body::Signature(WireSignature { bytes: long, ..WireSignature::default() }),
        ] {
            assert!(words(&body).contains("is longer than one of its kind"), "{}", words(&body));
        }
    }

    #[test]
    fn messages_of_many_empty_parts_are_not_decoded() {
        for body in [
            Body::Hello(Hello { capabilities: vec![String::new(); 1025], ..Hello::default() }),
            Body::Hello(Hello { encodings: vec![String::new(); 128], ..Hello::default() }),
            Body::Description(Description {
                metadata: vec![KeyValue::default(); 17],
                ..Description::default()
            }),
            Body::Get(Get { wants: vec![WireWant::default(); 1025], ..Get::default() }),
            Body::Get(Get { wants: vec![WireWant::default(); 500_000], ..Get::default() }),
            Body::Recipe(Recipe { nodes: vec![Bytes::new(); 2049], ..Recipe::default() }),
            listed(vec![WireContent::default(); MAX_ENTRIES + 1]),
            listed(vec![WireContent::default(); 100_000]),
        ] {
            assert!(words(&body).contains("more parts"), "{}", words(&body));
        }
    }

    #[test]
    fn one_frame_has_one_message() {
        let frames = [Body::Ping(Ping::default()), Body::Get(Get::default())].map(Body::to_frame);
        let error = Body::from_frame(frames.concat().into()).unwrap_err();
        assert!(error.to_string().contains("is more than one"), "{error}");
    }

    #[test]
    fn what_comes_first_is_told_without_decoding() {
        assert!(may_come_first(&Body::Hello(Hello::default()).to_frame()));
        assert!(may_come_first(&Body::Goodbye(Goodbye::default()).to_frame()));
        assert!(!may_come_first(&Body::Get(Get::default()).to_frame()));
        assert!(!may_come_first(b"") && !may_come_first(&[0xff; 40]));
    }
}
