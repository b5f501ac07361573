use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::recipe::{RecipeBuilder, Run, walk};

use super::*;
use crate::source_id::SourceId;

const FIXED: Parameters = Parameters::Fixed { len: 64 };
const MAKER: &str = "the maker";

fn object() -> Oid {
    Oid::of(b"the object")
}

/// A recipe's root, and its nodes in the order of a walk.
fn recipe(runs: &[Run]) -> (RecipeRoot, Vec<Bytes>) {
    let mut kept = std::collections::HashMap::new();
    let mut builder = RecipeBuilder::new(FIXED, |hash, bytes| {
        kept.insert(hash, bytes);
        Ok::<_, Infallible>(())
    })
    .unwrap();
    runs.iter().for_each(|run| builder.push_run(*run).unwrap());
    let root = builder.finish(object()).unwrap();
    let mut nodes = Vec::new();
    let all = walk(&root, |hash| {
        nodes.push(Bytes::from(kept[hash].clone()));
        Ok::<_, Infallible>(Some(kept[hash].clone()))
    });
    assert!(all.map(Result::unwrap).count() <= runs.len());
    (root, nodes)
}

/// `count` different chunks.
fn different(count: u32) -> Vec<Run> {
    let run = |i: u32| Run { hash: ChunkHash(*Oid::of(&i.to_le_bytes()).digest()), len: 64, repeat: 1 };
    (0..count).map(run).collect()
}

fn part(root: Option<&RecipeRoot>, nodes: &[Bytes]) -> RecipePart {
    RecipePart {
        maker: SourceId::other(MAKER, None),
        root: root.map(|root| root.to_bytes().into()),
        nodes: nodes.to_vec(),
    }
}

fn read(size: u64, parts: Vec<RecipePart>) -> Result<Option<RecipeClaim>, WrongRecipe> {
    let mut reader = RecipeReader::new(object(), size);
    parts.into_iter().try_for_each(|part| reader.take(part))?;
    reader.finish()
}

#[test]
fn a_recipe_comes_back_however_it_is_cut_into_parts() {
    for count in [0, 1, 300, 20_000] {
        let (root, nodes) = recipe(&different(count));
        for per_part in [1, 3, 1000] {
            let mut parts = vec![part(Some(&root), &[])];
            parts.extend(nodes.chunks(per_part).map(|nodes| part(None, nodes)));
            let claim = read(root.size, parts).unwrap().unwrap();
            assert_eq!((claim.chunks.len() as u32, claim.maker.to_string()), (count, MAKER.to_owned()));
            assert!(claim.builds(root.size));
        }
        assert!(read(root.size, vec![part(Some(&root), &nodes)]).unwrap().is_some(), "in one part");
    }
    assert!(read(0, vec![]).unwrap().is_none(), "none at all");
}

#[test]
fn equal_nodes_come_as_often_as_they_are_needed() {
    let once = different(2000);
    let (root, nodes) = recipe(&[&once[..], &once, &once].concat());
    assert!(nodes.iter().collect::<std::collections::HashSet<_>>().len() < nodes.len());
    let claim = read(root.size, vec![part(Some(&root), &nodes)]).unwrap().unwrap();
    assert_eq!(claim.chunks.len(), 6000);
}

#[test]
fn the_recipe_of_something_else_is_refused() {
    let (root, nodes) = recipe(&different(300));
    let other = RecipeRoot { object: Oid::of(b"another"), ..root };
    assert_eq!(read(root.size, vec![part(Some(&other), &nodes)]).unwrap_err(), WrongRecipe::OtherObject);
    assert_eq!(read(root.size + 1, vec![part(Some(&root), &nodes)]).unwrap_err(), WrongRecipe::OtherObject);
}

#[test]
fn a_root_comes_first_and_once() {
    let (root, nodes) = recipe(&different(300));
    for parts in [
        vec![part(None, &nodes)],
        vec![part(None, &[])],
        vec![part(Some(&root), &[]), part(Some(&root), &nodes)],
        vec![RecipePart { root: Some(Bytes::from_static(b"?")), ..part(None, &nodes) }],
    ] {
        assert!(matches!(read(root.size, parts).unwrap_err(), WrongRecipe::Root(_)));
    }
}

#[test]
fn missing_swapped_repeated_and_changed_nodes_are_refused() {
    let (root, nodes) = recipe(&different(1000));
    assert!(nodes.len() > 5);
    for at in 0..nodes.len() {
        let mut missing = nodes.clone();
        missing.remove(at);
        assert!(read(root.size, vec![part(Some(&root), &missing)]).is_err(), "without node {at}");
        let mut repeated = nodes.clone();
        repeated.insert(at, nodes[at].clone());
        assert!(read(root.size, vec![part(Some(&root), &repeated)]).is_err(), "node {at} twice");
        let mut changed = nodes.clone();
        changed[at] = [&nodes[at][..], &[0]].concat().into();
        assert!(read(root.size, vec![part(Some(&root), &changed)]).is_err(), "node {at} changed");
    }
    let mut swapped = nodes.clone();
    swapped.swap(1, 2);
    assert!(matches!(
        read(root.size, vec![part(Some(&root), &swapped)]),
        Err(WrongRecipe::Node(RecipeError::WrongBytes(_)))
    ));
}

#[test]
fn nothing_may_follow_the_end_or_be_empty() {
    let (root, nodes) = recipe(&different(300));
    let whole = || vec![part(Some(&root), &nodes)];
    for further in [part(None, &nodes[..1]), part(None, &[]), part(None, &[Bytes::new()])] {
        let parts = [whole(), vec![further]].concat();
        assert_eq!(read(root.size, parts).unwrap_err(), WrongRecipe::Surplus);
    }
    let idle = vec![part(Some(&root), &[]), part(None, &[])];
    assert_eq!(read(root.size, idle).unwrap_err(), WrongRecipe::Surplus);
}

#[test]
fn few_bytes_that_stand_for_too_many_chunks_are_refused() {
    let many = |repeat| vec![Run { hash: ChunkHash([1; 32]), len: 64, repeat }];
    let (root, nodes) = recipe(&many(MAX_CHUNKS as u64));
    assert_eq!(
        read(root.size, vec![part(Some(&root), &nodes)]).unwrap().unwrap().chunks.len(),
        MAX_CHUNKS,
        "the most there may be"
    );
    for repeat in [MAX_CHUNKS as u64 + 1, 1 << 38] {
        let (root, nodes) = recipe(&many(repeat));
        let result = read(root.size, vec![part(Some(&root), &nodes)]);
        assert_eq!(result.unwrap_err(), WrongRecipe::TooManyChunks);
    }
}
