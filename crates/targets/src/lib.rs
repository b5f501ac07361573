//! Targets that received bytes are written to: files on their way to their places, what an interruption leaves of
//! them, and their records in the index.
//!
//! | module | story |
//! |---|---|
//! | [`partial`] | a file that a session fills |
//! | [`base_file`] | an older version, whose right pieces are taken over |
//! | [`descriptor`] | a tree's descriptor, decoded while it comes |
//! | [`file_permits`] | how many files are under way at once |
//! | [`file_target`] | the target of a session that brings a file of any kind |
//! | [`get_file`] | one file of a get |
//! | [`kept`] | an object on its way into the store as one of its own |
//! | [`placing`] | complete files of a tree get their names in batches |
//! | [`tree_holding`] | what is here of a tree while it comes, for others |
//! | [`links`] | hard links of a described tree |
//! | [`spool`] | a temporary that is read while it grows |
//! | [`in_flight`] | objects on their way to applications: each crosses the network once |
//! | [`resume`] | what an interrupted transfer left, and where |
//! | [`index_record`] | what the index is told of a file that was just written |

pub mod base_file;
pub mod descriptor;
pub mod file_permits;
pub mod file_target;
pub mod get_file;
pub mod in_flight;
pub mod index_record;
pub mod kept;
pub mod links;
pub mod partial;
pub mod placing;
pub mod resume;
pub mod spool;
pub mod tree_holding;
