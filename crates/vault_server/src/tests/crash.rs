//! A crash at each write: what was acknowledged is there, whole, and the vault goes on.

use std::io;
use std::sync::{Arc, Mutex};

use towpath_byte_store::doubles::{ByteCall, FailingBytes};
use towpath_byte_store::{ByteStore, ByteStoreError, LocalFiles, PlaceOwner};
use towpath_link::Identity;
use towpath_vault_format::doubles::TestKey;
use towpath_vault_format::{Canonical, DropStatement, DroppedRange, VaultRoot};

use super::writer::{SignedUpdate, TestWriter, VAULT, commit, content_of};
use crate::error::VaultError;
use crate::log::LogMedium;
use crate::vault::{Vault, VaultLimits};

/// Writes of all places are counted together; at one of them the power goes.
#[derive(Debug, Clone)]
struct Power(Arc<Mutex<(usize, fastrand::Rng)>>);

impl Power {
    /// True while there is some; each call is a write.
    fn is_on(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        state.0 = state.0.saturating_sub(1);
        state.0 > 0
    }

    fn is_gone(&self) -> bool {
        self.0.lock().unwrap().0 == 0
    }

    fn random(&self, below: usize) -> usize {
        self.0.lock().unwrap().1.usize(0..=below)
    }
}

/// A disk that loses what was not synced, or some of it.
#[derive(Debug, Clone)]
struct CrashingDisk {
    power: Power,
    /// Bytes, and how many of them are durable.
    state: Arc<Mutex<DiskState>>,
    /// What has the log's name.
    named: Arc<Mutex<Arc<Mutex<DiskState>>>>,
}

type DiskState = (Vec<u8>, usize);

fn off<T>() -> io::Result<T> {
    Err(io::Error::other("no power"))
}

impl CrashingDisk {
    fn new(power: Power, state: DiskState) -> Self {
        let state = Arc::new(Mutex::new(state));
        Self { power, named: Arc::new(Mutex::new(Arc::clone(&state))), state }
    }

    /// The same disk after a start: with some of the bytes that were not synced, which may be wrong.
    fn after_crash(&self, power: Power) -> Self {
        let (bytes, durable) = self.named.lock().unwrap().lock().unwrap().clone();
        let more = power.random(bytes.len() - durable);
        let mut left = bytes[..durable + more].to_vec();
        if power.random(1) == 0 {
            left[durable..].fill(0);
        }
        let len = left.len();
        Self::new(power, (left, len))
    }
}

impl LogMedium for CrashingDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap().0.len() as u64)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        let found = state.0.get(at as usize..at as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let was_on = !self.power.is_gone();
        let is_on = self.power.is_on();
        let fit = if is_on { bytes.len() } else { self.power.random(bytes.len()) };
        if was_on {
            self.state.lock().unwrap().0.extend_from_slice(&bytes[..fit]);
        }
        if is_on { Ok(()) } else { off() }
    }

    fn sync(&mut self) -> io::Result<()> {
        if !self.power.is_on() {
            return off();
        }
        let mut state = self.state.lock().unwrap();
        state.1 = state.0.len();
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        if !self.power.is_on() {
            return off();
        }
        let mut state = self.state.lock().unwrap();
        state.0.truncate(len as usize);
        state.1 = state.0.len();
        Ok(())
    }

    fn fresh(&self) -> io::Result<Box<dyn LogMedium>> {
        Ok(Box::new(Self { state: Arc::default(), ..self.clone() }))
    }

    fn put_in_place(self: Box<Self>) -> io::Result<Box<dyn LogMedium>> {
        let was_on = !self.power.is_gone();
        let is_on = self.power.is_on();
        // A name may be given though nobody is told.
        if is_on || (was_on && self.power.random(1) == 0) {
            *self.named.lock().unwrap() = Arc::clone(&self.state);
        }
        if is_on { Ok(self) } else { off() }
    }
}

/// What happens: small versions in records, one with a pack, one whose blocks are packs of their own.
fn steps(writer: &mut TestWriter, step: usize) -> SignedUpdate {
    let middle = writer.content.len() / 3;
    match step {
        0 => writer.creation(),
        4 => writer.insertion(middle, &[200_000, 90_000, 10]),
        6 => writer.insertion(middle, &[1 << 20; 9]),
        _ => writer.insertion(middle, &[1000 + step, 10]),
    }
}

const STEPS: usize = 8;
/// The step before which versions are dropped and collected, and the first that stays.
const COLLECT: usize = 7;
const DROPPED: u64 = 5;

fn drop_and_collect(vault: &mut Vault) -> Result<(), VaultError> {
    let deleter = TestKey::new(50);
    let dropped = vec![DroppedRange { first: 0, last: DROPPED - 1 }];
    let statement =
        DropStatement { vault: VAULT, number: 0, dropped, deleter: deleter.node(), signature: [0; 64] };
    vault.drop_versions(statement.sign(|message| deleter.sign(message)))?;
    let collected = vault.collect()?;
    // Versions here only insert, so blocks and nodes stay; nodes that were patches on what goes are whole from then on.
    assert!(collected.after < collected.before + 2000, "{collected:?}");
    Ok(())
}

struct Crashed {
    acknowledged: Vec<(VaultRoot, Vec<u8>)>,
    writer: TestWriter,
    under_way: Option<SignedUpdate>,
    /// Versions may be dropped.
    may_be_dropped: bool,
}

fn run(vault: &mut Vault, server: &Identity) -> Crashed {
    let (mut writer, mut acknowledged, mut may_be_dropped) = (TestWriter::new(1), Vec::new(), false);
    writer.members.deleter = Some(TestKey::new(50).node());
    for step in 0..STEPS {
        if step == COLLECT {
            may_be_dropped = true;
            if drop_and_collect(vault).is_err() {
                return Crashed { acknowledged, writer, under_way: None, may_be_dropped };
            }
        }
        let version = steps(&mut writer, step);
        match commit(vault, &version, server) {
            Ok(certificate) => {
                assert_eq!(certificate.root, version.root.digest());
                acknowledged.push((version.root.clone(), version.content.clone()));
                writer.committed(version);
            }
            Err(_) => return Crashed { acknowledged, writer, under_way: Some(version), may_be_dropped },
        }
    }
    Crashed { acknowledged, writer, under_way: None, may_be_dropped }
}

/// True if the power went before the end.
fn crash_at(write: usize, server: &Identity) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let files: Arc<dyn ByteStore> = Arc::new(LocalFiles::new(&folder.path().join("packs")));
    files.claim(&PlaceOwner([1; 16]), true).unwrap();
    let power = Power(Arc::new(Mutex::new((write, fastrand::Rng::with_seed(write as u64)))));
    let for_packs = power.clone();
    let faults = move |call| {
        let fails = call == ByteCall::Put && !for_packs.is_on();
        fails.then(|| ByteStoreError::Unreachable { place: "packs".into(), why: "no power".into() })
    };
    let bytes = Arc::new(FailingBytes::new(Arc::clone(&files), Box::new(faults)));
    let disk = CrashingDisk::new(power.clone(), DiskState::default());
    let mut vault = Vault::open(Box::new(disk.clone()), bytes, VaultLimits::default()).unwrap();
    let Crashed { acknowledged, mut writer, under_way, may_be_dropped } = run(&mut vault, server);
    drop(vault);

    let fresh = Power(Arc::new(Mutex::new((usize::MAX, fastrand::Rng::with_seed(write as u64)))));
    let again = disk.after_crash(fresh);
    let mut vault = Vault::open(Box::new(again), files, VaultLimits::default()).unwrap();
    let there = vault.versions(u64::MAX, 1000).len();
    let are_dropped = may_be_dropped && vault.update(0).is_err();
    let dropped = if are_dropped { DROPPED as usize } else { 0 };
    for (root, content) in &acknowledged[dropped..] {
        let (version, update) = (vault.root(root.number).unwrap(), vault.update(root.number).unwrap());
        assert_eq!((&version.signed.root, version.signed.update), (root, update.digest()), "write {write}");
        assert!(content_of(&vault, root) == *content, "content of {} after write {write}", root.number);
    }
    let there = there + dropped;
    // The version under way may be there, too: nobody was told, and it is whole.
    assert!((acknowledged.len()..=acknowledged.len() + 1).contains(&there), "write {write}");
    if let Some(version) = under_way {
        if there > acknowledged.len() {
            assert_eq!(vault.head().unwrap().signed.root, version.root);
            assert!(content_of(&vault, &version.root) == version.content);
        } else {
            commit(&mut vault, &version, server).unwrap();
        }
        writer.committed(version);
    }
    let version = writer.insertion(0, &[77]);
    commit(&mut vault, &version, server).unwrap();
    assert!(content_of(&vault, &version.root) == version.content);
    power.is_gone()
}

#[test]
fn what_was_acknowledged_survives_a_crash_at_each_write() {
    let server = Identity::generate().unwrap();
    let crashes = (1..500).take_while(|write| crash_at(*write, &server)).count();
    assert!((15..400).contains(&crashes), "{crashes} writes");
}

#[test]
fn a_disk_without_room_refuses_one_version_and_keeps_all_others() {
    let server = Identity::generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files: Arc<dyn ByteStore> = Arc::new(LocalFiles::new(&folder.path().join("packs")));
    files.claim(&PlaceOwner([1; 16]), true).unwrap();
    let is_full = Arc::new(Mutex::new(false));
    let full = Arc::clone(&is_full);
    let faults = move |call| {
        let fails = call == ByteCall::Put && *full.lock().unwrap();
        fails.then(|| ByteStoreError::Full { place: "packs".into(), why: "no space".into() })
    };
    let bytes = Arc::new(FailingBytes::new(files, Box::new(faults)));
    let power = Power(Arc::new(Mutex::new((usize::MAX, fastrand::Rng::with_seed(1)))));
    let disk = CrashingDisk::new(power, DiskState::default());
    let mut vault = Vault::open(Box::new(disk), bytes, VaultLimits::default()).unwrap();
    let mut writer = TestWriter::new(1);
    for version in 0..2 {
        let version = steps(&mut writer, version);
        commit(&mut vault, &version, &server).unwrap();
        writer.committed(version);
    }
    let large = writer.insertion(0, &[300_000]);
    *is_full.lock().unwrap() = true;
    let error = commit(&mut vault, &large, &server).unwrap_err();
    assert_eq!(error.told().0, towpath_vault_protocol::VaultRefusal::Full);
    assert_eq!(vault.head().unwrap().signed.root.number, 1);
    *is_full.lock().unwrap() = false;
    commit(&mut vault, &large, &server).unwrap();
    assert!(content_of(&vault, &large.root) == large.content);
}

#[test]
fn a_vault_has_no_more_bytes_than_it_may() {
    let server = Identity::generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = Arc::new(LocalFiles::new(&folder.path().join("packs")));
    files.claim(&PlaceOwner([1; 16]), true).unwrap();
    let power = Power(Arc::new(Mutex::new((usize::MAX, fastrand::Rng::with_seed(1)))));
    let disk = CrashingDisk::new(power, DiskState::default());
    let mut vault = Vault::open(Box::new(disk), files, VaultLimits { bytes: 100_000 }).unwrap();
    let mut writer = TestWriter::new(1);
    let first = writer.creation();
    commit(&mut vault, &first, &server).unwrap();
    writer.committed(first);
    let large = writer.insertion(0, &[60_000, 50_000]);
    assert!(matches!(commit(&mut vault, &large, &server), Err(VaultError::Quota { limit: 100_000 })));
    let small = writer.insertion(0, &[60_000]);
    commit(&mut vault, &small, &server).unwrap();
}
