//! The published test vectors, `docs/formats/vectors/delta/`.
