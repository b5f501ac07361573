//! JSON that the other side of a copy sends: events and a summary.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_api::copy::{CopyEvent, CopySummary};

/// Checks that what is read is written again in the same words.
fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(data).ok()?;
    let told = serde_json::to_vec(&value).expect("what was read can be told");
    assert_eq!(serde_json::from_slice::<T>(&told).expect("what was told can be read"), value);
    Some(value)
}

/// Something that happened.
pub fn copy_event(data: &[u8]) {
    if let Some(CopyEvent::Item { changes, .. }) = read::<CopyEvent>(data) {
        assert!(changes.iter().all(|letter| matches!(letter, b' '..=b'~')));
    }
}

/// Summary of what a copy did.
pub fn copy_summary(data: &[u8]) {
    let Some(summary) = read::<CopySummary>(data) else { return };
    for counts in [summary.seen, summary.created, summary.deleted] {
        let most = [counts.files, counts.directories, counts.links, counts.devices, counts.specials];
        assert!(most.iter().all(|count| *count <= counts.total()));
    }
}
