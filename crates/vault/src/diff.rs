//! What changed between two versions of an entry. Names, metadata and hashes stand in descriptors, and which bytes of a file
//! changed in its tree: no block of a content is read.

use std::collections::{BTreeMap, HashMap, HashSet};

use towpath_content::Oid;
use towpath_content::tree::{Entry, Kind};
use towpath_vault_difference::difference::difference;
use towpath_vault_format::{Canonical, FileRoot, VaultRoot};

use crate::catalogue::{CatalogueEntry, EntryDescription};
use crate::client::VaultClient;
use crate::descriptor::DescribedEntry;
use crate::error::VaultClientError;
use crate::garbage::kept;

/// Runs of a file, at most: those of 16 TiB at least.
const MAX_RUNS: usize = 1 << 32;
/// Versions that are looked at together, at first.
const VERSIONS: u64 = 32;

/// What changed between two versions of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDiff {
    /// The older version; none: the entry was not there before.
    pub from: Option<u64>,
    /// The newer one.
    pub to: u64,
    /// In order of their paths.
    pub changes: Vec<PathChange>,
    /// Of a single file: which bytes changed, in whole chunks.
    pub ranges: Vec<ChangedBytes>,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChange {
    /// Below the entry; empty: the entry itself.
    pub path: Vec<u8>,
    /// Where it was before, if it was elsewhere.
    pub moved_from: Option<Vec<u8>>,
    /// What it was; none: it was not there.
    pub before: Option<EntryState>,
    /// What it is; none: it is gone.
    pub after: Option<EntryState>,
    /// Of what is in both versions: what differs, `content`, `kind`, `target`, `mode`, `owner`, `time`, `attributes`.
    pub differs: Vec<&'static str>,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryState {
    /// `file`, `directory`, `symlink` or `special`.
    pub kind: &'static str,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Permission bits.
    pub mode: u32,
}

/// A run of bytes that came in the place of another. Either may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedBytes {
    /// Where it begins in the newer version.
    pub at: u64,
    /// Bytes that were there.
    pub before: u64,
    /// Bytes that are there.
    pub after: u64,
}

/// A run of a file: hash of its tuple, and its bytes.
type RunMark = ([u8; 32], u64);
/// Paths of one version.
type PathMap<'a> = BTreeMap<&'a [u8], &'a Entry>;

/// Compares two versions of an entry. `to` is by default the newest version, `from` the last one before it in which the
/// entry was another.
pub fn diff(
    vault: &mut VaultClient,
    name: &[u8],
    from: Option<u64>,
    to: Option<u64>,
) -> Result<EntryDiff, VaultClientError> {
    let (newer, entry) = vault.entry(name, to)?;
    let from = match from {
        Some(from) => Some(from),
        None => changed_after(vault, name, &newer, &entry)?,
    };
    let new: Vec<_> = vault.described(&newer, &entry)?.entries().collect();
    let Some(from) = from else {
        let changes = compared(&[], &new);
        return Ok(EntryDiff { from: None, to: newer.number, changes, ranges: Vec::new() });
    };
    let (older, old_entry) = vault.entry(name, Some(from))?;
    let old: Vec<_> = vault.described(&older, &old_entry)?.entries().collect();
    let (old, new) = (with_one_name(old), with_one_name(new));
    let changes = compared(&old, &new);
    let is_file = |described: &[DescribedEntry]| matches!(described, [one] if one.start.is_some());
    let has_other_bytes = changes.iter().any(|change| change.differs.contains(&"content"));
    let ranges = match is_file(&old) && is_file(&new) && has_other_bytes {
        true => changed_bytes(vault, (&older, &old_entry), (&newer, &entry))?,
        false => Vec::new(),
    };
    Ok(EntryDiff { from: Some(from), to: newer.number, changes, ranges })
}

/// The last version before `newer` in which an entry was another one; none: it was not there.
fn changed_after(
    vault: &mut VaultClient,
    name: &[u8],
    newer: &VaultRoot,
    entry: &CatalogueEntry,
) -> Result<Option<u64>, VaultClientError> {
    let (mut end, mut width) = (newer.number, VERSIONS);
    while end > 0 {
        let first = end.saturating_sub(width);
        let kept = kept(vault, end, end - first)?;
        let mut versions = vault.versions(first)?;
        versions.retain(|version| kept.contains(&version.signed.root.number));
        for version in versions.iter().rev() {
            let root = &version.signed.root;
            match vault.catalogue(root)?.entries.get(name) {
                None => return Ok(None),
                Some(old) if is_same((root, old), (newer, entry)) => {}
                Some(_) => return Ok(Some(root.number)),
            }
        }
        (end, width) = (first, width * 2);
    }
    Ok(None)
}

/// Runs of a file that the newer version does not share with the older one.
fn changed_bytes(
    vault: &mut VaultClient,
    (older, old): (&VaultRoot, &CatalogueEntry),
    (newer, new): (&VaultRoot, &CatalogueEntry),
) -> Result<Vec<ChangedBytes>, VaultClientError> {
    let lacking = || VaultClientError::record_of("the catalogue", "it names a content that is not there");
    let old = run_marks(vault, older.file(&old.content).ok_or_else(lacking)?)?;
    let new = run_marks(vault, newer.file(&new.content).ok_or_else(lacking)?)?;
    let length = |runs: &[RunMark]| runs.iter().map(|(_, length)| length).sum();
    let mut changed = Vec::new();
    for run in difference(&old, &new) {
        let (before, after) = (length(&old[run.old]), length(&new[run.new.clone()]));
        changed.push(ChangedBytes { at: length(&new[..run.new.start]), before, after });
    }
    Ok(changed)
}

/// What the runs of a file are, and how long.
fn run_marks(vault: &mut VaultClient, root: &FileRoot) -> Result<Vec<RunMark>, VaultClientError> {
    let runs = vault.reader().tuples(root, 0..root.length, MAX_RUNS)?;
    Ok(runs.into_iter().map(|(_, tuple)| (tuple.digest().0, tuple.length)).collect())
}

/// True if an entry is the same in both versions, as far as roots tell.
fn is_same((older, old): (&VaultRoot, &CatalogueEntry), (newer, new): (&VaultRoot, &CatalogueEntry)) -> bool {
    let description = match &new.description {
        EntryDescription::Inline(_) => true,
        EntryDescription::File(file) => older.file(file) == newer.file(file),
    };
    old == new && description && older.file(&old.content) == newer.file(&new.content)
}

/// A single file stands for the entry itself, whatever it was called on a disk.
fn with_one_name(mut described: Vec<DescribedEntry>) -> Vec<DescribedEntry> {
    if let [one] = described.as_mut_slice() {
        one.path = towpath_files::RelPath::default();
    }
    described
}

fn paths(described: &[DescribedEntry]) -> PathMap<'_> {
    described.iter().map(|it| (it.path.as_bytes(), &it.entry)).collect()
}

/// What differs between two descriptors.
fn compared(old: &[DescribedEntry], new: &[DescribedEntry]) -> Vec<PathChange> {
    let (old, new) = (paths(old), paths(new));
    let mut gone: PathMap<'_> = without(&old, &new);
    let mut came = without(&new, &old);
    let mut changes: Vec<_> = moved(&mut gone, &mut came);
    for (path, before) in &old {
        let Some(after) = new.get(path) else { continue };
        let differs = differing(before, after);
        if !differs.is_empty() {
            changes.push(change(path, Some(before), Some(after), differs));
        }
    }
    changes.extend(gone.iter().map(|(path, entry)| change(path, Some(entry), None, Vec::new())));
    changes.extend(came.iter().map(|(path, entry)| change(path, None, Some(entry), Vec::new())));
    changes.sort_by(|one, next| one.path.cmp(&next.path));
    changes
}

fn without<'a>(some: &PathMap<'a>, others: &PathMap<'_>) -> PathMap<'a> {
    some.iter()
        .filter(|(path, _)| !others.contains_key(**path))
        .map(|(path, entry)| (*path, *entry))
        .collect()
}

/// Files that are elsewhere now, with the same bytes: taken out of those that went and came. An empty file moves nowhere.
fn moved(gone: &mut PathMap<'_>, came: &mut PathMap<'_>) -> Vec<PathChange> {
    let content = |entry: &Entry| entry.oid().filter(|_| !matches!(entry.kind, Kind::File { size: 0, .. }));
    let mut by_content: HashMap<Oid, Vec<&[u8]>> = HashMap::new();
    for (path, entry) in gone.iter().rev() {
        content(entry).into_iter().for_each(|oid| by_content.entry(oid).or_default().push(path));
    }
    let mut moves = Vec::new();
    for (path, after) in came.iter() {
        let from = content(after).and_then(|oid| by_content.get_mut(&oid)?.pop());
        let Some((from, before)) = from.and_then(|from| gone.remove_entry(from)) else { continue };
        let differs = differing(before, after);
        let moved_from = Some(from.to_vec());
        moves.push(PathChange { moved_from, ..change(path, Some(before), Some(after), differs) });
    }
    let there: HashSet<&[u8]> = moves.iter().map(|change| &change.path[..]).collect();
    came.retain(|path, _| !there.contains(path));
    moves
}

fn change(
    path: &[u8],
    before: Option<&Entry>,
    after: Option<&Entry>,
    differs: Vec<&'static str>,
) -> PathChange {
    let (before, after) = (before.map(state), after.map(state));
    PathChange { path: path.to_vec(), moved_from: None, before, after, differs }
}

fn state(entry: &Entry) -> EntryState {
    let (kind, size) = match entry.kind {
        Kind::Directory => ("directory", None),
        Kind::File { size, .. } => ("file", Some(size)),
        Kind::Symlink { .. } => ("symlink", None),
        _ => ("special", None),
    };
    EntryState { kind, size, mode: entry.metadata.mode }
}

/// In what two entries of one path differ. That a directory has another time says only that names in it came or went.
fn differing(before: &Entry, after: &Entry) -> Vec<&'static str> {
    let (was, is) = (&before.metadata, &after.metadata);
    let kind = match (&before.kind, &after.kind) {
        (Kind::File { oid: was, .. }, Kind::File { oid: is, .. }) => (was != is).then_some("content"),
        (Kind::Symlink { target: was }, Kind::Symlink { target: is }) => (was != is).then_some("target"),
        (was, is) => (was != is).then_some("kind"),
    };
    let metadata = [
        ("mode", was.mode != is.mode),
        ("owner", was.user != is.user || was.group != is.group),
        ("time", was.modified != is.modified && after.kind != Kind::Directory),
        ("attributes", was.xattrs != is.xattrs),
    ];
    let metadata = metadata.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what);
    kind.into_iter().chain(metadata).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::tree::{Metadata, Time};
    use towpath_files::RelPath;

    fn entry(kind: Kind, mode: u32, seconds: i64) -> Entry {
        let modified = Time { seconds, nanos: 0 };
        let metadata = Metadata { mode, modified, ..Metadata::default() };
        Entry { name: b"x".to_vec(), kind, metadata, hard_link: None }
    }

    fn file(path: &str, content: u8, mode: u32, seconds: i64) -> DescribedEntry {
        let kind = Kind::File { size: 10, oid: Some(Oid::Blake3([content; 32])), extents: None };
        let path = RelPath::new(path.split('/')).unwrap();
        DescribedEntry { path, entry: entry(kind, mode, seconds), start: Some(0) }
    }

    fn told(changes: &[PathChange]) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let line = |change: &PathChange| {
            let sign = match (&change.moved_from, change.before, change.after) {
                (Some(from), ..) => format!("{} > ", text(from)),
                (None, None, _) => "+ ".into(),
                (None, _, None) => "- ".into(),
                _ => "~ ".into(),
            };
            format!("{sign}{} {}", text(&change.path), change.differs.join(",")).trim_end().to_owned()
        };
        changes.iter().map(line).collect()
    }

    #[test]
    fn what_came_went_moved_or_changed_is_told_and_nothing_else() {
        let old = [
            file("same", 1, 0o644, 5),
            file("edited", 2, 0o644, 5),
            file("made private", 3, 0o644, 5),
            file("touched", 4, 0o644, 5),
            file("gone", 5, 0o644, 5),
            file("a/one", 6, 0o644, 5),
            file("a/two", 6, 0o644, 5),
        ];
        let new = [
            file("same", 1, 0o644, 5),
            file("edited", 9, 0o644, 6),
            file("made private", 3, 0o600, 5),
            file("touched", 4, 0o644, 6),
            file("new", 7, 0o644, 5),
            file("b/one", 6, 0o644, 5),
            file("b/two", 6, 0o600, 5),
            file("b/three", 6, 0o644, 5),
        ];
        let expected = [
            "a/one > b/one",
            "+ b/three",
            "a/two > b/two mode",
            "~ edited content,time",
            "- gone",
            "~ made private mode",
            "+ new",
            "~ touched time",
        ];
        let mut found = told(&compared(&old, &new));
        // Which of three equal files is the new one is not said.
        found.sort();
        let pairs = found.iter().filter(|line| line.contains(" > ")).count();
        assert_eq!((pairs, found.len()), (2, expected.len()), "{found:?}");
        for line in ["~ edited content,time", "- gone", "~ made private mode", "+ new", "~ touched time"] {
            assert!(found.contains(&line.to_owned()), "{line} is not in {found:?}");
        }
        assert_eq!(compared(&old, &old), []);
    }

    #[test]
    fn a_directory_whose_names_changed_is_no_change_of_its_own_and_kinds_are_told() {
        let place = |kind: Kind, seconds| {
            vec![DescribedEntry { path: RelPath::default(), entry: entry(kind, 0o755, seconds), start: None }]
        };
        let (old, new) = (place(Kind::Directory, 1), place(Kind::Directory, 2));
        assert_eq!(compared(&old, &new), []);
        let link = place(Kind::Symlink { target: b"there".to_vec() }, 1);
        let elsewhere = place(Kind::Symlink { target: b"elsewhere".to_vec() }, 1);
        assert_eq!(compared(&link, &elsewhere)[0].differs, ["target"]);
        assert_eq!(compared(&old, &link)[0].differs, ["kind"]);
    }
}
