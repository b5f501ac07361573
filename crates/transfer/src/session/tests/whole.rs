//! Objects that the root likes as one run, as what lies in their places makes them.

use super::*;
use crate::want::{Want, WantId};

/// Two versions of four pieces, of which the first piece is the same.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let new = pattern(4 * PIECE + 77, 1);
    let mut old = new.clone();
    old[PIECE + 9..].iter_mut().for_each(|byte| *byte ^= 9);
    (old, new)
}

/// Fetches the new version over the old one from a source that likes it as one run.
async fn fetch_whole(source: Scripted) -> Arc<Scripted> {
    let (old, new) = versions();
    let (source, target) = (Arc::new(source), Memory::with_older(old));
    let session = session(&source);
    fetch(&session, request(Oid::of(&new), &target)).await.unwrap();
    target.expect(&new);
    let counters = session.progress().snapshot();
    assert_eq!(counters.done, new.len() as u64);
    source
}

#[tokio::test]
async fn an_object_comes_as_one_run_if_the_root_likes_it_so() {
    let (_, new) = versions();
    for is_at_once in [false, true] {
        let source = Scripted::new(&[&new]).chunks([&new[..]]).liking_one_run();
        let source = if is_at_once { source.taking_all_chunks() } else { source };
        let source = fetch_whole(source).await;
        assert_eq!((source.chunks_asked(), source.pieces_asked()), (1, Vec::new()));
        let want = source.calls.lock().unwrap()[0][0].clone();
        assert_eq!(want.whole_object(), Some(Oid::of(&new)));
    }
}

#[tokio::test]
async fn an_object_that_nobody_brings_so_comes_in_pieces_and_may_come_by_its_recipe_then() {
    let (_, new) = versions();
    let not_so = |want: &Want, _| match want.id {
        WantId::Chunk { .. } => Act::End(Outcome::NotHere),
        _ => Act::Good,
    };
    let source = Scripted::new(&[&new]).chunks([&new[..]]).liking_one_run().script(not_so);
    let source = fetch_whole(source).await;
    assert_eq!((source.chunks_asked(), source.pieces_asked()), (1, vec![1, 2, 3, 4]), "once");
    let source =
        switches::switching(&new, &new, 1).with_window(PIECE as u64 + 1000).liking_one_run().slowly();
    let once = |want: &Want, _| match want.whole_object() {
        Some(_) => Act::End(Outcome::NotHere),
        None => Act::Good,
    };
    let source = fetch_whole(source.script(once)).await;
    assert!(source.chunks_asked() > 1 && source.pieces_asked().len() < 4, "{:?}", source.pieces_asked());
}

#[tokio::test]
async fn a_run_that_is_lost_on_the_way_is_asked_for_again() {
    let (_, new) = versions();
    let lost = |want: &Want, before| match (want.id, before) {
        (WantId::Chunk { .. }, 0) => Act::End(Outcome::RetryLater(Duration::ZERO)),
        _ => Act::Good,
    };
    let source = Scripted::new(&[&new]).chunks([&new[..]]).liking_one_run().script(lost);
    let source = fetch_whole(source).await;
    assert_eq!((source.chunks_asked(), source.pieces_asked()), (2, Vec::new()));
}

#[tokio::test]
async fn a_run_of_other_bytes_blames_its_source_and_gives_way_to_pieces() {
    let (_, new) = versions();
    let lie = |want: &Want, _| match want.id {
        WantId::Chunk { .. } => Act::Bytes(pattern(4 * PIECE + 77, 5)),
        _ => Act::Good,
    };
    let source = Scripted::new(&[&new]).chunks([&new[..]]).liking_one_run().script(lie);
    let source = fetch_whole(source).await;
    assert_eq!(source.pieces_asked(), [1, 2, 3, 4]);
    assert!(source.blamed.lock().unwrap().iter().all(|who| who == SOURCE));
}

#[tokio::test]
async fn what_is_in_its_place_is_not_asked_for() {
    let (_, new) = versions();
    let (source, target) = (
        Arc::new(Scripted::new(&[&new]).chunks([&new[..]]).liking_one_run()),
        Memory::with_older(new.clone()),
    );
    fetch(&session(&source), request(Oid::of(&new), &target)).await.unwrap();
    target.expect(&new);
    assert_eq!((source.chunks_asked(), source.pieces_asked()), (0, Vec::new()));
}
