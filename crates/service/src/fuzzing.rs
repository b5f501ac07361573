//! Doors for the fuzz targets in `fuzz/`: parsers that nobody else outside of this crate has a use for. Only there
//! is the feature `fuzzing` on.

use std::collections::HashMap;

use towpath_content::Oid;

use towpath_config::shares::Share;
pub use towpath_sync::fuzzing::{
    FuzzedReceiver, FuzzedSender, apply_patch, make_patches, merge, read_error, read_message, read_options,
    write_options,
};
use towpath_targets::resume::Left;

/// Reads the record of an interrupted transfer of `oid`: its temporary, and those of the tree's files.
pub fn resume_record(text: &str, oid: &Oid) -> Option<(Option<String>, HashMap<Oid, String>)> {
    Left::of(text, oid).map(|left| (left.temp, left.parts))
}

/// Reads the record of a share.
pub fn share_record(bytes: &[u8]) -> Option<Share> {
    Share::of(&serde_json::from_slice(bytes).ok()?)
}
