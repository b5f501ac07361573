//! How many are let in, and how much of the service's memory and line they may take, as the configuration says.
//!
//! | module | story |
//! |---|---|
//! | [`connection_limits`] | connections from peers, within limits |
//! | [`fetch_budget`] | how many nodes fetch by one ticket: pure |
//! | [`lending`] | how much a get sends to others while it runs: pure |
//! | [`read_budget`] | how much is held in memory on the way to applications |
//! | [`upload_budget`] | how much is passed on of what was fetched: pure |

pub mod connection_limits;
pub mod fetch_budget;
pub mod lending;
pub mod read_budget;
pub mod upload_budget;
