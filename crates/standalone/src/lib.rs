//! What commands do without store and daemon.
//!
//! | module | story |
//! |---|---|
//! | [`publishing`] | what `tow publish` writes |
//! | [`pictures`] | a ticket or a code as a QR picture |
//! | [`short_codes`] | tickets that are handed over by some words |
//! | [`served_tickets`] | tickets that are served beside what is put, and who fetched |
//! | [`public_server`] | the servers where peers find each other, and that carry what they send |
//! | [`vault_service`] | the server of vaults |
//! | [`cluster`] | such servers that share what peers say there |

pub mod cluster;
pub mod pictures;
pub mod public_server;
pub mod publishing;
pub mod served_tickets;
pub mod short_codes;
pub mod vault_service;
