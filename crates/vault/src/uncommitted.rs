//! Versions that are not committed (section 3.3 of the paper): a put is on its way, was cut off, or could not reach the server.
//!
//! | who | what |
//! |---|---|
//! | a put, before it offers its version | writes it into this machine's queue, and takes it out again once it is committed |
//! | a put without a server | makes its version on those that wait, keeps it durably, and says that it is no backup |
//! | who reads | sees the vault as it will be, told apart from what is committed |
//! | the next put, or a command | commits what waits: as it was signed, or made anew on what others committed meanwhile |
//!
//! Names and plaintext stay encrypted in it, as on the server.

use std::collections::{BTreeSet, HashSet};

use towpath_vault_format::apply::{Applied, UpdateError, apply};
use towpath_vault_format::tree::NodeError;
use towpath_vault_format::{
    Digest, FileId, FileUpdate, NewBlock, SignedRoot, Update, UpdateAction, VaultRoot,
};
use towpath_vault_protocol::window::{CommitStep, CommitWindow};

use crate::catalogue::{Catalogue, CatalogueEntry, entry_digest};
use crate::client::{VaultClient, add_nodes, check_writer, committed, signed_by_me, with_head};
use crate::error::VaultClientError;
use crate::head::{TrustedNodes, VaultHead};
use crate::keys::VaultKeys;
use crate::local::{
    KeptQueue, LocalVault, UncommittedQueue, UncommittedVersion, UncommittedView, packs_beside,
};
use crate::looking::LookingServer;
use crate::offer::TRIES;
use crate::put::plan_catalogue;
use crate::reader::{CachedNodes, cannot_keep};
use crate::server::{RemoteVault, ServerError, checked_objects};

/// Nodes that are fetched one by one for a version's changed paths, at most.
const MOST_FETCHED: usize = 10_000;

/// An entry that a version which is not committed puts, or leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncommittedEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is then.
    pub entry: Option<CatalogueEntry>,
}

/// Opens a vault whose server can't be reached, for `why`: as this machine saw it last, and what waits to be committed.
pub fn open_unreachable(
    folder: LocalVault,
    keys: VaultKeys,
    why: ServerError,
    trusted: TrustedNodes,
) -> Result<VaultClient, VaultClientError> {
    let Some(head) = folder.head()? else { return Err(why.into()) };
    let server = Box::new(LookingServer::new(packs_beside(&folder), Err(why)));
    let mut vault = with_head(folder, keys, server, trusted, head)?;
    if !show_uncommitted(&mut vault)? {
        if !vault.folder.is_beside() {
            // What there is of a put that was cut off can't be built upon.
            KeptQueue(&vault.folder).clear()?;
        }
        let (base, newest) = (vault.head.clone(), vault.head.clone());
        vault.view = Some(UncommittedView { base, newest });
    }
    Ok(vault)
}

/// Opens a vault for who only looks, also beside a process that puts: its newest version is proved as ever, and not kept there.
pub fn open_looking(
    folder: LocalVault,
    keys: VaultKeys,
    server: Box<dyn RemoteVault>,
    trusted: TrustedNodes,
) -> Result<VaultClient, VaultClientError> {
    let server: Box<dyn RemoteVault> = match folder.is_beside() {
        true => Box::new(LookingServer::new(packs_beside(&folder), Ok(server))),
        false => server,
    };
    VaultClient::open(folder, keys, server, trusted)
}

/// From now on the client sees what waits to be committed. False: nothing does.
pub fn show_uncommitted(vault: &mut VaultClient) -> Result<bool, VaultClientError> {
    let Some(queue) = KeptQueue(&vault.folder).read()? else { return Ok(false) };
    // Of a put that was cut off there may be too little to show.
    // Beside another process it may be committed by now.
    let may_lack =
        |version: &UncommittedVersion, vault: &VaultClient| version.is_kept && !vault.folder.is_beside();
    if !queue.versions.iter().all(|version| restock(vault, version) || may_lack(version, vault)) {
        return Ok(false);
    }
    let newest = vault.head.clone();
    vault.head = queue.base.clone();
    for version in &queue.versions {
        if let Err(error) = advance(vault, version) {
            vault.head = newest;
            return Err(error);
        }
    }
    vault.view = Some(UncommittedView { base: queue.base, newest });
    Ok(true)
}

/// From now on the client sees what is committed.
pub fn show_committed(vault: &mut VaultClient) {
    if let Some(view) = vault.view.take() {
        vault.head = view.newest;
    }
}

/// The entries that differ between what the client sees and the committed version that it starts from.
pub fn uncommitted_entries(vault: &mut VaultClient) -> Result<Vec<UncommittedEntry>, VaultClientError> {
    let Some(base) = vault.view.as_ref().map(|view| view.base.signed.root.clone()) else {
        return Ok(Vec::new());
    };
    let (tip, before) = (vault.head.signed.root.clone(), vault.catalogue(&base)?);
    let after = vault.catalogue(&tip)?;
    Ok(changes((&base, &before), (&tip, &after)))
}

/// True if something waits on this machine to be committed.
pub fn does_wait(folder: &LocalVault) -> Result<bool, VaultClientError> {
    KeptQueue(folder).read().map(|queue| queue.is_some())
}

/// The versions that wait on this machine, in order.
pub fn waiting(vault: &VaultClient) -> Result<Vec<SignedRoot>, VaultClientError> {
    let queue = KeptQueue(&vault.folder).read()?;
    Ok(queue.map_or_else(Vec::new, |queue| queue.versions.into_iter().map(|it| it.signed).collect()))
}

/// Forgets what waits; the number of versions that it had. A damaged queue goes, too.
pub fn discard(folder: &LocalVault) -> Result<usize, VaultClientError> {
    let count = KeptQueue(folder).read().ok().flatten().map_or(0, |queue| queue.versions.len());
    KeptQueue(folder).clear().map(|()| count)
}

/// The same vault where its server can't be reached any more, for `why`.
pub fn without_server(vault: VaultClient, why: ServerError) -> Result<VaultClient, VaultClientError> {
    let VaultClient { folder, keys, trusted, nodes, blocks, .. } = vault;
    // What they have not written yet is, before they are opened again.
    drop((nodes, blocks));
    open_unreachable(folder, keys, why, trusted)
}

/// Commits what waits: the numbers of its versions. Where others were faster, it is made anew on theirs; where they changed the same
/// name, it stays here and the error says so.
pub fn commit_uncommitted(vault: &mut VaultClient) -> Result<Vec<u64>, VaultClientError> {
    let mut numbers = Vec::new();
    for _ in 0..TRIES {
        let Some((queue, done)) = left(vault)? else {
            KeptQueue(&vault.folder).clear()?;
            return Ok(numbers);
        };
        check_writer(vault)?;
        let queue = match queue.base.named() == vault.head.named() {
            true => queue,
            false => remade(vault, &queue, done)?,
        };
        if !offer_queue(vault, &queue, &mut numbers)? {
            vault.refresh()?;
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}

/// What waits, and how many of its versions the vault has already; `None`: nothing does, or it was cut off before its blocks were written.
fn left(vault: &mut VaultClient) -> Result<Option<(UncommittedQueue, usize)>, VaultClientError> {
    let Some(queue) = KeptQueue(&vault.folder).read()? else { return Ok(None) };
    let (newest, mut done) = (vault.head.named().number, 0);
    for (at, SignedRoot { root, .. }) in queue.versions.iter().map(|version| &version.signed).enumerate() {
        if root.number <= newest && of_the_line(vault, root.number)?.as_ref() == Some(root) {
            done = at + 1;
        }
    }
    let is_whole = queue.versions[done..].iter().all(|version| restock(vault, version) || version.is_kept);
    Ok((is_whole && done < queue.versions.len()).then_some((queue, done)))
}

/// The root of a committed version; of a dropped one, too: what was committed is not committed again.
fn of_the_line(vault: &mut VaultClient, number: u64) -> Result<Option<VaultRoot>, VaultClientError> {
    match vault.root(Some(number)) {
        Err(VaultClientError::NoVersion { .. }) => {
            let mut roots = vault.versions(number)?.into_iter().map(|version| version.signed.root);
            Ok(roots.find(|root| root.number == number))
        }
        found => found.map(Some),
    }
}

/// Puts a version's new blocks into the cache; false: they are not all here.
fn restock(vault: &mut VaultClient, version: &UncommittedVersion) -> bool {
    let blocks = &mut vault.blocks;
    let mut is_whole = true;
    KeptQueue(&vault.folder)
        .kept_blocks(version, &mut |hash, bytes| is_whole &= blocks.add_named(hash, &bytes).is_ok());
    // Those of a put that was cut off may never have reached the disk.
    let is_here = |hash| if version.is_kept { blocks.has(hash) } else { blocks.get(hash).is_some() };
    is_whole && version.update.blocks.iter().all(|block| is_here(&block.hash))
}

/// The client sees one version more.
fn advance(vault: &mut VaultClient, version: &UncommittedVersion) -> Result<(), VaultClientError> {
    if !restock(vault, version) && version.is_kept {
        return Err(KeptQueue(&vault.folder).damaged());
    }
    let Applied { root, nodes } = applied_here(vault, &version.update)?;
    if root != version.signed.root {
        return Err(KeptQueue(&vault.folder).damaged());
    }
    add_nodes(vault, &nodes);
    vault.head.signed = version.signed.clone();
    Ok(())
}

/// What an update makes of the version that the client sees. Nodes of the changed paths that are not here are fetched.
fn applied_here(vault: &mut VaultClient, update: &Update) -> Result<Applied, VaultClientError> {
    let (root, members) = (vault.head.signed.root.clone(), vault.head.members.members.clone());
    for _ in 0..MOST_FETCHED {
        let missing = match apply(update, Some((&root, &members)), &CachedNodes(&vault.nodes)) {
            Err(UpdateError::Tree { why: NodeError::Missing(name), .. }) => name,
            done => return Ok(done?),
        };
        for (_, bytes) in checked_objects(vault.server.as_mut(), "node", &[missing])? {
            vault.nodes.add(&bytes).map_err(cannot_keep)?;
        }
    }
    Err(cannot_keep("it does not keep all that is needed at once"))
}

/// A version of a vault, and its entries.
type SeenCatalogue<'a> = (&'a VaultRoot, &'a Catalogue);

/// Entries that differ. A tree's entry stays as it is where its files change.
fn changes(before: SeenCatalogue<'_>, after: SeenCatalogue<'_>) -> Vec<UncommittedEntry> {
    let names: BTreeSet<_> = before.1.entries.keys().chain(after.1.entries.keys()).collect();
    let of = |(root, catalogue): SeenCatalogue<'_>, name: &[u8]| {
        catalogue.entries.get(name).map(|entry| (entry.clone(), entry_digest(root, entry)))
    };
    let differs = names.into_iter().filter(|name| of(before, name) != of(after, name));
    differs
        .map(|name| UncommittedEntry { name: name.clone(), entry: after.1.entries.get(name).cloned() })
        .collect()
}

/// A queue made anew on the newest version, but for the first `done` versions, and kept in the place of the old one.
fn remade(
    vault: &mut VaultClient,
    queue: &UncommittedQueue,
    done: usize,
) -> Result<UncommittedQueue, VaultClientError> {
    let newest = vault.head.clone();
    let made = remade_on(vault, queue, done, &newest);
    vault.head = newest;
    let made = made?;
    KeptQueue(&vault.folder).set(&made)?;
    Ok(made)
}

fn remade_on(
    vault: &mut VaultClient,
    queue: &UncommittedQueue,
    done: usize,
    newest: &VaultHead,
) -> Result<UncommittedQueue, VaultClientError> {
    vault.head = queue.base.clone();
    let base = &queue.base.signed.root;
    let mut seen = vec![(base, vault.catalogue(base)?)];
    for version in &queue.versions {
        advance(vault, version)?;
        let root = &version.signed.root;
        seen.push((root, vault.catalogue(root)?));
    }
    vault.head = newest.clone();
    let mut versions = Vec::new();
    for (version, both) in queue.versions.iter().zip(seen.windows(2)).skip(done) {
        // The cache may not have room for the blocks of all.
        if !restock(vault, version) {
            return Err(KeptQueue(&vault.folder).damaged());
        }
        let [before, after] = [&both[0], &both[1]].map(|(root, catalogue)| (*root, catalogue));
        let update = remade_update(vault, &version.update, before, after)?;
        versions.push(remade_version(vault, update, version.is_kept)?);
    }
    Ok(UncommittedQueue { base: newest.clone(), versions })
}

/// The same changes of entries on the version that the client sees, if they were there as they were before.
fn remade_update(
    vault: &mut VaultClient,
    update: &Update,
    before: SeenCatalogue<'_>,
    after: SeenCatalogue<'_>,
) -> Result<Update, VaultClientError> {
    let root = vault.head.signed.root.clone();
    let (mut catalogue, changed) = (vault.catalogue(&root)?, changes(before, after));
    let name = changed.first().map(|change| change.name.clone()).unwrap_or_default();
    let overtaken = |name, why| Err(VaultClientError::Overtaken { name, why });
    for UncommittedEntry { name, entry } in changed {
        if catalogue.entries.get(&name) != before.1.entries.get(&name) {
            return overtaken(name, "somebody else changed it meanwhile");
        }
        match entry {
            Some(entry) => catalogue.entries.insert(name, entry),
            None => catalogue.entries.remove(&name),
        };
    }
    let files = update.files.iter().filter(|change| change.file != FileId::CATALOGUE);
    let mut files: Vec<FileUpdate> = files.cloned().collect();
    if files.iter().any(|change| root.base_of(&change.file) != before.0.base_of(&change.file)) {
        return overtaken(name, "somebody else changed it meanwhile");
    }
    let is_old =
        |change: &FileUpdate| change.epoch != vault.keys.epoch() && named_blocks(change).next().is_some();
    if files.iter().any(is_old) {
        return overtaken(name, "the vault's keys changed meanwhile");
    }
    let listed = plan_catalogue(vault, &catalogue)?;
    let needed: HashSet<Digest> = files.iter().flat_map(named_blocks).collect();
    let kept = update.blocks.iter().filter(|block| needed.contains(&block.hash));
    let blocks: Vec<NewBlock> = kept.chain(&listed.plan.blocks).copied().collect();
    let (epoch, actions) = (listed.epoch, listed.plan.actions);
    files.push(FileUpdate { file: FileId::CATALOGUE, epoch, actions });
    Ok(Update { blocks, ..vault.update_of(files)? })
}

/// Blocks that steps name.
fn named_blocks(change: &FileUpdate) -> impl Iterator<Item = Digest> {
    change.actions.iter().flat_map(UpdateAction::blocks).map(|block| block.hash)
}

/// Signs what an update makes of the version that the client sees, which it sees from then on.
fn remade_version(
    vault: &mut VaultClient,
    update: Update,
    is_kept: bool,
) -> Result<UncommittedVersion, VaultClientError> {
    let Applied { root, nodes } = applied_here(vault, &update)?;
    let version = UncommittedVersion { signed: signed_by_me(vault, root, &update)?, update, is_kept };
    if !KeptQueue(&vault.folder).keep_blocks(&version, is_kept, &|name| vault.blocks.get(name))? {
        return Err(KeptQueue(&vault.folder).damaged());
    }
    add_nodes(vault, &nodes);
    vault.head.signed = version.signed.clone();
    Ok(version)
}

/// Sends a queue that starts from the newest version, as much of it at once as may be on its way. False: somebody was faster, and the rest of
/// it is to be made anew.
fn offer_queue(
    vault: &mut VaultClient,
    queue: &UncommittedQueue,
    numbers: &mut Vec<u64>,
) -> Result<bool, VaultClientError> {
    let bytes = |version: &UncommittedVersion| {
        version.update.blocks.iter().map(|block| u64::from(block.stored)).sum::<u64>()
    };
    let mut window = CommitWindow::new(queue.versions.iter().map(bytes).collect());
    loop {
        match window.step() {
            CommitStep::Send(at) => {
                if !restock(vault, &queue.versions[at]) {
                    return Err(KeptQueue(&vault.folder).damaged());
                }
                let (UncommittedVersion { signed, update, .. }, blocks) =
                    (&queue.versions[at], &vault.blocks);
                vault.server.begin_commit(update, signed, &mut |name| blocks.get(name))?;
            }
            CommitStep::Await(at) => {
                let answer = vault.server.next_commit()?;
                window.answered(answer.is_some());
                if let Some(certificate) = answer {
                    let (signed, members) = (queue.versions[at].signed.clone(), vault.head.members.clone());
                    committed(vault, VaultHead { signed, members, certificate }, &[])?;
                    numbers.push(vault.head.named().number);
                }
            }
            CommitStep::Done => return Ok(window.is_whole()),
        }
    }
}
