//! Recipes are claims by their makers: chunks are taken, pieces decide.

use super::*;
use crate::source_id::SourceId;
use crate::want::WantId;

/// Bytes of a chunk here: some lie across two pieces.
const CHUNK: usize = 100_000;

fn claim(data: &[u8]) -> RecipeClaim {
    let chunk = |(index, bytes): (usize, &[u8])| RecipeChunk {
        hash: *Oid::of(bytes).digest(),
        len: bytes.len() as u32,
        offset: (index * CHUNK) as u64,
    };
    RecipeClaim {
        chunks: data.chunks(CHUNK).enumerate().map(chunk).collect(),
        maker: SourceId::other("the maker", None),
    }
}

async fn fetch_by(source: Scripted, data: &[u8], recipe: RecipeClaim) -> Arc<Scripted> {
    let (source, target) = (Arc::new(source), Memory::new());
    let request = ObjectRequest { recipe: Some(recipe), ..request(Oid::of(data), &target) };
    fetch(&session(&source), request).await.unwrap();
    target.expect(data);
    source
}

#[tokio::test]
async fn a_good_recipe_needs_no_pieces() {
    let data = pattern(4 * PIECE + 77, 1);
    let source = fetch_by(Scripted::new(&[&data]).chunks(data.chunks(CHUNK)), &data, claim(&data)).await;
    assert_eq!(source.chunks_asked(), data.len().div_ceil(CHUNK));
    assert!(source.pieces_asked().is_empty());
    assert!(source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_chunk_that_stands_in_many_places_is_fetched_once() {
    let data = vec![3; 8 * CHUNK];
    let source = fetch_by(Scripted::new(&[&data]).chunks(data.chunks(CHUNK)), &data, claim(&data)).await;
    assert_eq!(source.chunks_asked(), 1);
}

#[tokio::test]
async fn chunks_that_make_up_something_else_are_made_good_by_pieces_and_the_maker_blamed() {
    let data = pattern(4 * PIECE, 1);
    let mut lie = data.clone();
    lie[2 * PIECE + 10] ^= 1;
    let source = Scripted::new(&[&data]).chunks(lie.chunks(CHUNK));
    let source = fetch_by(source, &data, claim(&lie)).await;
    assert_eq!(source.pieces_asked(), [2]);
    assert_eq!(*source.blamed.lock().unwrap(), ["the maker"]);
}

#[tokio::test]
async fn a_recipe_that_is_wrong_throughout_costs_no_correctness() {
    for seed in 2..8 {
        let (data, lie) = (pattern(5 * PIECE + 3, 1), pattern(5 * PIECE + 3, seed));
        let source = Scripted::new(&[&data]).chunks(lie.chunks(CHUNK));
        let source = fetch_by(source, &data, claim(&lie)).await;
        assert_eq!(source.pieces_asked(), [0, 1, 2, 3, 4, 5]);
    }
}

#[tokio::test]
async fn a_recipe_of_another_size_or_with_gaps_is_not_used() {
    let data = pattern(3 * PIECE, 1);
    let mut gap = claim(&data);
    gap.chunks.remove(1);
    let mut endless = claim(&data);
    endless.chunks[0].len = u32::MAX;
    let empty = RecipeClaim { chunks: Vec::new(), ..claim(&data) };
    for wrong in [gap, endless, empty, claim(&data[1..]), claim(&pattern(3 * PIECE + 1, 1))] {
        let source = fetch_by(Scripted::new(&[&data]), &data, wrong).await;
        assert_eq!(source.pieces_asked(), [0, 1, 2]);
        assert_eq!(*source.blamed.lock().unwrap(), ["the maker"]);
    }
}

#[tokio::test]
async fn chunks_that_nobody_has_are_replaced_by_pieces() {
    let data = pattern(4 * PIECE, 1);
    for outcome in [Outcome::NotHere, Outcome::Refused("chunks are for allowed nodes".into())] {
        let nobody = *Oid::of(&data[3 * CHUNK..4 * CHUNK]).digest();
        let source =
            Scripted::new(&[&data]).chunks(data.chunks(CHUNK)).script(move |want, _| match want.id {
                WantId::Chunk { hash, .. } if hash == nobody => Act::End(outcome.clone()),
                _ => Act::Good,
            });
        let source = fetch_by(source, &data, claim(&data)).await;
        assert_eq!(source.pieces_asked(), [1], "the chunk lies in piece 1");
    }
}

#[tokio::test]
async fn chunks_with_wrong_bytes_blame_their_source_and_then_give_way_to_pieces() {
    let data = pattern(3 * PIECE, 1);
    let source = Scripted::new(&[&data]).script(|want, _| match want.id {
        WantId::Chunk { .. } => Act::Bytes(vec![0; 5]),
        _ => Act::Good,
    });
    let source = source.chunks(data.chunks(CHUNK));
    let source = fetch_by(source, &data, claim(&data)).await;
    assert_eq!(source.pieces_asked(), [0, 1, 2]);
    assert!(source.blamed.lock().unwrap().iter().all(|who| who == SOURCE));
}

#[tokio::test]
async fn a_small_object_is_fetched_as_its_one_piece() {
    for len in [0, 10, PIECE] {
        let data = pattern(len, 1);
        let source = fetch_by(Scripted::new(&[&data]).chunks(data.chunks(CHUNK)), &data, claim(&data)).await;
        assert_eq!(source.pieces_asked(), [0]);
    }
}
