//! One vault: its newest version, where its objects lie, and the steps that add to them.
//!
//! Order of a commit: packs durable, record durable, told. A step that fails before the record leaves bytes that nothing names.

mod collect;
mod staged;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use towpath_byte_store::ByteStore;
use towpath_content::NodeId;
use towpath_link::Identity;
use towpath_vault_format::tree::NewNode;
use towpath_vault_format::update::{MAX_UPDATE, Update, UpdateAction};
use towpath_vault_format::{
    BlockRef, Canonical, Certificate, Conflict, Digest, DropStatement, Members, NodeRecorder, NodeSource,
    SignedMembers, SignedRoot, SourceFault, UpdateError, apply, conflict,
};
use towpath_vault_protocol::message::{MAX_STATEMENTS, MAX_VERSIONS};
use towpath_vault_protocol::whole::packed_for_reader;
use towpath_vault_protocol::{CommittedVersion, Proposal, ProposalVerdict, VersionLine};

use crate::changes::{NodeChange, changes_of};
use crate::error::{VaultError, damaged};
use crate::log::{LogMedium, RecordLog};
use crate::objects::VaultObjects;
use crate::packs::{NewPack, PackRun};
use crate::record::{LogRecord, PackList, object_offsets};

use staged::StagedBlocks;

pub use collect::{CollectedBytes, Collection, Survey};

/// Objects of a version that are fewer bytes together lie in its record.
const INLINE: usize = 256 << 10;
/// Blocks wait in memory for their version until they are so many bytes; then they are written as a pack.
const STAGED: usize = 8 << 20;

/// How much a vault takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultLimits {
    /// Bytes of all its objects. Default: no limit.
    pub bytes: u64,
}

impl Default for VaultLimits {
    fn default() -> Self {
        Self { bytes: u64::MAX }
    }
}

/// A version in memory: where its record is, and what lists tell.
#[derive(Debug, Clone, Copy)]
struct VersionPlace {
    line: VersionLine,
    at: u64,
    len: usize,
    is_gone: bool,
}

/// A vault.
#[derive(Debug)]
pub struct Vault {
    log: RecordLog,
    objects: VaultObjects,
    limits: VaultLimits,
    versions: Vec<VersionPlace>,
    head: Option<(CommittedVersion, Members)>,
    statements: Vec<DropStatement>,
    staged: StagedBlocks,
    /// Bytes of blocks that came before their version, since the start: about so many no version has.
    early: u64,
}

/// A version that follows from a proposal.
struct NextVersion {
    root: towpath_vault_format::VaultRoot,
    nodes: Vec<NewNode>,
    paths: Vec<Bytes>,
}

/// A version that is proved, and waits for its pack and for its record in the log.
#[derive(Debug)]
pub(crate) struct PreparedVersion {
    version: CommittedVersion,
    update: Update,
    members: Members,
    changes: Vec<NodeChange>,
    pack: Option<NewPack>,
    /// Objects that lie in the record.
    inline: Vec<Vec<u8>>,
}

impl PreparedVersion {
    /// Writes its pack, durably; `None`: its objects are few.
    pub(crate) fn write_pack(&self) -> Result<Option<PackList>, VaultError> {
        self.pack.as_ref().map(NewPack::write).transpose()
    }
}

/// Nodes of the vault.
struct VaultNodes<'a>(&'a Vault);

impl NodeSource for VaultNodes<'_> {
    fn node(&self, name: &Digest) -> Result<Vec<u8>, SourceFault> {
        match self.0.object(name) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(SourceFault::Missing),
            Err(error) => Err(SourceFault::Failed(error.to_string())),
        }
    }
}

impl Vault {
    /// Opens a vault with its log; objects that are not few lie in `bytes`.
    pub fn open(
        medium: Box<dyn LogMedium>,
        bytes: Arc<dyn ByteStore>,
        limits: VaultLimits,
    ) -> Result<Self, VaultError> {
        let mut opening = LogReplay::new(bytes);
        let log = RecordLog::open(medium, |at, record| opening.take(at, record))?;
        let LogReplay { objects, versions, head, statements } = opening;
        let staged = StagedBlocks::default();
        let mut vault = Self { log, objects, limits, versions, head: None, statements, staged, early: 0 };
        if let Some(version) = head {
            let members = vault.members(&version.signed)?;
            vault.head = Some((version, members));
        }
        Ok(vault)
    }

    /// The newest version; `None`: the vault is not made yet.
    pub fn head(&self) -> Option<&CommittedVersion> {
        self.head.as_ref().map(|(version, _)| version)
    }

    /// Fails if `node` may not read. Of a vault that is not made yet there is nothing to read.
    pub fn check_reader(&self, node: &NodeId) -> Result<(), VaultError> {
        match &self.head {
            Some((_, members)) if !members.may_read(node) && !members.may_drop(node) => {
                Err(VaultError::NotAllowed("this vault is not yours to read"))
            }
            _ => Ok(()),
        }
    }

    fn members(&self, signed: &SignedRoot) -> Result<Members, VaultError> {
        let hash = signed.root.members;
        let bytes = self.object(&hash)?.ok_or(VaultError::Lost(hash))?;
        let members = SignedMembers::from_bytes(&bytes).map_err(|_| VaultError::Lost(hash))?;
        Ok(members.members)
    }

    /// A node, a block or a record; `None`: it is not here. Blocks whose version is not committed are not told.
    pub fn object(&self, hash: &Digest) -> Result<Option<Vec<u8>>, VaultError> {
        self.objects.read(&self.log, hash)
    }

    /// The first of these objects, if they lie in a pack: it is read without the vault.
    pub(crate) fn packed_run(&self, names: &[Digest]) -> Option<PackRun> {
        self.objects.run(names)
    }

    /// The first of these objects: some bytes of them, or one. What lies together is read at once.
    pub fn some_objects(&self, names: &[Digest]) -> Result<Vec<Option<Bytes>>, VaultError> {
        self.objects.read_some(&self.log, names)
    }

    /// Versions before number `before`, the newest first. Those that were dropped are left out.
    pub fn versions(&self, before: u64, most: u64) -> Vec<VersionLine> {
        let end = self.versions.len().min(usize::try_from(before).unwrap_or(usize::MAX));
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_VERSIONS);
        let there = self.versions[..end].iter().rev().filter(|version| !version.is_gone);
        there.take(most).map(|version| version.line).collect()
    }

    /// A version, also a dropped one: its root proves the ones behind it.
    pub fn root(&self, number: u64) -> Result<CommittedVersion, VaultError> {
        match self.record_of(number)? {
            (_, LogRecord::Version { version, .. } | LogRecord::Gone(version)) => Ok(*version),
            _ => Err(VaultError::NoVersion(number)),
        }
    }

    /// The update that made a version, packed for who has the one before.
    pub fn packed_update(&self, number: u64) -> Result<Bytes, VaultError> {
        let update = self.update(number)?;
        let owner = self.head.as_ref().map_or(update.writer, |(_, members)| members.owner);
        let block = |hash: &Digest| self.object(hash).ok().flatten().map(Bytes::from);
        Ok(packed_for_reader(&update, owner, block))
    }

    /// The update that made a version.
    pub fn update(&self, number: u64) -> Result<Update, VaultError> {
        match self.record_of(number)? {
            (false, LogRecord::Version { update, .. }) => Ok(*update),
            _ => Err(VaultError::NoVersion(number)),
        }
    }

    /// The record of a version; true: it was dropped.
    fn record_of(&self, number: u64) -> Result<(bool, LogRecord), VaultError> {
        let found = usize::try_from(number).ok().and_then(|index| self.versions.get(index));
        let place = found.ok_or(VaultError::NoVersion(number))?;
        let record = self.log.read(place.at, place.len)?;
        let record = LogRecord::from_bytes(&record).map_err(|why| damaged(place.at, &why))?;
        Ok((place.is_gone, record))
    }

    /// Looks whether a proposal can be done, and what is needed for it.
    pub fn judge(&self, proposal: &Proposal) -> ProposalVerdict {
        if let Some(conflict) = conflict_with(self, &proposal.update) {
            return ProposalVerdict::Conflict(conflict, self.head().cloned().map(Box::new));
        }
        let are_told = proposal.signature.is_none();
        let next = self.next_version(&proposal.update).and_then(|next| match are_told {
            true if next.paths.iter().map(Bytes::len).sum::<usize>() > MAX_UPDATE => Err(VaultError::Paths),
            _ => Ok(next),
        });
        match next {
            Ok(next) => ProposalVerdict::Possible {
                lacking: self.lacking(&proposal.update),
                paths: are_told.then_some(next.paths),
            },
            Err(error) => {
                tracing::debug!(%error, "an update is refused");
                let (refusal, why) = error.told();
                ProposalVerdict::Refused(refusal, why)
            }
        }
    }

    /// The hash of the root of a version.
    pub fn root_hash(&self, number: u64) -> Option<Digest> {
        let found = usize::try_from(number).ok().and_then(|index| self.versions.get(index));
        found.map(|version| version.line.root)
    }

    /// What follows from an update. All blocks that it names are here or in it.
    fn next_version(&self, update: &Update) -> Result<NextVersion, VaultError> {
        self.check_blocks(update)?;
        check_room(self, update)?;
        let nodes = VaultNodes(self);
        let recorder = NodeRecorder::new(&nodes);
        let base = self.head.as_ref().map(|(version, members)| (&version.signed.root, members));
        let applied = apply(update, base, &recorder)?;
        let paths: Vec<Bytes> =
            recorder.into_nodes().iter().map(|(_, node)| Bytes::copy_from_slice(node)).collect();
        Ok(NextVersion { root: applied.root, nodes: applied.nodes, paths })
    }

    fn check_blocks(&self, update: &Update) -> Result<(), VaultError> {
        let new: BTreeMap<Digest, u32> =
            update.blocks.iter().map(|block| (block.hash, block.stored)).collect();
        if new.len() != update.blocks.len() {
            return Err(VaultError::BlockTwice);
        }
        let is_here = |block: &BlockRef| {
            let len = new.get(&block.hash).copied().or_else(|| self.objects.len_of(&block.hash));
            len == Some(block.stored)
        };
        match blocks_of(update).find(|block| !is_here(block)) {
            Some(block) => Err(VaultError::Block(block.hash)),
            None => Ok(()),
        }
    }

    /// Places of the update's blocks that are not here.
    fn lacking(&self, update: &Update) -> Vec<u32> {
        let is_lacking = |hash| self.objects.len_of(hash).is_none() && !self.staged.has(hash);
        let blocks = update.blocks.iter().enumerate();
        blocks.filter(|(_, block)| is_lacking(&block.hash)).map(|(place, _)| place as u32).collect()
    }

    /// Keeps a block whose version is under way. When so many wait that they are to be a pack, this writes it.
    pub fn keep(&mut self, hash: Digest, block: Bytes) -> Result<(), VaultError> {
        // The last time it failed: else memory grows while the disk is full.
        flush_long_staged(self)?;
        self.stage(hash, block)?;
        flush_long_staged(self)
    }

    /// The same, of which [`Self::staged_pack`] is to be written.
    pub(crate) fn stage(&mut self, hash: Digest, block: Bytes) -> Result<(), VaultError> {
        if self.objects.len_of(&hash).is_some() {
            return Ok(());
        }
        let room = self.limits.bytes.saturating_sub(self.objects.stored());
        if (self.staged.len() + block.len()) as u64 > room {
            return Err(VaultError::Quota { limit: self.limits.bytes });
        }
        self.staged.add(hash, block);
        Ok(())
    }

    /// The same for a block of `node` that came before its version, if it may write. All that no version has yet take half of the room at
    /// most: else a version that is refused for its length leaves no room for a shorter one.
    pub(crate) fn stage_early(
        &mut self,
        node: &NodeId,
        hash: Digest,
        block: Bytes,
    ) -> Result<(), VaultError> {
        let may_write = self.head.as_ref().is_some_and(|(_, members)| members.may_write(node));
        let is_here = self.objects.len_of(&hash).is_some() || self.staged.has(&hash);
        let taken = self.objects.stored() + self.staged.len() as u64;
        let room = self.limits.bytes.saturating_sub(taken).saturating_add(self.early);
        let early = self.early + block.len() as u64;
        if !may_write || is_here || early > room / 2 {
            return Ok(());
        }
        self.stage(hash, block)?;
        self.early = early;
        Ok(())
    }

    /// The pack of the blocks that wait, if they are so many that they are to be one.
    pub(crate) fn staged_pack(&self) -> Option<NewPack> {
        (self.staged.len() >= STAGED).then(|| self.objects.new_pack(self.staged.in_order()))
    }

    /// The blocks that wait are in this pack. They are here from then on, though no version names them.
    pub(crate) fn add_staged_pack(&mut self, pack: &PackList) -> Result<(), VaultError> {
        self.log.append(&LogRecord::Pack(pack.clone()).to_bytes())?;
        self.objects.add_pack(pack);
        self.staged = StagedBlocks::default();
        Ok(())
    }

    /// Commits a proposal whose blocks are here. When this returns, the version is durable.
    pub fn commit(
        &mut self,
        proposal: &Proposal,
        identity: &Identity,
        time: u64,
    ) -> Result<Certificate, VaultError> {
        let next = self.prepared(proposal, identity, time)?;
        let pack = next.write_pack()?;
        self.add(next, pack)
    }

    /// What there is to commit of a proposal whose blocks are here. Until it is added the vault must not change.
    pub(crate) fn prepared(
        &self,
        proposal: &Proposal,
        identity: &Identity,
        time: u64,
    ) -> Result<PreparedVersion, VaultError> {
        let update = &proposal.update;
        // The head may have moved since the proposal was looked at, and what the update names may have been collected.
        if let Some(conflict) = conflict_with(self, update) {
            return Err(conflict.into());
        }
        let next = self.next_version(update)?;
        let signature = proposal.signature.ok_or(VaultError::Signature)?;
        let signed =
            SignedRoot { root: next.root, writer: update.writer, update: update.digest(), signature };
        if !signed.is_signed() {
            return Err(VaultError::Signature);
        }
        if let Some(place) = self.lacking(update).first() {
            return Err(VaultError::Block(update.blocks[*place as usize].hash));
        }
        let certificate = certify(self, &signed, identity, time);
        let version = CommittedVersion { signed, certificate };
        let members = match &update.members {
            Some(signed) => signed.members.clone(),
            None => self.head.as_ref().map(|(_, members)| members.clone()).ok_or(VaultError::Signature)?,
        };
        let (changes, nodes) = changes(self, update, next.nodes, &next.paths);
        let objects = new_objects(self, update, nodes);
        let len: usize = objects.iter().map(|(_, object)| object.len()).sum();
        let (pack, inline) = match len <= INLINE {
            true => (None, objects.into_iter().map(|(_, object)| object.to_vec()).collect()),
            false => (Some(self.objects.new_pack(objects)), Vec::new()),
        };
        Ok(PreparedVersion { version, update: update.clone(), members, changes, pack, inline })
    }

    /// Adds a version whose pack is durable, if it has one.
    pub(crate) fn add(
        &mut self,
        next: PreparedVersion,
        pack: Option<PackList>,
    ) -> Result<Certificate, VaultError> {
        let PreparedVersion { version, update, members, changes, inline, .. } = next;
        let record = LogRecord::Version {
            version: Box::new(version.clone()),
            update: Box::new(update),
            pack,
            changes,
            objects: inline,
        };
        let bytes = record.to_bytes();
        let at = self.log.append(&bytes)?;
        if let LogRecord::Version { update, pack, objects, changes, .. } = &record {
            add_logged(&mut self.objects, at, bytes.len(), objects);
            self.objects.add_changes((at, bytes.len()), changes);
            pack.iter().for_each(|pack| self.objects.add_pack(pack));
            update.blocks.iter().for_each(|block| self.staged.remove(&block.hash));
            let len = update.blocks.iter().map(|block| u64::from(block.stored)).sum();
            self.early = self.early.saturating_sub(len);
        }
        let certificate = version.certificate;
        self.versions.push(VersionPlace { line: line(&version), at, len: bytes.len(), is_gone: false });
        self.head = Some((version, members));
        Ok(certificate)
    }

    /// Keeps the word by which versions may go.
    pub fn drop_versions(&mut self, statement: DropStatement) -> Result<(), VaultError> {
        let Some((_, members)) = &self.head else { return Err(VaultError::Statement) };
        let next = self.statements.last().map_or(0, |last| last.number.saturating_add(1));
        if statement.number != next || !statement.is_valid(members) {
            return Err(VaultError::Statement);
        }
        self.log.append(&LogRecord::Drop(Box::new(statement.clone())).to_bytes())?;
        hide_dropped(&mut self.versions, &statement);
        self.statements.push(statement);
        Ok(())
    }

    /// The words by which versions were dropped, from number `first` on, some of them.
    pub fn statements(&self, first: u64) -> Vec<DropStatement> {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        self.statements.iter().skip(first).take(MAX_STATEMENTS).cloned().collect()
    }

    /// Bytes of all objects, and of the log with those that lie in it.
    pub fn sizes(&self) -> (u64, u64) {
        (self.objects.stored(), self.log.len())
    }

    /// Names of all packs of the vault.
    pub fn packs(&self) -> BTreeSet<Digest> {
        self.objects.packs().iter().copied().collect()
    }
}

/// What is read of a log so far.
struct LogReplay {
    objects: VaultObjects,
    versions: Vec<VersionPlace>,
    head: Option<CommittedVersion>,
    statements: Vec<DropStatement>,
}

impl LogReplay {
    fn new(bytes: Arc<dyn ByteStore>) -> Self {
        Self { objects: VaultObjects::new(bytes), versions: Vec::new(), head: None, statements: Vec::new() }
    }

    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), VaultError> {
        match LogRecord::from_bytes(bytes).map_err(|why| damaged(at, &why))? {
            LogRecord::Pack(pack) => self.objects.add_pack(&pack),
            LogRecord::Objects(objects) => add_logged(&mut self.objects, at, bytes.len(), &objects),
            LogRecord::Version { version, pack, changes, objects, .. } => {
                add_logged(&mut self.objects, at, bytes.len(), &objects);
                self.objects.add_changes((at, bytes.len()), &changes);
                pack.iter().for_each(|pack| self.objects.add_pack(pack));
                self.version(*version, (at, bytes.len()), false)?;
            }
            LogRecord::Gone(version) => self.version(*version, (at, bytes.len()), true)?,
            LogRecord::Drop(statement) => {
                hide_dropped(&mut self.versions, &statement);
                self.statements.push(*statement);
            }
        }
        Ok(())
    }

    fn version(
        &mut self,
        version: CommittedVersion,
        (at, len): (u64, usize),
        is_gone: bool,
    ) -> Result<(), VaultError> {
        if version.signed.root.number != self.versions.len() as u64 {
            let why = format!("version {} is out of order", version.signed.root.number);
            return Err(VaultError::Damaged { at, why });
        }
        self.versions.push(VersionPlace { line: line(&version), at, len, is_gone });
        self.head = Some(version);
        Ok(())
    }
}

/// What stands against an update. An older version is read only where the update is based on one.
fn conflict_with(vault: &Vault, update: &Update) -> Option<Conflict> {
    let head = vault.head().map(|head| &head.signed.root);
    let older = update.base.filter(|base| head.is_some_and(|head| head.number != base.number));
    let base = older.and_then(|base| vault.root(base.number).ok());
    conflict(update, head, base.as_ref().map(|base| &base.signed.root))
}

/// The server's word on a version.
fn certify(vault: &Vault, signed: &SignedRoot, identity: &Identity, time: u64) -> Certificate {
    let previous = vault.head().map_or(Digest::NONE, |head| head.certificate.digest());
    let certificate = Certificate {
        vault: signed.root.vault,
        number: signed.root.number,
        root: signed.root.digest(),
        previous,
        update: signed.update,
        time,
        server: identity.node_id(),
        signature: [0; 64],
    };
    certificate.sign(|message| identity.sign(message))
}

fn check_room(vault: &Vault, update: &Update) -> Result<(), VaultError> {
    let limit = vault.limits.bytes;
    let lacking = update.blocks.iter().filter(|block| vault.objects.len_of(&block.hash).is_none());
    let more: u64 = lacking.map(|block| u64::from(block.stored)).sum();
    match vault.objects.stored().saturating_add(more) > limit {
        true => Err(VaultError::Quota { limit }),
        false => Ok(()),
    }
}

fn flush_long_staged(vault: &mut Vault) -> Result<(), VaultError> {
    let Some(pack) = vault.staged_pack() else { return Ok(()) };
    let pack = pack.write()?;
    vault.add_staged_pack(&pack)
}

/// Objects of a version that are not here yet: nodes, records, blocks that wait.
fn new_objects(vault: &Vault, update: &Update, nodes: Vec<NewNode>) -> Vec<(Digest, Bytes)> {
    let members = update.members.as_ref().map(Canonical::to_bytes);
    let records = members.into_iter().chain(update.keys.clone());
    let records = records.map(|record| (Digest::of(&record), Bytes::from(record)));
    let nodes = nodes.into_iter().map(|node| (node.name, Bytes::from(node.bytes)));
    let staged = |hash: &Digest| vault.staged.get(hash).map(|block| (*hash, block));
    let blocks = update.blocks.iter().filter_map(|block| staged(&block.hash));
    let mut seen = HashSet::new();
    let all = records.chain(nodes).chain(blocks);
    all.filter(|(hash, _)| vault.objects.len_of(hash).is_none() && seen.insert(*hash)).collect()
}

/// New nodes as patches on those of the paths, and the others.
fn changes(
    vault: &Vault,
    update: &Update,
    nodes: Vec<NewNode>,
    paths: &[Bytes],
) -> (Vec<NodeChange>, Vec<NewNode>) {
    let mut seen = HashSet::new();
    let is_new = |node: &NewNode| vault.objects.len_of(&node.name).is_none() && seen.insert(node.name);
    let new = nodes.into_iter().filter(is_new).collect();
    changes_of(new, paths, &update.to_bytes(), |name| vault.objects.depth_of(name))
}

fn line(version: &CommittedVersion) -> VersionLine {
    let CommittedVersion { signed, certificate } = version;
    let Certificate { number, root, time, .. } = *certificate;
    VersionLine { number, root, time, writer: signed.writer }
}

fn add_logged(index: &mut VaultObjects, at: u64, record_len: usize, objects: &[Vec<u8>]) {
    for (object, offset) in objects.iter().zip(object_offsets(record_len, objects)) {
        index.add_logged(&Digest::of(object), at + offset as u64, object.len() as u32);
    }
}

/// Versions that are dropped are not told any more; the newest always is.
fn hide_dropped(versions: &mut [VersionPlace], statement: &DropStatement) {
    let older = versions.len().saturating_sub(1);
    for version in &mut versions[..older] {
        version.is_gone |= statement.covers(version.line.number);
    }
}

/// Blocks that an update names.
fn blocks_of(update: &Update) -> impl Iterator<Item = &BlockRef> {
    update.files.iter().flat_map(|file| &file.actions).flat_map(UpdateAction::blocks)
}

impl From<Conflict> for VaultError {
    fn from(conflict: Conflict) -> Self {
        Self::Update(UpdateError::Conflict(conflict))
    }
}
