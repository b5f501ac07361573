//! The store passes the examination of the seam, and has after a restart what it had before.

use std::cell::Cell;
use std::fs;

use towpath_content::Oid;
use towpath_custom_store::FolderStore;
use towpath_store::{About, State, Store, conformance};

#[test]
fn conforms() {
    let (folder, number) = (tempfile::tempdir().unwrap(), Cell::new(0));
    conformance::run(|| {
        let own = folder.path().join(number.replace(number.get() + 1).to_string());
        fs::create_dir(&own).unwrap();
        FolderStore::new(&own)
    });
}

#[test]
fn what_was_put_is_there_after_a_restart() {
    let (folder, live) = (tempfile::tempdir().unwrap(), Oid::Live([1; 32]));
    let store = FolderStore::new(folder.path());
    store.put_init(&live, &About::default()).unwrap();
    store.put_data(&live, b"bytes").unwrap();
    let oid = store.put_commit(&live).unwrap();
    let (again, mut bytes) = (FolderStore::new(folder.path()), Vec::new());
    assert_eq!(again.have(&oid).unwrap().state, State::Complete);
    again.read_piece(&oid, 0, &mut bytes).unwrap();
    assert_eq!((Oid::of(&bytes), &bytes[..]), (oid, &b"bytes"[..]));
}
