//! Rules of recipes, given boundaries and spans.
//!
//! A store need not make recipes; one that does makes them of the object's own chunks.

use towpath_content::chunking::{ChunkHash, MAX_CHUNK_LEN, Parameters};
use towpath_content::recipe::{Descriptor, verify, walk};

use super::reading::Head;
use super::*;
use crate::seam::RecipeNodes;
use crate::spans::MAX_SPAN;

pub(super) fn checks<S: Store>() -> Vec<(&'static str, StoreCheck<S>)> {
    vec![
        ("a recipe has the chunks of its object, whoever asks first", recipes),
        ("there is no recipe of what is not complete", no_recipe),
        ("a recipe shows the boundaries that were given, and no empty chunks", given),
        ("a chunk of over 16 MiB is split", large),
        ("boundaries change nothing of the object", unchanged),
        ("a span is read across pieces, of whatever is there", spans),
        ("spans that are too long or outside are refused", refused_spans),
        ("a span of a partial or live object is there once its pieces are", growing_spans),
    ]
}

/// The chunks of a recipe that is well made, and of this object.
fn chunks_of(recipe: &dyn RecipeNodes, data: &[u8]) -> Vec<Descriptor> {
    let root = recipe.root();
    assert_eq!((root.object, root.size), (Oid::of(data), data.len() as u64));
    assert!(verify(root, |hash| recipe.node(hash)).is_ok(), "the recipe is well made");
    let extents = walk(root, |hash| recipe.node(hash)).map_while(Result::ok);
    let chunks: Vec<_> = extents.flat_map(|extent| extent.descriptors()).collect();
    for chunk in &chunks {
        let bytes = &data[chunk.offset as usize..][..chunk.len as usize];
        assert_eq!(chunk.hash, ChunkHash::of(bytes), "the chunk at {}", chunk.offset);
    }
    chunks
}

/// The recipe of an object, unless the store makes none.
fn recipe_of(store: &impl Store, oid: &Oid, data: &[u8]) -> Result<Option<Vec<Descriptor>>, StoreError> {
    match store.recipe(oid) {
        Err(StoreError::NotHere) => Ok(None),
        recipe => Ok(Some(chunks_of(&*recipe?, data))),
    }
}

fn recipes<S: Store>(store: &S) -> CheckResult {
    for (number, len) in [0, 1, 100_000, 5 * PIECE + 77].into_iter().enumerate() {
        let (live, data) = (live(number as u8), pattern(len, 3));
        let oid = put(store, &live, &data)?;
        let Some(first) = recipe_of(store, &oid, &data)? else {
            continue;
        };
        assert_eq!(recipe_of(store, &oid, &data)?, Some(first.clone()), "asked again");
        assert_eq!(recipe_of(store, &live, &data)?, Some(first), "under the name of the put");
        assert!(
            store.recipe(&oid)?.node(&towpath_content::recipe::NodeHash([7; 32])).is_ok_and(|n| n.is_none())
        );
    }
    Ok(())
}

fn no_recipe<S: Store>(store: &S) -> CheckResult {
    let data = pattern(2 * PIECE, 1);
    let partial = Oid::of(&data);
    store.announce(&partial, Some(Head::new(&data, 2)));
    store.put_init(&live(1), &About::default())?;
    store.put_data(&live(1), &data)?;
    store.put_init(&live(2), &About::default())?;
    store.put_abort(&live(2));
    for oid in [partial, live(1), live(2), live(3), Oid::of(b"unknown")] {
        assert!(matches!(store.recipe(&oid), Err(StoreError::NotHere)), "{oid}");
    }
    Ok(())
}

/// Puts the parts, with a boundary behind each.
fn put_parts(store: &impl Store, live: &Oid, parts: &[&[u8]]) -> Result<Oid, StoreError> {
    store.put_init(live, &About::default())?;
    for part in parts {
        if !part.is_empty() {
            store.put_data(live, part)?;
        }
        store.put_boundary(live)?;
    }
    store.put_commit(live)
}

/// Checks the lengths of an object's chunks, if the store shows those that were given.
fn expect_given(store: &impl Store, oid: &Oid, data: &[u8], lengths: &[u32]) -> CheckResult {
    let Some(chunks) = recipe_of(store, oid, data)? else {
        return Ok(());
    };
    if store.recipe(oid)?.root().parameters == Parameters::Given {
        assert_eq!(chunks.iter().map(|chunk| chunk.len).collect::<Vec<_>>(), lengths);
    }
    Ok(())
}

fn given<S: Store>(store: &S) -> CheckResult {
    let data = pattern(2 * PIECE + 11, 5);
    let parts = [&[][..], &[], &data[..1], &[], &data[1..PIECE + 5], &data[PIECE + 5..], &[], &[]];
    let oid = put_parts(store, &live(1), &parts)?;
    expect_given(store, &oid, &data, &[1, PIECE as u32 + 4, PIECE as u32 + 6])?;
    // The same bytes once more, without a word: what was given stays.
    put(store, &live(2), &data)?;
    expect_given(store, &oid, &data, &[1, PIECE as u32 + 4, PIECE as u32 + 6])?;
    let empty = put_parts(store, &live(3), &[&[], &[]])?;
    expect_given(store, &empty, &[], &[])
}

fn large<S: Store>(store: &S) -> CheckResult {
    let data = pattern(MAX_CHUNK_LEN as usize + 9, 5);
    let oid = put_parts(store, &live(1), &[&data[..2], &data[2..]])?;
    expect_given(store, &oid, &data, &[2, MAX_CHUNK_LEN, 7])
}

fn unchanged<S: Store>(store: &S) -> CheckResult {
    let data = pattern(PIECE + 9, 5);
    let oid = put_parts(store, &live(1), &[&data[..2], &data[2..PIECE], &data[PIECE..]])?;
    expect_complete(store, &oid, &data)
}

fn expect_span(store: &impl Store, oid: &Oid, data: &[u8], range: Range<u64>) -> CheckResult {
    let mut buf = pattern(9, 9);
    store.read_span(oid, range.clone(), &mut buf)?;
    assert!(buf == data[range.start as usize..range.end as usize], "{range:?} of {}", data.len());
    Ok(())
}

fn spans<S: Store>(store: &S) -> CheckResult {
    const P: u64 = PIECE as u64;
    let (live, data) = (live(1), pattern(3 * PIECE + 77, 1));
    let oid = put(store, &live, &data)?;
    let end = data.len() as u64;
    for range in [0..0, 0..1, 5..P, P..P, P - 1..P + 1, 7..3 * P + 7, 3 * P..end, 0..end, end..end] {
        expect_span(store, &oid, &data, range.clone())?;
        expect_span(store, &live, &data, range)?;
    }
    let unknown = store.read_span(&Oid::of(b"unknown"), 0..1, &mut Vec::new());
    assert!(matches!(unknown, Err(StoreError::NotHere)), "{unknown:?}");
    Ok(())
}

fn refused_spans<S: Store>(store: &S) -> CheckResult {
    let data = pattern(PIECE + 1, 1);
    let (oid, end) = (put(store, &live(1), &data)?, data.len() as u64);
    let partial = Oid::of(b"partial");
    store.announce(&partial, Some(Head::new(&data, 2)));
    #[expect(clippy::reversed_empty_ranges, reason = "it is to be refused")]
    let ranges =
        [0..end + 1, end..end + 1, end + 1..end + 1, 2..1, 0..MAX_SPAN + 1, 0..u64::MAX, u64::MAX..0];
    for range in ranges {
        for oid in [oid, partial] {
            let read = store.read_span(&oid, range.clone(), &mut Vec::new());
            assert!(is_refused(&read), "{range:?} of {oid}: {read:?}");
        }
    }
    Ok(())
}

fn growing_spans<S: Store>(store: &S) -> CheckResult {
    const P: u64 = PIECE as u64;
    let data = pattern(3 * PIECE + 5, 1);
    let partial = Oid::of(&data);
    store.announce(&partial, Some(Head::new(&data, 2)));
    store.put_init(&live(1), &About::default())?;
    store.put_data(&live(1), &data[..2 * PIECE + 1])?;
    for oid in [partial, live(1)] {
        expect_span(store, &oid, &data, 3..2 * P)?;
        for range in [2 * P - 1..2 * P + 1, 2 * P..3 * P] {
            let read = store.read_span(&oid, range.clone(), &mut Vec::new());
            assert!(matches!(read, Err(StoreError::NotYet)), "{range:?} of {oid}: {read:?}");
        }
    }
    Ok(())
}
