//! Codes from end to end, without a network.
//!
//! | module | story |
//! |---|---|
//! | [`support`] | two ends that know each other's messages |
//! | [`exchange`] | the two ends, and what each is told when something is wrong |
//! | [`liar`] | whoever carries the messages changes, swaps and makes up what it can |
//! | [`simulated`] | the same over a simulated network that loses, holds and repeats |
//! | [`guessing`] | a guesser against many hosts, counted |
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

mod exchange;
mod guessing;
mod liar;
mod simulated;
mod support;
