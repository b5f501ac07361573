//! An update done: the root of the new version and its new nodes. Client and server both compute it, and must agree.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::canonical::Canonical;
use crate::members::Members;
use crate::names::{Digest, FileId};
use crate::root::{FileRoot, MAX_FILES, VaultRoot};
use crate::tree::{NewNode, NodeError, NodeSource, TreeEditor};
use crate::update::{FileUpdate, Predicate, Update, UpdateAction};

/// Reason why an update is not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UpdateError {
    /// It is another vault's.
    #[error("the update is another vault's")]
    OtherVault,
    /// Its base is another version than the one it meets.
    #[error("{0}")]
    Conflict(#[from] Conflict),
    /// The writer may not write.
    #[error("the writer may not add versions to this vault")]
    NotAWriter,
    /// New members that the owner did not sign, or not as the next ones.
    #[error("members: {0}")]
    Members(&'static str),
    /// Parameters of a vault that has some, or none for a new one.
    #[error("parameters are given when a vault is made, and only then")]
    Parameters,
    /// More files than a vault has.
    #[error("more than {MAX_FILES} files")]
    TooManyFiles,
    /// A file gets an older epoch.
    #[error("file {0}: its epoch would go back")]
    Epoch(FileId),
    /// Steps that make no sense.
    #[error("file {file}: {why}")]
    Steps {
        /// The file.
        file: FileId,
        /// Reason.
        why: &'static str,
    },
    /// The version numbers are used up.
    #[error("the vault has as many versions as can be counted")]
    LastVersion,
    /// A tree can't be read or changed.
    #[error("file {file}: {why}")]
    Tree {
        /// The file.
        file: FileId,
        /// Reason.
        why: NodeError,
    },
}

/// What stands against a predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Conflict {
    /// There is a newer version, and the files of the update are in it as they were: it may be done on that.
    #[error("there is a newer version; the files of this update are unchanged in it")]
    Moved,
    /// A file is not as the update's base has it.
    #[error("file {0} was changed by somebody else")]
    FileChanged(FileId),
    /// The vault is there already, or is not there.
    #[error("the vault exists already, or does not exist yet")]
    Existence,
}

/// A new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its root.
    pub root: VaultRoot,
    /// Nodes that the base does not have.
    pub nodes: Vec<NewNode>,
}

impl Predicate {
    /// That a version is `root`.
    pub fn on(root: &VaultRoot) -> Self {
        Self { number: root.number, root: root.digest() }
    }
}

/// What stands against doing `update` on `head`. `base` is the version that the update names, as far as it is known: without it all files
/// count as changed.
pub fn conflict(update: &Update, head: Option<&VaultRoot>, base: Option<&VaultRoot>) -> Option<Conflict> {
    let (named, head) = match (update.base, head) {
        (None, None) => return None,
        (Some(named), Some(head)) => (named, head),
        _ => return Some(Conflict::Existence),
    };
    if Predicate::on(head) == named {
        return None;
    }
    let base = base.filter(|base| Predicate::on(base) == named);
    let is_same = |file: &FileId| base.is_some_and(|base| base.file(file) == head.file(file));
    let changed = update.files.iter().find(|change| !is_same(&change.file));
    Some(changed.map_or(Conflict::Moved, |change| Conflict::FileChanged(change.file)))
}

/// Does `update` on the version `base`, whose members are `members`. Nodes are read along the paths that change.
pub fn apply<S: NodeSource + ?Sized>(
    update: &Update,
    base: Option<(&VaultRoot, &Members)>,
    source: &S,
) -> Result<Applied, UpdateError> {
    if base.is_some_and(|(root, _)| root.vault != update.vault) {
        return Err(UpdateError::OtherVault);
    }
    if let Some(conflict) = conflict(update, base.map(|(root, _)| root), None) {
        return Err(conflict.into());
    }
    let root = match base {
        None => first_root(update)?,
        Some((root, members)) => next_root(update, root, members)?,
    };
    change_files(update, root, source)
}

fn change_files<S: NodeSource + ?Sized>(
    update: &Update,
    root: VaultRoot,
    source: &S,
) -> Result<Applied, UpdateError> {
    let mut files: BTreeMap<FileId, FileRoot> = root.files.iter().map(|file| (file.file, *file)).collect();
    let mut nodes = Vec::new();
    for change in &update.files {
        let (file, made) = change_file(change, files.get(&change.file), root.parameters.degree, source)?;
        nodes.extend(made);
        match file {
            Some(file) => files.insert(change.file, file),
            None => files.remove(&change.file),
        };
    }
    match files.len() > MAX_FILES {
        true => Err(UpdateError::TooManyFiles),
        false => Ok(Applied { root: VaultRoot { files: files.into_values().collect(), ..root }, nodes }),
    }
}

fn first_root(update: &Update) -> Result<VaultRoot, UpdateError> {
    let parameters = update.parameters.clone().ok_or(UpdateError::Parameters)?;
    let signed = update.members.as_ref().ok_or(UpdateError::Members("there are none"))?;
    let Members { vault, number, owner, .. } = &signed.members;
    if *vault != update.vault || *number != 0 || !signed.is_signed() {
        return Err(UpdateError::Members("these are not the first ones of this vault, signed by its owner"));
    }
    if *owner != update.writer {
        return Err(UpdateError::NotAWriter);
    }
    Ok(VaultRoot {
        vault: update.vault,
        number: 0,
        previous: Digest::NONE,
        parameters,
        members: signed.digest(),
        keys: update.keys.as_deref().map_or(Digest::NONE, Digest::of),
        files: Vec::new(),
    })
}

fn next_root(update: &Update, root: &VaultRoot, members: &Members) -> Result<VaultRoot, UpdateError> {
    if update.parameters.is_some() {
        return Err(UpdateError::Parameters);
    }
    if !members.may_write(&update.writer) {
        return Err(UpdateError::NotAWriter);
    }
    let by_owner = update.writer == members.owner;
    if update.keys.is_some() && !by_owner {
        return Err(UpdateError::Members("only the owner changes keys"));
    }
    if let Some(next) = &update.members
        && (!by_owner || !next.may_follow(members))
    {
        return Err(UpdateError::Members("only the owner changes them, and each record follows the last"));
    }
    Ok(VaultRoot {
        number: root.number.checked_add(1).ok_or(UpdateError::LastVersion)?,
        previous: root.digest(),
        members: update.members.as_ref().map_or(root.members, Canonical::digest),
        keys: update.keys.as_deref().map_or(root.keys, Digest::of),
        ..root.clone()
    })
}

/// A file after its steps, and nodes that they made; `None`: it is gone.
fn change_file<S: NodeSource + ?Sized>(
    change: &FileUpdate,
    before: Option<&FileRoot>,
    degree: u8,
    source: &S,
) -> Result<(Option<FileRoot>, Vec<NewNode>), UpdateError> {
    let FileUpdate { file, epoch, actions, .. } = change;
    let before = before.copied().unwrap_or(FileRoot::empty(*file, *epoch));
    if *epoch < before.epoch {
        return Err(UpdateError::Epoch(*file));
    }
    let mut editor = TreeEditor::new(source, degree, &FileRoot { epoch: *epoch, ..before });
    for (index, action) in actions.iter().enumerate() {
        editor = match action {
            UpdateAction::Insert { at, tuples } => editor.insert(*at, tuples.clone()),
            UpdateAction::Delete { at, length } => editor.delete(*at, *length),
            UpdateAction::Replace { tuples } => editor.replace(tuples.clone()),
            UpdateAction::Patch { at, plain, block } => editor.patch(*at, *plain, *block),
            UpdateAction::Remove if index + 1 == actions.len() => return Ok((None, Vec::new())),
            UpdateAction::Remove => {
                return Err(UpdateError::Steps { file: *file, why: "it is removed before the last step" });
            }
        }
        .map_err(|why| UpdateError::Tree { file: *file, why })?;
    }
    let (root, nodes) = editor.finish();
    Ok((Some(root), nodes))
}

#[cfg(test)]
mod tests;
