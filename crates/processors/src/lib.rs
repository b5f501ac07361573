//! Processors: what every chunk passes on its way between services (`docs/design/processors.md`). Some change it, as zstd does,
//! others look at it and may refuse it.
//!
//! | module | story |
//! |---|---|
//! | [`processor`] | the seam for what looks at, or changes, every chunk |
//! | [`compression`], [`rules`] | payloads as zstd frames; what may not pass: two processors |
//! | [`processors`] | those of a host, in their order |

pub mod compression;
pub mod processor;
pub mod processors;
pub mod rules;

/// Most encodings that a side can have: their numbers are the upper bits of a data frame's flags.
pub const MAX_ENCODINGS: usize = 127;
/// Most bytes of a payload, before it is encoded.
pub const MAX_PAYLOAD: usize = 256 << 10;
