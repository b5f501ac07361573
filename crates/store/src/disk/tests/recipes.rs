//! Recipes on a disk: made once, kept, checked, evicted, and gone with their object.

use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use towpath_content::chunking::Parameters;
use towpath_content::recipe::{NodeHash, walk};

use super::super::crash::quiet;
use super::super::made_recipes::MADE_LIMIT;
use super::super::recipes::evict;
use super::cache::{self, put};
use super::*;
use crate::cutting::cut_open_file;
use crate::doubles::noise;
use crate::seam::RecipeNodes;

/// Enough for a recipe that is kept, of more than one node.
const LEN: usize = 3 << 20;

fn chunks(recipe: &dyn RecipeNodes) -> Vec<(u64, u32)> {
    let extents = walk(recipe.root(), |hash| recipe.node(hash)).map(Result::unwrap);
    extents.flat_map(|extent| extent.descriptors()).map(|chunk| (chunk.offset, chunk.len)).collect()
}

fn made(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path("data/recipes/made")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn put_given(store: &DiskStore, number: u8, data: &[u8]) -> Oid {
    store.put_init(&live(number), &About::default()).unwrap();
    for part in data.chunks(data.len() / 3) {
        store.put_data(&live(number), part).unwrap();
        store.put_boundary(&live(number)).unwrap();
    }
    store.put_commit(&live(number)).unwrap()
}

#[test]
fn a_recipe_is_made_once_and_kept() {
    let home = Home::new();
    let path = home.file("file", &noise(1, LEN));
    let store = home.store();
    let oid = put_file(&store, &path);
    let mut expected = Vec::new();
    cut_open_file(&fs::File::open(&path).unwrap(), &path, &Parameters::DEFAULT, &mut |found, _| {
        expected.extend(found.iter().map(|chunk| (chunk.offset, chunk.len)));
        Ok(())
    })
    .unwrap();
    assert_eq!(chunks(&*store.recipe(&oid).unwrap()), expected);
    // Made anew it could not be, with the file gone.
    fs::remove_file(&path).unwrap();
    for store in [&store, &home.store()] {
        let recipe = store.recipe(&oid).unwrap();
        assert_eq!((chunks(&*recipe), recipe.root().object), (expected.clone(), oid));
        assert!(recipe.node(&NodeHash([1; 32])).unwrap().is_none());
    }
    assert_eq!(made(&home).len(), 1);
    assert_eq!(fs::read_dir(home.path("data/incoming")).unwrap().count(), 0);
}

#[test]
fn those_who_ask_at_once_wait_for_one_recipe() {
    let home = Home::new();
    let store = home.store();
    let oid = put_file(&store, &home.file("file", &noise(1, LEN)));
    std::thread::scope(|scope| {
        let ask = || scope.spawn(|| chunks(&*store.recipe(&oid).unwrap()).len());
        let asked: Vec<_> = (0..8).map(|_| ask()).collect();
        let counts: Vec<_> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
        assert!(counts.iter().all(|count| *count == counts[0] && *count > 100));
    });
    // One that is made again counts once more until the folder is looked at.
    let bytes = fs::metadata(made(&home).remove(0)).unwrap().len();
    assert_eq!(*lock(&store.recipes.made.bytes), Some(bytes));
}

#[test]
fn small_objects_cost_no_file() {
    let home = Home::new();
    let store = home.store();
    let oid = put(&store, 1, 900_000);
    assert!(chunks(&*store.recipe(&oid).unwrap()).len() > 10);
    assert_eq!(made(&home).len(), 0);
}

#[test]
fn a_damaged_recipe_is_made_anew_wherever_the_damage_is() {
    let home = Home::new();
    let store = home.store();
    let oid = put_file(&store, &home.file("file", &noise(1, LEN)));
    let expected = chunks(&*store.recipe(&oid).unwrap());
    let path = made(&home).remove(0);
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(97).chain(whole.len() - 140..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(chunks(&*store.recipe(&oid).unwrap()), expected, "byte {at}");
        assert!(fs::read(&path).unwrap() == whole, "byte {at}");
    }
    for len in [0, 1, 5, 6, 7, 50, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..len]).unwrap();
        assert_eq!(chunks(&*store.recipe(&oid).unwrap()), expected, "{len} bytes");
    }
    // Of another object, and of other parameters.
    let other = put_given(&store, 1, &noise(2, LEN));
    store.recipe(&other).unwrap();
    fs::copy(store.core.folders.given_recipe(&other), &path).unwrap();
    assert_eq!(chunks(&*store.recipe(&oid).unwrap()), expected);
}

#[test]
fn damage_that_shows_when_a_node_is_read_removes_the_recipe() {
    let home = Home::new();
    let store = home.store();
    let oid = put_file(&store, &home.file("file", &noise(1, LEN)));
    let (recipe, path) = (store.recipe(&oid).unwrap(), made(&home).remove(0));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 5000], 0).unwrap();
    let top = recipe.root().top;
    let read: Result<Vec<_>, _> = walk(recipe.root(), |hash| recipe.node(hash)).collect();
    assert!(read.is_err() && recipe.node(&top).map_or_else(|e| e.kind() == ErrorKind::InvalidData, |_| true));
    assert!(!path.exists());
    assert!(chunks(&*store.recipe(&oid).unwrap()).len() > 100);
}

#[test]
fn a_source_that_changes_has_no_recipe() {
    let home = Home::new();
    let store = home.store();
    let path = home.file("file", &noise(1, LEN));
    let oid = put_file(&store, &path);
    fs::write(&path, noise(2, LEN)).unwrap();
    assert!(matches!(store.recipe(&oid), Err(StoreError::SourceChanged { .. })));
    assert!(matches!(store.recipe(&oid), Err(StoreError::NotHere)));
    assert_eq!((made(&home).len(), fs::read_dir(home.path("data/incoming")).unwrap().count()), (0, 0));
}

#[test]
fn an_object_over_the_limit_has_no_recipe() {
    let home = Home::new();
    let store = home.store();
    let path = home.path("files/huge");
    let file = fs::File::create(&path).unwrap();
    file.set_len((512 << 30) + 1).unwrap();
    let oid = Oid::of(b"not looked at");
    let (dir, stamp) = (home.path("files"), Stamp::of(&file).unwrap());
    let record = FileRecord { dir, name: "huge".into(), stamp, settled: true, oid, values: None };
    store.remember(&[record]).unwrap();
    assert!(matches!(store.recipe(&oid), Err(StoreError::NotHere)));
}

#[test]
fn boundaries_are_for_puts_that_are_open() {
    let home = Home::new();
    let store = home.store();
    assert!(matches!(store.put_boundary(&live(1)), Err(StoreError::Refused { .. })));
    let oid = put_given(&store, 1, &noise(1, 3000));
    assert!(matches!(store.put_boundary(&live(1)), Err(StoreError::Refused { .. })));
    let recipe = store.recipe(&oid).unwrap();
    assert_eq!(recipe.root().parameters, Parameters::Given);
    assert_eq!(chunks(&*recipe), [(0, 1000), (1000, 1000), (2000, 1000)]);
    assert_eq!(chunks(&*home.store().recipe(&oid).unwrap()).len(), 3, "after a restart");
}

#[test]
fn what_was_unused_longest_is_evicted_first() {
    let home = Home::new();
    let folder = home.path("files");
    for (name, age) in [("old", 300), ("older", 400), ("new", 100)] {
        let file = fs::File::create(folder.join(name)).unwrap();
        file.set_len(10).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    assert_eq!(evict(&folder, MADE_LIMIT).unwrap(), 30);
    assert_eq!(evict(&folder, 20).unwrap(), 20);
    assert!(!folder.join("older").exists());
    assert_eq!(evict(&folder, 19).unwrap(), 10);
    assert!(folder.join("new").exists());
}

#[test]
fn boundaries_can_be_given_for_a_file_that_is_here() {
    let home = Home::new();
    let path = home.file("file", &noise(1, LEN));
    let store = home.store();
    let oid = put_file(&store, &path);
    let given = |ends: &[u64]| {
        store.recipes().give_boundaries(&oid, ends).unwrap();
        chunks(&*home.store().recipe(&oid).unwrap())
    };
    let size = LEN as u64;
    assert_eq!(given(&[7, 1000, size]), [(0, 7), (7, 993), (1000, LEN as u32 - 1000)]);
    assert_eq!(given(&[9, size + 1]), [(0, 9), (9, LEN as u32 - 9)], "what was said last");
    assert_eq!(given(&[]).len(), 2, "nothing said");
    assert!(matches!(store.recipes().give_boundaries(&Oid::of(b"gone"), &[1]), Err(StoreError::NotHere)));
    // The hashes would be those of other bytes.
    fs::write(&path, noise(2, LEN)).unwrap();
    assert!(store.recipes().give_boundaries(&oid, &[5]).is_err());
}

#[test]
fn noted_boundaries_stay_until_they_are_forgotten_or_their_lease_is_given_back() {
    let home = Home::new();
    let store = home.store();
    store.lease_table().note_boundaries(&live(1), &[5]).unwrap();
    assert!(store.lease_table().noted_boundaries(&live(1)).unwrap().is_empty(), "nobody leases it");
    for number in [1, 2] {
        store.lease(&cache::lease(live(number), Holder::Pinned)).unwrap();
        store.lease_table().note_boundaries(&live(number), &[5, 1 << 40]).unwrap();
        store.lease(&cache::lease(live(number), Holder::Pinned)).unwrap();
        assert_eq!(home.store().lease_table().noted_boundaries(&live(number)).unwrap(), [5, 1 << 40]);
    }
    store.lease_table().forget_boundaries(&live(1)).unwrap();
    assert!(store.lease_table().noted_boundaries(&live(1)).unwrap().is_empty());
    store.done(&live(2)).unwrap();
    store.lease(&cache::lease(live(2), Holder::Pinned)).unwrap();
    assert!(store.lease_table().noted_boundaries(&live(2)).unwrap().is_empty());
}

#[test]
fn recipes_go_with_their_object() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    let path = home.file("file", &noise(1, LEN));
    let referred = put_file(&store, &path);
    let (given, kept) = (put_given(&store, 1, &noise(2, LEN)), put_given(&store, 2, &noise(3, LEN)));
    let owned = put(&store, 3, LEN + 1);
    store.lease(&cache::lease(live(2), Holder::Pinned)).unwrap();
    for oid in [referred, given, kept, owned] {
        drop(store.recipe(&oid).unwrap());
    }
    fs::write(store.core.folders.given_recipe(&Oid::of(b"gone")), b"of an object that is gone").unwrap();
    fs::remove_file(&path).unwrap();
    drop(store);
    let store = home.store();
    let policy = CachePolicy { owned_bytes: 0, ..CachePolicy::default() };
    let collected = store.gc(&GcOptions { policy }).unwrap();
    assert_eq!((collected.recipes, collected.evicted.objects), (2, 2));
    assert_eq!(made(&home).len(), 0);
    let left: Vec<_> = fs::read_dir(home.path("data/recipes/given")).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(chunks(&*store.recipe(&kept).unwrap()).len(), 3);
}
