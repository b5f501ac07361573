//! Garbage: what no version needs that is still told. Only statements make versions go, so only they make garbage.
//!
//! The log is written anew beside the old one and takes its name; only then packs are deleted. So a crash at any point leaves the
//! old vault or the new one, and at worst packs that nothing names.

use std::collections::HashSet;
use std::sync::Arc;

use towpath_byte_store::ByteName;
use towpath_vault_format::{Canonical, Digest, DroppedRange, TreeNode, VaultRoot};
use towpath_vault_protocol::VaultUsage;

use super::{Vault, VersionPlace};
use crate::error::{VaultError, damaged};
use crate::log::RecordLog;
use crate::record::{LogRecord, PackList};

/// Bytes of objects and log before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectedBytes {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

impl Vault {
    /// Gives back the space of versions that were dropped. Blocks whose version is under way may go, too: they are sent again.
    pub fn collect(&mut self) -> Result<CollectedBytes, VaultError> {
        let (before, live) = (self.size(), self.live(&[])?);
        let mut next = self.log.fresh()?;
        self.log.replay(|at, record| {
            let record = LogRecord::from_bytes(record).map_err(|why| damaged(at, &why))?;
            self.kept(record, &live)?.iter().try_for_each(|record| next.add(&record.to_bytes()).map(drop))
        })?;
        // From here on the old log may be none any more. If the new one can't be put there or read, nothing more is taken.
        self.log.stop();
        let medium = next.put_in_place()?;
        let old = self.packs();
        let again = Self::open(medium, Arc::clone(self.objects.bytes()), self.limits)?;
        *self = Self { staged: std::mem::take(&mut self.staged), staged_len: self.staged_len, ..again };
        self.delete_packs(old.difference(&self.packs()));
        Ok(CollectedBytes { before, after: self.size() })
    }

    fn size(&self) -> u64 {
        let (objects, log) = self.sizes();
        objects + log
    }

    /// What the vault takes, and what of it no version needs, but for those in `dropped` that are not the newest.
    pub fn usage(&self, dropped: &[DroppedRange]) -> Result<VaultUsage, VaultError> {
        let needless = self.objects.stored_without(&self.live(dropped)?);
        Ok(VaultUsage { stored: self.log.len() + self.objects.packed(), needless })
    }

    /// Hashes of all that versions name which are told, but for older ones in `dropped`.
    fn live(&self, dropped: &[DroppedRange]) -> Result<HashSet<Digest>, VaultError> {
        let mut live = HashSet::new();
        let newest = self.versions.len().saturating_sub(1) as u64;
        let goes = |number| number < newest && dropped.iter().any(|range| range.covers(number));
        let stays = |version: &&VersionPlace| !version.is_gone && !goes(version.line.number);
        for version in self.versions.iter().filter(stays) {
            let version = self.root(version.line.number)?;
            self.mark(&version.signed.root, &mut live)?;
        }
        Ok(live)
    }

    fn mark(&self, root: &VaultRoot, live: &mut HashSet<Digest>) -> Result<(), VaultError> {
        live.extend([root.members, root.keys]);
        let tops = root.files.iter().map(|file| file.top).filter(|top| !top.is_none());
        let mut left: Vec<Digest> = tops.collect();
        while let Some(name) = left.pop() {
            // What is below a node was looked at with it.
            if !live.insert(name) {
                continue;
            }
            match self.node(name)? {
                TreeNode::Inner(_, children) => left.extend(children.iter().map(|child| child.node)),
                TreeNode::Leaf(tuples) => {
                    live.extend(tuples.iter().flat_map(|tuple| &tuple.chain).map(|block| block.hash));
                }
            }
        }
        Ok(())
    }

    fn node(&self, name: Digest) -> Result<TreeNode, VaultError> {
        let bytes = self.object(&name)?.ok_or(VaultError::Lost(name))?;
        TreeNode::from_bytes(&bytes).map_err(|_| VaultError::Lost(name))
    }

    /// What stays of a record.
    fn kept(&self, record: LogRecord, live: &HashSet<Digest>) -> Result<Vec<LogRecord>, VaultError> {
        let living = |objects: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            objects.into_iter().filter(|object| live.contains(&Digest::of(object))).collect()
        };
        Ok(match record {
            LogRecord::Pack(pack) => self.kept_pack(pack, live)?.map(LogRecord::Pack).into_iter().collect(),
            LogRecord::Objects(objects) => some_objects(living(objects)).into_iter().collect(),
            LogRecord::Version { version, update, pack, objects } => {
                let pack = pack.map(|pack| self.kept_pack(pack, live)).transpose()?.flatten();
                let objects = living(objects);
                match self.is_gone(version.signed.root.number) {
                    false => vec![LogRecord::Version { version, update, pack, objects }],
                    true => {
                        let rest = pack.map(LogRecord::Pack).into_iter().chain(some_objects(objects));
                        rest.chain([LogRecord::Gone(version)]).collect()
                    }
                }
            }
            record @ (LogRecord::Drop(_) | LogRecord::Gone(_)) => vec![record],
        })
    }

    fn is_gone(&self, number: u64) -> bool {
        self.versions.get(number as usize).is_some_and(|version| version.is_gone)
    }

    /// A pack that is half alive stays; of one that is less the rest is written anew.
    fn kept_pack(&self, pack: PackList, live: &HashSet<Digest>) -> Result<Option<PackList>, VaultError> {
        let len = |objects: &[(Digest, u32)]| objects.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
        let living: Vec<_> = pack.objects.iter().filter(|(hash, _)| live.contains(hash)).copied().collect();
        if living.is_empty() {
            return Ok(None);
        }
        if 2 * len(&living) >= len(&pack.objects) {
            return Ok(Some(pack));
        }
        let read = |(hash, _): &(Digest, u32)| {
            let object = self.object(hash)?.ok_or(VaultError::Lost(*hash))?;
            Ok((*hash, object))
        };
        let objects: Vec<_> = living.iter().map(read).collect::<Result<_, VaultError>>()?;
        self.objects.write_pack(&objects).map(Some)
    }

    /// What can't be deleted costs space and nothing else.
    fn delete_packs<'a>(&self, packs: impl Iterator<Item = &'a Digest>) {
        for pack in packs {
            if let Err(error) = self.objects.bytes().delete(&ByteName(pack.0)) {
                tracing::warn!(%error, "a pack can't be deleted");
            }
        }
    }
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
