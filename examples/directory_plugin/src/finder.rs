//! Finds directories that come and go: each one in a place, such as what is mounted below `/media`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use towpath_plugins::registry::{Build, Field, FieldKind, Plugin};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context};

use crate::DirectoryPlugin;

/// The finder as `directories`: `{ plugin = "dealer", of = [...], finders = [{ plugin = "directories", path = "/media" }] }`.
pub static FINDER: Plugin = Plugin {
    name: "directories",
    scheme: None,
    about: "Finds the directories in one place as they come and go, and uses the files of each.",
    fields: &[Field { name: "path", kind: FieldKind::Path, about: "The place." }],
    build: Build::Finder(|node, _| {
        Arc::new(DirectoryFinder::new(node.path("path").unwrap_or(Path::new("."))))
    }),
};

/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Directories that are used at a time, at most.
const MOST: usize = 64;

/// See the head of this module.
pub struct DirectoryFinder {
    place: PathBuf,
}

impl DirectoryFinder {
    /// Finds what lies in `place`.
    pub fn new(place: impl Into<PathBuf>) -> Self {
        Self { place: place.into() }
    }

    /// Names of the directories that are there.
    fn names(&self) -> BTreeSet<OsString> {
        let entries = std::fs::read_dir(&self.place).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| entry.file_name()).collect()
    }

    async fn look(
        &self,
        changes: &mpsc::Sender<SourceChange>,
    ) -> Result<(), mpsc::error::SendError<SourceChange>> {
        let (mut known, mut next) = (BTreeMap::new(), 0);
        let (mut ticks, mut has_looked) = (tokio::time::interval(LOOK_EVERY), false);
        loop {
            ticks.tick().await;
            let names = self.names();
            let gone: Vec<OsString> = known.keys().filter(|name| !names.contains(*name)).cloned().collect();
            for key in gone.iter().filter_map(|name| known.remove(name)) {
                changes.send(SourceChange::Removed(key)).await?;
            }
            for name in names {
                if known.len() < MOST && !known.contains_key(&name) {
                    next += 1;
                    let source = Arc::new(DirectoryPlugin::new(self.place.join(&name)));
                    known.insert(name, next);
                    changes.send(SourceChange::Added { key: next, source, priority: 0, weight: 1 }).await?;
                }
            }
            if !std::mem::replace(&mut has_looked, true) {
                changes.send(SourceChange::Looked).await?;
            }
        }
    }
}

impl Finder for DirectoryFinder {
    fn find<'a>(&'a self, _context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // It ends when nobody hears it any more.
            let _ = self.look(&changes).await;
        })
    }
}
