//! Circuits through relays: simulated ones by the thousand, and real ones over loopback.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

mod ends;
mod hostile;
mod losses;
mod real;
mod simulated;
mod vectors;
