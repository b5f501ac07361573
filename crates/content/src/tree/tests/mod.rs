//! Trees to test with, by hand and at random, and the long way round from events to events.

mod content;
mod difference;
mod limits;
mod oids;
mod refused;
mod round_trip;
mod vectors;

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::block::{BLOCK, CAPACITY, Header};
use super::item::{self, ItemContext, ItemForm};
use super::*;
use crate::{DecodeError, Oid};

/// An entry with nothing remarkable.
fn entry(name: impl AsRef<[u8]>, kind: Kind) -> Entry {
    let user = Owner { id: 1000, name: b"ann".to_vec() };
    let group = Owner { id: 100, name: b"users".to_vec() };
    let modified = Time { seconds: 1_700_000_000, nanos: 123_456_789 };
    let metadata = Metadata { mode: 0o644, user, group, modified, xattrs: Vec::new() };
    Entry { name: name.as_ref().to_vec(), kind, metadata, hard_link: None }
}

fn file_kind(content: &[u8]) -> Kind {
    Kind::File { size: content.len() as u64, oid: Some(Oid::of(content)), extents: None }
}

fn file(name: impl AsRef<[u8]>) -> Event {
    let content = name.as_ref().to_vec();
    Event::Leaf(entry(name, file_kind(&content)))
}

fn leaf(name: impl AsRef<[u8]>, kind: Kind) -> Event {
    Event::Leaf(entry(name, kind))
}

fn enter(name: impl AsRef<[u8]>) -> Event {
    Event::Enter(entry(name, Kind::Directory))
}

/// A file with one attribute of `len` times `byte`.
fn file_with_xattr(name: impl AsRef<[u8]>, byte: u8, len: usize) -> Event {
    with(file(name), |entry| entry.metadata.xattrs = vec![xattr("user.x", vec![byte; len])])
}

fn xattr(name: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Xattr {
    Xattr { name: name.as_ref().to_vec(), value: value.into() }
}

fn with(mut event: Event, change: impl FnOnce(&mut Entry)) -> Event {
    if let Event::Enter(entry) | Event::Leaf(entry) = &mut event {
        change(entry);
    }
    event
}

/// A root directory around `events`.
fn tree(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    [enter("")].into_iter().chain(events).chain([Event::Leave]).collect()
}

fn encode(events: &[Event], live: bool) -> Result<Vec<u8>, TreeError> {
    let bare: Vec<_> = events.iter().map(|event| (event.clone(), Vec::new())).collect();
    encode_with(Encoder::new(live), &bare)
}

fn encode_with(mut encoder: Encoder, events: &[(Event, Vec<u8>)]) -> Result<Vec<u8>, TreeError> {
    let mut bytes = Vec::new();
    for (event, content) in events {
        encoder.push_with(event, content)?;
        bytes.append(&mut encoder.take());
    }
    bytes.append(&mut encoder.finish()?);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<Vec<Located>, DecodeError> {
    decode_parts(&[bytes])
}

fn decode_parts(parts: &[&[u8]]) -> Result<Vec<Located>, DecodeError> {
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let taken = decoder.feed(rest);
            rest = &rest[taken..];
            while let Some(located) = decoder.next_event()? {
                found.push(located);
            }
        }
    }
    decoder.finish().map(|()| found)
}

fn events_of(located: Vec<Located>) -> Vec<Event> {
    located.into_iter().map(|located| located.event).collect()
}

/// Items as bytes, unchecked, as one payload.
fn items(events: &[Event]) -> Vec<u8> {
    let mut context = ItemContext::default();
    let mut payload = Vec::new();
    for event in events {
        payload.append(&mut item::write(event, &[], &context));
        context.note(event);
    }
    payload
}

/// One block, unchecked.
fn block(payload: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let form = ItemForm { live: false, with_content: false };
    let mut header = Header { form, last: false, used: payload.len(), continued: 0, beyond: 0 };
    change(&mut header);
    let mut block = [&header.to_bytes(), payload].concat();
    if !header.last {
        block.resize(BLOCK, 0);
    }
    block
}

fn last_block(payload: &[u8]) -> Vec<u8> {
    block(payload, |header| header.last = true)
}

/// A tree at random; [`Node::walk`] gives its events.
#[derive(Debug, Clone)]
struct Node {
    kind: Kind,
    metadata: Metadata,
    hard_link: Option<u64>,
    children: BTreeMap<Vec<u8>, Node>,
}

impl Node {
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.walk(&[], &mut events);
        events
    }

    fn walk(&self, name: &[u8], events: &mut Vec<Event>) {
        let Self { kind, metadata, hard_link, children } = self.clone();
        let entry = Entry { name: name.to_vec(), kind, metadata, hard_link };
        if entry.kind != Kind::Directory {
            return events.push(Event::Leaf(entry));
        }
        events.push(Event::Enter(entry));
        for (name, child) in &children {
            child.walk(name, events);
        }
        events.push(Event::Leave);
    }
}

fn nodes(live: bool) -> impl Strategy<Value = Node> {
    let leaf =
        (kinds(live), metadata(), option::weighted(0.2, 0u64..3)).prop_map(|(kind, metadata, hard_link)| {
            Node { kind, metadata, hard_link, children: BTreeMap::new() }
        });
    leaf.prop_recursive(4, 60, 12, |inner| {
        (metadata(), btree_map(names(), inner, 0..12)).prop_map(|(metadata, children)| Node {
            kind: Kind::Directory,
            metadata,
            hard_link: None,
            children,
        })
    })
}

/// Few enough that two trees share some.
fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop::sample::select(b"ab.".to_vec()), 1..3),
        1 => vec(any::<u8>(), 1..=MAX_NAME),
    ]
    .prop_map(|name| name.into_iter().filter(|byte| !b"/\0".contains(byte)).collect())
    .prop_map(
        |name: Vec<u8>| if [&b""[..], b".", b".."].contains(&&name[..]) { b"dot".to_vec() } else { name },
    )
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let owner = || (0u32..2).prop_map(|id| Owner { id: id.wrapping_neg(), name: vec![b'n'; id as usize] });
    let seconds = prop_oneof![4 => 0i64..3, 1 => any::<i64>()];
    (0o754u32..0o756, owner(), owner(), seconds, 0..NANOS, xattrs()).prop_map(
        |(mode, user, group, seconds, nanos, xattrs)| Metadata {
            mode,
            user,
            group,
            modified: Time { seconds, nanos },
            xattrs,
        },
    )
}

fn xattrs() -> impl Strategy<Value = Vec<Xattr>> {
    let len = prop_oneof![3 => 0..20usize, 1 => 0..=MAX_XATTR_VALUE];
    let value = (any::<u8>(), len).prop_map(|(byte, len)| vec![byte; len]);
    let some = btree_map("[a-c]{1,2}", value, 0..4);
    prop_oneof![4 => Just(BTreeMap::new()), 1 => some]
        .prop_map(|map| map.into_iter().map(|(name, value)| xattr(name, value)).collect())
}

fn kinds(live: bool) -> impl Strategy<Value = Kind> {
    let oid = prop_oneof![
        8 => any::<[u8; 32]>().prop_map(|bytes| Some(Oid::Blake3(bytes))),
        1 => any::<[u8; 32]>().prop_map(|bytes| Some(Oid::Live(bytes))),
        1 => Just(None),
    ];
    let oid = oid.prop_map(move |oid| if live { oid } else { oid.map(|oid| Oid::Blake3(*oid.digest())) });
    let oid = oid.prop_map(move |oid| if live { oid } else { oid.or(Some(Oid::of(b""))) });
    let runs = option::weighted(0.3, vec((1u64..1 << 30, 1u64..1 << 30), 0..5));
    let files = (oid, any::<u32>(), runs).prop_map(|(oid, size, runs)| match runs {
        None => Kind::File { size: size.into(), oid, extents: None },
        Some(runs) => sparse(oid, &runs),
    });
    prop_oneof![
        8 => files,
        1 => vec(1u8.., 1..40).prop_map(|target| Kind::Symlink { target }),
        1 => Just(Kind::Fifo),
        1 => Just(Kind::Socket),
        1 => any::<(u32, u32)>().prop_map(|(major, minor)| Kind::CharDevice { major, minor }),
        1 => any::<(u32, u32)>().prop_map(|(major, minor)| Kind::BlockDevice { major, minor }),
    ]
}

/// A file of runs of hole and data, with a hole at the end.
fn sparse(oid: Option<Oid>, runs: &[(u64, u64)]) -> Kind {
    let mut end = 0;
    let mut extents = Vec::new();
    for (hole, len) in runs {
        extents.push(Extent { offset: end + hole, len: *len });
        end += hole + len;
    }
    Kind::File { size: end + 1, oid, extents: Some(extents) }
}
