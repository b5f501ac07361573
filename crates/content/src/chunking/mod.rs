//! Chunkers: where the chunks of an object begin and end.
//!
//! A [`Chunker`] is fed an object's bytes in slices of any size and hands back its chunks, one at
//! a time. Which chunks it finds depends on the bytes and on its [`Parameters`], never on how the
//! bytes were sliced, so sender and receiver cut alike. Algorithms and layout of the parameters:
//! `docs/formats/chunking.md`.
//!
//! | part | story |
//! |---|---|
//! | [`Parameters`] | which chunker, with which lengths; travels in every recipe |
//! | [`Cutter`] | where a chunk ends, as a pure function: for those who have the bytes at hand |
//! | `gear` | FastCDC: boundaries that follow the content, so an insertion moves few of them |
//! | `rabin` | the same by Rabin fingerprints, as LBFS does it |
//! | [`ChunkHash`] | the name of a chunk |
//! | `stream`, `window` | the chunker of a stream and its bounded buffer |
//!
//! Memory: a chunker holds at most one chunk of the greatest length, and nothing while the slices
//! it is fed begin and end with a chunk.

mod cutter;
mod gear;
mod hash;
mod parameters;
mod rabin;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
mod window;

pub use cutter::Cutter;
pub use hash::ChunkHash;
pub use parameters::{MAX_CHUNK_LEN, MAX_CHUNKS, MIN_CHUNK_LEN, Parameters};

/// Places the boundaries of chunks in a stream of bytes.
///
/// ```
/// use towpath_content::chunking::Parameters;
///
/// let mut chunker = Parameters::DEFAULT.chunker().unwrap();
/// let mut lengths = Vec::new();
/// for mut slice in [&[1; 100_000][..], &[2; 30_000][..]] {
///     while let Some(chunk) = chunker.cut(&mut slice) {
///         lengths.push(chunk.len());
///     }
/// }
/// while let Some(chunk) = chunker.finish() {
///     lengths.push(chunk.len());
/// }
/// assert_eq!(lengths.iter().sum::<usize>(), 130_000);
/// ```
///
/// Contract: all bytes fed come back, in order, as chunks that are not empty; a chunk is known at
/// the latest when the greatest chunk length has been fed from its start on, or at the end.
pub trait Chunker: Send {
    /// Takes bytes off the front of `input` and returns the next chunk, from `input` itself where
    /// it lies there whole. `None` means that all of `input` was taken and more is needed.
    fn cut<'c, 'i: 'c>(&'c mut self, input: &mut &'i [u8]) -> Option<&'c [u8]>;

    /// Says that there is no more input and returns the next of the last chunks. After `None` the
    /// chunker is as new, ready for another object.
    fn finish(&mut self) -> Option<&[u8]>;
}
