//! Targets that want a part of an object, and targets whose bytes are used as they come.

use super::switches::switching;
use super::*;

#[tokio::test]
async fn only_the_pieces_of_a_part_are_asked_for() {
    let (piece, data) = (PIECE as u64, pattern(5 * PIECE + 9, 1));
    let size = data.len() as u64;
    for (part, pieces) in [
        (piece + 7..piece + 8, 1..2),
        (2 * piece - 1..2 * piece + 1, 1..3),
        (5 * piece + 3..size + 100, 5..6),
        (0..size, 0..6),
    ] {
        for size in [Some(size), None] {
            let (source, target) = (Arc::new(Scripted::new(&[&data])), Memory::part(part.clone()));
            let request = ObjectRequest { size, ..request(Oid::of(&data), &target) };
            let session = session(&source);
            let fetched = fetch(&session, request).await.unwrap();
            assert_eq!((fetched.oid, fetched.size), (Oid::of(&data), data.len() as u64));
            assert!(source.pieces_asked().into_iter().eq(pieces.clone()), "{part:?}");
            let bytes = target.bytes.lock().unwrap();
            let whole = pieces.start as usize * PIECE..data.len().min(pieces.end as usize * PIECE);
            assert!(bytes[whole.clone()] == data[whole.clone()], "{part:?}");
            target.expect_incomplete();
            assert!(target.prefixes.lock().unwrap().is_empty(), "it has no front");
            assert_eq!(session.progress().snapshot().expected, whole.len() as u64);
        }
    }
}

#[tokio::test]
async fn a_part_that_is_wrong_is_no_part() {
    let data = pattern(4 * PIECE, 1);
    let source = Scripted::new(&[&data]).script(|_, _| Act::Bytes(pattern(PIECE, 2)));
    let target = Memory::part(PIECE as u64..PIECE as u64 + 1);
    let end = fetch(&session(&Arc::new(source)), request(Oid::of(&data), &target)).await;
    assert!(matches!(end, Err(FetchError::Bad { .. })), "{end:?}");
    assert!(target.bytes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_used_as_it_comes_comes_as_pieces() {
    // The recipe lies: its chunks would be written before anything shows that.
    let (data, lie) = (pattern(12 * PIECE, 1), pattern(12 * PIECE, 2));
    let source = Arc::new(switching(&data, &lie, 1).slowly());
    let target = Memory::read_early();
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &target) };
    fetch(&session(&source), request).await.unwrap();
    target.expect(&data);
    assert_eq!(source.chunks_asked(), 0);
}
