//! Connections as a caller sees them, and peers that misbehave.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

mod carry;
mod hostile;
mod opening;
mod over;
mod pair;
mod records;
