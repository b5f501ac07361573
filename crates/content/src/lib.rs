//! Names of Towpath's data, and its cutting: object names, pieces, recipes, tree
//! descriptors, hints and tickets.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no async, and no
//! knowledge of peers beyond their public key. The byte layouts are specified in
//! `docs/formats/`; every decoder checks lengths before it takes memory and returns an error,
//! never a panic, whatever bytes it is given.
//!
//! | module | story |
//! |---|---|
//! | [`oid`] | object ids: BLAKE3 of all bytes, or random while an object is live |
//! | [`node_id`] | the public key that names a service |
//! | [`pieces`] | aligned runs of an object, checked against its OID by proofs from its own BLAKE3 tree |
//! | [`live`] | signed piece values of an object still being produced, and the binding to its OID |
//! | [`chunking`] | where content-defined and fixed chunks begin and end |
//! | [`recipe`] | how to build an object from chunks, as a tree of hashes |
//! | [`tree`] | the descriptor of a file tree, and the difference of two |
//! | [`delta`] | what a stretch of an object has that a similar region of a file lacks |
//! | [`hint`], [`ticket`] | where an object may be had; a line of text to hand over |
//! | [`published`] | the small file beside a published one, by which any web server is enough to fetch it from |
//! | [`withdrawal`] | the issuer's word that a ticket is over |
//! | [`lock`] | mutexes that outlive a panic of their holder |
//! | [`codec`] | the byte-level reader and writer shared by the formats |

pub mod chunking;
pub mod codec;
pub mod delta;
pub mod hint;
pub mod live;
pub mod lock;
pub mod node_id;
pub mod oid;
pub mod pieces;
pub mod published;
pub mod recipe;
pub mod ticket;
pub mod tree;
pub mod withdrawal;

pub use codec::DecodeError;
pub use hint::Hint;
pub use node_id::NodeId;
pub use oid::Oid;
pub use ticket::Ticket;
