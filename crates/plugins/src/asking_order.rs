//! Who is asked what an object is: what proves nothing has but a copy of bytes, and is asked only where nothing else is.

use std::sync::Arc;

use towpath_transfer::Source;

/// Those of `sources` to be asked, in their order.
pub(crate) fn to_ask<'a>(sources: impl IntoIterator<Item = &'a Arc<dyn Source>>) -> Vec<Arc<dyn Source>> {
    let (proving, others): (Vec<_>, Vec<_>) =
        sources.into_iter().cloned().partition(|source| source.state().proves);
    if proving.is_empty() { others } else { proving }
}
