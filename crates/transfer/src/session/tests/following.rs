//! An older version is followed by samples: of what was shifted only the changes are requested.

use bytes::Bytes;
use towpath_store::doubles::noise;

use super::*;
use crate::Description;
use crate::following::sample;
use crate::want::{Want, WantId};

const INSERTED: usize = 5000;

/// An older version, and a newer one with something inserted.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let older = noise(0, 40 * PIECE);
    let at = PIECE + 100_000;
    let newer = [&older[..at], &[7; INSERTED], &older[at..]].concat();
    (older, newer)
}

/// A source that has `data` and its samples, or others.
fn sampled(data: &[u8], spoil: bool) -> Scripted {
    let mut samples = Vec::new();
    data.chunks(PIECE).for_each(|piece| sample(piece, &mut samples));
    if spoil {
        samples.iter_mut().for_each(|byte| *byte ^= 0x55);
    }
    Scripted::new(&[data]).sampled(vec![Description::Samples { first: 0, bytes: samples.into() }])
}

/// Bytes that were requested.
fn requested(source: &Scripted) -> u64 {
    source.calls.lock().unwrap().iter().flatten().map(Want::missing_len).sum()
}

#[tokio::test]
async fn of_what_was_shifted_only_the_change_is_asked_for() {
    let (older, newer) = versions();
    let (source, target) = (Arc::new(sampled(&newer, false)), Memory::with_older(older));
    let session = session(&source);
    fetch(&session, request(Oid::of(&newer), &target)).await.unwrap();
    target.expect(&newer);
    let (requested, counters) = (requested(&source), session.progress().snapshot());
    // Some pieces are requested before the samples are here.
    assert!(requested < newer.len() as u64 / 2, "{requested} of {}", newer.len());
    assert_eq!(counters.done, newer.len() as u64);
    assert_eq!(counters.kept + counters.by_source.values().sum::<u64>(), counters.done);
    assert!(source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_part_that_does_not_make_up_its_piece_is_nobodys_fault_and_the_piece_is_fetched() {
    let (older, newer) = versions();
    let wrong = |want: &Want, _: u32| match &want.part {
        Some(part) => Act::Bytes(vec![1; (part.end - part.start) as usize]),
        None => Act::Good,
    };
    let (source, target) = (Arc::new(sampled(&newer, false).script(wrong)), Memory::with_older(older));
    fetch(&session(&source), request(Oid::of(&newer), &target)).await.unwrap();
    target.expect(&newer);
    assert!(source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_source_that_knows_no_parts_delivers_pieces() {
    let (older, newer) = versions();
    let data = newer.clone();
    let whole = move |want: &Want, _: u32| match (&want.part, want.id) {
        (Some(_), WantId::Piece { layout, index, .. }) => {
            let range = layout.range(index);
            Act::Bytes(data[range.start as usize..range.end as usize].to_vec())
        }
        _ => Act::Good,
    };
    let (source, target) = (Arc::new(sampled(&newer, false).script(whole)), Memory::with_older(older));
    fetch(&session(&source), request(Oid::of(&newer), &target)).await.unwrap();
    target.expect(&newer);
    assert!(source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn samples_of_something_else_cost_time_alone() {
    let (older, newer) = versions();
    let (source, target) = (Arc::new(sampled(&newer, true)), Memory::with_older(older));
    fetch(&session(&source), request(Oid::of(&newer), &target)).await.unwrap();
    target.expect(&newer);
}

#[tokio::test]
async fn a_source_that_sends_no_samples_or_wrong_ones_sends_pieces() {
    let (older, newer) = versions();
    let wrong = Description::Samples { first: 3, bytes: Bytes::from_static(&[1; 17]) };
    for samples in [Vec::new(), vec![wrong]] {
        let source = Arc::new(Scripted::new(&[&newer]).sampled(samples));
        let target = Memory::with_older(older.clone());
        fetch(&session(&source), request(Oid::of(&newer), &target)).await.unwrap();
        target.expect(&newer);
    }
}

#[tokio::test]
async fn a_near_source_is_asked_before_an_older_version_is_read_from_a_disk() {
    let data = noise(0, 8 * PIECE);
    let source = Arc::new(Scripted::new(&[&data]).with_round_trip(Duration::from_micros(100)));
    let in_memory = Memory::with_older(data.clone());
    fetch(&session(&source), request(Oid::of(&data), &in_memory)).await.unwrap();
    assert!(source.calls.lock().unwrap().is_empty(), "what takes no time is read first");
    let target = Memory::with_older_on_slow_disk(data.clone(), Duration::from_millis(1));
    fetch(&session(&source), request(Oid::of(&data), &target)).await.unwrap();
    target.expect(&data);
    let first: Vec<WantId> = source.calls.lock().unwrap()[0].iter().map(|want| want.id).collect();
    assert!(
        matches!(first[..], [WantId::Piece { index: 7, .. }]),
        "one piece tells how fast it is: {first:?}"
    );
}
