//! Files that are read, given up or changed while they are being hashed.

use super::*;

/// Puts a file large enough to be caught in the act, until `act` was called while it is live.
fn caught_live(store: &DiskStore, path: &Path, act: impl Fn(&Oid)) -> (Oid, Result<(Oid, u64), StoreError>) {
    for live in (1..10).map(live) {
        let (result, was_live) = std::thread::scope(|scope| {
            let put = scope.spawn(|| store.put_file(path, Some(&live), &About::default()));
            let is_live = || {
                let found = store.have(&live);
                found.is_ok_and(|found| matches!(found.state, State::Live { .. }) && !found.pieces.is_empty())
            };
            while !put.is_finished() && !is_live() {
                std::thread::yield_now();
            }
            let was_live = is_live();
            act(&live);
            (put.join().unwrap(), was_live)
        });
        if was_live {
            return (live, result);
        }
        fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&live.digest()[..1], 0).unwrap();
    }
    panic!("the file was always hashed before it was looked at");
}

#[test]
fn a_file_can_be_read_under_its_live_name_while_it_is_hashed() {
    let home = Home::new();
    let (store, path) = (home.store(), home.sparse_file("big", 1500));
    let (live, result) = caught_live(&store, &path, |live| {
        assert_eq!(read(&store, live, 1).unwrap(), vec![0; PIECE]);
        assert!(store.get_descriptors(live, 0..2).is_ok());
    });
    let (oid, size) = result.unwrap();
    assert_eq!((size, store.have(&live).unwrap().state), (1500 * LIVE_PIECE, State::Bound(oid)));
}

#[test]
fn a_put_of_a_file_can_be_given_up() {
    let home = Home::new();
    let (store, path) = (home.store(), home.sparse_file("big", 1500));
    let (live, result) = caught_live(&store, &path, |live| store.put_abort(live));
    assert!(matches!(result, Err(StoreError::Refused { .. })), "{result:?}");
    assert_eq!(store.have(&live).unwrap().state, State::Abandoned);
}

#[test]
fn a_file_that_changes_while_it_is_hashed_is_not_put() {
    let home = Home::new();
    let (store, path) = (home.store(), home.sparse_file("big", 1500));
    let (live, result) = caught_live(&store, &path, |_| fs::write(&path, b"cut off").unwrap());
    assert!(matches!(result, Err(StoreError::SourceChanged { .. })), "{result:?}");
    assert_eq!(store.have(&live).unwrap().state, State::Abandoned);
}
