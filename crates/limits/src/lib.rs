//! How many are let in, and how much of the service's memory and line they may take, as the configuration says.
//!
//! | module | story |
//! |---|---|
//! | [`connection_limits`] | connections from peers, within limits |
//! | [`read_budget`] | how much is held in memory on the way to applications |
//! | [`upload_budget`] | how much is passed on of what was fetched: pure |

pub mod connection_limits;
pub mod read_budget;
pub mod upload_budget;
