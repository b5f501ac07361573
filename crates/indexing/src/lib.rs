//! Files are cut and hashed before anyone asks, so that later transfers find what they hold.
//!
//! | module | story |
//! |---|---|
//! | [`directories`] | `tow index`: the trees that a person names |
//! | [`watch`] | directories that a daemon keeps in the index |

pub mod directories;
pub mod watch;

use std::sync::Arc;

use towpath_config::Home;
use towpath_store::DiskStore;

pub use directories::{Cancel, index};
pub use watch::{Rhythm, keep_fresh};

/// Parts that indexing needs of the service that it runs in.
#[derive(Clone)]
pub struct IndexHost {
    /// Its folders, which are left out.
    pub home: Home,
    /// Its store and index.
    pub store: Arc<DiskStore>,
}
