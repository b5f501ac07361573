//! The server against crashes, clients that race, and clients that lie.

mod beside;
mod collecting;
mod conversation;
mod crash;
mod log;
mod many;
mod packs;
mod sharing;
mod writer;
