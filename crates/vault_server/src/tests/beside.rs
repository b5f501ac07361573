//! A bucket that takes its time: nobody waits for a pack but who wrote or asked for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use towpath_byte_store::LocalFiles;
use towpath_byte_store::doubles::{ByteCall, FailingBytes};
use towpath_link::Identity;
use towpath_vault_format::Digest;
use towpath_vault_format::doubles::TestKey;
use towpath_vault_protocol::{CommitAnswer, VaultConnection};

use super::collecting::{shortened, statement};
use super::conversation::{Place, commit, object};
use super::writer::{SignedUpdate, TestWriter, VAULT};
use crate::folder::VaultRules;

/// Who waits so long waits for the pack.
const LONG: Duration = Duration::from_secs(60);

/// Calls of a place of packs that wait until they are let through.
struct Gate {
    /// Calls that are to wait, by kind.
    armed: Arc<[AtomicUsize; 2]>,
    waiting: UnboundedReceiver<()>,
    through: mpsc::Sender<()>,
}

const KINDS: [ByteCall; 2] = [ByteCall::Put, ByteCall::Get];

impl Gate {
    /// Its place, too.
    fn new() -> (Self, Place) {
        let armed = Arc::<[AtomicUsize; 2]>::default();
        let (waits, waiting) = unbounded_channel();
        let (through, let_through) = mpsc::channel();
        let (counts, let_through) = (Arc::clone(&armed), Mutex::new(let_through));
        let faults = move |call| {
            let count = &counts[KINDS.iter().position(|kind| *kind == call)?];
            let is_to_wait =
                count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
            if is_to_wait.is_ok() {
                waits.send(()).unwrap();
                let_through.lock().unwrap().recv().unwrap();
            }
            None
        };
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(LocalFiles::new(&folder.path().join("packs")));
        let packs = Arc::new(FailingBytes::new(files, Box::new(faults)));
        let rules = VaultRules { public: true, ..VaultRules::default() };
        let place = Place::on(folder, packs, Identity::generate().unwrap(), rules);
        (Self { armed, waiting, through }, place)
    }

    /// So many calls of this kind are to wait.
    fn arm(&self, call: ByteCall, count: usize) {
        self.armed[KINDS.iter().position(|kind| *kind == call).unwrap()].store(count, Ordering::SeqCst);
    }

    async fn is_waited_at(&mut self) {
        self.waiting.recv().await.unwrap();
    }

    fn let_through(&self) {
        self.through.send(()).unwrap();
    }
}

/// A vault with a version whose objects are a pack.
async fn begun(place: &Place) -> (TestWriter, VaultConnection, Vec<Digest>) {
    let mut writer = TestWriter::new(1);
    writer.members.deleter = Some(TestKey::new(50).node());
    let (mut connection, _) = place.connected(&writer).await;
    let mut blocks = Vec::new();
    for version in 0..2 {
        let version = if version == 0 { writer.creation() } else { writer.insertion(0, &[100_000; 8]) };
        assert_committed(&mut connection, &version).await;
        blocks.extend(version.blocks.iter().map(|block| Digest::of(block)));
        writer.committed(version);
    }
    (writer, connection, blocks)
}

async fn assert_committed(connection: &mut VaultConnection, version: &SignedUpdate) {
    let answer = commit(connection, version, true).await;
    assert!(matches!(answer, CommitAnswer::Committed(_)), "{answer:?}");
}

/// What others do while a pack is on its way.
async fn beside<T>(work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.expect("it waits for the pack")
}

/// Somebody comes, and reads the newest version, which has this number, and an object of a pack.
async fn assert_read(place: &Place, writer: &TestWriter, newest: u64, name: Digest) {
    let (mut connection, head) = place.connected(writer).await;
    assert_eq!(head.map(|head| head.signed.root.number), Some(newest));
    assert!(object(&mut connection, name).await.is_some());
    assert_eq!(connection.versions(u64::MAX, 9).await.unwrap().len() as u64, newest + 1);
}

#[tokio::test]
async fn while_packs_of_a_version_are_written_others_read() {
    let (mut gate, place) = Gate::new();
    let (mut writer, mut connection, blocks) = begun(&place).await;
    let version = writer.insertion(0, &[1_000_000; 13]);
    // One of ten blocks that came, and one with the rest.
    gate.arm(ByteCall::Put, 2);
    let committing = tokio::spawn(async move {
        assert_committed(&mut connection, &version).await;
        (connection, version)
    });
    for _ in 0..2 {
        gate.is_waited_at().await;
        beside(assert_read(&place, &writer, 1, blocks[3])).await;
        gate.let_through();
    }
    let (_connection, version) = committing.await.unwrap();
    assert_read(&place, &writer, 2, Digest::of(&version.blocks[12])).await;
}

#[tokio::test]
async fn while_a_pack_is_written_anew_others_read_and_write() {
    let (mut gate, place) = Gate::new();
    let (mut writer, mut connection, blocks) = begun(&place).await;
    let short = shortened(&writer);
    assert_committed(&mut connection, &short).await;
    writer.committed(short);
    gate.arm(ByteCall::Put, 1);
    connection.drop_versions(statement(0, 1)).await.unwrap();
    gate.is_waited_at().await;
    let small = writer.insertion(0, &[300]);
    let mut other = beside(async {
        let (mut other, _) = place.connected(&writer).await;
        assert!(object(&mut other, blocks[0]).await.is_some());
        assert_committed(&mut other, &small).await;
        other
    })
    .await;
    gate.let_through();
    // Returns when that collection is over.
    let vault = place.vaults.vault(VAULT).unwrap();
    let again = spawn_blocking(move || vault.collect()).await.unwrap().unwrap();
    assert!(again.before < 200_000, "{again:?}");
    assert!(object(&mut other, blocks[0]).await.is_some());
    assert_eq!(object(&mut other, blocks[7]).await, None);
    assert!(object(&mut other, Digest::of(&small.blocks[0])).await.is_some());
}

/// Who asks for what lies in a pack may wait long for it.
#[tokio::test]
async fn while_a_pack_is_read_others_write_and_collect() {
    let (mut gate, place) = Gate::new();
    let (mut writer, mut connection, blocks) = begun(&place).await;
    let (mut asking, _) = place.connected(&writer).await;
    let asked = blocks[0];
    gate.arm(ByteCall::Get, 1);
    let reading = tokio::spawn(async move { object(&mut asking, asked).await });
    gate.is_waited_at().await;
    let short = shortened(&writer);
    beside(assert_committed(&mut connection, &short)).await;
    writer.committed(short);
    // The pack is written anew without what was dropped, and goes.
    beside(connection.drop_versions(statement(0, 1))).await.unwrap();
    let vault = place.vaults.vault(VAULT).unwrap();
    let again = beside(spawn_blocking(move || vault.collect())).await.unwrap().unwrap();
    assert!(again.before < 200_000, "{again:?}");
    gate.let_through();
    assert!(reading.await.unwrap().is_some(), "it lies elsewhere now");
}
