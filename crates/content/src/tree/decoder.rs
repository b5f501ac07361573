//! A stream of blocks as a stream of events.

use super::block::{BLOCK, CAPACITY, HEADER, Header};
use super::entry::Event;
use super::item::{self, ItemContext, ItemForm};
use super::walk::Walk;
use crate::DecodeError;
use crate::codec::{Reader, invalid};

/// An event and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The event.
    pub event: Event,
    /// The block in which it begins, counted from 0. That is the one that mentions its OID:
    /// [`super::oids_in_block`].
    pub block: u64,
    /// A small file's content in the descriptor: all of it, else nothing ([`inline_len`](super::Entry::inline_len)).
    /// It is not checked yet that these are the bytes that the OID names.
    pub content: Vec<u8>,
}

/// Reads a descriptor handed over in parts of any size. Holds one block and one unfinished item.
///
/// Events come as soon as their block is whole, and each is checked by itself and against those
/// before it; that the tree is whole is known only when [`Self::finish`] says so.
///
/// ```
/// # use towpath_content::tree::{Decoder, Located};
/// # use towpath_content::DecodeError;
/// fn read(mut bytes: &[u8], mut each: impl FnMut(Located)) -> Result<(), DecodeError> {
///     let mut decoder = Decoder::new();
///     while !bytes.is_empty() {
///         let taken = decoder.feed(bytes);
///         bytes = &bytes[taken..];
///         while let Some(located) = decoder.next_event()? {
///             each(located);
///         }
///     }
///     decoder.finish()
/// }
/// # assert!(read(&[], drop).is_err());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    /// The block being read, as far as it is there.
    block: Vec<u8>,
    /// Its number.
    index: u64,
    /// Directory that is being read, once it is whole.
    open: Option<OpenDirectory>,
    /// An item that began in an earlier block.
    unfinished: Option<Unfinished>,
    /// End of the block before, until this one's first item shows that it had to begin here.
    before: Option<DecodedEnd>,
    context: ItemContext,
    walk: Walk,
    form: Option<ItemForm>,
    state: DecoderState,
}

#[derive(Debug, Clone, Copy)]
struct OpenDirectory {
    header: Header,
    at: usize,
}

#[derive(Debug, Clone)]
struct Unfinished {
    bytes: Vec<u8>,
    block: u64,
    missing: usize,
}

#[derive(Debug, Clone)]
struct DecodedEnd {
    context: ItemContext,
    room: usize,
}

#[derive(Debug, Clone, Default)]
enum DecoderState {
    #[default]
    Reading,
    Done,
    Failed(DecodeError),
}

impl Decoder {
    /// Waits for a descriptor's first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if OIDs may be unknown or live; known once the first block is whole.
    pub fn is_live(&self) -> Option<bool> {
        self.form.map(|form| form.live)
    }

    /// Takes bytes from the front of `bytes` and returns how many. If not all, call [`Self::next_event`]
    /// until it has no more events and then hand over the rest.
    #[must_use = "the bytes that were not taken must be fed again"]
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            DecoderState::Failed(_) => return bytes.len(),
            DecoderState::Done if !bytes.is_empty() => {
                self.state = DecoderState::Failed(DecodeError::Trailing { count: bytes.len() });
                return bytes.len();
            }
            DecoderState::Done | DecoderState::Reading => {}
        }
        let room = if self.open.is_some() { 0 } else { BLOCK - self.block.len() };
        let taken = bytes.len().min(room);
        self.block.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// The next event, or `None` if that takes more bytes or the tree is complete. An error is
    /// final: it comes again at each call.
    pub fn next_event(&mut self) -> Result<Option<Located>, DecodeError> {
        let result = match &self.state {
            DecoderState::Reading => self.advance(),
            DecoderState::Done => return Ok(None),
            DecoderState::Failed(error) => return Err(error.clone()),
        };
        if let Err(error) = &result {
            *self = Self { state: DecoderState::Failed(error.clone()), ..Self::default() };
        }
        result
    }

    /// Checks that the tree is complete, after [`Self::next_event`] had no more events.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.state {
            DecoderState::Done => Ok(()),
            DecoderState::Failed(error) => Err(error),
            DecoderState::Reading => {
                let needed = self.block_len()?.saturating_sub(self.block.len()).max(1) as u64;
                Err(DecodeError::Truncated { field: "tree descriptor", needed })
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Located>, DecodeError> {
        loop {
            let Some(open) = self.open_block()? else { return Ok(None) };
            if let Some(located) = self.read_block(open)? {
                return Ok(Some(located));
            }
            self.close_block(open.header)?;
            if open.header.last {
                self.state = DecoderState::Done;
                return Ok(None);
            }
        }
    }

    /// Bytes that the current block has, or those of a header until there is one.
    fn block_len(&self) -> Result<usize, DecodeError> {
        if self.block.len() < HEADER {
            Ok(HEADER)
        } else {
            Header::of(&self.block).map(|header| header.block_len())
        }
    }

    /// The block being read; none until the next one is whole.
    fn open_block(&mut self) -> Result<Option<OpenDirectory>, DecodeError> {
        if self.open.is_none() && self.block.len() >= HEADER {
            let header = Header::of(&self.block)?;
            self.check_header(&header)?;
            if self.block.len() >= header.block_len() {
                // Checks its length too: nothing may follow the last block.
                header.payload(&self.block)?;
                self.form = Some(header.form);
                self.open = Some(OpenDirectory { header, at: 0 });
            }
        }
        Ok(self.open)
    }

    fn check_header(&self, header: &Header) -> Result<(), DecodeError> {
        if self.form.is_some_and(|form| form != header.form) {
            return Err(invalid("block", "differs from the ones before in version or in being live"));
        }
        let missing = self.unfinished.as_ref().map_or(0, |unfinished| unfinished.missing);
        let continued = missing.min(CAPACITY);
        let is_end_wrong = missing > 0 && header.beyond != missing - continued;
        if header.continued != continued || is_end_wrong {
            return Err(invalid("block", "does not continue the one before"));
        }
        Ok(())
    }

    /// Reads one event off the open block, or notes the part of one that it is.
    fn read_block(&mut self, open: OpenDirectory) -> Result<Option<Located>, DecodeError> {
        let Header { form, used, continued, beyond, .. } = open.header;
        let payload = &self.block[HEADER..HEADER + used];
        if open.at == used {
            return Ok(None);
        }
        if open.at == 0 && (continued > 0 || beyond > 0) {
            let part = if continued > 0 { &payload[..continued] } else { payload };
            let unfinished = self.unfinished.get_or_insert_with(|| Unfinished::new(self.index));
            unfinished.bytes.extend_from_slice(part);
            unfinished.missing = beyond;
            self.open = Some(OpenDirectory { at: part.len(), ..open });
            return if beyond > 0 { Ok(None) } else { self.read_unfinished(form) };
        }
        let mut reader = Reader::new(&payload[open.at..]);
        let (event, content) = item::read(&mut reader, &self.context, form)?;
        let (at, content) = (used - reader.remaining(), content.to_vec());
        self.open = Some(OpenDirectory { at, ..open });
        self.context.note(&event);
        self.accept(event, content, self.index).map(Some)
    }

    fn read_unfinished(&mut self, form: ItemForm) -> Result<Option<Located>, DecodeError> {
        let Some(Unfinished { bytes, block, .. }) = self.unfinished.take() else { return Ok(None) };
        let mut reader = Reader::new(&bytes);
        let (event, content) = item::read(&mut reader, &ItemContext::default(), form)?;
        let content = content.to_vec();
        reader.finish()?;
        self.accept(event, content, block).map(Some)
    }

    /// Checks an event's place: in the walk, and in this block rather than the one before.
    fn accept(&mut self, event: Event, content: Vec<u8>, block: u64) -> Result<Located, DecodeError> {
        if let Some(DecodedEnd { context, room }) = self.before.take()
            && item::write(&event, &content, &context).len() <= room
        {
            return Err(invalid("block", "begins with what fits in the one before"));
        }
        self.walk.step(&event)?;
        Ok(Located { event, block, content })
    }

    /// Turns from a block that was read to its end to the next.
    fn close_block(&mut self, header: Header) -> Result<(), DecodeError> {
        if header.last != self.walk.is_done() {
            return Err(invalid("tree descriptor", "has its last block elsewhere than its root's end"));
        }
        let context = std::mem::take(&mut self.context);
        if self.unfinished.is_none() {
            self.before = Some(DecodedEnd { context, room: CAPACITY - header.used });
        }
        self.open = None;
        self.index += 1;
        self.block.clear();
        Ok(())
    }
}

impl Unfinished {
    const fn new(block: u64) -> Self {
        Self { bytes: Vec::new(), block, missing: 0 }
    }
}
