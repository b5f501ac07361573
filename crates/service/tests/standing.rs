//! Connections of two services that either may ask on, whoever dialled them.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;
use towpath_api::{Event, Fetch, FetchState, GetRequest, OpenPutRequest, PutReply, PutsInParts, Summary};
use towpath_config::Home;
use towpath_content::ticket::Terms;
use towpath_content::{Hint, Oid, Ticket};
use towpath_service::get::get;
use towpath_service::put::share;
use towpath_service::{InProcess, Options, PutSource, Service};

const LIMIT: Duration = Duration::from_secs(30);
const DATA: usize = 3 << 20;

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8).collect()
}

fn service(folder: &TempDir, name: &str) -> Arc<Service> {
    Service::open(Home::under(&folder.path().join(name)), Options::default()).unwrap()
}

fn output(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(format!("{name}.got"))
}

fn request(folder: &TempDir, name: &str, ticket: &str) -> GetRequest {
    GetRequest {
        ticket: ticket.into(),
        output: Some(output(folder, name)),
        directory: folder.path().into(),
        timeout: 20,
        no_search: true,
        ..GetRequest::default()
    }
}

/// Fetches, whatever happens meanwhile.
async fn fetch(service: &Arc<Service>, request: GetRequest) -> Result<Summary, String> {
    let (events, mut inbox) = mpsc::channel(64);
    let (got, ()) =
        tokio::join!(get(service, request, events), async { while inbox.recv().await.is_some() {} });
    got.map_err(|error| error.to_string())
}

/// Shares `data`, by a ticket whose hints lead nowhere.
async fn share_out_of_reach(service: &Arc<Service>, folder: &TempDir, name: &str, data: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, data).unwrap();
    let source = PutSource::new(std::slice::from_ref(&path), &[], None).unwrap();
    let shared = share(service, source, Terms::default()).await.unwrap();
    shared.reading.await.unwrap().unwrap();
    let mut ticket: Ticket = shared.reply.ticket.parse().unwrap();
    // Nobody listens there any more.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ticket.hints = vec![Hint::new(format!("tow://{closed}"), 0, 1).unwrap()];
    ticket.to_string()
}

/// One that listens and has begun a put, and another one that follows the put.
struct Following {
    folder: TempDir,
    listening: Arc<Service>,
    following: Arc<Service>,
    put: PutReply,
    get: tokio::task::JoinHandle<Result<Summary, String>>,
    /// Of the one that follows.
    fetches: mpsc::Receiver<Event>,
}

impl Following {
    async fn begin(change: impl FnOnce(&mut GetRequest)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (listening, following) = (service(&folder, "listening"), service(&folder, "following"));
        listening.door().listen(b"test", &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        let put = InProcess(Arc::clone(&listening)).open_put(OpenPutRequest::default()).await.unwrap();
        listening.door().open();
        let mut request = request(&folder, "live", &put.ticket);
        change(&mut request);
        let (mut begun, fetches) = (listening.door().watch_fetches(), following.door().watch_fetches());
        let following_too = Arc::clone(&following);
        let get = tokio::spawn(async move { fetch(&following_too, request).await });
        let scene = Self { folder, listening, following, put, get, fetches };
        scene.put_part(0, &pattern(DATA)).await;
        while let Some(event) = timeout(LIMIT, begun.recv()).await.expect("it is followed") {
            if matches!(event, Event::Fetch(fetch) if fetch.bytes > 0) {
                break;
            }
        }
        scene
    }

    async fn put_part(&self, offset: u64, part: &[u8]) {
        let puts = InProcess(Arc::clone(&self.listening));
        puts.put_part(self.put.oid.clone(), offset, Box::new(part)).await.unwrap();
    }

    /// The one that follows is told that what it has was fetched: what, and how many bytes went.
    async fn expect_fetched(&mut self) -> (String, u64) {
        let end = async {
            loop {
                match self.fetches.recv().await {
                    Some(Event::Fetch(Fetch { state: FetchState::Complete, oid, bytes, .. })) => {
                        return (oid, bytes);
                    }
                    event => assert!(event.is_some()),
                }
            }
        };
        timeout(LIMIT, end).await.expect("whoever is fetched from is told")
    }

    /// The put goes on and ends, and the one that follows has it whole.
    async fn expect_the_rest(&mut self) {
        let rest = pattern(DATA);
        self.put_part(DATA as u64, &rest).await;
        InProcess(Arc::clone(&self.listening)).commit_put(self.put.oid.clone()).await.unwrap();
        timeout(LIMIT, &mut self.get).await.expect("it ends").unwrap().unwrap();
        let got = std::fs::read(output(&self.folder, "live")).unwrap();
        assert!(got == [pattern(DATA), rest].concat(), "other bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_dialled_comes_over_the_connection_that_it_dialled_itself() {
    let mut scene = Following::begin(|_| ()).await;
    for round in 0..3 {
        let (data, name) = (pattern(DATA + round), format!("shared{round}"));
        let ticket = share_out_of_reach(&scene.following, &scene.folder, &name, &data).await;
        let got = fetch(&scene.listening, request(&scene.folder, &name, &ticket));
        timeout(LIMIT, got).await.expect("it comes").unwrap();
        assert!(std::fs::read(output(&scene.folder, &name)).unwrap() == data, "other bytes");
        let (oid, bytes) = scene.expect_fetched().await;
        assert_eq!(oid, Oid::of(&data).to_string());
        assert!((data.len() as u64..2 * data.len() as u64).contains(&bytes), "{bytes}");
    }
    scene.expect_the_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_that_takes_no_more_than_so_much_a_second_keeps_its_connection_for_itself() {
    let mut scene = Following::begin(|request| request.limit_rate = 1 << 30).await;
    let ticket = share_out_of_reach(&scene.following, &scene.folder, "shared", &pattern(DATA)).await;
    let request = GetRequest { timeout: 1, ..request(&scene.folder, "shared", &ticket) };
    let error = timeout(LIMIT, fetch(&scene.listening, request)).await.expect("it ends").unwrap_err();
    assert!(error.contains("refused the connection"), "{error}");
    scene.expect_the_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_get_that_dialled_cuts_off_nobody_who_fetches_over_its_connection() {
    let mut scene = Following::begin(|_| ()).await;
    let puts = InProcess(Arc::clone(&scene.following));
    let put = puts.open_put(OpenPutRequest::default()).await.unwrap();
    puts.put_part(put.oid.clone(), 0, Box::new(&pattern(DATA)[..])).await.unwrap();
    let (listening, request) = (Arc::clone(&scene.listening), request(&scene.folder, "back", &put.ticket));
    let back = tokio::spawn(async move { fetch(&listening, request).await });
    while let Some(event) = timeout(LIMIT, scene.fetches.recv()).await.expect("it is fetched") {
        if matches!(event, Event::Fetch(fetch) if fetch.bytes > 0) {
            break;
        }
    }
    scene.expect_the_rest().await;
    puts.put_part(put.oid.clone(), DATA as u64, Box::new(&b"the end"[..])).await.unwrap();
    puts.commit_put(put.oid.clone()).await.unwrap();
    timeout(LIMIT, back).await.expect("it ends").unwrap().unwrap();
    let got = std::fs::read(output(&scene.folder, "back")).unwrap();
    assert!(got == [&pattern(DATA)[..], b"the end"].concat(), "other bytes");
    scene.expect_fetched().await;
    scene.listening.door().take_leave().await;
    assert_eq!(scene.listening.door().limits().connections(), 0, "then nobody needs it");
}
