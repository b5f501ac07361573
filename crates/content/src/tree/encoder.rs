//! A stream of events as a stream of blocks.

use super::block::{BLOCK, CAPACITY, HEADER, Header};
use super::check::{TreeError, check_entry, ensure};
use super::entry::Event;
use super::item::{self, ItemContext, ItemForm};
use super::walk::Walk;

/// Writes a descriptor. Holds one block and one entry, besides what [`Self::take`] did not fetch.
#[derive(Debug, Clone)]
pub struct Encoder {
    form: ItemForm,
    walk: Walk,
    /// Whole blocks, not yet taken.
    finished: Vec<u8>,
    /// Of the block being filled. It waits here until it is known whether it is the last.
    payload: Vec<u8>,
    /// Number of bytes of `payload` that continue an item of an earlier block.
    continued: usize,
    context: ItemContext,
}

impl Encoder {
    /// A descriptor without entries yet, which will hold no content (version 1). `live`: made while
    /// the scan runs, so that OIDs may be unknown or those of live objects.
    pub fn new(live: bool) -> Self {
        Self::of(ItemForm { live, with_content: false })
    }

    /// As [`Self::new`], but the descriptor holds the content of small files (version 2).
    pub fn with_content(live: bool) -> Self {
        Self::of(ItemForm { live, with_content: true })
    }

    fn of(form: ItemForm) -> Self {
        Self {
            form,
            walk: Walk::default(),
            finished: Vec::new(),
            payload: Vec::new(),
            continued: 0,
            context: ItemContext::default(),
        }
    }

    /// Appends the next step of the walk. A refused event changes nothing, so the walk can go on
    /// without it (and, for a directory, without all that is in it).
    pub fn push(&mut self, event: &Event) -> Result<(), TreeError> {
        self.push_with(event, &[])
    }

    /// As [`Self::push`], with the content that the descriptor is to hold: in one made
    /// [`Self::with_content`] the [`Entry::inline_len`](super::Entry::inline_len) bytes that the OID
    /// names, else none.
    pub fn push_with(&mut self, event: &Event, content: &[u8]) -> Result<(), TreeError> {
        self.walk.check(event)?;
        if let Event::Enter(entry) | Event::Leaf(entry) = event {
            check_entry(entry, self.form.live)?;
        }
        let content_len = event.entry().map_or(0, |entry| self.form.content_len(entry));
        ensure(
            content.len() == content_len,
            "content",
            "is not as long as the descriptor holds of the file",
        )?;
        self.walk.apply(event);
        let bytes = item::write(event, content, &self.context);
        if bytes.len() <= CAPACITY - self.payload.len() {
            self.append(event, &bytes);
        } else {
            self.append_to_new_block(event, content);
        }
        Ok(())
    }

    /// The blocks finished since the last call, to be appended to those before.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.finished)
    }

    /// The rest of the descriptor, once the root has ended.
    pub fn finish(mut self) -> Result<Vec<u8>, TreeError> {
        ensure(self.walk.is_done(), "tree", "ends before its root does")?;
        self.close_block(true, 0);
        Ok(self.finished)
    }

    fn append(&mut self, event: &Event, bytes: &[u8]) {
        self.payload.extend_from_slice(bytes);
        self.context.note(event);
    }

    fn append_to_new_block(&mut self, event: &Event, content: &[u8]) {
        if !self.payload.is_empty() {
            self.close_block(false, 0);
        }
        let bytes = item::write(event, content, &self.context);
        if bytes.len() <= CAPACITY {
            self.append(event, &bytes);
        } else {
            self.append_over_blocks(&bytes);
        }
    }

    fn append_over_blocks(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((part, beyond)) = rest.split_at_checked(CAPACITY).filter(|(_, rest)| !rest.is_empty())
        {
            self.payload.extend_from_slice(part);
            self.close_block(false, beyond.len());
            self.continued = beyond.len().min(CAPACITY);
            rest = beyond;
        }
        self.payload.extend_from_slice(rest);
    }

    fn close_block(&mut self, last: bool, beyond: usize) {
        let Self { form, continued, .. } = *self;
        let header = Header { form, last, used: self.payload.len(), continued, beyond };
        self.finished.extend_from_slice(&header.to_bytes());
        self.finished.append(&mut self.payload);
        if !last {
            let end = self.finished.len() + BLOCK - HEADER - header.used;
            self.finished.resize(end, 0);
        }
        self.continued = 0;
        self.context = ItemContext::default();
    }
}
