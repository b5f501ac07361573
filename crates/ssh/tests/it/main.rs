//! Copies between machines, as far as one machine can show it: the channel, and the connections
//! that race beside it.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // Clippy spares only functions marked as tests, not their helpers.

#[cfg(test)]
mod channel;
#[cfg(test)]
mod links;
#[cfg(test)]
mod race;
#[cfg(test)]
mod support;
