//! A real server, versitygw, and a front that fails on purpose: what the byte store makes of it.
//!
//! `scripts/test-tools.sh` gets the server. Without it these tests say that they are skipped; where `CI` is set
//! they fail.
#![cfg_attr(test, allow(clippy::unwrap_used))] // Clippy spares only functions marked as tests.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{Answer, Front, Server, bytes_at};
use towpath_byte_store::{ByteName, ByteStore, ByteStoreError, PlaceOwner, PutResult, conformance};

const OWNER: PlaceOwner = PlaceOwner([1; 16]);

fn name(number: u8) -> ByteName {
    ByteName([number; 32])
}

fn put(store: &impl ByteStore, number: u8, bytes: &[u8]) -> Result<PutResult, ByteStoreError> {
    store.put(&name(number), &mut &*bytes, bytes.len() as u64)
}

fn get(store: &impl ByteStore, number: u8, length: u64) -> Result<Vec<u8>, ByteStoreError> {
    let mut buf = Vec::new();
    store.get_range(&name(number), 0..length, &mut buf).map(|()| buf)
}

#[test]
fn a_real_server_conforms() {
    let Some(server) = Server::start() else { return };
    conformance::run(|number| Box::new(bytes_at(&server.url, &format!("s3://bytes/place-{number}"))));
}

#[test]
fn a_whole_bucket_serves_as_well() {
    let Some(server) = Server::start() else { return };
    let store = bytes_at(&server.url, "s3://bytes");
    store.claim(&OWNER, true).unwrap();
    assert_eq!(put(&store, 1, b"bytes").unwrap(), PutResult::New);
    assert_eq!(get(&store, 1, 5).unwrap(), b"bytes");
    assert_eq!(store.list(None, 10).unwrap().len(), 1);
}

#[test]
fn each_third_request_fails_and_nothing_is_lost_or_wrong() {
    let Some(server) = Server::start() else { return };
    let count = AtomicUsize::new(0);
    let front = Front::start(&server.url, move |_| {
        let is_third = count.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        is_third.then(|| Answer::error(500, "InternalError"))
    });
    let store = bytes_at(&front.url, "s3://bytes/third");
    store.claim(&OWNER, true).unwrap();
    let large: Vec<u8> = (0..20 << 20).map(|at| (at / 241) as u8).collect();
    assert_eq!(put(&store, 200, &large).unwrap(), PutResult::New);
    for number in 0..20 {
        assert_eq!(put(&store, number, &[number; 1000]).unwrap(), PutResult::New);
    }
    let direct = bytes_at(&server.url, "s3://bytes/third");
    assert_eq!(direct.list(None, 100).unwrap().len(), 21);
    for number in 0..20 {
        assert_eq!(get(&store, number, 1000).unwrap(), [number; 1000]);
    }
    assert!(get(&store, 200, 16 << 20).unwrap() == large[..16 << 20]);
    assert_eq!(store.list(None, 100).unwrap().len(), 21);
    (0..20).for_each(|number| store.delete(&name(number)).unwrap());
    assert_eq!(direct.list(None, 100).unwrap().len(), 1);
}

#[test]
fn an_answer_that_breaks_off_is_fetched_again() {
    let Some(server) = Server::start() else { return };
    let direct = bytes_at(&server.url, "s3://bytes/broken");
    direct.claim(&OWNER, true).unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at / 7) as u8).collect();
    put(&direct, 1, &bytes).unwrap();
    let count = AtomicUsize::new(0);
    let front = Front::start(&server.url, move |request| {
        (request.is_get && count.fetch_add(1, Ordering::Relaxed) == 0).then_some(Answer::Cut)
    });
    let store = bytes_at(&front.url, "s3://bytes/broken");
    assert!(get(&store, 1, 3 << 20).unwrap() == bytes);
}

#[test]
fn one_that_denies_is_named_and_not_asked_again() {
    let Some(server) = Server::start() else { return };
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let front = Front::start(&server.url, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(Answer::error(403, "AccessDenied"))
    });
    let store = bytes_at(&front.url, "s3://bytes/denied");
    let results = [
        store.claim(&OWNER, true).map(drop),
        put(&store, 1, b"bytes").map(drop),
        put(&store, 1, &vec![0; 20 << 20]).map(drop),
        get(&store, 1, 5).map(drop),
        store.list(None, 10).map(drop),
        store.delete(&name(1)),
    ];
    for result in &results {
        let Err(ByteStoreError::Denied { place, why }) = result else { panic!("{result:?}") };
        assert_eq!(place, "s3://bytes/denied");
        assert!(why.contains("403"), "{why}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), results.len(), "one request each");
}

#[test]
fn wrong_keys_are_denied_by_the_real_server() {
    let Some(server) = Server::start() else { return };
    let store = support::bytes_with_keys(&server.url, "s3://bytes/keys", "wrong");
    let claimed = store.claim(&OWNER, true);
    assert!(matches!(claimed, Err(ByteStoreError::Denied { .. })), "{claimed:?}");
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let Some(server) = Server::start() else { return };
    let claimed = bytes_at(&server.url, "s3://elsewhere").claim(&OWNER, true);
    let Err(ByteStoreError::Missing { why, .. }) = &claimed else { panic!("{claimed:?}") };
    assert!(why.contains("NoSuchBucket"), "{why}");
}

#[test]
fn one_that_is_full_is_named_and_keeps_what_it_had() {
    let Some(server) = Server::start() else { return };
    for answer in [Answer::error(507, "InsufficientStorage"), Answer::error(403, "QuotaExceeded")] {
        let front = Front::start(&server.url, move |request| request.is_put.then(|| answer.clone()));
        let direct = bytes_at(&server.url, "s3://bytes/full");
        direct.claim(&OWNER, true).unwrap();
        put(&direct, 1, b"before").unwrap();
        let store = bytes_at(&front.url, "s3://bytes/full");
        for size in [5, 20 << 20] {
            let result = put(&store, 2, &vec![0; size]);
            assert!(matches!(result, Err(ByteStoreError::Full { .. })), "{result:?}");
            assert!(matches!(direct.size(&name(2)), Err(ByteStoreError::NotHere)));
        }
        assert_eq!(get(&store, 1, 6).unwrap(), b"before");
    }
}

#[test]
fn nobody_at_the_address_is_told_within_the_limits() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let claimed = bytes_at(&url, "s3://bytes").claim(&OWNER, true);
    let Err(error @ ByteStoreError::Unreachable { .. }) = &claimed else { panic!("{claimed:?}") };
    assert!(error.may_pass());
    assert!(error.to_string().contains("refused"), "{error}");
}
