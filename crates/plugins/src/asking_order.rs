//! Who is asked what an object is: first what proves what it brings. A plain copy of the bytes can't tell.

use std::sync::Arc;

use towpath_transfer::Source;

type AskedSources = Vec<Arc<dyn Source>>;

/// Those of `sources` to be asked: what proves nothing only where there is nothing else.
pub(crate) fn to_ask<'a>(sources: impl IntoIterator<Item = &'a Arc<dyn Source>>) -> AskedSources {
    let (proving, others) = by_proving(sources);
    if proving.is_empty() { others } else { proving }
}

/// All of `sources` in the order in which they are asked: one that proves not all that it brings may draw from others, of which one
/// can tell.
pub(crate) fn in_turn<'a>(sources: impl IntoIterator<Item = &'a Arc<dyn Source>>) -> AskedSources {
    let (mut proving, others) = by_proving(sources);
    proving.extend(others);
    proving
}

/// What proves what it brings, and what does not.
fn by_proving<'a>(sources: impl IntoIterator<Item = &'a Arc<dyn Source>>) -> (AskedSources, AskedSources) {
    sources.into_iter().cloned().partition(|source| source.state().proves)
}
