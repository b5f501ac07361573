//! A real server's vault in a folder, as its clients reach it. It may be started again at any time, and may lie.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use towpath_byte_store::{ByteStore, LocalFiles, PlaceOwner};
use towpath_vault::Identity;
use towpath_vault::format::{
    Certificate, Digest, DropStatement, DroppedRange, NodeId, SignedRoot, Update, UpdateError, VaultRoot,
};
use towpath_vault::server::{RemoteVault, ServerError};
use towpath_vault_protocol::{CommittedVersion, Proposal, ProposalVerdict, VaultUsage};
use towpath_vault_server::vault::{Collection, Survey};
use towpath_vault_server::{LogFile, Vault, VaultError, VaultLimits};

/// A vault that is served.
pub struct Served {
    folder: tempfile::TempDir,
    vault: Option<Vault>,
    identity: Identity,
    now: u64,
    /// Objects that were asked for.
    pub asked: usize,
    /// Versions that were.
    pub asked_versions: usize,
    /// Updates whose paths were.
    pub asked_paths: usize,
    /// The most versions that were on their way at once.
    pub most_begun: usize,
    /// Chooses when garbage is collected between what clients ask; none: when they ask for that.
    chance: Option<fastrand::Rng>,
    /// Garbage that is being collected; true: all was looked at.
    collection: Option<(Collection, bool)>,
    /// Collections that ended.
    pub collected: usize,
}

/// How a server does not do what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It does.
    None,
    /// An older version is the newest.
    OldHead,
    /// There is no such vault.
    NoHead,
    /// The newest version's root has another's content.
    ForgedHead,
    /// An object is not there.
    LostObject,
    /// An object is cut short.
    CutObject,
    /// Another object comes.
    OtherObject,
    /// A version is not there.
    LostVersion,
    /// Another version comes.
    OtherVersion,
    /// A version is said to be dropped that is not.
    Unlisted,
    /// The connection breaks before a commit.
    Broken,
    /// The connection breaks before the answer to a commit: it is done.
    Unanswered,
    /// A commit is certified and not done.
    Claimed,
    /// A commit is done and answered with the certificate of the version before.
    OldCertificate,
}

impl Lie {
    /// All but the truth.
    pub const ALL: [Self; 13] = [
        Self::OldHead,
        Self::NoHead,
        Self::ForgedHead,
        Self::LostObject,
        Self::CutObject,
        Self::OtherObject,
        Self::LostVersion,
        Self::OtherVersion,
        Self::Unlisted,
        Self::Broken,
        Self::Unanswered,
        Self::Claimed,
        Self::OldCertificate,
    ];
}

impl Served {
    /// A vault that is not made yet.
    pub fn new() -> Self {
        let folder = memory_folder();
        let identity = Identity::generate().unwrap();
        LocalFiles::new(&folder.path().join("packs")).claim(&PlaceOwner([1; 16]), true).unwrap();
        let mut served = Self {
            folder,
            vault: None,
            identity,
            now: 1,
            asked: 0,
            asked_versions: 0,
            asked_paths: 0,
            most_begun: 0,
            chance: None,
            collection: None,
            collected: 0,
        };
        served.start_again();
        served
    }

    /// It ends, as it may at any time, and reads its log again.
    pub fn start_again(&mut self) {
        (self.vault, self.collection) = (None, None);
        let log = LogFile::at(&self.folder.path().join("vault.log")).unwrap();
        let packs = Arc::new(LocalFiles::new(&self.folder.path().join("packs")));
        self.vault = Some(Vault::open(Box::new(log), packs, VaultLimits::default()).unwrap());
    }

    /// Garbage is collected in steps from now on, while clients do what they do.
    pub fn collect_between(&mut self, seed: u64) {
        self.chance = Some(fastrand::Rng::with_seed(seed));
    }

    /// Between two things that clients ask, a collection may begin, take a step, or end.
    fn between(&mut self) {
        let (Some(chance), Some(vault)) = (&mut self.chance, &mut self.vault) else { return };
        match self.collection.take() {
            None if chance.u8(..8) == 0 && vault.head().is_some() => {
                self.collection = Some((Collection::begin(vault).unwrap(), false));
            }
            Some((collection, true)) if chance.bool() => {
                collection.finish(vault).unwrap();
                self.collected += 1;
            }
            Some((mut collection, false)) if chance.bool() => {
                let is_done = collection.step(vault).unwrap();
                if chance.bool() {
                    collection.write_pack().unwrap();
                }
                self.collection = Some((collection, is_done));
            }
            as_it_was => self.collection = as_it_was,
        }
    }

    /// All garbage is collected at once, unless it is in steps anyway.
    fn collect(&mut self) -> Result<(), VaultError> {
        match (&self.chance, &self.collection) {
            (None, _) => self.vault().collect().map(drop),
            (Some(_), Some(_)) => Ok(()),
            (Some(_), None) => {
                self.collection = Some((Collection::begin(self.vault())?, false));
                Ok(())
            }
        }
    }

    /// Its node.
    pub fn node(&self) -> NodeId {
        self.identity.node_id()
    }

    fn vault(&mut self) -> &mut Vault {
        self.vault.as_mut().unwrap()
    }

    /// Packs that it has.
    pub fn packs(&self) -> Vec<PathBuf> {
        let (mut folders, mut packs) = (vec![self.folder.path().join("packs")], Vec::new());
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.file_name().unwrap().len() == 64 => packs.push(path),
                    false => {}
                }
            }
        }
        packs
    }

    /// Number of the newest version.
    pub fn newest(&mut self) -> u64 {
        self.vault().head().unwrap().signed.root.number
    }

    /// Number of the oldest version that was not dropped.
    pub fn oldest(&mut self) -> u64 {
        self.vault().versions(u64::MAX, u64::MAX).last().unwrap().number
    }

    /// Number of blocks that the newest version brought.
    pub fn new_blocks(&mut self) -> usize {
        let newest = self.newest();
        self.vault().update(newest).unwrap().blocks.len()
    }

    fn commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut dyn FnMut(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Option<Certificate>, ServerError> {
        let refused = |error: VaultError| ServerError::Refused(error.to_string());
        let proposal = Proposal { update: update.clone(), signature: Some(signed.signature) };
        let lacking = match self.vault().judge(&proposal) {
            ProposalVerdict::Possible { lacking, .. } => lacking,
            ProposalVerdict::Conflict(..) => return Ok(None),
            ProposalVerdict::Refused(_, why) => return Err(ServerError::Refused(why)),
        };
        for place in lacking {
            self.between();
            let hash = update.blocks[place as usize].hash;
            let bytes = block(&hash).expect("a client has the blocks that it offers");
            self.vault().keep(hash, bytes.into()).map_err(refused)?;
        }
        self.between();
        self.now += 1;
        let (identity, now) = (self.identity.clone(), self.now);
        match self.vault().commit(&proposal, &identity, now) {
            Ok(certificate) => Ok(Some(certificate)),
            // Blocks that were here when it was judged may be collected since, as the server has it.
            Err(VaultError::Update(UpdateError::Conflict(_)) | VaultError::Block(_)) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// The server's word on what it never kept.
    fn certified(&self, signed: &SignedRoot) -> Certificate {
        let VaultRoot { vault, number, .. } = signed.root;
        let (root, update, server) = (digest_of(&signed.root), signed.update, self.node());
        let (previous, time, signature) = (Digest::NONE, self.now, [0; 64]);
        let word = Certificate { vault, number, root, previous, update, time, server, signature };
        word.sign(|message| self.identity.sign(message))
    }
}

/// A folder on a disk in memory, if there is one: each version is made durable several times.
pub fn memory_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}

fn digest_of(root: &VaultRoot) -> Digest {
    use towpath_vault::format::Canonical;
    root.digest()
}

/// What happens before something that a client asks goes on: somebody else is faster.
pub type Overtaking = Box<dyn FnOnce()>;

/// A client's way to the server, which lies once.
pub struct Lying {
    served: Rc<RefCell<Served>>,
    /// Who is on it; none: the vault's maker.
    node: Option<NodeId>,
    lie: Lie,
    /// Answers that are true before the lie.
    truths: u32,
    /// Set when it has lied.
    has_lied: Rc<Cell<bool>>,
    overtaking: Option<Overtaking>,
    /// Questions before that; none: it waits for the commit.
    overtaken_at: Option<u32>,
    /// Versions that were offered and have no answer yet, and the answers.
    begun: usize,
    answers: VecDeque<Option<Certificate>>,
}

impl Lying {
    /// A way on which `lie` is told, after so many answers that could be lies and are not.
    pub fn new(served: &Rc<RefCell<Served>>, lie: Lie, truths: u32) -> Self {
        let (served, has_lied) = (Rc::clone(served), Rc::default());
        let (begun, answers) = (0, VecDeque::new());
        let (overtaking, overtaken_at) = (None, None);
        Self { served, node: None, lie, truths, has_lied, overtaking, overtaken_at, begun, answers }
    }

    /// The way of this member.
    pub fn of(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// A server looks at each message who it is from.
    fn check(&self) -> Result<(), ServerError> {
        let Some(node) = self.node else { return Ok(()) };
        let allowed = self.served.borrow_mut().vault().check_reader(&node);
        allowed.map_err(|error| ServerError::Refused(error.to_string()))
    }

    /// Somebody is faster.
    pub fn overtaken(mut self, overtaking: Overtaking) -> Self {
        self.overtaking = Some(overtaking);
        self
    }

    /// Somebody is faster, after so many questions.
    pub fn overtaken_at(mut self, questions: u32, overtaking: Overtaking) -> Self {
        (self.overtaking, self.overtaken_at) = (Some(overtaking), Some(questions));
        self
    }

    /// Before each thing that is asked: what others do meanwhile.
    fn meanwhile(&mut self) {
        if let Some(questions) = &mut self.overtaken_at {
            match questions.checked_sub(1) {
                Some(left) => *questions = left,
                None => self.overtaking.take().into_iter().for_each(|overtaking| overtaking()),
            }
        }
        self.served.borrow_mut().between();
    }

    /// True once it has lied.
    pub fn has_lied(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.has_lied)
    }

    fn lies(&mut self, lies: &[Lie]) -> bool {
        if !lies.contains(&self.lie) || self.has_lied.get() {
            return false;
        }
        let is_now = self.truths == 0;
        self.truths = self.truths.saturating_sub(1);
        self.has_lied.set(is_now);
        is_now
    }
}

impl RemoteVault for Lying {
    fn head(&mut self) -> Result<Option<CommittedVersion>, ServerError> {
        self.meanwhile();
        self.check()?;
        let head = self.served.borrow_mut().vault().head().cloned();
        if self.lies(&[Lie::NoHead]) {
            return Ok(None);
        }
        let Some(mut head) = head else { return Ok(None) };
        let number = head.signed.root.number;
        if number > 0 && self.lies(&[Lie::OldHead]) {
            let older = self.served.borrow_mut().vault().root(number - 1).unwrap();
            return Ok(Some(older));
        }
        if head.signed.root.files.len() > 1 && self.lies(&[Lie::ForgedHead]) {
            let [one, other] = [head.signed.root.files[0], head.signed.root.files[1]];
            head.signed.root.files[0] = towpath_vault::format::FileRoot { file: one.file, ..other };
            head.signed.root.files[1] = towpath_vault::format::FileRoot { file: other.file, ..one };
            head.certificate = self.served.borrow().certified(&head.signed);
        }
        Ok(Some(head))
    }

    fn kept(&mut self, before: u64, most: u64) -> Result<Vec<u64>, ServerError> {
        self.meanwhile();
        let told = self.served.borrow_mut().vault().versions(before, most);
        let mut told: Vec<u64> = told.iter().map(|line| line.number).collect();
        if told.len() > 1 && self.lies(&[Lie::Unlisted]) {
            told.remove(1);
        }
        Ok(told)
    }

    fn versions(&mut self, numbers: &[u64]) -> Result<Vec<Option<CommittedVersion>>, ServerError> {
        self.meanwhile();
        let mut told = Vec::new();
        self.served.borrow_mut().asked_versions += numbers.len();
        for number in numbers {
            let asked = match *number > 0 && self.lies(&[Lie::OtherVersion]) {
                true => number - 1,
                false => *number,
            };
            let version = self.served.borrow_mut().vault().root(asked).ok();
            told.push(version.filter(|_| !self.lies(&[Lie::LostVersion])));
        }
        Ok(told)
    }

    fn update(&mut self, number: u64) -> Result<Option<Bytes>, ServerError> {
        self.meanwhile();
        let asked = match number > 0 && self.lies(&[Lie::OtherVersion]) {
            true => number - 1,
            false => number,
        };
        let update = self.served.borrow_mut().vault().packed_update(asked).ok();
        Ok(update.filter(|_| !self.lies(&[Lie::LostVersion])))
    }

    fn objects(&mut self, names: &[Digest]) -> Result<Vec<Option<Vec<u8>>>, ServerError> {
        self.meanwhile();
        let mut told: Vec<Option<Vec<u8>>> = Vec::new();
        self.served.borrow_mut().asked += names.len();
        for name in names {
            let object = match self.served.borrow_mut().vault().object(name) {
                // As the server says it.
                Err(VaultError::Lost(_) | VaultError::Packs(_)) => None,
                object => object.unwrap(),
            };
            let Some(object) = object.filter(|_| !self.lies(&[Lie::LostObject])) else {
                told.push(None);
                continue;
            };
            told.push(Some(match self.lies(&[Lie::CutObject, Lie::OtherObject]) {
                false => object,
                true if self.lie == Lie::CutObject => object[..object.len() - 1].to_vec(),
                true => told.last().cloned().flatten().unwrap_or_default(),
            }));
        }
        Ok(told)
    }

    fn usage(&mut self, dropped: &[DroppedRange]) -> Result<VaultUsage, ServerError> {
        self.meanwhile();
        let refused = |error: VaultError| ServerError::Refused(error.to_string());
        let mut served = self.served.borrow_mut();
        let vault = served.vault();
        let mut needed = Survey::of(vault, dropped);
        while !needed.step(vault).map_err(refused)? {}
        Ok(needed.usage(vault))
    }

    fn statements(&mut self, first: u64) -> Result<Vec<DropStatement>, ServerError> {
        self.meanwhile();
        Ok(self.served.borrow_mut().vault().statements(first))
    }

    fn drop_versions(&mut self, statement: &DropStatement) -> Result<(), ServerError> {
        self.meanwhile();
        let refused = |error: VaultError| ServerError::Refused(error.to_string());
        let mut served = self.served.borrow_mut();
        served.vault().drop_versions(statement.clone()).map_err(refused)?;
        served.collect().map_err(refused)
    }

    fn paths(&mut self, update: &Update) -> Result<Option<Vec<Vec<u8>>>, ServerError> {
        self.meanwhile();
        let proposal = Proposal { update: update.clone(), signature: None };
        let verdict = self.served.borrow_mut().vault().judge(&proposal);
        let nodes = match verdict {
            ProposalVerdict::Possible { paths, .. } => paths.unwrap_or_default(),
            ProposalVerdict::Conflict(..) => return Ok(None),
            ProposalVerdict::Refused(_, why) => return Err(ServerError::Refused(why)),
        };
        self.served.borrow_mut().asked_paths += 1;
        let (is_lost, is_cut) = (self.lies(&[Lie::LostObject]), self.lies(&[Lie::CutObject]));
        let told =
            nodes.iter().filter(|_| !is_lost).map(|node| node[..node.len() - usize::from(is_cut)].to_vec());
        Ok(Some(told.collect()))
    }

    fn commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<Option<Certificate>, ServerError> {
        let broken = || ServerError::Unreachable("the server hung up".into());
        match self.overtaken_at {
            None => self.overtaking.take().into_iter().for_each(|overtaking| overtaking()),
            Some(_) => self.meanwhile(),
        }
        if self.lies(&[Lie::Broken]) {
            return Err(broken());
        }
        if self.lies(&[Lie::Claimed]) {
            return Ok(Some(self.served.borrow().certified(signed)));
        }
        let before = self.served.borrow_mut().vault().head().map(|head| head.certificate);
        let committed = self.served.borrow_mut().commit(update, signed, block)?;
        match committed {
            Some(_) if self.lies(&[Lie::Unanswered]) => Err(broken()),
            Some(_) if before.is_some() && self.lies(&[Lie::OldCertificate]) => Ok(before),
            committed => Ok(committed),
        }
    }

    fn begin_commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<(), ServerError> {
        self.begun += 1;
        let most = self.served.borrow().most_begun.max(self.begun);
        self.served.borrow_mut().most_begun = most;
        let answer = self.commit(update, signed, block)?;
        self.answers.push_back(answer);
        Ok(())
    }

    fn next_commit(&mut self) -> Result<Option<Certificate>, ServerError> {
        self.begun -= 1;
        Ok(self.answers.pop_front().expect("a version that was offered"))
    }
}
