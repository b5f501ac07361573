//! Bytes in a bucket of S3-compatible object storage: Amazon's, or any server that speaks its protocol.
//!
//! [`S3Bytes`] is a [`ByteStore`](towpath_byte_store::ByteStore). Requests are signed by the crate `object_store`; they go
//! through this workspace's own HTTP and TLS ([`http`]). Objects lie as `PREFIX/objects/HASH`, and
//! `PREFIX/owner` says whose place it is.
//!
//! | module | story |
//! |---|---|
//! | [`credentials`] | keys from the environment or a file, which are never shown |
//! | [`s3`] | [`S3Bytes`]: puts, gets, lists, deletions |
//! | `requests` | requests on a runtime of their own, while callers block |
//! | `upload` | large puts in parts, some at once |
//! | [`http`] | requests over hyper, each with a time limit |
//! | `faults` | what an answer of the server means for the caller |

pub mod credentials;
mod faults;
pub mod http;
mod requests;
pub mod s3;
mod upload;

pub use credentials::{Credentials, CredentialsError};
pub use s3::{S3Bytes, S3Settings};
