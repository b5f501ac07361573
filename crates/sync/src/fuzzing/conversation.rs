//! A whole copy at the receiving side: a generated sender's tree and contents, merged into a real directory.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use towpath_api::copy::{CopyEvent, CopyOptions, CopySummary, Mode};
use towpath_content::tree::BLOCK;
use towpath_store::DiskStore;

use crate::error::CopyError;
use crate::events::events;
use crate::given::Given;
use crate::merge::{Destined, Merge};
use crate::message::TreePart;
use crate::receiving::Receiving;
use crate::tree_link::TreeLink;

/// Runtime for what waits at the end of a merge, which needs a clock that goes on.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

/// One index for all copies: nothing of it is looked for.
static STORE: LazyLock<(tempfile::TempDir, Arc<DiskStore>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let store = DiskStore::open(folder.path(), folder.path()).expect("a store");
    (folder, Arc::new(store))
});

/// Messages of a sender.
pub struct FuzzedSender<'a> {
    /// Its tree descriptor, as it comes.
    pub descriptor: &'a [u8],
    /// Contents of files, by the number of their entries; the others can't be had.
    pub contents: HashMap<u64, Vec<u8>>,
    /// True if it could not read everything.
    pub is_incomplete: bool,
}

/// Destination and options of the receiver.
pub struct FuzzedReceiver<'a> {
    /// Folder for records.
    pub state: &'a Path,
    /// The destination.
    pub path: &'a Path,
    /// `tow cp`; else `tow sync`, of a directory's contents.
    pub is_cp: bool,
    /// Options of the person.
    pub options: CopyOptions,
}

/// Merges; what was complained of comes with the summary.
pub fn merge(
    sender: FuzzedSender<'_>,
    receiver: FuzzedReceiver<'_>,
) -> Result<(CopySummary, Vec<String>), CopyError> {
    let _in_runtime = RUNTIME.enter();
    let store = Arc::clone(&STORE.1);
    let (events, shown) = events(crate::host::plain);
    let (person, mut complaints) = mpsc::channel(1 << 16);
    let showing = RUNTIME.spawn(shown.show_to(person));
    let result = {
        let resume = receiver.state.to_path_buf();
        let receiving = Receiving::new(receiver.options, store, resume, events, false, None);
        let contents = sender.contents;
        let mode = if receiver.is_cp { Mode::Cp } else { Mode::Sync };
        let destined =
            Destined { path: receiver.path.into(), mode, sources: 1, contents: !receiver.is_cp, names: None };
        let walked = Merge::new(&receiving, Some(Arc::new(Given { contents, tree: None })), destined)
            .and_then(|merge| walk(merge, sender.descriptor, sender.is_incomplete));
        walked.and(receiving.check()).map(|()| receiving.account.summary())
    };
    let _ = RUNTIME.block_on(showing);
    let mut all = Vec::new();
    while let Ok(event) = complaints.try_recv() {
        if let CopyEvent::Failed { error, .. } = event {
            all.push(error);
        }
    }
    result.map(|summary| (summary, all))
}

fn walk(merge: Merge, descriptor: &[u8], is_incomplete: bool) -> Result<(), CopyError> {
    let tree = TreeLink::default();
    let blocks = descriptor.chunks(BLOCK).map(|block| TreePart::Entries(Bytes::copy_from_slice(block)));
    blocks.chain([TreePart::End { is_incomplete }]).try_for_each(|part| tree.take(part.pack(0)))?;
    tree.follow(merge)
}
