//! A file that was renamed at the source is renamed at the destination of a copy within this machine, with `--delete`,
//! where its old name really goes. Nothing else shares bytes with anything.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::environment::TestEnvironment;
use crate::runner::situations;
use crate::trees::{assert_same, file};

situations![
    a_renamed_file_is_renamed,
    a_file_whose_old_name_stays_is_copied,
    another_file_of_the_same_size_and_time_is_copied,
    two_new_names_of_one_file_become_two_files,
];

const SIZE: u64 = 3 << 20;

/// A tree with `old` and another file, and its copy.
fn copied() -> TestEnvironment {
    let env = TestEnvironment::new();
    fs::create_dir(env.sender.path("tree")).unwrap();
    file(&env.sender.path("tree/old"), 1, SIZE);
    (0..4).for_each(|number| file(&env.sender.path(format!("tree/other{number}")), number, 1000));
    sync(&env, "");
    env
}

fn sync(env: &TestEnvironment, flags: &str) {
    let words = format!("sync --delete {flags} tree/ copy");
    env.sender.tow(words.split_whitespace()).end().with(0);
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

/// A file that has one name.
fn is_alone(path: &Path) -> bool {
    path.metadata().unwrap().nlink() == 1
}

fn a_renamed_file_is_renamed() {
    let env = copied();
    let (tree, copy) = (env.sender.path("tree"), env.sender.path("copy"));
    let before = inode(&copy.join("old"));
    fs::create_dir(tree.join("sub")).unwrap();
    fs::rename(tree.join("old"), tree.join("sub/new")).unwrap();
    sync(&env, "--force");
    assert_same(&tree, &copy);
    assert_eq!(inode(&copy.join("sub/new")), before, "it is the same file");
    assert!(is_alone(&copy.join("sub/new")));
    // With the directory that it lies in.
    fs::rename(tree.join("sub"), tree.join("moved")).unwrap();
    sync(&env, "--force");
    assert_same(&tree, &copy);
    assert_eq!(inode(&copy.join("moved/new")), before);
}

fn a_file_whose_old_name_stays_is_copied() {
    for (flags, stays) in [("--max-delete=0", "old"), ("--filter=P_old", "old"), ("-b", "old~")] {
        let env = copied();
        let (tree, copy) = (env.sender.path("tree"), env.sender.path("copy"));
        fs::rename(tree.join("old"), tree.join("new")).unwrap();
        let words = format!("sync --delete {flags} tree/ copy");
        let ended = env.sender.tow(words.split_whitespace()).end();
        assert_eq!(ended.code(), if flags.starts_with("--max") { 25 } else { 0 }, "{}", ended.err);
        assert_same(&tree.join("new"), &copy.join("new"));
        assert!(is_alone(&copy.join("new")) && is_alone(&copy.join(stays)), "{flags}");
    }
}

fn another_file_of_the_same_size_and_time_is_copied() {
    let env = copied();
    let (tree, copy) = (env.sender.path("tree"), env.sender.path("copy"));
    let (before, time) = (inode(&copy.join("old")), tree.join("old").metadata().unwrap().modified().unwrap());
    fs::remove_file(tree.join("old")).unwrap();
    file(&tree.join("new"), 9, SIZE);
    fs::File::options().write(true).open(tree.join("new")).unwrap().set_modified(time).unwrap();
    sync(&env, "");
    assert_same(&tree, &copy);
    assert_ne!(inode(&copy.join("new")), before);
    // And one with the same bytes, but another mode.
    let before = inode(&copy.join("new"));
    fs::rename(tree.join("new"), tree.join("newer")).unwrap();
    fs::set_permissions(tree.join("newer"), fs::Permissions::from_mode(0o600)).unwrap();
    sync(&env, "");
    assert_same(&tree, &copy);
    assert_ne!(inode(&copy.join("newer")), before);
}

fn two_new_names_of_one_file_become_two_files() {
    let env = copied();
    let (tree, copy) = (env.sender.path("tree"), env.sender.path("copy"));
    fs::rename(tree.join("old"), tree.join("one")).unwrap();
    let time = tree.join("one").metadata().unwrap().modified().unwrap();
    fs::copy(tree.join("one"), tree.join("two")).unwrap();
    fs::File::options().write(true).open(tree.join("two")).unwrap().set_modified(time).unwrap();
    sync(&env, "");
    assert_same(&tree, &copy);
    assert!(is_alone(&copy.join("one")) && is_alone(&copy.join("two")));
}
