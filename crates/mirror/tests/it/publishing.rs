//! Published files: made, fetched, and refused where something is wrong.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::published::PublishedHead;
use towpath_mirror::{Mirror, Published, PublishedError, ToldValues, WebRules, WebUrl, publish};
use towpath_store::About;
use towpath_transfer::{Description, Query, Source};

use super::server::{Fault, WebServer};
use super::{context, get, noise};

/// The `.tow` of a file with these bytes.
pub fn tow_of(data: &[u8], places: &[&str]) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.iso");
    std::fs::write(&path, data).unwrap();
    let about = About { name: b"x.iso".to_vec(), ..About::default() };
    let places = places.iter().map(|place| (*place).to_owned()).collect();
    publish(&std::fs::File::open(&path).unwrap(), &path, about, places).unwrap().bytes
}

async fn serve(tow: Vec<u8>, data: &[u8]) -> (WebServer, WebUrl) {
    let server = WebServer::start([("x.iso.tow".to_owned(), tow), ("x.iso".to_owned(), data.to_vec())]).await;
    let url = server.url("x.iso.tow").parse().unwrap();
    (server, url)
}

async fn fetch(url: &WebUrl, oid: Option<Oid>) -> Result<Published, PublishedError> {
    Published::fetch(url, oid.as_ref(), WebRules::default()).await
}

#[tokio::test]
async fn what_is_published_is_fetched_and_proved() {
    for len in [0, 1, 256 << 10, (256 << 10) + 1, 9_000_000] {
        let data = noise(len);
        let (_server, url) = serve(tow_of(&data, &[]), &data).await;
        let published = Arc::new(fetch(&url, Some(Oid::of(&data))).await.unwrap());
        assert_eq!(published.about().name, b"x.iso");
        let (place, named_by) = published.places().pop().unwrap();
        let told = ToldValues::new(Arc::clone(&published));
        let mirror = Mirror::new(place, named_by, WebRules::default());
        let query = Query { proofs: Some(0..1000), recipe: true, ..Query::about(*published.oid()) };
        let (answers, mut inbox) = mpsc::channel(100);
        told.describe(query, &context(*published.oid()), answers).await.unwrap();
        let mut kinds = Vec::new();
        while let Some(answer) = inbox.recv().await {
            kinds.push(match answer {
                Description::Object { layout, .. } => {
                    assert_eq!(layout.unwrap().size(), len as u64);
                    "object"
                }
                Description::Proof(_) => "proof",
                Description::Recipe(_) => "recipe",
                _ => "other",
            });
        }
        let has_recipe = len >= 256 << 10;
        assert_eq!(
            kinds,
            if has_recipe { vec!["object", "proof", "recipe"] } else { vec!["object", "proof"] }
        );
        let pieces = (len as u64).div_ceil(256 << 10).max(1);
        assert_eq!(get(&mirror, &data, 0..pieces).await.tags(), (0..pieces).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn without_encryption_it_needs_the_contents_name() {
    let data = noise(1000);
    let (_server, url) = serve(tow_of(&data, &[]), &data).await;
    assert_eq!(fetch(&url, None).await.err(), Some(PublishedError::Plain));
    let found = Oid::of(&data);
    assert_eq!(
        fetch(&url, Some(Oid::of(b"other"))).await.err(),
        Some(PublishedError::OtherContent { found })
    );
}

#[tokio::test]
async fn what_is_damaged_is_refused() {
    let data = noise(2_000_000);
    let good = tow_of(&data, &[]);
    let oid = Oid::of(&data);
    let refused = async |tow: Vec<u8>| {
        let (_server, url) = serve(tow, &data).await;
        fetch(&url, Some(oid)).await.err()
    };
    let front = 12 + PublishedHead::len_of(&good[..12]).unwrap();
    let mut wrong_value = good.clone();
    wrong_value[front + 3] ^= 1;
    assert_eq!(refused(wrong_value).await, Some(PublishedError::WrongSection));
    let page = b"<html>no such file</html>".to_vec();
    assert!(matches!(refused(page).await, Some(PublishedError::Format(_))));
    assert!(refused(good[..front + 20].to_vec()).await.is_some(), "cut in the values");
    assert!(refused(good[..20].to_vec()).await.is_some(), "cut in the head");
    assert_eq!(refused(b"tow".to_vec()).await, Some(PublishedError::TooShort(3)));
}

#[tokio::test]
async fn an_empty_tow_is_told_as_none() {
    for fault in [Fault::Nothing, Fault::NoRanges] {
        let (server, url) = serve(Vec::new(), b"file").await;
        server.fail(fault.clone());
        let error = fetch(&url, Some(Oid::of(b"file"))).await.err().unwrap();
        assert_eq!(error, PublishedError::TooShort(0), "{fault:?}");
        assert_eq!(error.to_string(), "is no .tow file: it has 0 bytes");
    }
}

#[tokio::test]
async fn places_are_counted_from_the_tow_on() {
    let data = noise(1000);
    let (server, url) = serve(tow_of(&data, &["pub/x.iso", "https://else.example/x"]), &data).await;
    let published = fetch(&url, Some(Oid::of(&data))).await.unwrap();
    let places: Vec<String> =
        published.places().iter().map(|(place, by)| format!("{} {by:?}", place.shown())).collect();
    let beside = format!("{} Person", server.url("pub/x.iso"));
    assert_eq!(places, [beside, "https://else.example/x Stranger".to_owned()]);
}
