//! The way of signatures to the side that was asked for entries.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use towpath_content::delta::exchange::NextSignature;
use towpath_transfer::offer::SignatureWay;
use towpath_transfer::{SourceId, Tag};

use super::shared::Shared;

/// The way of signatures for the wants of one request.
pub(super) struct EntryWay {
    shared: Weak<Shared>,
    request: u32,
    wants: HashMap<Tag, u32>,
    source: SourceId,
}

impl EntryWay {
    /// For the wants with these tags, in their order.
    pub(super) fn new(shared: &Arc<Shared>, request: u32, tags: &[Tag]) -> Self {
        let wants = tags.iter().copied().zip(0..).collect();
        let source = shared.with(|session| session.source().clone());
        Self { shared: Arc::downgrade(shared), request, wants, source }
    }
}

impl SignatureWay for EntryWay {
    fn source(&self) -> Option<&SourceId> {
        Some(&self.source)
    }

    fn send(&self, tag: Tag, signature: &NextSignature) {
        let Some((shared, want)) = self.shared.upgrade().zip(self.wants.get(&tag)) else { return };
        let bytes = signature.to_bytes().into();
        shared.change(|callers| callers.session().sign(self.request, *want, bytes));
    }
}
