//! Two services, one of which has rules: what they refuse does not pass, and the receiver is told
//! by whom.

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::mpsc;
use towpath_api::{ApiError, ErrorKind, Event, GetRequest, Summary};
use towpath_config::Home;
use towpath_content::Oid;
use towpath_protocol::processors::Processors;
use towpath_refusing_processor::{Refusing, Rules};
use towpath_service::put_source::PutSource;
use towpath_service::{Options, Service, get};

/// More than rides along.
const LARGE: usize = 100_000;

struct Pair {
    folder: TempDir,
    sender: Arc<Service>,
    receiver: Arc<Service>,
}

fn service(home: &Path, rules: Rules) -> Arc<Service> {
    let processors = Processors::with(vec![Arc::new(Refusing::new("house-rules", rules))]).unwrap();
    Service::open(Home::under(home), Options { processors, ..Options::default() }).unwrap()
}

impl Pair {
    async fn new(sender: Rules, receiver: Rules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sender = service(&folder.path().join("sender"), sender);
        let receiver = service(&folder.path().join("receiver"), receiver);
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        sender.door().listen(b"test", &[loopback]).await.unwrap();
        sender.door().open();
        Self { folder, sender, receiver }
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Shares and gets a file or tree; also the files that failed.
    async fn pass(&self, name: &str) -> Result<(Summary, Vec<String>), ApiError> {
        let source = PutSource::new(&[self.folder.path().join(name)], &[], None).unwrap();
        let shared = towpath_service::put::share(&self.sender, source, Default::default()).await.unwrap();
        shared.reading.await.unwrap().unwrap();
        let (events, mut inbox) = mpsc::channel(64);
        let request = GetRequest {
            ticket: shared.reply.ticket,
            output: Some(self.folder.path().join("copy")),
            directory: self.folder.path().into(),
            timeout: 10,
            ..GetRequest::default()
        };
        let summary = get::get(&self.receiver, request, events).await?;
        let mut failed = Vec::new();
        while let Some(event) = inbox.recv().await {
            if let Event::FileFailed { path, error } = event {
                failed.push(format!("{path}: {error}"));
            }
        }
        failed.sort();
        Ok((summary, failed))
    }

    async fn refused(&self, name: &str) -> String {
        let error = self.pass(name).await.expect_err("it passed");
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(!self.folder.path().join("copy").exists());
        error.message
    }
}

fn rules() -> Rules {
    Rules {
        endings: vec![".exe".into()],
        largest: Some(2 * LARGE as u64),
        listed: [Oid::of(&[7; LARGE])].into(),
        words: vec![b"secret".to_vec()],
        ..Rules::default()
    }
}

fn with_word(len: usize) -> Vec<u8> {
    [&b"a secret"[..], &vec![b'.'; len]].concat()
}

/// Files that the rules refuse, and why; small ones ride along.
fn files() -> [(&'static str, Vec<u8>, &'static str); 6] {
    [
        ("large.EXE", vec![1; LARGE], "refused by house-rules: names that end in '.exe' do not pass"),
        ("small.exe", vec![1; 10], "refused by house-rules: names that end in '.exe' do not pass"),
        ("size", vec![1; 3 * LARGE], "refused by house-rules: it has 300000 bytes, more than 200000"),
        ("listed", vec![7; LARGE], "refused by house-rules: it is on the list"),
        ("large word", with_word(LARGE), "refused by house-rules: it holds a word that does not pass"),
        ("small word", with_word(10), "refused by house-rules: it holds a word that does not pass"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sender_refuses_does_not_leave_it() {
    let pair = Pair::new(rules(), Rules::default()).await;
    for (name, bytes, why) in files() {
        pair.file(name, &bytes);
        assert_eq!(pair.refused(name).await, why, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_receiver_refuses_does_not_enter_it() {
    let pair = Pair::new(Rules::default(), rules()).await;
    for (name, bytes, why) in files() {
        pair.file(name, &bytes);
        assert_eq!(pair.refused(name).await, why, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_files_of_a_tree_pass() {
    let pair = Pair::new(Rules::default(), rules()).await;
    for (name, bytes, _) in files() {
        pair.file(&format!("tree/{name}"), &bytes);
    }
    pair.file("tree/sub/large", &vec![3; LARGE]);
    pair.file("tree/sub/small", b"good");
    let (summary, failed) = pair.pass("tree").await.unwrap();
    let mut expected = files().map(|(name, _, why)| format!("{name}: {why}"));
    expected.sort();
    assert_eq!(failed, expected);
    assert_eq!(summary.failed, 6);
    assert_eq!(fs::read(pair.folder.path().join("copy/sub/large")).unwrap(), vec![3; LARGE]);
    assert_eq!(fs::read(pair.folder.path().join("copy/sub/small")).unwrap(), b"good");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_of_the_sender_is_heard() {
    let label = Some(b"internal".to_vec());
    let sender = Rules { own_label: label.clone(), ..Rules::default() };
    let pair = Pair::new(sender, Rules { label, ..Rules::default() }).await;
    pair.file("file", &vec![1; LARGE]);
    assert_eq!(pair.refused("file").await, "refused by house-rules: of the label it has");
}
