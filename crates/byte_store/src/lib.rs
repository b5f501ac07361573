//! Byte stores: where bytes lie that have a hash for a name, below a store with its index.
//!
//! [`ByteStore`] is the seam, with its contract in prose. [`conformance`] examines any implementation.
//! [`LocalFiles`] keeps each object in a file of a folder, such as a mounted disk.
//!
//! | module | story |
//! |---|---|
//! | [`seam`] | the [`ByteStore`] trait and its contract |
//! | [`name`] | [`ByteName`], and who a place belongs to |
//! | [`place`] | [`BucketPlace`], as configuration names it |
//! | [`error`] | one variant for each different next step |
//! | [`files`] | [`LocalFiles`] |
//! | [`conformance`] | the examination that every byte store passes |
//! | [`doubles`] | a byte store that fails on purpose, for tests |

pub mod conformance;
pub mod doubles;
pub mod error;
pub mod files;
pub mod name;
pub mod place;
pub mod seam;

pub use error::ByteStoreError;
pub use files::LocalFiles;
pub use name::{ByteName, PlaceOwner};
pub use place::BucketPlace;
pub use seam::{ByteStore, Listed, MAX_PAGE, MAX_RANGE, PutResult};
