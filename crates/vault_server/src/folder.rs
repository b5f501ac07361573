//! The vaults of a folder: each is opened once for all who use it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use towpath_byte_store::{ByteStore, PlaceOwner};
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_vault_format::{Certificate, Digest, DroppedRange, VaultId};
use towpath_vault_protocol::{Proposal, VaultUsage};

use crate::changing::{ChangeResult, ChangingThread};
use crate::error::VaultError;
use crate::log::LogFile;
use crate::vault::{CollectedBytes, Collection, Survey, Vault, VaultLimits};

/// File with the number of the store that packs belong to.
const OWNER: &str = "owner";

/// Who may make vaults, and how much one takes.
#[derive(Debug, Clone, Default)]
pub struct VaultRules {
    /// Nodes that may make vaults.
    pub makers: BTreeSet<NodeId>,
    /// Everybody may.
    pub public: bool,
    /// Of each vault.
    pub limits: VaultLimits,
    /// Nothing is taken, whoever brings it: what is there is a copy of another server's. Default: false.
    pub read_only: bool,
}

/// A vault that is in use. Readers look at it at once; who changes it has it alone, and only for as long as no pack is read or written.
#[derive(Debug)]
pub(crate) struct OpenVault {
    id: VaultId,
    vault: RwLock<Vault>,
    /// Held by who changes it, from the first look until the last change: nothing else is changed meanwhile.
    turn: Mutex<()>,
    /// Held while objects are looked at: nothing else is collected meanwhile.
    survey: Mutex<()>,
    changing: ChangingThread,
}

/// The vaults of a folder.
pub struct VaultFolder {
    folder: PathBuf,
    bytes: Arc<dyn ByteStore>,
    identity: Identity,
    rules: VaultRules,
    open: Mutex<HashMap<VaultId, Arc<OpenVault>>>,
}

impl VaultFolder {
    /// The vaults in `folder`, which is made if it is not there; packs go to `bytes`.
    pub fn open(
        folder: &Path,
        bytes: Arc<dyn ByteStore>,
        identity: Identity,
        rules: VaultRules,
    ) -> Result<Arc<Self>, VaultError> {
        let failed = |source| VaultError::System { what: "the folder of the vaults", source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let (owner, is_new) = owner(folder).map_err(failed)?;
        bytes.claim(&owner, is_new)?;
        let open = Mutex::default();
        Ok(Arc::new(Self { folder: folder.to_owned(), bytes, identity, rules, open }))
    }

    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// True if `node` may make vaults.
    pub(crate) fn may_make(&self, node: &NodeId) -> bool {
        self.rules.public || self.rules.makers.contains(node)
    }

    /// Fails if nothing is changed here.
    pub(crate) const fn check_changes(&self) -> Result<(), VaultError> {
        match self.rules.read_only {
            true => Err(VaultError::NotAllowed(
                "this is a copy that only hands out what it has; put on the vault's server",
            )),
            false => Ok(()),
        }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// A vault, opened once for all. One that is not made yet has no log before its first version comes.
    pub(crate) fn vault(&self, id: VaultId) -> Result<Arc<OpenVault>, VaultError> {
        let mut open = lock(&self.open);
        if let Some(vault) = open.get(&id) {
            return Ok(Arc::clone(vault));
        }
        // Those that nobody uses make room; what waits of their blocks can be sent again.
        // Their logs are closed before one of them is opened again.
        open.retain(|_, vault| Arc::strong_count(vault) > 1);
        let medium = LogFile::at(&self.folder.join(format!("{id}.log"))).map_err(VaultError::Log)?;
        let vault = Vault::open(Box::new(medium), Arc::clone(&self.bytes), self.rules.limits)?;
        let failed = |source| VaultError::System { what: "a thread for the vault", source };
        let changing = ChangingThread::start().map_err(failed)?;
        let (vault, turn, survey) = (RwLock::new(vault), Mutex::default(), Mutex::default());
        let vault = Arc::new(OpenVault { id, vault, turn, survey, changing });
        open.insert(id, Arc::clone(&vault));
        Ok(vault)
    }
}

impl fmt::Debug for VaultFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultFolder").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl OpenVault {
    /// Its name.
    pub(crate) const fn id(&self) -> VaultId {
        self.id
    }

    /// Has something done after all changes of the vault that came before, and before those that come.
    pub(crate) async fn in_turn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, VaultError> + Send + 'static,
    ) -> ChangeResult<T> {
        let vault = Arc::clone(self);
        self.changing.begin(move || work(&vault)).await
    }

    pub(crate) fn read<T>(
        &self,
        look: impl FnOnce(&Vault) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        let vault = self.vault.read().map_err(|_| VaultError::LogFailed)?;
        look(&vault)
    }

    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Vault) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        let _turn = lock(&self.turn);
        self.alone(change)
    }

    /// A change, or the last step of one, of who has the turn.
    fn alone<T>(&self, change: impl FnOnce(&mut Vault) -> Result<T, VaultError>) -> Result<T, VaultError> {
        let mut vault = self.vault.write().map_err(|_| VaultError::LogFailed)?;
        change(&mut vault)
    }

    /// Keeps blocks whose version is under way: those that `stage` gives to the vault.
    pub(crate) fn keep(
        &self,
        stage: impl FnOnce(&mut Vault) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let _turn = lock(&self.turn);
        // The last time it failed: else memory grows while the disk is full.
        self.pack_staged()?;
        self.alone(stage)?;
        self.pack_staged()
    }

    /// Writes blocks that wait as a pack, if they are many.
    fn pack_staged(&self) -> Result<(), VaultError> {
        let Some(pack) = self.read(|vault| Ok(vault.staged_pack()))? else { return Ok(()) };
        let pack = pack.write()?;
        self.alone(|vault| vault.add_staged_pack(&pack))
    }

    /// Commits a proposal whose blocks are here.
    pub(crate) fn commit(
        &self,
        proposal: &Proposal,
        identity: &Identity,
        time: u64,
    ) -> Result<Certificate, VaultError> {
        let _turn = lock(&self.turn);
        let next = self.read(|vault| vault.prepared(proposal, identity, time))?;
        let pack = next.write_pack()?;
        self.alone(|vault| vault.add(next, pack))
    }

    /// The first of these objects, for `reader`: some bytes of them, or one; `None` for each that is not here.
    pub(crate) fn some_objects(
        &self,
        reader: &NodeId,
        names: &[Digest],
    ) -> Result<Vec<Option<Bytes>>, VaultError> {
        let run = self.read(|vault| vault.check_reader(reader).map(|()| vault.packed_run(names)))?;
        if let Some(objects) = run.map(|run| run.read(names)).transpose()?.flatten() {
            return Ok(objects.into_iter().map(Some).collect());
        }
        // They lie in the log, or some are wrong, or their pack went meanwhile.
        self.read(|vault| vault.check_reader(reader).and_then(|()| vault.some_objects(names)))
    }

    /// What the vault takes, and would not without the older versions in `dropped`.
    pub(crate) fn usage(&self, dropped: &[DroppedRange]) -> Result<VaultUsage, VaultError> {
        let _alone = lock(&self.survey);
        let mut survey = self.read(|vault| Ok(Survey::of(vault, dropped)))?;
        while !self.read(|vault| survey.step(vault))? {}
        self.read(|vault| Ok(survey.usage(vault)))
    }

    /// Collects garbage, while others read and write.
    pub(crate) fn collect(&self) -> Result<CollectedBytes, VaultError> {
        let _alone = lock(&self.survey);
        let mut collection = self.read(Collection::begin)?;
        while !self.read(|vault| collection.step(vault))? {
            collection.write_pack()?;
        }
        // Who wrote a pack of the same name before they are deleted would lose it.
        let _turn = lock(&self.turn);
        let (collected, needless) = self.alone(|vault| collection.put_in_place(vault))?;
        needless.delete();
        Ok(collected)
    }
}

/// The number of the store that packs belong to, drawn once; true: just now, or its packs were not claimed yet.
fn owner(folder: &Path) -> io::Result<(PlaceOwner, bool)> {
    let path = folder.join(OWNER);
    let read = match std::fs::read_to_string(&path) {
        Ok(text) => PlaceOwner::parse(text.trim_end()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let drawn = PlaceOwner(std::array::from_fn(|_| fastrand::u8(..)));
            let under_way = folder.join(".owner");
            let mut file = File::create(&under_way)?;
            writeln!(file, "{drawn}")?;
            file.sync_all()?;
            std::fs::rename(&under_way, &path)?;
            File::open(folder)?.sync_all()?;
            Some(drawn)
        }
        Err(error) => return Err(error),
    };
    let owner = read.ok_or_else(|| io::Error::other("the file 'owner' is damaged"))?;
    let has_logs = std::fs::read_dir(folder)?
        .filter_map(Result::ok)
        .any(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    Ok((owner, !has_logs))
}
