//! Short codes: `7-otter-lagoon`, read over the telephone and typed, buys the ticket that is too long for that.
//!
//! Both ends prove to each other by SPAKE2 that they have the same words, and then the ticket goes from the one that
//! shows the code to the one that typed it. Whoever carries their messages, or pretends to be the other end, has
//! one guess; a wrong one makes the code void. Everything after is done by the ticket. Layouts and what holds
//! against whom: `docs/formats/code.md`.
//!
//! All of this is pure: state machines that are handed messages, and counting that is handed the time. Only
//! [`Entropy::of_system`] asks the system, for random bytes.
//!
//! | module | story |
//! |---|---|
//! | [`words`] | the list of words, and the one that a mistyped word may have been |
//! | [`code`] | the text of a code: written, read, chosen at random |
//! | [`exchange`] | the two ends: [`CodeHost`] shows a code, [`CodeGuest`] typed it |
//! | [`attempts`] | what follows a wrong guess, and how often an address may try |
//! | [`entropy`] | random numbers of the system, or always the same ones for tests |

pub mod attempts;
pub mod code;
pub mod entropy;
pub mod exchange;
pub mod words;

pub use code::{Code, CodeError};
pub use entropy::Entropy;
pub use exchange::{CodeGuest, CodeHost};
