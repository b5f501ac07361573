//! Files on this machine that a new one may be the same as, or a version of: where they are looked for, and which is taken.
//!
//! [`search::CandidateSearch::find`] is the one entrance: it takes what is sought and the network, and knows nothing of copies.
//!
//! | module | story |
//! |---|---|
//! | [`search`] | searches with all the others, while the network is slow |
//! | [`rules`] | the list of what counts, best first; pure |
//! | [`index`] | the destination's files, by size, time and name |
//! | [`by_version`] | names without their numbers; pure |
//! | [`outside`] | large files beside the destination and near it |
//! | [`sibling_dirs`] | the same path below a directory beside the destination |
//! | [`same_name`] | the same name, near the destination |
//! | [`machine`] | files anywhere on this machine |
//! | [`found_files`] | those that a get draws on, open |
//! | [`renames`] | bytes that the destination has under an old name |

pub mod by_version;
pub mod found_files;
pub mod index;
pub mod machine;
pub mod outside;
pub mod renames;
pub mod rules;
pub mod same_name;
pub mod search;
pub mod sibling_dirs;

use towpath_content::tree::Kind;

/// True if something is a regular file.
pub const fn is_file(kind: &Kind) -> bool {
    matches!(kind, Kind::File { .. })
}
