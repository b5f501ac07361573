//! Frames on their way in: from bytes to what a [`super::session::Session`] takes.
//!
//! Pure, and apart from the session: parsing and unpacking need no look at what is under way (but
//! for one number), so whoever shares a session among threads does them outside its lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use bytes::Bytes;
use towpath_content::live::Statement;
use towpath_content::pieces::{Layout, VALUE_LEN};
use towpath_content::recipe::{MAX_NODE_LEN, MAX_ROOT_LEN};
use towpath_link::Frame;
use towpath_transfer::offer::EntryContent;
use towpath_transfer::{Description, Proof};

use super::compression;
use super::requests::Violation;
use super::window::{SHORT, cost};
use super::wire::{self, Body, ContentList, Contents, ContentsBody, DataHeader, WireRun};
use crate::processor::Decode;
use crate::processors::Processors;

/// Payloads below this length, bytes, are copied, as they may be kept for long: one was received with up to 304 KiB of
/// other frames, and whoever keeps it counts its own bytes alone.
const SHORT_PAYLOAD: usize = 4 << 10;

/// One frame, understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A data frame.
    Data {
        /// Its header.
        header: DataHeader,
        /// Its payload, unpacked; `None` if it was packed for a request given up meanwhile.
        payload: Option<Bytes>,
    },
    /// An answer to the `Describe` of this number.
    Answer(u32, Description),
    /// Pieces that can be had, for the `Watch` of this number.
    Ranges(u32, Vec<Range<u64>>),
    /// Contents of entries.
    Contents(ContentsCame),
    /// A run of an entry that comes in parts.
    Run {
        /// It.
        run: WireRun,
        /// Bytes that it counts for.
        cost: usize,
    },
    /// Any other message.
    Message(Body),
}

/// Contents of entries that came in one message.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentsCame {
    /// The `Get` that asked.
    pub request: u32,
    /// Each with the index of its want.
    pub contents: Vec<(u32, EntryContent)>,
    /// Bytes that stay in memory as long as any of them is kept.
    pub kept: usize,
    /// Bytes that the message counts for.
    pub cost: usize,
}

/// Understands the frames of one direction of a connection, in order. Errors are reasons to close
/// it.
#[derive(Default)]
pub struct Decoder {
    greeted: bool,
    /// The peer's encoded payloads tell their lengths.
    in_parts: bool,
    processors: Processors,
    /// Encodings by the peer's numbers, from 2 on.
    encodings: Vec<String>,
    /// Those that were met, by their numbers.
    decoders: BTreeMap<u8, Box<dyn Decode>>,
}

impl Decoder {
    /// Takes the encodings of `processors`.
    pub fn new(processors: Processors) -> Self {
        Self { processors, ..Self::default() }
    }

    /// Understands a frame. `expected` is asked how long a packed payload must be:
    /// [`super::session::Session::expected`].
    pub fn decode(
        &mut self,
        frame: Frame,
        expected: impl FnOnce(&DataHeader) -> Result<Option<usize>, Violation>,
    ) -> Result<Incoming, String> {
        match frame.kind {
            wire::CONTROL => self.message(frame.body),
            _ if !self.greeted => Err(NO_HELLO.into()),
            wire::DATA => self.data(frame.body, expected),
            _ => Err("sent a frame of an unknown kind".into()),
        }
    }

    fn message(&mut self, body: Bytes) -> Result<Incoming, String> {
        if !self.greeted && !wire::may_come_first(&body) {
            return Err(NO_HELLO.into());
        }
        let len = body.len();
        let is_copied = len < SHORT && wire::has_contents(&body);
        let body = if is_copied { Bytes::copy_from_slice(&body) } else { body };
        let body = Body::from_frame(body).map_err(|error| format!("sent a message that {error}"))?;
        self.greeted = true;
        match body {
            Body::Hello(hello) => {
                if hello.encodings.len() >= wire::MAX_ENCODINGS {
                    return Err("has too many encodings".into());
                }
                self.encodings.clone_from(&hello.encodings);
                self.in_parts = hello.capabilities.iter().any(|capability| capability == wire::PARTS);
                Ok(Incoming::Message(Body::Hello(hello)))
            }
            Body::Description(description) => object(&description),
            Body::Stated(stated) => statement(&stated),
            Body::Proof(proof) => self::proof(proof),
            Body::Have(have) => ranges(&have),
            Body::Recipe(part) => recipe(part),
            Body::Contents(message) => contents(message, len),
            Body::Run(run) => Ok(self::run(run, len)),
            body => Ok(Incoming::Message(body)),
        }
    }

    fn data(
        &mut self,
        body: Bytes,
        expected: impl FnOnce(&DataHeader) -> Result<Option<usize>, Violation>,
    ) -> Result<Incoming, String> {
        let (header, payload) = DataHeader::decode(body).map_err(|error| error.to_string())?;
        let payload = match header.encoding {
            0 => Some(own_if_short(payload)),
            number => match expected(&header).map_err(|violation| violation.to_string())? {
                Some(expected) => Some(self.decode_payload(number, payload, expected)?),
                None => None,
            },
        };
        Ok(Incoming::Data { header, payload })
    }
}

impl Decoder {
    /// An encoded payload of `expected` bytes; of fewer, if it tells how many.
    fn decode_payload(&mut self, number: u8, payload: Bytes, expected: usize) -> Result<Bytes, String> {
        if !self.in_parts {
            return self.decoder(number)?.decode(&payload, expected);
        }
        let (len, payload) = wire::split_len(payload).map_err(|error| error.to_string())?;
        match len <= expected {
            true => self.decoder(number)?.decode(&payload, len),
            false => Err(Violation::OutOfOrder.to_string()),
        }
    }

    fn decoder(&mut self, number: u8) -> Result<&mut dyn Decode, String> {
        let decoder = match self.decoders.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let name = match number {
                    1 => compression::CAPABILITY,
                    _ => self.encodings.get(usize::from(number) - 2).map_or("", String::as_str),
                };
                let mut ours = self.processors.encodings().map(|(_, encoding)| encoding);
                let found = ours.find(|encoding| encoding.capability() == name);
                unknown
                    .insert(found.ok_or("sent data in an encoding that this side does not take")?.decoder())
            }
        };
        Ok(&mut **decoder)
    }
}

/// Copies a short payload into memory of its own.
fn own_if_short(payload: Bytes) -> Bytes {
    if payload.len() < SHORT_PAYLOAD { Bytes::copy_from_slice(&payload) } else { payload }
}

const NO_HELLO: &str = "did not begin with a hello";

fn object(description: &wire::Description) -> Result<Incoming, String> {
    let layout = description.size.map(Layout::of).transpose().map_err(|error| error.to_string())?;
    let metadata = description.metadata().map_err(|error| error.to_string())?;
    let answer = Description::Object { about: description.about(), layout, metadata };
    Ok(Incoming::Answer(description.request, answer))
}

fn statement(stated: &wire::Stated) -> Result<Incoming, String> {
    let statement =
        Statement::from_bytes(&stated.statement).map_err(|error| format!("sent a bad statement: {error}"))?;
    let signature = stated.signature.to_vec();
    Ok(Incoming::Answer(stated.request, Description::Live { statement, signature }))
}

fn proof(proof: wire::ProofOf) -> Result<Incoming, String> {
    let most = proof.count.saturating_add(wire::MAX_BESIDE as u64).saturating_mul(VALUE_LEN as u64);
    if proof.nodes.len() as u64 > most {
        return Err("sent a proof that is too long for its pieces".into());
    }
    // It is kept until the data have come, and was received with much else.
    let nodes = Bytes::copy_from_slice(&proof.nodes);
    if proof.want.is_some() {
        return Ok(Incoming::Message(Body::Proof(wire::ProofOf { nodes, ..proof })));
    }
    let end = proof.first.checked_add(proof.count).ok_or("sent a proof of impossible pieces")?;
    let answer = Description::Proof(Proof { run: proof.first..end, nodes });
    Ok(Incoming::Answer(proof.request, answer))
}

/// A part of a recipe, which only the session can tell from one that nobody asked for.
fn recipe(part: wire::Recipe) -> Result<Incoming, String> {
    let root = part.root.as_ref().map_or(0, Bytes::len);
    let nodes: usize = part.nodes.iter().map(Bytes::len).sum();
    if root > MAX_ROOT_LEN || part.nodes.iter().any(|node| node.len() > MAX_NODE_LEN) {
        return Err("sent an impossible recipe".into());
    }
    if root + nodes > wire::MAX_RECIPE_PART || root + nodes == 0 {
        return Err("sent too much or nothing of a recipe at once".into());
    }
    Ok(Incoming::Message(Body::Recipe(part)))
}

/// Contents of a frame of `len` bytes.
fn contents(message: Contents, len: usize) -> Result<Incoming, String> {
    let (list, kept) = match message.body {
        Some(ContentsBody::List(list)) => (list, len),
        Some(ContentsBody::Packed(packed)) => {
            ContentList::unpack(&packed).map_err(|error| format!("sent a message whose {error}"))?
        }
        None => (ContentList::default(), len),
    };
    if list.contents.is_empty() {
        return Err("sent contents that are none".into());
    }
    let read = |content: wire::WireContent| Ok((content.want, content.content()?));
    let contents: Result<_, towpath_content::DecodeError> = list.contents.into_iter().map(read).collect();
    let contents = contents.map_err(|error| format!("sent a content of which the {error}"))?;
    Ok(Incoming::Contents(ContentsCame { request: message.request, contents, kept, cost: cost(len) }))
}

/// A run in a frame of `len` bytes.
fn run(run: WireRun, len: usize) -> Incoming {
    let bytes = if len < SHORT { Bytes::copy_from_slice(&run.bytes) } else { run.bytes };
    Incoming::Run { run: WireRun { bytes, ..run }, cost: cost(len) }
}

fn ranges(have: &wire::Have) -> Result<Incoming, String> {
    let (pairs, rest) = have.bounds.as_chunks::<2>();
    if !rest.is_empty() || pairs.iter().any(|[start, end]| start >= end) {
        return Err("sent impossible ranges".into());
    }
    Ok(Incoming::Ranges(have.request, pairs.iter().map(|&[start, end]| start..end).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use wire::{Hello, ProofOf};

    /// Memory that tells whether it is held.
    struct Received {
        bytes: Vec<u8>,
        _token: Arc<()>,
    }

    impl AsRef<[u8]> for Received {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    /// The contents of a frame that was received with much else, and whether all of that is held.
    fn received(kind: u8, body: &[u8]) -> (Incoming, bool) {
        let mut decoder = Decoder::default();
        let hello = Frame { kind: wire::CONTROL, body: Body::Hello(Hello::default()).to_frame() };
        decoder.decode(hello, |_| Ok(None)).unwrap();
        let token = Arc::new(());
        let buffer = Received { bytes: [body, &[0; 100_000]].concat(), _token: Arc::clone(&token) };
        let body = Bytes::from_owner(buffer).slice(..body.len());
        let understood = decoder.decode(Frame { kind, body }, |_| Ok(None)).unwrap();
        (understood, Arc::strong_count(&token) > 1)
    }

    #[test]
    fn what_is_small_and_may_be_kept_holds_nothing_that_came_with_it() {
        let header =
            DataHeader { request: 1, want: 0, piece: 0, offset: 0, suggested: 0, zeros: false, encoding: 0 };
        for (len, is_held) in [(0, false), (1, false), (SHORT_PAYLOAD - 1, false), (SHORT_PAYLOAD, true)] {
            let (data, held) = received(wire::DATA, &[&header.encode()[..], &vec![7; len]].concat());
            assert!(matches!(data, Incoming::Data { payload: Some(payload), .. } if payload == vec![7; len]));
            assert_eq!(held, is_held && len > 0, "{len}");
        }
        for (len, is_held) in [(0, false), (1000, false), (SHORT, true)] {
            let run = WireRun { bytes: vec![7; len].into(), ..WireRun::default() };
            let (_kept, held) = received(wire::CONTROL, &Body::Run(run).to_frame());
            assert_eq!(held, is_held, "a run of {len}");
            let body = Some(wire::ContentBody::Whole(vec![7; len].into()));
            let oid = wire::oid_field(&towpath_content::Oid::of(b"x"));
            let content = wire::WireContent { oid, body, ..wire::WireContent::default() };
            let list = ContentsBody::List(ContentList { contents: vec![content] });
            let contents = Body::Contents(Contents { request: 1, body: Some(list) });
            let (_kept, held) = received(wire::CONTROL, &contents.to_frame());
            assert_eq!(held, is_held, "a content of {len}");
        }
        let proof =
            |want| ProofOf { want, first: 0, count: 1, nodes: vec![7; 64].into(), ..ProofOf::default() };
        for want in [None, Some(3)] {
            let (_kept, held) = received(wire::CONTROL, &Body::Proof(proof(want)).to_frame());
            assert!(!held);
        }
    }
}
