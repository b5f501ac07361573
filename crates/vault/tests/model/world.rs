//! Machines of one vault, what they do, and what must come of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;
use towpath_vault::Zeroizing;
use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::format::NodeId;
use towpath_vault::garbage::collect;
use towpath_vault::head::TrustedNodes;
use towpath_vault::keys::{PassphraseCost, Unlock, VaultKeys, WrappedKeys};
use towpath_vault::local::LocalVault;
use towpath_vault::put::PutOptions;
use towpath_vault::share::MemberRole;

use crate::served::{Lie, Lying, Served, memory_folder};

/// Names that entries have: of files, and of a tree.
const NAMES: [&str; 3] = ["notes", "list", "tree"];
/// The name that who overtakes others puts.
const FASTER: &str = "faster";
/// Machines of the owner, and behind them those of other members.
const MACHINES: usize = 5;
pub const OWNERS: usize = 3;

/// Files of an entry by their paths; a single file's path is empty.
pub(crate) type Content = BTreeMap<String, Vec<u8>>;

/// An entry of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelEntry {
    content: Content,
    /// The version that put it.
    put: u64,
}

/// Entries of a version by name.
pub(crate) type ModelVersion = BTreeMap<String, ModelEntry>;

/// What happened in all.
#[derive(Debug, Default)]
pub struct Tally {
    /// Versions that were committed.
    pub committed: usize,
    /// Entries that were restored and were the same.
    pub restored: usize,
    /// Operations whose fault was named.
    pub named: usize,
    /// Lies that changed nothing for who was told them.
    pub harmless: usize,
    /// Puts that would have written over somebody's work.
    pub conflicts: usize,
    /// Puts that somebody overtook.
    pub overtaken: usize,
    /// Puts while which somebody dropped versions.
    pub dropped_meanwhile: usize,
    /// Collections between what clients asked.
    pub collected: usize,
    /// Versions that were dropped.
    pub dropped: usize,
    /// Operations of who may not do them, which were refused.
    pub refused: usize,
}

impl Tally {
    /// Adds another story's.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.restored += other.restored;
        self.named += other.named;
        self.harmless += other.harmless;
        self.conflicts += other.conflicts;
        self.overtaken += other.overtaken;
        self.dropped_meanwhile += other.dropped_meanwhile;
        self.collected += other.collected;
        self.dropped += other.dropped;
        self.refused += other.refused;
    }
}

/// What somebody else did while a put was under way.
#[derive(Debug, Default)]
struct Meanwhile {
    /// The version that was put as [`FASTER`], and its content.
    put: Option<(usize, Content)>,
    /// Versions were dropped.
    has_dropped: bool,
}

/// A machine.
pub(crate) struct Machine {
    folder: TempDir,
    keys: VaultKeys,
    pub(crate) role: Option<MemberRole>,
    /// What is on its disk, by name.
    files: BTreeMap<String, Content>,
    /// For each name the version whose content was put or got here.
    seen: BTreeMap<String, u64>,
    /// Names that were put here while the newest version was hidden: an offer was noted in the place of one whose answer was
    /// lost, so a put may be refused once more than it must.
    unsure: BTreeSet<String>,
    /// For each name its last put: it may write over that although it looked at an older version since, as the newest one was hidden.
    own: BTreeMap<String, u64>,
    /// The newest version it knows of.
    pub(crate) newest: u64,
}

/// All of it.
pub struct World {
    seed: u64,
    step: usize,
    pub(crate) random: fastrand::Rng,
    pub(crate) served: Rc<RefCell<Served>>,
    keys: VaultKeys,
    trusted: TrustedNodes,
    pub(crate) machines: Vec<Machine>,
    /// What each version has.
    pub(crate) versions: Vec<ModelVersion>,
    /// The oldest version that was not dropped.
    pub(crate) oldest: usize,
    /// What the server is about to say that is not true.
    lie: Lie,
    pub(crate) tally: Tally,
}

impl Machine {
    fn new(keys: &VaultKeys, role: Option<MemberRole>) -> Self {
        let (files, seen, unsure, own) = Default::default();
        Self { folder: memory_folder(), keys: keys.clone(), role, files, seen, unsure, own, newest: 0 }
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.role == Some(MemberRole::Owner)
    }

    pub(crate) fn node(&self) -> NodeId {
        self.keys.node().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn local(&self) -> LocalVault {
        LocalVault::open(&self.path(".vaults"), &self.keys.vault).unwrap()
    }
}

fn write(path: &Path, content: &Content) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    for (file, bytes) in content {
        let path = if file.is_empty() { path.to_owned() } else { path.join(file) };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    if content.is_empty() {
        fs::create_dir_all(path).unwrap();
    }
}

fn read(path: &Path) -> Content {
    if path.is_file() {
        return [(String::new(), fs::read(path).unwrap())].into();
    }
    let mut content = Content::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        content.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    }
    content
}

impl World {
    /// A vault with its version 0.
    pub fn new(seed: u64) -> Self {
        let served = Rc::new(RefCell::new(Served::new()));
        let keys = VaultKeys::generate().unwrap();
        let unlock = Unlock::KeyFile(Zeroizing::new(vec![1; 32]));
        let wrapped = WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default()).unwrap();
        served.borrow_mut().collect_between(seed);
        let server = served.borrow().node();
        let trusted = TrustedNodes { vault: keys.vault, owner: keys.owner, server };
        let machines: Vec<_> = (0..MACHINES)
            .map(|machine| match machine < OWNERS {
                true => Machine::new(&keys, Some(MemberRole::Owner)),
                false => Machine::new(&VaultKeys::of_member(keys.vault, keys.owner).unwrap(), None),
            })
            .collect();
        let way = Box::new(Lying::new(&served, Lie::None, 0));
        let local = machines[0].local();
        VaultClient::create(local, keys.clone(), &wrapped, way, trusted, Vec::new()).unwrap();
        let (random, versions, tally) =
            (fastrand::Rng::with_seed(seed), vec![BTreeMap::new()], Tally::default());
        let (step, oldest, lie) = (0, 0, Lie::None);
        Self { seed, step, random, served, keys, trusted, machines, versions, oldest, lie, tally }
    }

    pub(crate) fn told(&self) -> String {
        format!("seed {}, step {}", self.seed, self.step)
    }

    /// One thing happens.
    pub fn step(&mut self) {
        self.step += 1;
        let machine = self.random.usize(..MACHINES);
        let name = NAMES[self.random.usize(..NAMES.len())];
        match self.random.u8(..20) {
            _ if self.machines[machine].role.is_none() => self.stranger(machine, name),
            0..=6 | 11 if self.machines[machine].role == Some(MemberRole::Reader) => {
                self.only_reads(machine, name)
            }
            0..=6 => self.put(machine, name),
            7..=9 => self.get(machine, name),
            10 => self.restore(machine),
            11 => self.forget(machine, name),
            12 => self.served.borrow_mut().start_again(),
            13 => self.lose(machine),
            14 => self.begin_anew(machine),
            15 => self.drop_versions(machine),
            16..=18 => self.change_members(machine),
            _ => self.check(machine),
        }
        assert_eq!(self.served.borrow_mut().newest() as usize + 1, self.versions.len(), "{}", self.told());
    }

    /// A way to the server on which a lie may be told.
    pub(crate) fn way(&mut self) -> (Lying, Lie, Rc<Cell<bool>>) {
        let lie = match self.random.bool() {
            true => Lie::None,
            false => Lie::ALL[self.random.usize(..Lie::ALL.len())],
        };
        self.lie = lie;
        let way = Lying::new(&self.served, lie, self.random.u32(..4));
        let has_lied = way.has_lied();
        (way, lie, has_lied)
    }

    pub(crate) fn open(&self, machine: usize, way: Lying) -> Result<VaultClient, VaultClientError> {
        let here = &self.machines[machine];
        let way = way.of(here.node());
        VaultClient::open(here.local(), here.keys.clone(), Box::new(way), self.trusted)
    }

    /// A machine lost everything but its keys.
    fn begin_anew(&mut self, machine: usize) {
        let Machine { keys, role, .. } = &self.machines[machine];
        self.machines[machine] = Machine::new(keys, *role);
    }

    /// Something is changed, as a person would.
    pub(crate) fn edit(&mut self, machine: usize, name: &str) -> Content {
        let mut content = self.machines[machine].files.get(name).cloned().unwrap_or_default();
        let random = &mut self.random;
        if name == "tree" {
            match random.u8(..4) {
                0 => drop(content.pop_first()),
                1 => {
                    if let Some((_, bytes)) = content.pop_last() {
                        content.insert(format!("moved {}", random.u8(..5)), bytes);
                    }
                }
                _ => {
                    let file = format!("file {}", random.u8(..6));
                    edited(random, content.entry(file).or_default());
                }
            }
        } else {
            edited(random, content.entry(String::new()).or_default());
        }
        write(&self.machines[machine].path(name), &content);
        self.machines[machine].files.insert(name.to_owned(), content.clone());
        content
    }

    fn put(&mut self, machine: usize, name: &str) {
        let content = match self.random.u8(..5) {
            0 if self.machines[machine].files.contains_key(name) => {
                self.machines[machine].files[name].clone()
            }
            _ => self.edit(machine, name),
        };
        let overwrite = self.random.u8(..4) == 0;
        let (here, put) = (&self.machines[machine], self.versions.last().unwrap().get(name).map(|it| it.put));
        let is_stale = put.is_some() && put != here.seen.get(name).copied();
        let is_own = put == here.own.get(name).copied();
        let (mut way, lie, has_lied) = self.way();
        let meanwhile = Rc::<RefCell<Meanwhile>>::default();
        if self.random.u8(..3) == 0 {
            let overtaking = self.overtaking(&meanwhile);
            way = match self.random.u8(..3) {
                0 => way.overtaken(overtaking),
                _ => way.overtaken_at(self.random.u32(..12), overtaking),
            };
        }
        let path = self.machines[machine].path(name);
        let options =
            PutOptions { overwrite, patches: self.random.bool(), checksum: self.random.u8(..8) == 0 };
        let put = self
            .open(machine, way)
            .and_then(|mut vault| vault.put(&path, name.as_bytes(), &options, &mut |_| ()));
        let (newest, is_done, is_overtaken) = self.note_put(name, &content, meanwhile.take());
        let told = format!("{}: machine {machine} puts {name}, {lie:?}: {put:?}", self.told());
        let is_hidden = has_lied.get() && lie == Lie::OldHead;
        if is_hidden {
            self.machines[machine].unsure.insert(name.to_owned());
        }
        // Who gets no answer knows its own work again, and has not seen the version that has it.
        let is_answered = put.is_ok();
        match put {
            Ok(outcome) if lie == Lie::Claimed && has_lied.get() => {
                assert!(outcome.is_new && !is_done, "{told}");
                return self.assert_found_out(machine, &told);
            }
            Ok(outcome) if !outcome.is_new && (outcome.number as usize) < newest => {
                // As far as this machine was shown, its content is the newest.
                let there = &self.versions[outcome.number as usize][name];
                let behind = newest - outcome.number as usize;
                let may_be = usize::from(is_hidden) + usize::from(is_overtaken);
                assert!(behind <= may_be && there.content == content, "{told}");
                // Who puts what is there has seen it.
                let put = there.put;
                self.machines[machine].seen.insert(name.to_owned(), put);
                return self.note_looked(machine, true);
            }
            Ok(outcome) => {
                assert_eq!((outcome.is_new, outcome.number as usize), (is_done, newest), "{told}");
                assert!(overwrite || is_own || !is_stale, "{told}");
                assert_eq!(self.versions[newest][name].content, content, "{told}");
            }
            Err(VaultClientError::Conflict { .. }) => {
                let may_be_refused = is_stale || self.machines[machine].unsure.contains(name);
                assert!(may_be_refused && !overwrite && !is_done, "{told}");
                self.tally.conflicts += 1;
                return;
            }
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.assert_named(&error, &told);
                self.tally.named += 1;
                if !is_done {
                    return;
                }
            }
        }
        let put = self.versions[newest][name].put;
        self.machines[machine].seen.insert(name.to_owned(), put);
        self.machines[machine].own.insert(name.to_owned(), put);
        if is_answered {
            self.machines[machine].unsure.remove(name);
            self.tally.harmless += usize::from(has_lied.get());
            self.machines[machine].newest = newest as u64;
        }
    }

    /// What became of a put and of what others did meanwhile: the version that it may have made, whether it did, and whether somebody else put something.
    fn note_put(&mut self, name: &str, content: &Content, meanwhile: Meanwhile) -> (usize, bool, bool) {
        let mut faster = meanwhile.put;
        let is_overtaken = faster.is_some();
        let newest = self.served.borrow_mut().newest() as usize;
        let is_done = newest + 1 - self.versions.len() > usize::from(is_overtaken);
        let mut made = newest;
        while self.versions.len() <= newest {
            match faster.take_if(|(number, _)| *number == self.versions.len()) {
                Some((_, content)) => self.committed(FASTER, content),
                None => {
                    made = self.versions.len();
                    self.committed(name, content.clone());
                }
            }
        }
        self.tally.overtaken += usize::from(is_overtaken);
        self.tally.dropped_meanwhile += usize::from(meanwhile.has_dropped);
        let oldest = self.served.borrow_mut().oldest() as usize;
        self.tally.dropped += oldest - std::mem::replace(&mut self.oldest, oldest);
        (made, is_done, is_overtaken)
    }

    /// Somebody puts something else while a put is under way, or drops old versions, or both.
    fn overtaking(&mut self, meanwhile: &Rc<RefCell<Meanwhile>>) -> Box<dyn FnOnce()> {
        let (served, keys, trusted) = (Rc::clone(&self.served), self.keys.clone(), self.trusted);
        let (meanwhile, seed) = (Rc::clone(meanwhile), self.random.u64(..));
        let (puts, keeps) = [(true, None), (false, Some(self.random.u64(1..12)))][self.random.usize(..2)];
        Box::new(move || {
            let machine = Machine::new(&keys, Some(MemberRole::Owner));
            let way = Box::new(Lying::new(&served, Lie::None, 0));
            let mut vault = VaultClient::open(machine.local(), keys, way, trusted).unwrap();
            if puts {
                let content: Content = [(String::new(), seed.to_le_bytes().repeat(50))].into();
                write(&machine.path(FASTER), &content);
                let options = PutOptions { overwrite: true, ..PutOptions::default() };
                let put = vault.put(&machine.path(FASTER), FASTER.as_bytes(), &options, &mut |_| ()).unwrap();
                assert!(put.is_new);
                meanwhile.borrow_mut().put = Some((put.number as usize, content));
            }
            if let Some(keep) = keeps {
                collect(&mut vault, keep).unwrap();
                meanwhile.borrow_mut().has_dropped = true;
            }
        })
    }

    fn committed(&mut self, name: &str, content: Content) {
        let (mut version, put) = (self.versions.last().unwrap().clone(), self.versions.len() as u64);
        version.insert(name.to_owned(), ModelEntry { content, put });
        self.versions.push(version);
        self.tally.committed += 1;
    }

    /// A machine that was told of a version that is not there finds out at its next look. A person then begins anew there.
    pub(crate) fn assert_found_out(&mut self, machine: usize, told: &str) {
        let way = Lying::new(&self.served, Lie::None, 0);
        match self.open(machine, way).err() {
            Some(error @ VaultClientError::Head(_)) => self.assert_named(&error, told),
            other => panic!("{told}: then {other:?}"),
        }
        self.tally.named += 1;
        self.begin_anew(machine);
    }

    /// A fault of the server's is said to be one.
    pub(crate) fn assert_named(&self, error: &VaultClientError, told: &str) {
        let is_named = matches!(
            error,
            VaultClientError::Head(_)
                | VaultClientError::Server(_)
                | VaultClientError::NoVersion { .. }
                | VaultClientError::Hidden { .. }
                | VaultClientError::Unconfirmed(_)
        );
        // By an older version a member has the rights of then.
        let is_of_then = self.lie == Lie::OldHead
            && matches!(error, VaultClientError::Share(_) | VaultClientError::ReadOnly);
        assert!(is_named || is_of_then, "{told}");
    }

    fn get(&mut self, machine: usize, name: &str) {
        let (way, lie, has_lied) = self.way();
        let path = self.machines[machine].path("got");
        let got = self
            .open(machine, way)
            .and_then(|mut vault| vault.get(name.as_bytes(), None, &path, false, &mut |_| ()));
        let told = format!("{}: machine {machine} gets {name}, {lie:?}: {got:?}", self.told());
        let newest = self.versions.len() - 1;
        let number = match got {
            Ok(outcome) => outcome.number as usize,
            Err(VaultClientError::NoEntry { number, .. }) => {
                assert!(!self.versions[number as usize].contains_key(name), "{told}");
                number as usize
            }
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.tally.named += 1;
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
                return self.assert_named(&error, &told);
            }
        };
        // A server may hide versions from who has not seen them.
        let is_hidden = has_lied.get() && lie == Lie::OldHead;
        assert!(number == newest || is_hidden && number as u64 >= self.machines[machine].newest, "{told}");
        self.tally.harmless += usize::from(has_lied.get());
        self.machines[machine].newest = number as u64;
        let Some(entry) = self.versions[number].get(name).cloned() else { return };
        assert!(read(&path) == entry.content, "{told}");
        self.tally.restored += 1;
        let mine = self.machines[machine].path(name);
        write(&path, &Content::from([(String::new(), Vec::new())]));
        fs::remove_file(&path).unwrap();
        write(&mine, &entry.content);
        let here = &mut self.machines[machine];
        here.files.insert(name.to_owned(), entry.content);
        here.seen.insert(name.to_owned(), entry.put);
        here.unsure.remove(name);
    }

    /// Any entry of any version, as a machine knows the vault.
    fn restore(&mut self, machine: usize) {
        let number = self.random.usize(..self.versions.len());
        let Some((name, entry)) = self.versions[number].iter().next_back() else { return };
        let (name, entry) = (name.clone(), entry.clone());
        let (way, lie, has_lied) = self.way();
        let path = self.machines[machine].path("restored");
        let got = self
            .open(machine, way)
            .and_then(|mut vault| vault.get(name.as_bytes(), Some(number as u64), &path, false, &mut |_| ()));
        let told =
            format!("{}: machine {machine} restores {name} of {number}, {lie:?}: {got:?}", self.told());
        match got {
            Err(VaultClientError::NoVersion { .. }) if number < self.oldest && !has_lied.get() => {
                self.note_looked(machine, false);
            }
            Ok(outcome) => {
                assert_eq!(outcome.number as usize, number, "{told}");
                // Who was not told yet that it was dropped may have all of it here.
                assert!(number >= self.oldest || has_lied.get(), "{told}");
                assert!(read(&path) == entry.content, "{told}");
                self.tally.restored += 1;
                let is_hidden = has_lied.get() && lie == Lie::OldHead;
                // What it takes for the newest version is what its person works on.
                if number + 1 + usize::from(is_hidden) == self.versions.len() {
                    self.machines[machine].seen.insert(name, entry.put);
                }
                self.note_looked(machine, is_hidden);
            }
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.tally.named += 1;
                self.assert_named(&error, &told);
            }
        }
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }

    /// A machine has looked at the vault; it knows the newest version unless that was hidden.
    pub(crate) fn note_looked(&mut self, machine: usize, is_hidden: bool) {
        let newest = self.versions.len() as u64 - 1;
        let here = &mut self.machines[machine];
        here.newest = if is_hidden { here.newest.max(newest.saturating_sub(1)) } else { newest };
    }

    fn forget(&mut self, machine: usize, name: &str) {
        let (way, lie, has_lied) = self.way();
        let forgotten = self.open(machine, way).and_then(|mut vault| vault.forget(name.as_bytes()));
        let newest = self.served.borrow_mut().newest() as usize;
        let is_done = newest + 1 > self.versions.len();
        let told = format!("{}: machine {machine} forgets {name}, {lie:?}: {forgotten:?}", self.told());
        let is_there = self.versions.last().unwrap().contains_key(name);
        if is_done {
            let mut version = self.versions.last().unwrap().clone();
            assert!(version.remove(name).is_some(), "{told}");
            self.versions.push(version);
            self.tally.committed += 1;
        }
        match forgotten {
            Ok(_) if lie == Lie::Claimed && has_lied.get() => return self.assert_found_out(machine, &told),
            Ok(number) => assert!(is_done && number as usize == newest, "{told}"),
            Err(VaultClientError::NoEntry { .. }) => {
                assert!(!is_there || has_lied.get() && lie == Lie::OldHead, "{told}");
                return self.note_looked(machine, has_lied.get() && lie == Lie::OldHead);
            }
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.tally.named += 1;
                return self.assert_named(&error, &told);
            }
        }
        self.machines[machine].newest = newest as u64;
    }

    /// Soft state of a machine is lost or damaged.
    fn lose(&mut self, machine: usize) {
        let vault = self.keys.vault.to_string();
        let folder = self.machines[machine].path(".vaults").join(vault);
        for part in ["summaries", "nodes", "blocks"] {
            let files =
                fs::read_dir(folder.join(part)).into_iter().flatten().map(|entry| entry.unwrap().path());
            for file in files.collect::<Vec<_>>() {
                match self.random.u8(..4) {
                    0 => fs::remove_file(file).unwrap(),
                    1 => {
                        let mut bytes = fs::read(&file).unwrap();
                        bytes.truncate(self.random.usize(..=bytes.len()));
                        if let Some(place) = bytes.len().checked_sub(1).map(|last| self.random.usize(..=last))
                        {
                            bytes[place] ^= 1 << self.random.u8(..8);
                        }
                        fs::write(file, bytes).unwrap();
                    }
                    _ => {}
                }
            }
        }
    }

    fn check(&mut self, machine: usize) {
        let (way, lie, has_lied) = self.way();
        let all = self.random.bool();
        let checked = self.open(machine, way).and_then(|mut vault| vault.check(None, all, &mut |_| ()));
        let told = format!("{}: machine {machine} checks, {lie:?}: {checked:?}", self.told());
        match checked {
            Ok(outcome) => {
                assert!(outcome.faults.is_empty() || has_lied.get(), "{told}");
                outcome.faults.iter().for_each(|fault| self.assert_named(&fault.error, &told));
                self.tally.named += usize::from(!outcome.faults.is_empty());
                self.note_looked(machine, has_lied.get() && lie == Lie::OldHead);
            }
            Err(error) => {
                assert!(has_lied.get(), "{told}");
                self.tally.named += 1;
                self.assert_named(&error, &told);
            }
        }
    }

    /// A machine that never saw the vault gets all of all versions.
    pub fn end(mut self) -> Tally {
        self.tally.collected = self.served.borrow().collected;
        self.served.borrow_mut().start_again();
        self.machines.push(Machine::new(&self.keys, Some(MemberRole::Owner)));
        let machine = self.machines.len() - 1;
        let mut vault = self.open(machine, Lying::new(&self.served, Lie::None, 0)).unwrap();
        let told = format!("the end of seed {}", self.seed);
        let checked = vault.check(None, true, &mut |_| ()).unwrap();
        let kept = self.versions.len() - self.oldest;
        assert_eq!((checked.versions as usize, checked.faults.len()), (kept, 0), "{told}");
        for (number, version) in self.versions.iter().enumerate().skip(self.oldest) {
            let root = vault.root(Some(number as u64)).unwrap();
            let entries = vault.catalogue(&root).unwrap().entries;
            let names: Vec<_> = entries.into_keys().map(|name| String::from_utf8(name).unwrap()).collect();
            assert!(names.iter().eq(version.keys()), "{told}");
            for (name, entry) in version.iter().filter(|(_, entry)| entry.put == number as u64) {
                let path = self.machines[machine].path(&format!("{number} {name}"));
                vault.get(name.as_bytes(), Some(number as u64), &path, false, &mut |_| ()).unwrap();
                assert!(read(&path) == entry.content, "{told}: {name} of {number}");
                self.tally.restored += 1;
            }
        }
        self.tally
    }
}

/// Bytes go, come or change somewhere.
fn edited(random: &mut fastrand::Rng, content: &mut Vec<u8>) {
    if random.u8(..12) == 0 {
        return content.clear();
    }
    let at = random.usize(..=content.len());
    let gone = random.usize(..=(content.len() - at).min(5000));
    // What the most bring is a pack at the server.
    let most = match random.u8(..24) {
        0 => 500_000,
        _ => [20, 3000, 40_000][random.usize(..3)],
    };
    let new: Vec<u8> = (0..random.usize(..most)).map(|_| random.u8(..)).collect();
    content.splice(at..at + gone, new);
    content.truncate(600_000);
}
