//! The local API as programs meet it: a real server at its socket, raw HTTP, two services that
//! reach each other by 127.0.0.1.
#![cfg_attr(test, allow(clippy::unwrap_used))] // Clippy spares only functions marked as tests.

mod client;
mod descriptors;
mod getting;
mod openapi;
mod problems;
mod puts;
mod relay;
mod sessions;
mod stress;
mod world;
