//! The tree's nodes of a newer version, made from those that are here by the updates between. An update is smaller than the nodes that it
//! changes, so a machine with an old copy reads little more than what was written (section 3.3 of the paper).
//!
//! Nothing of this needs to be believed: nodes are found by their hashes, from a root that is proved. Wrong ones are never asked for, and
//! those that are not made are fetched.

use towpath_vault_format::apply::{Applied, apply};
use towpath_vault_format::{Digest, FileRoot, Members, VaultRoot};

use crate::client::VaultClient;
use crate::head::VaultHead;
use crate::reader::CachedNodes;

/// The most versions whose updates are fetched: each takes a round trip.
const MOST_VERSIONS: u64 = 8;
/// Bytes that files have grown by, or new ones have: an update that adds more is long, and maybe nobody here reads that file.
const MOST_ADDED: u64 = 16 << 20;

/// Makes what nodes it can of the newest version, where `seen` was the newest one before.
pub(crate) fn catch_up(vault: &mut VaultClient, seen: &VaultHead) {
    let (mut root, mut members) = (seen.signed.root.clone(), seen.members.members.clone());
    if !is_worth_it(vault, &root) {
        return;
    }
    for number in root.number + 1..=vault.head.signed.root.number {
        let Some(next) = one_version(vault, number, &root, &members) else { return };
        (root, members) = next;
    }
}

/// True if the updates are few and short, and the nodes that they change are here.
fn is_worth_it(vault: &VaultClient, seen: &VaultRoot) -> bool {
    let newest = &vault.head.signed.root;
    let versions = newest.number.saturating_sub(seen.number);
    let mut changed =
        newest.files.iter().map(|file| (seen.file(&file.file), file)).filter(|(old, new)| *old != Some(*new));
    let added =
        |(old, new): (Option<&FileRoot>, &FileRoot)| new.length.abs_diff(old.map_or(0, |old| old.length));
    let is_here =
        |old: Option<&FileRoot>| old.is_none_or(|old| old.top == Digest::NONE || vault.nodes.has(&old.top));
    (1..=MOST_VERSIONS).contains(&versions)
        && changed.clone().map(added).sum::<u64>() <= MOST_ADDED
        && changed.all(|(old, _)| is_here(old))
}

/// Makes the nodes of one version from those of the one before; returns what it is by its update. `None`: they can't be made.
fn one_version(
    vault: &mut VaultClient,
    number: u64,
    root: &VaultRoot,
    members: &Members,
) -> Option<(VaultRoot, Members)> {
    let update = vault.server.update(number).ok()??;
    let Applied { root, nodes } = apply(&update, Some((root, members)), &CachedNodes(&vault.nodes)).ok()?;
    for node in &nodes {
        vault.nodes.add(&node.bytes).ok()?;
    }
    Some((root, update.members.map_or_else(|| members.clone(), |signed| signed.members)))
}
