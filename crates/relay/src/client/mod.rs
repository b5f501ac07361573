//! The nodes' side: calling through a relay, and waiting at one.
//!
//! Either ends in a [`towpath_link::Connection`] that is proved and encrypted from end to end. A task of its own carries
//! the circuit below it, and finds another way when the relay is lost.

mod calling;
mod dialling;
mod driving;
mod socket;
mod waiting;

pub use calling::{CallAttempt, CallError, call};
pub use dialling::{AttemptError, RelayDial};
pub use waiting::{IncomingCall, Waiting, WaitingPlace, WaitingState};
