//! What the two sides of a copy say to each other, and what both tell the person.
//!
//! | module | story |
//! |---|---|
//! | [`message`] | the messages between the two sides |
//! | [`errands`] | asynchronous work of threads that block |
//! | [`error`] | errors of a copy |
//! | [`events`] | events for the person |
//! | [`file_result`] | the result of a file that was requested |
//! | [`race_talk`] | about the connections beside ssh's pipe |
//! | [`records`] | messages kept in a file without a name while a copy runs |
//! | [`threads`] | the threads that block, and their end |

pub mod errands;
pub mod error;
pub mod events;
pub mod file_result;
pub mod message;
pub mod race_talk;
pub mod records;
pub mod threads;
