//! Garbage: what no version needs that is still told. Only statements make versions go, so only they make garbage.
//!
//! Versions go on being read and written while objects are looked at and the log is written anew beside the old one: each step is short, and
//! looks at the vault as it is then. The last step adds what came meanwhile, and the new log takes the old one's name; only then packs are
//! deleted. So a crash at any point leaves the old vault or the new one, and at worst packs that nothing names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_vault_format::{Canonical, Digest, DroppedRange, TreeNode, VaultRoot};
use towpath_vault_protocol::VaultUsage;

use super::Vault;
use crate::changes::NodeChange;
use crate::error::{VaultError, damaged};
use crate::log::RecordLog;
use crate::packs::{NeedlessPacks, PackRest};
use crate::record::{LogRecord, PackList};

/// Nodes and versions of one step.
const AT_ONCE: usize = 256;
/// Longest time of a step that reads nodes of a slow place: who wants to change the vault waits for it, and others for them.
const STEP: Duration = Duration::from_millis(50);
/// Bytes of objects in one record, and of records in one step.
const RECORD: usize = 4 << 20;

/// Bytes of objects and log before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectedBytes {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// What versions need, as far as was looked.
#[derive(Debug)]
pub struct Survey {
    live: HashSet<Digest>,
    /// Nodes to look at.
    nodes: Vec<Digest>,
    /// Versions to look at, behind them.
    versions: Vec<u64>,
}

/// A collection under way.
#[derive(Debug)]
pub struct Collection {
    survey: Survey,
    /// For each version that was there at the beginning: true if it was dropped.
    gone: Vec<bool>,
    before: u64,
    next: RecordLog,
    /// Bytes of the old log at the beginning. What its versions need was surveyed; of later ones nobody knows it yet, so their records stay
    /// as they are.
    end: u64,
    /// Bytes of the old log whose records were looked at.
    copied: u64,
    /// What stays of a pack of which most goes. It is written between two steps.
    rest: Option<PackRest>,
    /// The same, once it is written.
    written: Option<PackList>,
}

impl Survey {
    /// Of all versions that are told, but for older ones in `dropped`.
    pub fn of(vault: &Vault, dropped: &[DroppedRange]) -> Self {
        let newest = vault.versions.len().saturating_sub(1) as u64;
        let goes = |number: u64| number < newest && dropped.iter().any(|range| range.covers(number));
        let there = vault.versions.iter().filter(|version| !version.is_gone);
        let versions = there.map(|version| version.line.number).filter(|number| !goes(*number)).collect();
        Self { live: HashSet::new(), nodes: Vec::new(), versions }
    }

    /// Looks at some more; true: at all. Nothing may be collected between two steps.
    pub fn step(&mut self, vault: &Vault) -> Result<bool, VaultError> {
        let began = Instant::now();
        for done in 0..AT_ONCE {
            if done > 0 && began.elapsed() > STEP {
                break;
            }
            if let Some(name) = self.nodes.pop() {
                self.look_at(vault, name)?;
            } else if let Some(number) = self.versions.pop() {
                self.add(&vault.root(number)?.signed.root);
            } else {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the vault takes, once all was looked at.
    pub fn usage(&self, vault: &Vault) -> VaultUsage {
        let stored = vault.log.len() + vault.objects.packed();
        VaultUsage { stored, needless: vault.objects.stored_without(&self.live) }
    }

    fn add(&mut self, root: &VaultRoot) {
        self.live.extend([root.members, root.keys]);
        self.nodes.extend(root.files.iter().map(|file| file.top).filter(|top| !top.is_none()));
    }

    fn look_at(&mut self, vault: &Vault, name: Digest) -> Result<(), VaultError> {
        // What is below a node was looked at with it.
        if !self.live.insert(name) {
            return Ok(());
        }
        let bytes = vault.object(&name)?.ok_or(VaultError::Lost(name))?;
        match TreeNode::from_bytes(&bytes).map_err(|_| VaultError::Lost(name))? {
            TreeNode::Inner(_, children) => self.nodes.extend(children.iter().map(|child| child.node)),
            TreeNode::Leaf(tuples) => {
                self.live.extend(tuples.iter().flat_map(|tuple| &tuple.chain).map(|block| block.hash));
            }
        }
        Ok(())
    }
}

impl Vault {
    /// Gives back the space of versions that were dropped. Blocks whose version is under way may go, too: they are sent again.
    pub fn collect(&mut self) -> Result<CollectedBytes, VaultError> {
        let mut collection = Collection::begin(self)?;
        while !collection.step(self)? {
            collection.write_pack()?;
        }
        collection.finish(self)
    }

    fn size(&self) -> u64 {
        let (objects, log) = self.sizes();
        objects + log
    }
}

impl Collection {
    /// Begins.
    pub fn begin(vault: &Vault) -> Result<Self, VaultError> {
        let gone = vault.versions.iter().map(|version| version.is_gone).collect();
        let (survey, next) = (Survey::of(vault, &[]), vault.log.fresh()?);
        let (before, end) = (vault.size(), vault.log.len());
        Ok(Self { survey, gone, before, next, end, copied: 0, rest: None, written: None })
    }

    /// Writes the pack that the last step wanted, if it did. The vault is not needed for it.
    pub fn write_pack(&mut self) -> Result<(), VaultError> {
        if let Some(rest) = self.rest.take() {
            self.written = Some(rest.write()?);
        }
        Ok(())
    }

    /// Goes on; true: what was there has been looked at and copied. Then it is put in the place of the old one, and else [`Self::write_pack`] follows.
    pub fn step(&mut self, vault: &Vault) -> Result<bool, VaultError> {
        if !self.survey.step(vault)? {
            return Ok(false);
        }
        let mut len = 0;
        while len < RECORD {
            let found = vault.log.record_behind(self.copied)?.filter(|(at, _)| *at < self.end);
            let Some((at, record)) = found else { return Ok(true) };
            let behind = at + record.len() as u64;
            len += record.len();
            let record = LogRecord::from_bytes(&record).map_err(|why| damaged(at, &why))?;
            self.rest = self.rest_of(vault, &record).filter(|_| self.written.is_none());
            if self.rest.is_some() {
                return Ok(false);
            }
            self.copied = behind;
            for kept in self.kept(vault, record)? {
                self.next.add(&kept.to_bytes())?;
            }
        }
        Ok(false)
    }

    /// Puts what was kept in the place of all, and deletes the packs that this leaves: for who has the vault alone.
    pub fn finish(self, vault: &mut Vault) -> Result<CollectedBytes, VaultError> {
        let (collected, needless) = self.put_in_place(vault)?;
        needless.delete();
        Ok(collected)
    }

    /// Adds what came meanwhile, and puts the new log in the place of the old one. Nothing else is done with the vault meanwhile, and
    /// nothing is written before the packs that nobody needs any more are deleted.
    pub(crate) fn put_in_place(
        mut self,
        vault: &mut Vault,
    ) -> Result<(CollectedBytes, NeedlessPacks), VaultError> {
        self.copy_late(vault)?;
        // From here on the old log may be none any more. If the new one can't be put there or read, nothing more is taken.
        vault.log.stop();
        let medium = self.next.put_in_place()?;
        let old = vault.packs();
        let again = Vault::open(medium, Arc::clone(vault.objects.bytes()), vault.limits)?;
        let staged = std::mem::take(&mut vault.staged);
        *vault = Vault { staged, ..again };
        let packs = old.difference(&vault.packs()).copied().collect();
        let needless = NeedlessPacks { bytes: Arc::clone(vault.objects.bytes()), packs };
        Ok((CollectedBytes { before: self.before, after: vault.size() }, needless))
    }

    /// Records behind those that were looked at stay as they are. What their versions need of older ones that were not copied comes
    /// with them.
    fn copy_late(&mut self, vault: &Vault) -> Result<(), VaultError> {
        let (mut came, known) = (HashSet::new(), self.survey.live.clone());
        while let Some((at, bytes)) = vault.log.record_behind(self.copied)? {
            self.copied = at + bytes.len() as u64;
            let record = LogRecord::from_bytes(&bytes).map_err(|why| damaged(at, &why))?;
            if let LogRecord::Version { version, .. } = &record {
                self.survey.add(&version.signed.root);
            }
            came.extend(names_in(&record));
            came.extend(changed_nodes(vault, &record)?.iter().map(|node| Digest::of(node)));
            self.next.add(&bytes)?;
        }
        while !self.survey.step(vault)? {}
        let is_here = |name: &&Digest| known.contains(*name) || came.contains(*name);
        let lacking: Vec<_> = self.survey.live.iter().filter(|name| !is_here(name)).copied().collect();
        self.copy_objects(vault, &lacking)
    }

    fn copy_objects(&mut self, vault: &Vault, names: &[Digest]) -> Result<(), VaultError> {
        let (mut objects, mut len) = (Vec::new(), 0);
        for name in names {
            // Of records that no version has had there are none.
            let Some(object) = vault.object(name)? else { continue };
            len += object.len();
            objects.push(object);
            if len > RECORD {
                self.next.add(&LogRecord::Objects(std::mem::take(&mut objects)).to_bytes())?;
                len = 0;
            }
        }
        some_objects(objects).map_or(Ok(()), |record| self.next.add(&record.to_bytes()).map(drop))
    }

    /// What stays of a record.
    fn kept(&mut self, vault: &Vault, record: LogRecord) -> Result<Vec<LogRecord>, VaultError> {
        let written = self.written.take();
        let kept_pack = |pack| self.kept_pack(pack, written);
        let living = |objects: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            objects.into_iter().filter(|object| self.survey.live.contains(&Digest::of(object))).collect()
        };
        Ok(match record {
            LogRecord::Pack(pack) => kept_pack(pack).map(LogRecord::Pack).into_iter().collect(),
            LogRecord::Objects(objects) => some_objects(living(objects)).into_iter().collect(),
            LogRecord::Version { version, update, pack, changes, objects } => {
                let pack = pack.and_then(kept_pack);
                let is_gone = self.gone.get(version.signed.root.number as usize) == Some(&true);
                let (changes, made) = self.kept_changes(vault, changes, is_gone)?;
                let mut objects = living(objects);
                objects.extend(made);
                match is_gone {
                    true => {
                        let rest = pack.map(LogRecord::Pack).into_iter().chain(some_objects(objects));
                        rest.chain([LogRecord::Gone(version)]).collect()
                    }
                    false => vec![LogRecord::Version { version, update, pack, changes, objects }],
                }
            }
            record @ (LogRecord::Drop(_) | LogRecord::Gone(_)) => vec![record],
        })
    }

    /// Of changed nodes those that are still patches on nodes that stay, and those that are whole from now on.
    fn kept_changes(
        &self,
        vault: &Vault,
        changes: Vec<NodeChange>,
        is_gone: bool,
    ) -> Result<(Vec<NodeChange>, Vec<Vec<u8>>), VaultError> {
        let (mut kept, mut whole) = (Vec::new(), Vec::new());
        for change in changes {
            // All that is alive was read before; what can't be made is not.
            let Some(node) = vault.objects.read_named(&vault.log, &change.name)? else { continue };
            if !self.survey.live.contains(&Digest::of(&node)) {
                continue;
            }
            let base = vault.objects.read_named(&vault.log, &change.base)?;
            match base.is_some_and(|base| self.survey.live.contains(&Digest::of(&base))) && !is_gone {
                true => kept.push(change),
                false => whole.push(node),
            }
        }
        Ok((kept, whole))
    }

    /// What stays of a record's pack, if that is less than half of it and something.
    fn rest_of(&self, vault: &Vault, record: &LogRecord) -> Option<PackRest> {
        let (LogRecord::Pack(pack) | LogRecord::Version { pack: Some(pack), .. }) = record else {
            return None;
        };
        let is_live = |name: &Digest| self.survey.live.contains(name);
        let (living, all) = self.living(pack);
        (living > 0 && 2 * living < all).then(|| PackRest::of(vault.objects.bytes(), pack, is_live))
    }

    /// A pack that is half alive stays; in the place of one that is less comes its rest, which is `written`.
    fn kept_pack(&self, pack: PackList, written: Option<PackList>) -> Option<PackList> {
        let (living, all) = self.living(&pack);
        if 2 * living >= all && living > 0 { Some(pack) } else { written }
    }

    /// Bytes of a pack that versions need, and of all of it.
    fn living(&self, pack: &PackList) -> (u64, u64) {
        let all = pack.objects.iter().map(|(_, len)| u64::from(*len)).sum();
        let living = pack.objects.iter().filter(|(name, _)| self.survey.live.contains(name));
        (living.map(|(_, len)| u64::from(*len)).sum(), all)
    }
}

/// The nodes that a record has as patches.
fn changed_nodes(vault: &Vault, record: &LogRecord) -> Result<Vec<Vec<u8>>, VaultError> {
    let LogRecord::Version { changes, .. } = record else { return Ok(Vec::new()) };
    let nodes = changes.iter().map(|change| vault.objects.read_named(&vault.log, &change.name));
    nodes.filter_map(Result::transpose).collect()
}

/// Objects that come with a record, whole.
fn names_in(record: &LogRecord) -> Vec<Digest> {
    let (pack, objects) = match record {
        LogRecord::Pack(pack) => (Some(pack), &[][..]),
        LogRecord::Version { pack, objects, .. } => (pack.as_ref(), &objects[..]),
        LogRecord::Objects(objects) => (None, &objects[..]),
        LogRecord::Drop(_) | LogRecord::Gone(_) => (None, &[][..]),
    };
    let packed = pack.into_iter().flat_map(|pack| &pack.objects).map(|(name, _)| *name);
    packed.chain(objects.iter().map(|object| Digest::of(object))).collect()
}

fn some_objects(objects: Vec<Vec<u8>>) -> Option<LogRecord> {
    (!objects.is_empty()).then_some(LogRecord::Objects(objects))
}

impl RecordLog {
    /// An empty log beside this one.
    fn fresh(&self) -> Result<Self, VaultError> {
        self.check()?;
        Ok(Self::over(self.medium().fresh().map_err(VaultError::Log)?))
    }

    /// Makes all records durable, and takes the place of the log that this one is beside.
    fn put_in_place(self) -> Result<Box<dyn crate::log::LogMedium>, VaultError> {
        let mut medium = self.into_medium();
        medium.sync().and_then(|()| medium.put_in_place()).map_err(VaultError::Log)
    }
}
