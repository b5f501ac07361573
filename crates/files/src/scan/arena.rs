//! Many names in two allocations.

/// Bytes a name takes besides its own.
const PER_NAME: usize = size_of::<(u32, u8)>();

/// Checked names (1 to 255 bytes each), of less than 4 GiB in all.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    spans: Vec<(u32, u8)>,
}

impl Arena {
    /// The most bytes [`Arena::cost`] may come to.
    pub(super) const MAX: usize = 1 << 30;

    pub(super) fn push(&mut self, name: &[u8]) {
        self.spans.push((self.bytes.len() as u32, name.len() as u8));
        self.bytes.extend_from_slice(name);
    }

    /// Bytes in use.
    pub(super) const fn cost(&self) -> usize {
        self.bytes.len() + self.spans.len() * PER_NAME
    }

    pub(super) fn sort(&mut self) {
        let bytes = &self.bytes;
        self.spans.sort_unstable_by(|&a, &b| slice(bytes, a).cmp(slice(bytes, b)));
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        self.spans.get(index).map(|&span| slice(&self.bytes, span))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|&span| slice(&self.bytes, span))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Empties it and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}

fn slice(bytes: &[u8], (start, len): (u32, u8)) -> &[u8] {
    &bytes[start as usize..][..usize::from(len)]
}
