//! A vault as its member sees it: versions that are proved, entries by name, and new versions.
//!
//! A put goes through these points, at each of which the process may die and lose nothing:
//!
//! 1. new blocks lie in this machine's cache; the server knows nothing of them;
//! 2. the update is made, what it makes of the entry is noted as offered, and it is signed;
//! 3. the server has committed it;
//! 4. the head is kept;
//! 5. summaries and what was seen are kept.
//!
//! Before 3 the vault is as it was. From 3 on the new version is there, and this machine learns of it at the next command.

use towpath_content::NodeId;
use towpath_vault_format::apply::{Applied, UpdateError, apply};
use towpath_vault_format::tree::{NewNode, NodeError, NodeMap};
use towpath_vault_format::{
    BlockIds, Canonical, Digest, FileId, FileRoot, FileUpdate, Members, Predicate, SignedMembers, SignedRoot,
    Update, VaultParameters, VaultRoot,
};
use towpath_vault_protocol::CommittedVersion;
use towpath_vault_protocol::whole::sent_len;

use crate::catalogue::{Catalogue, CatalogueEntry, MAX_CATALOGUE, entry_digest};
use crate::catching_up::catch_up;
use crate::error::VaultClientError;
use crate::head::{HeadError, NamedVersion, TrustedNodes, VaultHead, VersionLink};
use crate::history::kept;
use crate::holders::ObjectHolders;
use crate::keys::{KeysRecord, VaultKeys, WrappedKeys, random};
use crate::line::{MeasuredLine, counting, seconds, to_keep};
use crate::local::{BlobCache, KeptQueue, LocalVault, UncommittedVersion, UncommittedView, kept_line};
use crate::reader::{CachedNodes, FileReader};
use crate::server::{RemoteVault, ServerError, checked_objects};

/// Versions that are asked for at once.
const VERSIONS: usize = 256;
/// The most versions that are looked at one after the other.
const MAX_VERSIONS: usize = 1 << 20;

/// A vault.
pub struct VaultClient {
    pub(crate) folder: LocalVault,
    pub(crate) keys: VaultKeys,
    pub(crate) server: Box<dyn RemoteVault>,
    /// Where nodes and blocks come from, if not from the server alone.
    pub(crate) holders: Option<ObjectHolders>,
    pub(crate) nodes: BlobCache,
    pub(crate) blocks: BlobCache,
    pub(crate) head: VaultHead,
    /// Set while the newest version that is seen is one that is not committed.
    pub(crate) view: Option<UncommittedView>,
    pub(crate) trusted: TrustedNodes,
    pub(crate) ids: BlockIds,
}

/// How an offer of a new version ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It is the head now.
    Committed {
        /// Bytes of the update and its signature.
        bytes: u64,
    },
    /// The server can't be reached. It is kept on this machine, and is what this client sees as the newest version.
    Kept {
        /// Bytes of the update and its signature.
        bytes: u64,
    },
    /// Another one is, which is proved and kept.
    Conflict,
}

impl VaultClient {
    /// Makes a vault that is not there yet: its version 0. `readers`, in order, may read it beside the owner.
    pub fn create(
        folder: LocalVault,
        keys: VaultKeys,
        wrapped: &WrappedKeys,
        mut server: Box<dyn RemoteVault>,
        trusted: TrustedNodes,
        readers: Vec<NodeId>,
    ) -> Result<Self, VaultClientError> {
        let writer = keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?.identity().clone();
        let deleter = keys.deleter.as_ref().map(|key| key.identity().node_id());
        let members = Members {
            vault: keys.vault,
            number: 0,
            owner: keys.owner,
            deleter,
            writers: Vec::new(),
            readers,
        };
        let members = SignedMembers::sign(members, |message| writer.sign(message));
        let update = Update {
            vault: keys.vault,
            writer: writer.node_id(),
            base: None,
            parameters: Some(VaultParameters::default()),
            members: Some(members.clone()),
            keys: Some(wrapped.to_bytes()),
            files: Vec::new(),
            blocks: Vec::new(),
        };
        let Applied { root, .. } = apply(&update, None, &NodeMap::default())?;
        let signed =
            SignedRoot::sign(root, writer.node_id(), update.digest(), |message| writer.sign(message));
        match server.commit(&update, &signed, &mut |_| None)? {
            None => Err(ServerError::Refused("it has a vault of this id already".into()).into()),
            Some(certificate) => {
                let head = VaultHead { signed, members, certificate };
                head.prove(&trusted)?;
                folder.set_head(&head)?;
                folder.set_shares(&wrapped.to_bytes())?;
                with_head(folder, keys, server, trusted, head)
            }
        }
    }

    /// Opens a vault: its newest version is fetched, proved and compared with the one that was seen last.
    pub fn open(
        folder: LocalVault,
        keys: VaultKeys,
        mut server: Box<dyn RemoteVault>,
        trusted: TrustedNodes,
    ) -> Result<Self, VaultClientError> {
        let seen = folder.head()?;
        let head = match fetch_head(server.as_mut(), &trusted, seen.as_ref()) {
            // The other process may have put a version after the server told which one was the newest.
            Err(VaultClientError::Head(HeadError::Rollback { .. })) if folder.is_beside() => {
                fetch_head(server.as_mut(), &trusted, seen.as_ref())?
            }
            told => told?,
        };
        folder.set_head(&head)?;
        let mut client = with_head(folder, keys, server, trusted, head)?;
        if let Some(seen) = seen {
            let caches = (&mut client.nodes, &mut client.blocks);
            catch_up(client.server.as_mut(), caches, &seen, &client.head.signed.root);
        }
        Ok(client)
    }

    /// Opens a vault as it was seen last, without asking the server for its newest version: older ones can be read though the
    /// newest is damaged, or none that counts.
    pub fn open_remembered(
        folder: LocalVault,
        keys: VaultKeys,
        server: Box<dyn RemoteVault>,
        trusted: TrustedNodes,
    ) -> Result<Self, VaultClientError> {
        let head = folder.head()?.ok_or(VaultClientError::NoVersion { number: 0 })?;
        with_head(folder, keys, server, trusted, head)
    }

    /// The newest version.
    pub const fn head(&self) -> &VaultHead {
        &self.head
    }

    /// Reads files.
    pub fn reader(&mut self) -> FileReader<'_> {
        FileReader {
            server: self.server.as_mut(),
            holders: self.holders.as_mut(),
            nodes: &mut self.nodes,
            blocks: &mut self.blocks,
            keys: &self.keys,
            degree: self.head.signed.root.parameters.degree,
            use_cache: true,
        }
    }

    /// Fetches the newest version again.
    pub fn refresh(&mut self) -> Result<(), VaultClientError> {
        let newest = fetch_head(self.server.as_mut(), &self.trusted, Some(&self.head))?;
        let seen = std::mem::replace(&mut self.head, newest);
        self.folder.set_head(&self.head)?;
        let caches = (&mut self.nodes, &mut self.blocks);
        catch_up(self.server.as_mut(), caches, &seen, &self.head.signed.root);
        follow_keys(self)
    }

    /// Versions from `first` to the newest, dropped ones too, each proved by the one after it.
    pub fn versions(&mut self, first: u64) -> Result<Vec<CommittedVersion>, VaultClientError> {
        let newest = self.head.named().number;
        // The server may have it no more.
        let VaultHead { signed, certificate, .. } = self.head.clone();
        let mut versions = match newest.checked_sub(1) {
            Some(last) => fetch_versions(self.server.as_mut(), first, last)?,
            None => Vec::new(),
        };
        versions.extend((first <= newest).then_some(CommittedVersion { signed, certificate }));
        let mut expected = self.head.named().root;
        for version in versions.iter().rev() {
            let root = &version.signed.root;
            let is_proved = root.digest() == expected && version.certificate.root == expected;
            if !is_proved || !version.signed.is_signed() {
                let why = "the version after it names another";
                return Err(HeadError::NotProved { number: root.number, why }.into());
            }
            expected = root.previous;
        }
        let roots = versions.iter().map(|version| &version.signed.root);
        self.folder.add_links(roots.map(|root| VersionLink::of(root).version));
        Ok(versions)
    }

    /// The root of a version; none: of the newest.
    pub fn root(&mut self, number: Option<u64>) -> Result<VaultRoot, VaultClientError> {
        match number {
            None => Ok(self.head.signed.root.clone()),
            Some(number) if number == self.head.named().number => Ok(self.head.signed.root.clone()),
            Some(number) if number > self.head.named().number => Err(VaultClientError::NoVersion { number }),
            Some(number) if kept(self.server.as_mut(), &self.head, number + 1, 1)? != [number] => {
                Err(VaultClientError::NoVersion { number })
            }
            Some(number) => match proved_before(self, number)? {
                Some(root) => Ok(root),
                None => {
                    let first = self.versions(number)?.into_iter().next();
                    let first = first.filter(|version| version.signed.root.number == number);
                    first.map(|version| version.signed.root).ok_or(VaultClientError::NoVersion { number })
                }
            },
        }
    }

    /// What entries a version has.
    pub fn catalogue(&mut self, root: &VaultRoot) -> Result<Catalogue, VaultClientError> {
        let Some(file) = root.file(&FileId::CATALOGUE) else { return Ok(Catalogue::default()) };
        let bytes = self.reader().read_all(file, MAX_CATALOGUE, "bytes of the catalogue");
        let read = bytes.and_then(|bytes| {
            Catalogue::from_bytes(&bytes).map_err(VaultClientError::record("the catalogue"))
        });
        read.map_err(|error| error.in_catalogue(root.number))
    }

    /// An update on the newest version.
    pub(crate) fn update_of(&self, mut files: Vec<FileUpdate>) -> Result<Update, VaultClientError> {
        let writer = self.keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?.identity().node_id();
        files.sort_by_key(|change| change.file);
        for change in &mut files {
            // Whatever somebody wrote there, an epoch never goes back.
            let newest = self.head.signed.root.file(&change.file).map_or(0, |newest| newest.epoch);
            change.epoch = change.epoch.max(newest);
        }
        Ok(Update {
            vault: self.keys.vault,
            writer,
            base: Some(Predicate::on(&self.head.signed.root)),
            parameters: None,
            members: None,
            keys: None,
            files,
            blocks: Vec::new(),
        })
    }

    /// Computes what an update makes of the newest version, offers it, and keeps it once it is committed.
    pub(crate) fn offer(&mut self, update: &Update) -> Result<Offered, VaultClientError> {
        offer_entry(self, update, None)
    }

    /// The root of a file in the newest version; an empty one if it is not there.
    pub(crate) fn file_root(&self, file: FileId) -> FileRoot {
        let found = self.head.signed.root.file(&file).copied();
        found.unwrap_or(FileRoot::empty(file, self.keys.epoch()))
    }
}

/// [`VaultClient::offer`] of an update that may be the one that puts the entry of a name.
pub(crate) fn offer_entry(
    client: &mut VaultClient,
    update: &Update,
    entry: Option<(&[u8], &CatalogueEntry)>,
) -> Result<Offered, VaultClientError> {
    // The newest version may have come meanwhile, and with it other members.
    check_writer(client)?;
    let Some(Applied { root, nodes }) = applied(client, update)? else {
        client.refresh()?;
        return Ok(Offered::Conflict);
    };
    if let Some((name, entry)) = entry {
        note_offered(client, &root, name, entry)?;
    }
    let signed = signed_by_me(client, root, update)?;
    let bytes = sent_len(update);
    if client.view.is_some() && entry.is_some() {
        return keep_here(client, update, signed, &nodes).map(|()| Offered::Kept { bytes });
    }
    if entry.is_some() {
        let version = UncommittedVersion { signed: signed.clone(), update: update.clone(), is_kept: false };
        KeptQueue(&client.folder).note_on_its_way(&client.head, version, &|name| client.blocks.get(name))?;
    }
    let is_done = commit_one(client, update, signed, &nodes);
    if entry.is_some() && !matches!(is_done, Err(VaultClientError::Server(ServerError::Unreachable(_)))) {
        KeptQueue(&client.folder).clear()?;
    }
    match is_done? {
        true => Ok(Offered::Committed { bytes }),
        false => {
            client.refresh()?;
            Ok(Offered::Conflict)
        }
    }
}

/// Signs what an update makes.
pub(crate) fn signed_by_me(
    client: &VaultClient,
    root: VaultRoot,
    update: &Update,
) -> Result<SignedRoot, VaultClientError> {
    let writer = client.keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?.identity();
    Ok(SignedRoot::sign(root, writer.node_id(), update.digest(), |message: &[u8]| writer.sign(message)))
}

/// Offers a version, and keeps it as the newest one; false: another one is.
fn commit_one(
    client: &mut VaultClient,
    update: &Update,
    signed: SignedRoot,
    nodes: &[NewNode],
) -> Result<bool, VaultClientError> {
    let blocks = &client.blocks;
    let certificate = client.server.commit(update, &signed, &mut |name| blocks.get(name))?;
    let Some(certificate) = certificate else { return Ok(false) };
    let members = update.members.clone().unwrap_or_else(|| client.head.members.clone());
    committed(client, VaultHead { signed, members, certificate }, nodes).map(|()| true)
}

/// Takes a version that follows the newest one for the newest, once it is proved.
pub(crate) fn committed(
    client: &mut VaultClient,
    head: VaultHead,
    nodes: &[NewNode],
) -> Result<(), VaultClientError> {
    head.prove(&client.trusted)?;
    head.follows(&client.head, &[VersionLink::of(&head.signed.root)])?;
    client.folder.set_head(&head)?;
    add_nodes(client, nodes);
    client.head = head;
    Ok(())
}

/// Keeps nodes, of which lost ones are fetched.
pub(crate) fn add_nodes(client: &mut VaultClient, nodes: &[NewNode]) {
    for node in nodes {
        let _ = client.nodes.add(&node.bytes);
    }
}

/// Keeps a version on this machine, and sees it as the newest one.
fn keep_here(
    client: &mut VaultClient,
    update: &Update,
    signed: SignedRoot,
    nodes: &[NewNode],
) -> Result<(), VaultClientError> {
    let Some(view) = &client.view else { return Ok(()) };
    let version = UncommittedVersion { signed: signed.clone(), update: update.clone(), is_kept: true };
    KeptQueue(&client.folder).keep(&view.base, version, &|name| client.blocks.get(name))?;
    add_nodes(client, nodes);
    client.head.signed = signed;
    Ok(())
}

/// What the line to the server carries.
pub(crate) fn line_of(vault: &VaultClient) -> Result<MeasuredLine, VaultClientError> {
    Ok(counting(vault.server.line(), kept_line(&vault.folder)?, seconds()))
}

/// The same, and what is new of it is kept.
pub(crate) fn keep_line(vault: &VaultClient) -> Result<MeasuredLine, VaultClientError> {
    if let Some(line) = to_keep(vault.server.line(), kept_line(&vault.folder)?, seconds()) {
        vault.folder.set_line(&line)?;
    }
    line_of(vault)
}

/// The root of a version whose hash was proved here before, if the server has that one. What it has else the chain of roots will tell.
fn proved_before(client: &mut VaultClient, number: u64) -> Result<Option<VaultRoot>, VaultClientError> {
    let Some(known) = client.folder.link(number) else { return Ok(None) };
    let found = client.server.versions(&[number])?.into_iter().next().flatten();
    Ok(found.map(|version| version.signed.root).filter(|root| root.digest() == known))
}

/// Notes what is offered now: if this machine does not live to see the answer, it knows its own work again.
fn note_offered(
    vault: &VaultClient,
    root: &VaultRoot,
    name: &[u8],
    entry: &CatalogueEntry,
) -> Result<(), VaultClientError> {
    let mut offered = vault.folder.offered()?;
    offered.note(vault.keys.name_mark(name), root.number, entry_digest(root, entry));
    vault.folder.set_offered(&offered)
}

/// The record of keys of the newest version.
pub(crate) fn keys_record(vault: &mut VaultClient) -> Result<KeysRecord, VaultClientError> {
    let name = vault.head.signed.root.keys;
    let kept = vault.folder.shares()?.filter(|bytes| Digest::of(bytes) == name);
    let bytes = match kept {
        Some(bytes) => bytes,
        None => {
            let bytes = fetch_record(vault.server.as_mut(), name)?;
            vault.folder.set_shares(&bytes)?;
            bytes
        }
    };
    KeysRecord::from_bytes(&bytes).map_err(VaultClientError::record("the record of keys"))
}

/// Takes the epochs that the newest version's record of keys has for this member.
fn follow_keys(vault: &mut VaultClient) -> Result<(), VaultClientError> {
    let record = keys_record(vault)?;
    Ok(record.follow(&mut vault.keys, &vault.head.members.members)?)
}

/// Fails if this member may not add versions.
pub(crate) fn check_writer(vault: &VaultClient) -> Result<(), VaultClientError> {
    let may_write = |node| vault.head.members.members.may_write(&node);
    vault.keys.node().filter(|node| may_write(*node)).map(drop).ok_or(VaultClientError::ReadOnly)
}

/// What an update makes of the newest version. Of nodes that are not here the server tells those along the changed paths. `None`:
/// another version was first.
fn applied(client: &mut VaultClient, update: &Update) -> Result<Option<Applied>, VaultClientError> {
    let root = client.head.signed.root.clone();
    let members = client.head.members.members.clone();
    let base = Some((&root, &members));
    match apply(update, base, &CachedNodes(&client.nodes)) {
        Err(UpdateError::Tree { why: NodeError::Missing(_), .. }) => {}
        done => return Ok(Some(done?)),
    }
    let Some(paths) = client.server.paths(update)? else { return Ok(None) };
    let paths: NodeMap = paths.into_iter().collect();
    match apply(update, base, &(&paths, &CachedNodes(&client.nodes))) {
        Ok(applied) => Ok(Some(applied)),
        Err(why) => {
            client.server.withdraw();
            Err(VaultClientError::Unconfirmed(why))
        }
    }
}

pub(crate) fn with_head(
    folder: LocalVault,
    keys: VaultKeys,
    server: Box<dyn RemoteVault>,
    trusted: TrustedNodes,
    head: VaultHead,
) -> Result<VaultClient, VaultClientError> {
    let (nodes, blocks) = (folder.nodes()?, folder.blocks()?);
    let (holders, view, ids) = (None, None, BlockIds::from_first(random()?));
    let mut client = VaultClient { folder, keys, server, holders, nodes, blocks, head, view, trusted, ids };
    follow_keys(&mut client)?;
    Ok(client)
}

/// The newest version, proved, and compared with the one that was seen.
pub(crate) fn fetch_head(
    server: &mut dyn RemoteVault,
    trusted: &TrustedNodes,
    seen: Option<&VaultHead>,
) -> Result<VaultHead, VaultClientError> {
    let Some(CommittedVersion { signed, certificate }) = server.head()? else {
        let gone = seen.map(|seen| HeadError::Gone { seen: seen.named() });
        let never = || ServerError::Refused("it has no such vault".into()).into();
        return Err(gone.map_or_else(never, Into::into));
    };
    let known = seen.map(|seen| &seen.members).filter(|members| members.digest() == signed.root.members);
    let members = match known {
        Some(members) => members.clone(),
        None => fetch_members(server, &signed.root)?,
    };
    let head = VaultHead { signed, members, certificate };
    head.prove(trusted)?;
    if let Some(seen) = seen {
        head.follows(seen, &fetch_between(server, seen.named(), head.named())?)?;
    }
    Ok(head)
}

/// The versions behind `seen`, up to `found`. However many there are, some of their roots alone are in memory.
fn fetch_between(
    server: &mut dyn RemoteVault,
    seen: NamedVersion,
    found: NamedVersion,
) -> Result<Vec<VersionLink>, VaultClientError> {
    let (mut links, mut next) = (Vec::new(), seen.number);
    while next < found.number && links.len() < MAX_VERSIONS {
        let last = found.number.min(next.saturating_add(VERSIONS as u64));
        match fetch_versions(server, next + 1, last) {
            Ok(versions) => {
                links.extend(versions.iter().map(|version| VersionLink::of(&version.signed.root)))
            }
            Err(VaultClientError::NoVersion { number: lacking }) => {
                return Err(HeadError::Unlinked { seen, found, lacking }.into());
            }
            Err(error) => return Err(error),
        }
        next = last;
    }
    Ok(links)
}

/// The wrapped keys of a server's vault, for whoever has nothing but its id. That they are the right ones shows when they are
/// opened.
pub fn fetch_keys(server: &mut dyn RemoteVault) -> Result<WrappedKeys, VaultClientError> {
    let newest = server.head()?;
    let never = || ServerError::Refused("it has no such vault".into());
    let CommittedVersion { signed, .. } = newest.ok_or_else(never)?;
    let record = KeysRecord::from_bytes(&fetch_record(server, signed.root.keys)?);
    record.map(|record| record.wrapped).map_err(VaultClientError::record("the record of keys"))
}

fn fetch_record(server: &mut dyn RemoteVault, name: Digest) -> Result<Vec<u8>, VaultClientError> {
    let came = checked_objects(server, "record of keys", &[name])?;
    Ok(came.into_iter().next().map(|(_, bytes)| bytes).unwrap_or_default())
}

fn fetch_members(server: &mut dyn RemoteVault, root: &VaultRoot) -> Result<SignedMembers, VaultClientError> {
    let came = checked_objects(server, "list of members", &[root.members])?;
    let bytes = came.first().map_or(&[][..], |(_, bytes)| bytes);
    SignedMembers::from_bytes(bytes).map_err(VaultClientError::record("the list of members"))
}

/// The versions `first` to `last`.
fn fetch_versions(
    server: &mut dyn RemoteVault,
    first: u64,
    last: u64,
) -> Result<Vec<CommittedVersion>, VaultClientError> {
    let numbers: Vec<u64> = (first..=last).take(MAX_VERSIONS).collect();
    let mut versions = Vec::with_capacity(numbers.len());
    for some in numbers.chunks(VERSIONS) {
        for (number, version) in some.iter().zip(server.versions(some)?) {
            let is_it = |version: &CommittedVersion| version.signed.root.number == *number;
            versions.push(version.filter(is_it).ok_or(VaultClientError::NoVersion { number: *number })?);
        }
    }
    Ok(versions)
}
