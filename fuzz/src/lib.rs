//! Every parser of bytes from outside, as a plain function: it may refuse what it is given, and
//! must not panic, hang, or take for good what it would write differently.
//!
//! The same functions are run by libFuzzer (`cargo +nightly fuzz run --features libfuzzer NAME`,
//! see `fuzz_targets/`) and by `src/bin/smoke.rs`, which needs a stable compiler only and is part
//! of `make test`.

pub mod seeds;

use bytes::Bytes;
use towpath_content::chunking::Parameters;
use towpath_content::codec::{Reader, Writer};
use towpath_content::delta::{self, Delta, Signature};
use towpath_content::live::Statement;
use towpath_content::{Hint, Oid, Ticket, recipe, tree};
use towpath_files::{Filter, RelPath, RuleList, Side};
use towpath_link::frame::{self, Measured};
use towpath_plugins::direct::wire::{Body, DataHeader};

/// A parser under test.
pub struct Target {
    /// As in `fuzz_targets/`.
    pub name: &'static str,
    /// Feeds it.
    pub run: fn(&[u8]),
    /// Valid inputs to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 16] = [
    Target { name: "ticket", run: ticket, seeds: seeds::tickets },
    Target { name: "oid_text", run: oid_text, seeds: seeds::oid_texts },
    Target { name: "oid_binary", run: oid_binary, seeds: seeds::oids },
    Target { name: "hint", run: hint, seeds: seeds::hints },
    Target { name: "live_statement", run: live_statement, seeds: seeds::statements },
    Target { name: "tree_decoder", run: tree_decoder, seeds: seeds::trees },
    Target { name: "tree_block", run: tree_block, seeds: seeds::trees },
    Target { name: "recipe_node", run: recipe_node, seeds: seeds::recipe_nodes },
    Target { name: "recipe_root", run: recipe_root, seeds: seeds::recipe_roots },
    Target { name: "chunking_parameters", run: chunking_parameters, seeds: seeds::parameters },
    Target { name: "delta", run: delta, seeds: seeds::deltas },
    Target { name: "delta_signature", run: delta_signature, seeds: seeds::delta_signatures },
    Target { name: "frame", run: frame, seeds: seeds::frames },
    Target { name: "control", run: control, seeds: seeds::controls },
    Target { name: "data_header", run: data_header, seeds: seeds::data_frames },
    Target { name: "filter_rules", run: filter_rules, seeds: seeds::filter_rules },
];

/// A ticket's line of text.
pub fn ticket(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(ticket) = text.parse::<Ticket>() {
        assert_eq!(ticket.to_string().parse(), Ok(ticket));
    }
}

/// An OID as people write it.
pub fn oid_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(oid) = text.parse::<Oid>() {
        assert_eq!(oid.to_string().parse(), Ok(oid));
    }
}

/// An OID in messages and files.
pub fn oid_binary(data: &[u8]) {
    if let Ok(oid) = Oid::from_bytes(data) {
        assert_eq!(oid.to_bytes(), data);
    }
}

/// A hint of a ticket.
pub fn hint(data: &[u8]) {
    let mut reader = Reader::new(data);
    if let Ok(hint) = Hint::decode(&mut reader) {
        let mut writer = Writer::new();
        hint.encode(&mut writer);
        assert_eq!(writer.into_bytes(), data[..data.len() - reader.remaining()]);
        // Neither part may panic, whatever the method is.
        let _ = (hint.scheme(), hint.rest());
    }
}

/// A statement about a live object.
pub fn live_statement(data: &[u8]) {
    if let Ok(statement) = Statement::from_bytes(data) {
        assert_eq!(statement.to_bytes(), data);
    }
}

/// A tree descriptor as it streams in.
pub fn tree_decoder(data: &[u8]) {
    let mut decoder = tree::Decoder::new();
    let mut rest = data;
    loop {
        let taken = decoder.feed(rest);
        rest = &rest[taken..];
        let mut events = 0;
        while let Ok(Some(_)) = decoder.next_event() {
            events += 1;
        }
        if rest.is_empty() || taken == 0 && events == 0 {
            break;
        }
    }
    let _ = decoder.finish();
}

/// One block of a tree descriptor, which a service consults for rights.
pub fn tree_block(data: &[u8]) {
    let _ = tree::oids_in_block(data);
}

/// A node of a recipe.
pub fn recipe_node(data: &[u8]) {
    if let Ok(node) = recipe::Node::from_bytes(data) {
        assert_eq!(node.to_bytes(), data);
    }
}

/// The root of a recipe.
pub fn recipe_root(data: &[u8]) {
    if let Ok(root) = recipe::Root::from_bytes(data) {
        assert_eq!(root.to_bytes(), data);
    }
}

/// How an object is cut.
pub fn chunking_parameters(data: &[u8]) {
    if let Ok(parameters) = Parameters::from_bytes(data) {
        assert_eq!(parameters.to_bytes(), data);
        let is_cut = parameters != Parameters::Given;
        assert_eq!(parameters.chunker().is_ok(), is_cut, "parameters that were taken can be used");
    }
}

/// A delta, applied to bases and for lengths that it may or may not go with.
pub fn delta(data: &[u8]) {
    let Ok(delta) = Delta::from_bytes(data) else { return };
    assert_eq!(delta.to_bytes(), data);
    for (base, expected) in [(&[][..], 0), (data, data.len()), (&seeds::base(), seeds::target().len())] {
        if let Ok(target) = delta.apply(base, expected) {
            assert_eq!(target.len(), expected);
        }
    }
}

/// A signature, and the delta that is made with it although its sums may lie.
pub fn delta_signature(data: &[u8]) {
    let Ok(signature) = Signature::from_bytes(data) else { return };
    assert_eq!(signature.to_bytes(), data);
    for target in [data, &seeds::target()] {
        let delta = delta::diff(&signature, target).expect("a target in the limits");
        assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta.clone()));
        let made = delta.apply(&vec![0; signature.region_len()], target.len());
        assert_eq!(made.map(|made| made.len()), Ok(target.len()));
    }
}

/// Frames off a connection.
pub fn frame(data: &[u8]) {
    let mut buffer = Bytes::copy_from_slice(data);
    loop {
        let (before, measured) = (buffer.len(), frame::measure(&buffer));
        match frame::decode(&mut buffer) {
            Ok(Some(frame)) => {
                let whole = frame.body.len() + frame::HEAD_LEN;
                assert_eq!((measured, buffer.len()), (Ok(Measured::Whole(whole)), before - whole));
            }
            Ok(None) => {
                return assert!(matches!(measured, Ok(Measured::Missing(1..))) && buffer.len() == before);
            }
            Err(error) => return assert_eq!(measured, Err(error)),
        }
    }
}

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

/// Filter rules that the other side sent, one a line, and what is made of them.
pub fn filter_rules(data: &[u8]) {
    let lines: Vec<Vec<u8>> = data.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let Ok(rules) = RuleList::from_lines(&lines) else { return };
    assert_eq!(RuleList::from_lines(&rules.to_lines()).expect("a list that was taken"), rules);
    let mut filter = Filter::new(rules, Side::Sender, false);
    // Names that the rules are likely to speak of: their own words.
    for names in lines.iter().map(|line| line.split(|b| matches!(b, b'/' | b' '))) {
        let Ok(path) = RelPath::new(names.filter(|name| !name.is_empty())) else { continue };
        let (as_dir, as_file) = (filter.shows(&path, true), filter.shows(&path, false));
        assert_eq!((as_dir, as_file), (filter.shows(&path, true), filter.shows(&path, false)));
    }
}
