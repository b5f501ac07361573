//! What commands do without store and daemon.
//!
//! | module | story |
//! |---|---|
//! | [`publishing`] | what `tow publish` writes |
//! | [`short_codes`] | tickets that are handed over by some words |
//! | [`public_server`] | the servers where peers find each other, and that carry what they send |
//! | [`vault_service`] | the server of vaults |

pub mod public_server;
pub mod publishing;
pub mod short_codes;
pub mod vault_service;
