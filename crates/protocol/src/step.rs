//! Between two steps of an answer.

use towpath_content::Oid;

/// Action after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next one.
    More,
    /// The next one when `oid` is no longer as it was in this version (`Store::change`).
    Wait {
        /// The object.
        oid: Oid,
        /// [`towpath_store::Store::version`] when it was looked at.
        seen: u64,
    },
    /// Nothing more: the request has been answered.
    Over,
}
