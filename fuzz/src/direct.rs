//! Parsers of the direct plugin: its messages and data frames, one by one and as a connection.

use bytes::Bytes;
use towpath_link::frame;
use towpath_protocol::incoming::{Decoder, Incoming};
use towpath_protocol::packing;
use towpath_protocol::processors::Processors;
use towpath_protocol::requests::Violation;
use towpath_protocol::wire::{self, Body, DataHeader};
use towpath_transfer::Description;

/// A control message, and what is made of its fields.
pub fn control(data: &[u8]) {
    let Ok(body) = Body::from_frame(Bytes::copy_from_slice(data)) else { return };
    match &body {
        Body::Description(description) => drop(description.about()),
        Body::Outcome(outcome) => drop(outcome.outcome()),
        _ => {}
    }
    assert_eq!(Body::from_frame(body.clone().to_frame()), Ok(body));
}

/// A data frame.
pub fn data_header(data: &[u8]) {
    if let Ok((header, payload)) = DataHeader::decode(Bytes::copy_from_slice(data)) {
        assert_eq!([&header.encode()[..], &payload].concat(), data);
    }
}

/// Bytes that say of themselves how many they are once they are unpacked.
pub fn packing(data: &[u8]) {
    for most in [0, 1, 1000, 256 << 10] {
        let Some(unpacked) = packing::unpack(data, most) else { continue };
        assert!(unpacked.len() as u64 <= most);
        if let Some(packed) = packing::pack(&unpacked, 1) {
            assert_eq!(packing::unpack(&packed, most), Some(unpacked));
        }
    }
}

/// Frames off a connection, from the first one on. How long packed payloads must be follows from their number.
pub fn direct_decoder(data: &[u8]) {
    let mut buffer = Bytes::copy_from_slice(data);
    let mut decoder = Decoder::new(Processors::default());
    let mut is_first = true;
    while let Ok(Some(frame)) = frame::decode(&mut buffer) {
        let (len, kind) = (frame.body.len(), frame.kind);
        let expected = |header: &DataHeader| match header.request % 4 {
            0 => Ok(None),
            1 => Err(Violation::Unasked),
            _ => Ok(Some(expected_len(header))),
        };
        let Ok(incoming) = decoder.decode(frame, expected) else { return };
        let is_greeting = matches!(incoming, Incoming::Message(Body::Hello(_) | Body::Goodbye(_)));
        assert!(!is_first || is_greeting && kind == wire::CONTROL);
        is_first = false;
        is_bounded(&incoming, len);
    }
}

fn expected_len(header: &DataHeader) -> usize {
    header.offset as usize % (wire::MAX_PAYLOAD + 1)
}

/// Checks that what is made of a frame is no longer than it, or than was expected.
fn is_bounded(incoming: &Incoming, len: usize) {
    match incoming {
        Incoming::Data { header, payload: Some(payload) } if header.encoding > 0 => {
            assert!(payload.len() <= expected_len(header) && header.request % 4 > 1);
        }
        Incoming::Data { payload, .. } => assert!(payload.as_ref().is_none_or(|it| it.len() <= len)),
        Incoming::Ranges(_, ranges) => assert!(ranges.iter().all(|range| range.start < range.end)),
        Incoming::Answer(_, Description::Proof(proof)) => {
            assert!(proof.run.start <= proof.run.end && proof.nodes.len() <= len);
        }
        Incoming::Message(Body::Recipe(part)) => {
            let nodes: usize = part.nodes.iter().map(Bytes::len).sum();
            assert!(nodes <= wire::MAX_RECIPE_PART);
        }
        Incoming::Contents(came) => {
            assert!(came.kept <= wire::MAX_CONTENTS + 1024 && came.contents.len() <= wire::MAX_ENTRIES);
        }
        Incoming::Run { run, .. } => assert!(run.bytes.len() <= len),
        Incoming::Answer(..) | Incoming::Message(_) => {}
    }
}
