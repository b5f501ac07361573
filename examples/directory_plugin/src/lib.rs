//! A transfer plugin of your own: serves wanted pieces from a plain directory, a USB stick or a
//! network share, say, on which somebody has put the files that others ask for by OID.
//!
//! It uses only the public API. What there is to see:
//!
//! * [`DirectoryPlugin`] implements [`Source`]: describe an object, deliver pieces with
//!   their proofs, tell what is not here. It checks nothing, since the session checks everything.
//! * Files are hashed when they are first asked about and remembered by size and modification
//!   time. A file that changes is hashed anew; one that changes while it is read is "source
//!   changed", for which nobody is blamed.
//! * [`PLUGIN`] is how a program and its configuration know it (`examples/tow_with_plugins`).
//! * `tests/conformance.rs` passes the examination of the seam in some thirty lines.
//! * [`FINDER`] is a finder for `tow`'s dealer: each directory in another one is a source, such as what is mounted below `/media`.
//! * `src/main.rs` puts it into a session: `cargo run -p towpath-directory-plugin -- DIR OID OUT`.
//!
//! Not here: subdirectories, live objects, which no file is, and `cancel`, since a piece is read
//! sooner than it is cancelled.

mod finder;

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree};
use towpath_plugins::registry::{Build, Field, FieldKind, Plugin};
use towpath_store::About;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::want::{Payload, Proof};
use towpath_transfer::{BoxFuture, Context, Delivery, Description, Outcome, Source, SourceId, Want, WantId};

pub use finder::{DirectoryFinder, FINDER};

/// The plugin as `directory`, for `towpath_cli::run` and the configuration: `{ plugin = "directory", path = "/media/stick" }`.
pub static PLUGIN: Plugin = Plugin {
    name: "directory",
    scheme: None,
    about: "Uses the files of one directory.",
    fields: &[Field { name: "path", kind: FieldKind::Path, about: "The directory." }],
    build: Build::Source(|node, builder| {
        builder.local(Arc::new(DirectoryPlugin::new(node.path("path").unwrap_or(Path::new(".")))))
    }),
};

/// Reading is quick: a few pieces keep it busy.
const WINDOW: u64 = 4 << 20;

/// Serves the files of one directory by their OIDs.
pub struct DirectoryPlugin {
    files: Arc<Files>,
    source: SourceId,
}

impl DirectoryPlugin {
    /// Serves what lies in `directory` at the time it is asked for.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let source = SourceId::other("directory", Some(&directory.display().to_string()));
        Self { files: Arc::new(Files { directory, known: Mutex::default() }), source }
    }
}

impl Source for DirectoryPlugin {
    fn name(&self) -> &str {
        PLUGIN.name
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(WINDOW)
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let files = Arc::clone(&self.files);
        Box::pin(async move {
            let described = tokio::task::spawn_blocking(move || files.describe(&query)).await;
            for answer in described.ok().flatten().ok_or(Outcome::NotHere)? {
                // Nobody need listen.
                let _ = answers.send(answer).await;
            }
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for want in wants {
                let (files, asked, id) = (Arc::clone(&self.files), Instant::now(), want.id);
                let read = tokio::task::spawn_blocking(move || files.read(&id)).await;
                match read.unwrap_or(Err(Outcome::NotHere)) {
                    Ok((bytes, proof)) => {
                        let (tag, source) = (want.tag, self.source.clone());
                        let (payload, proof) = (Payload::Bytes(bytes.into()), Some(Arc::new(proof)));
                        let timing = (asked, Instant::now());
                        sink.deliver(Delivery { tag, payload, proof, source, timing, saved: 0 }).await;
                    }
                    Err(outcome) => sink.outcome(want.tag, outcome),
                }
            }
        })
    }
}

/// The directory, and what is known of it.
struct Files {
    directory: PathBuf,
    known: Mutex<HashMap<PathBuf, Known>>,
}

/// A file that was hashed.
#[derive(Clone)]
struct Known {
    stamp: Stamp,
    tree: Arc<PieceTree>,
}

/// By this a file counts as unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { size: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl Files {
    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file whose bytes are `oid`, and the proof tree over them.
    fn find(&self, oid: &Oid) -> Option<(PathBuf, Known)> {
        self.remembered(oid).or_else(|| {
            self.look().ok()?;
            self.remembered(oid)
        })
    }

    fn remembered(&self, oid: &Oid) -> Option<(PathBuf, Known)> {
        let known = self.known();
        let (path, known) = known.iter().find(|(_, known)| known.tree.oid() == *oid)?;
        let stamp = Stamp::of(&path.metadata().ok()?);
        (stamp == known.stamp).then(|| (path.clone(), known.clone()))
    }

    /// Hashes what is new or has changed, and forgets what is gone.
    fn look(&self) -> io::Result<()> {
        let mut found = HashMap::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let (path, metadata) = (entry.path(), entry.metadata()?);
            if metadata.is_file()
                && let Some(known) = self.learn(&path, Stamp::of(&metadata))
            {
                found.insert(path, known);
            }
        }
        *self.known() = found;
        Ok(())
    }

    /// Hashes that were known of a file, or that its bytes tell; `None` if it cannot be read.
    fn learn(&self, path: &Path, stamp: Stamp) -> Option<Known> {
        let before = self.known().get(path).filter(|known| known.stamp == stamp).cloned();
        before.or_else(|| Some(Known { stamp, tree: Arc::new(hash(path, stamp.size).ok()??) }))
    }

    fn describe(&self, query: &Query) -> Option<Vec<Description>> {
        let (path, known) = self.find(&query.oid)?;
        let layout = known.tree.layout();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        let about = About { name, ..About::default() };
        let mut answers = vec![Description::Object {
            about,
            layout: Some(layout),
            metadata: towpath_transfer::Metadata::default(),
        }];
        if let Some(asked) = &query.proofs {
            let run = asked.start..asked.end.min(layout.count());
            let proof = known.tree.proof(run.clone()).ok();
            answers.extend(proof.map(|nodes| Description::Proof(Proof { run, nodes: nodes.into() })));
        }
        Some(answers)
    }

    /// The bytes of a piece, and the proof that they are.
    fn read(&self, id: &WantId) -> Result<(Vec<u8>, Proof), Outcome> {
        let WantId::Piece { oid, index, .. } = *id else { return Err(Outcome::NotHere) };
        let (path, known) = self.find(&oid).ok_or(Outcome::NotHere)?;
        let run = index..index + 1;
        let nodes = known.tree.proof(run.clone()).map_err(|_| Outcome::NotHere)?;
        let bytes = read_piece(&path, &known.tree.layout(), index).map_err(|_| Outcome::SourceChanged)?;
        let after = path.metadata().map_err(|_| Outcome::SourceChanged)?;
        if Stamp::of(&after) != known.stamp {
            return Err(Outcome::SourceChanged);
        }
        Ok((bytes, Proof { run, nodes: nodes.into() }))
    }
}

fn read_piece(path: &Path, layout: &Layout, index: u64) -> io::Result<Vec<u8>> {
    let range = layout.range(index);
    let mut bytes = vec![0; (range.end - range.start) as usize];
    File::open(path)?.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

/// The values of a file's pieces, read one piece at a time; `None` if it is over the limit.
fn hash(path: &Path, size: u64) -> io::Result<Option<PieceTree>> {
    let Ok(layout) = Layout::of(size) else { return Ok(None) };
    let value = |index| read_piece(path, &layout, index).map(|bytes| layout.value(index, &bytes));
    let values = (0..layout.count()).map(value).collect::<io::Result<_>>()?;
    Ok(PieceTree::new(layout, values))
}
