//! Servers that do something wrong: each want ends, nobody waits for ever, and what went wrong is named.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use towpath_content::{Hint, Oid};
use towpath_mirror::{KnownMirrors, Mirror, MirrorFinder, MirrorPlace, NamedBy, WebRules};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{Context, Outcome, Source};

use super::server::{Fault, WebServer};
use super::{context, get, noise};

const PIECE: usize = 256 << 10;

async fn server(data: &[u8]) -> (WebServer, Mirror) {
    let server = WebServer::start([("file".to_owned(), data.to_vec())]).await;
    let mirror =
        Mirror::new(MirrorPlace::new(&server.url("file")).unwrap(), NamedBy::Person, WebRules::default());
    (server, mirror)
}

#[tokio::test]
async fn neighbours_are_asked_for_at_once() {
    let data = noise(16 * PIECE);
    let (server, mirror) = server(&data).await;
    let came = get(&mirror, &data, [3, 0, 1, 2, 9]).await;
    assert_eq!(came.tags(), [0, 1, 2, 3, 9]);
    // Before anything is known the questions are short.
    let asked = server.asked();
    assert!(asked.len() <= 5, "{asked:?}");
    let came = get(&mirror, &data, 0..16).await;
    for (tag, bytes) in came.bytes.lock().unwrap().iter() {
        let from = *tag as usize * PIECE;
        assert!(bytes[..] == data[from..from + PIECE]);
    }
    assert_eq!(came.tags(), (0..16).collect::<Vec<_>>());
    assert!(server.connections() <= 6, "{}", server.connections());
}

#[tokio::test]
async fn each_fault_ends_what_is_wanted_in_its_way() {
    let data = noise(3 * PIECE);
    let refused = |status: &str| Outcome::Refused(format!("answers with {status}"));
    for (fault, outcome, words) in [
        (Fault::ErrorPage, Outcome::NotHere, "has a file of 22 bytes, not of 786432"),
        (Fault::Status(404, ""), Outcome::NotHere, "404"),
        (Fault::Status(410, ""), Outcome::Gone, "410"),
        (Fault::Status(403, ""), refused("403 Forbidden"), "403"),
        (Fault::Status(503, "retry-after: 9\r\n"), Outcome::RetryLater(Duration::from_secs(9)), "503"),
        (Fault::Redirects("/file".into()), Outcome::NotHere, "in a ring"),
        (Fault::Redirects("ftp://elsewhere/".into()), Outcome::NotHere, "begins with neither"),
        (Fault::Redirects("http://127.0.0.2:9/x".into()), Outcome::NotHere, "not public"),
        (Fault::Compresses, Outcome::NotHere, "compressed"),
        (Fault::OtherRange, Outcome::NotHere, "another range"),
    ] {
        let (server, mirror) = server(&data).await;
        server.fail(fault.clone());
        let came = get(&mirror, &data, 0..3).await;
        assert_eq!(came.ends(), vec![outcome; 3], "{fault:?}");
        let trouble = mirror.state().trouble.unwrap_or_default();
        assert!(trouble.contains(words), "{fault:?}: {trouble}");
        assert!(trouble.contains(&server.url("file")), "{trouble}");
    }
}

#[tokio::test]
async fn what_an_answer_brought_before_it_was_cut_short_counts() {
    let data = noise(8 * PIECE);
    let (server, mirror) = server(&data).await;
    // The second answer asks for more than one piece.
    assert_eq!(get(&mirror, &data, 0..2).await.tags(), [0, 1]);
    server.fail(Fault::Truncates(PIECE + 1000));
    let mut left: Vec<u64> = (0..8).collect();
    for _ in 0..8 {
        let came = get(&mirror, &data, left.clone()).await;
        let tags = came.tags();
        assert!(!tags.is_empty(), "each answer brings a piece");
        left.retain(|tag| !tags.contains(tag));
        if left.is_empty() {
            return;
        }
        assert!(came.ends().iter().all(|end| matches!(end, Outcome::RetryLater(_))));
    }
    panic!("{left:?} did not come");
}

#[tokio::test]
async fn a_file_that_changes_in_mid_transfer_is_not_mixed() {
    let data = noise(4 * PIECE);
    let (server, mirror) = server(&data).await;
    server.fail(Fault::ChangesFile);
    assert_eq!(get(&mirror, &data, [0]).await.tags(), [0]);
    let came = get(&mirror, &data, 1..4).await;
    assert_eq!(came.ends(), vec![Outcome::SourceChanged; 3]);
}

#[tokio::test]
async fn a_server_without_ranges_is_read_once_from_its_front() {
    let data = noise(20 * PIECE);
    let (server, mirror) = server(&data).await;
    server.fail(Fault::NoRanges);
    assert_eq!(get(&mirror, &data, 0..20).await.tags(), (0..20).collect::<Vec<_>>());
    assert_eq!(server.asked().len(), 1);
    // What lies in front of where it was read to needs it once more.
    assert_eq!(get(&mirror, &data, [4]).await.tags(), [4]);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn nobody_who_was_not_named_is_asked_at_home() {
    let data = noise(PIECE);
    let server = WebServer::start([("file".to_owned(), data.clone())]).await;
    let mirror =
        Mirror::new(MirrorPlace::new(&server.url("file")).unwrap(), NamedBy::Stranger, WebRules::default());
    assert_eq!(get(&mirror, &data, [0]).await.ends(), [Outcome::NotHere]);
    assert!(mirror.state().trouble.unwrap().contains("not public"));
    assert_eq!(server.connections(), 0, "it was not even dialled");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let data = noise(PIECE);
    let (server, mirror) = server(&data).await;
    drop(server);
    let ends = get(&mirror, &data, [0]).await.ends();
    assert!(matches!(ends[..], [Outcome::RetryLater(_)]), "{ends:?}");
}

#[tokio::test]
async fn a_redirect_at_one_server_is_followed_and_remembered() {
    let data = noise(PIECE * 2);
    let server = WebServer::start([("file".to_owned(), data.clone())]).await;
    server.fail(Fault::Moved("file".into()));
    let place = MirrorPlace::new(&server.url("old")).unwrap();
    let mirror = Mirror::new(place, NamedBy::Person, WebRules::default());
    assert_eq!(get(&mirror, &data, [0]).await.tags(), [0]);
    assert_eq!(get(&mirror, &data, [1]).await.tags(), [1]);
    let paths: Vec<String> =
        server.asked().iter().filter_map(|asked| Some(asked.split_once(' ')?.0.to_owned())).collect();
    assert_eq!(paths, ["old", "file", "file"]);
}

#[tokio::test]
async fn a_redirect_to_another_server_at_home_is_not_followed() {
    let data = noise(PIECE * 2);
    let there = WebServer::start([("file".to_owned(), data.clone())]).await;
    let (server, mirror) = server(&data).await;
    // To another port: somebody else's server, at an address that is not public.
    server.fail(Fault::Redirects(there.url("file")));
    assert_eq!(get(&mirror, &data, [0]).await.ends(), [Outcome::NotHere]);
    assert_eq!(there.connections(), 0);
}

#[tokio::test]
async fn where_only_encrypted_ways_may_be_used_others_are_not_found() {
    let (_sender, hints) = watch::channel(
        ["http://a.example/x", "https://b.example/x"].map(|url| Hint::new(url, 0, 1).unwrap()).to_vec(),
    );
    let context = Context { hints, ..context(Oid::of(b"")) };
    let rules = WebRules { only_encrypted: true, ..WebRules::default() };
    let named = ["http://c.example/x", "https://d.example/x"].map(|url| MirrorPlace::new(url).unwrap());
    let places = named.map(|place| (place, NamedBy::Person)).to_vec();
    let finder = MirrorFinder::new(KnownMirrors { places, told: None, rules });
    let (changes, mut inbox) = mpsc::channel(9);
    let looking = async {
        let mut found = 0;
        while let Some(change) = inbox.recv().await {
            match change {
                SourceChange::Added { source, .. } => {
                    found += 1;
                    assert!(source.state().is_encrypted);
                }
                _ => break,
            }
        }
        found
    };
    tokio::select! {
        found = looking => assert_eq!(found, 2),
        () = async { finder.find(&context, changes).await; std::future::pending().await } => {}
    }
}
