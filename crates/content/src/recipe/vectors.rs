//! The published test vectors, `docs/formats/vectors/recipe/`.

use std::convert::Infallible;

use super::*;
use crate::Oid;
use crate::chunking::{ChunkHash, Parameters};
use crate::node_id::{hex, unhex};

const RECIPES: &str = include_str!("../../../../docs/formats/vectors/recipe/recipes.txt");
const INVENTED: &str = include_str!("../../../../docs/formats/vectors/recipe/invented.txt");
const REFUSED: &str = include_str!("../../../../docs/formats/vectors/recipe/refused.txt");

/// Lines as keyword and rest, without comments and empty lines.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let bare = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    bare.filter(|line| !line.is_empty()).map(|line| line.split_once(' ').unwrap_or((line, "")))
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// One recipe of the listing.
#[derive(Debug, Default)]
struct Listed {
    name: String,
    runs: Vec<Run>,
    root: Vec<u8>,
    nodes: Vec<Vec<u8>>,
}

fn listed() -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    for (key, value) in lines(RECIPES) {
        if key == "recipe" {
            all.push(Listed { name: value.to_owned(), ..Listed::default() });
            continue;
        }
        let recipe = all.last_mut().unwrap();
        match key {
            "run" => recipe.runs.push(run(value)),
            "root" => recipe.root = bytes(value),
            "node" => recipe.nodes.push(bytes(value)),
            _ => panic!("{key}"),
        }
    }
    all
}

fn run(text: &str) -> Run {
    let fields: Vec<_> = text.split(' ').collect();
    let hash = ChunkHash(unhex(fields[0]).unwrap());
    Run { hash, len: fields[1].parse().unwrap(), repeat: fields[2].parse().unwrap() }
}

/// Root and nodes of `runs`, as bytes.
fn built(runs: &[Run], parameters: Parameters, object: Oid) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut nodes = Vec::new();
    let mut builder = RecipeBuilder::new(parameters, |_, bytes| {
        nodes.push(bytes);
        Ok::<_, Infallible>(())
    })
    .unwrap();
    for run in runs {
        builder.push_run(*run).unwrap();
    }
    let root = builder.finish(object).unwrap();
    (root.to_bytes(), nodes)
}

#[test]
fn published_recipes_are_built_and_read() {
    let all = listed();
    assert_eq!(all.len(), 5);
    for recipe in all {
        let root = RecipeRoot::from_bytes(&recipe.root).unwrap();
        let (root_bytes, nodes) = built(&recipe.runs, root.parameters, root.object);
        assert_eq!(hex(&root_bytes), hex(&recipe.root), "{}", recipe.name);
        assert_eq!(nodes, recipe.nodes, "{}", recipe.name);

        let lookup = |hash: &NodeHash| {
            Ok::<_, Infallible>(recipe.nodes.iter().find(|node| NodeHash::of(node) == *hash).cloned())
        };
        let runs: Vec<_> = walk(&root, lookup).map(|extent| extent.unwrap().run).collect();
        assert_eq!(runs, recipe.runs, "{}", recipe.name);
    }
}

#[test]
fn the_published_large_recipe_is_built() {
    let chunk = |i: u32| {
        let hash = ChunkHash::of(&u64::from(i).to_le_bytes());
        Run { hash, len: 4096 + i, repeat: 1 }
    };
    let runs: Vec<_> = (0..20_000).map(chunk).collect();
    let (root, nodes) = built(&runs, Parameters::DEFAULT, Oid::of(b""));
    let mut checked = 0;
    for (key, value) in lines(INVENTED) {
        if key == "root" {
            assert_eq!(hex(&root), value);
        } else {
            let (level, count) = value.split_once(' ').unwrap();
            let level: u8 = level.parse().unwrap();
            let found = nodes.iter().filter(|node| node[1] == level).count();
            assert_eq!(found.to_string(), count, "level {level}");
        }
        checked += 1;
    }
    assert_eq!(checked, 4);
}

#[test]
fn published_bad_encodings_are_refused() {
    assert!(lines(REFUSED).count() > 30);
    for (key, value) in lines(REFUSED) {
        let is_refused = match key {
            "root" => RecipeRoot::from_bytes(&bytes(value)).is_err(),
            _ => RecipeNode::from_bytes(&bytes(value)).is_err(),
        };
        assert!(is_refused, "{key} {value}");
    }
}
