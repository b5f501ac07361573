//! The tree protocol on a simulated network: both machines, and the real merge into a directory, with links that lose, fail
//! and reorder, connections cut at every message, and a liar at every message.
//!
//! | module | story |
//! |---|---|
//! | `sample` | a source, made up, and what is at the destination before and after |
//! | `hosts` | a sender and a receiver as nodes |
//! | `faults` | what befalls their messages, and how it ends |

mod faults;
mod hosts;
mod sample;
