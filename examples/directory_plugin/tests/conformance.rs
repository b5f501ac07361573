//! The plugin passes the examination of the seam.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use towpath_content::Oid;
use towpath_directory_plugin::{DirectoryFinder, DirectoryPlugin};
use towpath_transfer_conformance::finders::{self, FinderSubject};
use towpath_transfer_conformance::{self as conformance, Fixture, Subject};

#[tokio::test]
async fn the_plugin_keeps_the_contract() {
    conformance::run(async |fixture: Fixture| {
        let directory = TempDir::new().unwrap();
        for (number, data) in fixture.objects.iter().enumerate() {
            fs::write(directory.path().join(number.to_string()), data).unwrap();
        }
        let plugin = Arc::new(DirectoryPlugin::new(directory.path()));
        Subject::new(plugin, fixture.context()).keeping(directory)
    })
    .await;
}

#[tokio::test]
async fn the_finder_keeps_its_contract() {
    finders::run(async || {
        let place = TempDir::new().unwrap();
        let [coming, going] = [(); 2].map(|()| place.path().to_path_buf());
        let come = move |number: u32| fs::create_dir(coming.join(number.to_string())).unwrap();
        let go = move |number: u32| fs::remove_dir(going.join(number.to_string())).unwrap();
        let context = Fixture { objects: Vec::new() }.context();
        FinderSubject::new(Arc::new(DirectoryFinder::new(place.path())), context, come, go).keeping(place)
    })
    .await;
}

fn run(directory: &TempDir, oid: Oid, out: &str) -> bool {
    let out = directory.path().join(out);
    let program = env!("CARGO_BIN_EXE_towpath-directory-plugin");
    let status = Command::new(program).arg(directory.path()).arg(oid.to_string()).arg(out).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn the_program_fetches_a_file_by_its_id() {
    let directory = TempDir::new().unwrap();
    let data = vec![5; 1_000_000];
    fs::write(directory.path().join("a"), &data).unwrap();
    assert!(run(&directory, Oid::of(&data), "out"));
    assert!(fs::read(directory.path().join("out")).unwrap() == data);
    assert!(!run(&directory, Oid::of(b"not there"), "none"));
    assert!(!directory.path().join("none").exists());
}
