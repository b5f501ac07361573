//! The tree's nodes of a newer version, made from those that are here by the updates between. An update is smaller than the nodes that it
//! changes, so a machine with an old copy reads little more than what was written (section 3.3 of the paper).
//!
//! Nothing of this needs to be believed: nodes are found by their hashes, from a root that is proved. Wrong ones are never asked for, and
//! those that are not made are fetched.

use towpath_vault_format::apply::apply;
use towpath_vault_format::packed::UnpackedUpdate;
use towpath_vault_format::{Canonical, Digest, FileRoot, Members, VaultRoot};
use towpath_vault_protocol::whole::unpacked_update;

use crate::head::VaultHead;
use crate::local::BlobCache;
use crate::reader::CachedNodes;
use crate::server::RemoteVault;

/// The most versions whose updates are fetched: each takes a round trip.
const MOST_VERSIONS: u64 = 8;
/// Bytes that files have grown by, or new ones have: an update that adds more is long, and maybe nobody here reads that file.
const MOST_ADDED: u64 = 16 << 20;

/// Makes what `nodes` it can of the version `newest`, where `seen` was the newest one before.
pub(crate) fn catch_up(
    server: &mut dyn RemoteVault,
    (nodes, blocks): (&mut BlobCache, &mut BlobCache),
    seen: &VaultHead,
    newest: &VaultRoot,
) {
    let (mut root, mut members) = (seen.signed.root.clone(), seen.members.members.clone());
    if !is_worth_it(nodes, &root, newest) {
        return;
    }
    for number in root.number + 1..=newest.number {
        let caches = (&mut *nodes, &mut *blocks);
        let Some(next) = one_version(server, caches, number, (&root, &members)) else { return };
        (root, members) = next;
    }
}

/// True if the updates are few and short, and the nodes that they change are here.
fn is_worth_it(nodes: &BlobCache, seen: &VaultRoot, newest: &VaultRoot) -> bool {
    let versions = newest.number.saturating_sub(seen.number);
    let both = newest.files.iter().map(|file| (seen.file(&file.file), file));
    let mut changed = both.filter(|(old, new)| *old != Some(*new));
    let added =
        |(old, new): (Option<&FileRoot>, &FileRoot)| new.length.abs_diff(old.map_or(0, |old| old.length));
    let is_here =
        |old: Option<&FileRoot>| old.is_none_or(|old| old.top == Digest::NONE || nodes.has(&old.top));
    (1..=MOST_VERSIONS).contains(&versions)
        && changed.clone().map(added).fold(0, u64::saturating_add) <= MOST_ADDED
        && changed.all(|(old, _)| is_here(old))
}

/// Makes the nodes of one version from those of the one before, and keeps the new blocks that came along; returns what it is by its update.
/// `None`: they can't be made.
fn one_version(
    server: &mut dyn RemoteVault,
    (nodes, blocks): (&mut BlobCache, &mut BlobCache),
    number: u64,
    before: (&VaultRoot, &Members),
) -> Option<(VaultRoot, Members)> {
    let packed = server.update(number).ok()??;
    let base = (before.0.number, before.0.digest());
    let UnpackedUpdate { update, blocks: new } =
        unpacked_update(&packed, before.0.vault, before.1.owner, base).ok()?;
    for block in &new {
        blocks.add(block).ok()?;
    }
    let made = apply(&update, Some(before), &CachedNodes(nodes)).ok()?;
    for node in &made.nodes {
        nodes.add(&node.bytes).ok()?;
    }
    Some((made.root, update.members.map_or_else(|| before.1.clone(), |signed| signed.members)))
}
