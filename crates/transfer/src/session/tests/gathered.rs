//! Pieces whose bytes several sources brought: checked as a whole, and doubted in parts.

use bytes::Bytes;

use super::*;
use crate::gathering::PieceParts;
use crate::source_id::SourceId;
use crate::want::{Payload, Want, WantId};

const FIRST: &str = "the first";
const SECOND: &str = "the second";

const fn index(want: &Want) -> u64 {
    match want.id {
        WantId::Piece { index, .. } => index,
        _ => u64::MAX,
    }
}

/// A piece of `data`, the first third of which one source brought, the rest another.
fn gathered(data: &[u8], want: &Want, liars: &[&str]) -> Act {
    let WantId::Piece { layout, .. } = want.id else { return Act::Good };
    let (range, mut parts) = (layout.range(index(want)), PieceParts::new(0..want.id.len()));
    let third = want.id.len() / 3;
    for (who, part) in [(SECOND, third..want.id.len()), (FIRST, 0..third)] {
        let mut bytes = data[(range.start + part.start) as usize..(range.start + part.end) as usize].to_vec();
        if liars.contains(&who) {
            bytes[0] ^= 1;
        }
        parts.add(part.start, &Bytes::from(bytes), &SourceId::other(who, None));
    }
    Act::Payload(parts.into_payload().expect("all of it").0)
}

/// Divides every want that may be, with these liars in piece 1.
fn dividing(data: &[u8], liars: &'static [&'static str]) -> Scripted {
    let bytes = data.to_vec();
    Scripted::new(&[data]).script(move |want, _| match (want.undivided, index(want)) {
        (true, _) => Act::Good,
        (false, 1) => gathered(&bytes, want, liars),
        (false, _) => gathered(&bytes, want, &[]),
    })
}

#[tokio::test]
async fn bytes_of_several_sources_make_one_piece() {
    for size in [3, PIECE, 4 * PIECE + 7] {
        let data = pattern(size, 1);
        let (source, target) = (Arc::new(dividing(&data, &[])), Memory::new());
        let session = session(&source);
        fetch(&session, request(Oid::of(&data), &target)).await.unwrap();
        target.expect(&data);
        assert_eq!(source.pieces_asked().len(), size.div_ceil(PIECE), "each once");
        assert!(source.blamed.lock().unwrap().is_empty());
        let counters = session.progress().snapshot();
        let thirds: u64 = data.chunks(PIECE).map(|piece| piece.len() as u64 / 3).sum();
        let expected = [(FIRST, thirds), (SECOND, size as u64 - thirds)];
        assert_eq!(
            counters.by_source,
            expected.map(|(who, bytes)| (SourceId::other(who, None), bytes)).into()
        );
        assert_eq!(counters.done, size as u64);
    }
}

#[tokio::test]
async fn whoever_brought_the_wrong_part_is_named_and_nobody_else() {
    let data = pattern(3 * PIECE, 1);
    for liars in [&[FIRST][..], &[SECOND], &[FIRST, SECOND]] {
        let source = fetch_good(dividing(&data, liars), &data).await;
        assert_eq!(source.pieces_asked(), [0, 1, 1, 2]);
        assert_eq!(*source.blamed.lock().unwrap(), liars);
        let calls = source.calls.lock().unwrap();
        let undivided: Vec<u64> = calls.iter().flatten().filter(|want| want.undivided).map(index).collect();
        assert_eq!(undivided, [1], "it is wanted of one source then");
    }
}

#[tokio::test]
async fn the_doubt_stays_until_the_right_bytes_have_come() {
    let data = pattern(3 * PIECE, 1);
    let bytes = data.clone();
    let source = Scripted::new(&[&data]).script(move |want, before| match (index(want), before) {
        (1, 0) => gathered(&bytes, want, &[SECOND]),
        (1, 1) => Act::Bytes(pattern(PIECE, 9)),
        _ => Act::Good,
    });
    let source = fetch_good(source, &data).await;
    assert_eq!(*source.blamed.lock().unwrap(), [SOURCE, SECOND]);
}

#[tokio::test]
async fn without_proofs_they_are_checked_by_values_that_others_tell() {
    let data = pattern(3 * PIECE, 1);
    for liars in [&[][..], &[FIRST]] {
        let bytes = data.clone();
        let source = Scripted::new(&[&data]).script(move |want, before| match (index(want), before) {
            (1, 0) => match gathered(&bytes, want, liars) {
                Act::Payload(payload) => Act::Bare(payload),
                act => act,
            },
            _ => Act::Good,
        });
        let source = fetch_good(source, &data).await;
        assert_eq!(*source.blamed.lock().unwrap(), liars);
        assert_eq!(source.pieces_asked().len(), 3 + liars.len());
    }
}

#[tokio::test]
async fn who_goes_on_dividing_what_is_wrong_is_not_asked_for_ever() {
    let data = pattern(3 * PIECE, 1);
    let bytes = data.clone();
    let stubborn = move |want: &Want, _: u32| gathered(&bytes, want, &[SECOND]);
    let (source, target) = (Arc::new(Scripted::new(&[&data]).script(stubborn)), Memory::new());
    let error = fetch(&session(&source), request(Oid::of(&data), &target)).await.unwrap_err();
    assert!(matches!(error, FetchError::Bad { .. }), "{error}");
    assert!(target.bytes.lock().unwrap().is_empty());
    assert!(source.blamed.lock().unwrap().is_empty(), "nobody knows who it was");
}

#[tokio::test]
async fn parts_that_are_not_all_of_it_are_the_fault_of_whoever_delivers_them() {
    let data = pattern(2 * PIECE, 1);
    let bytes = data.clone();
    let source =
        Scripted::new(&[&data]).script(move |want, before| match (gathered(&bytes, want, &[]), before) {
            (Act::Payload(Payload::Gathered(mut parts)), 0) => {
                parts.pop();
                Act::Payload(Payload::Gathered(parts))
            }
            _ => Act::Good,
        });
    let source = fetch_good(source, &data).await;
    assert_eq!(*source.blamed.lock().unwrap(), [SOURCE, SOURCE]);
}
