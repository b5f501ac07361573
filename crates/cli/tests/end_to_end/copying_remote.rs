//! `tow cp` and `tow sync` of an odd tree: within this machine, and both ways through a real sshd.

use std::fs;
use std::path::Path;

use crate::environment::TestEnvironment;
use crate::machinery::is_root;
use crate::odd_trees::{assert_equal, inodes, odd_tree, touched};
use crate::runner::situations;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, file, names};

situations![
    sync_makes_an_equal_tree_on_this_machine,
    sync_makes_an_equal_tree_on_the_other_machine,
    sync_makes_an_equal_tree_of_one_on_the_other_machine,
    cp_makes_an_equal_tree_on_this_machine,
    cp_makes_an_equal_tree_on_the_other_machine,
    cp_makes_an_equal_tree_of_one_on_the_other_machine,
    a_user_without_rights_copies_what_is_theirs,
    files_go_into_a_directory_on_the_other_machine_as_with_scp,
    a_path_on_the_other_machine_begins_at_home,
    a_list_names_what_is_in_the_source,
    contents_that_came_beside_ssh_do_not_come_again,
    a_copy_draws_from_the_plugins_that_are_configured,
];

const SPECIALS: &str = "--specials --devices";
/// Size of a file that goes as a live object.
const LARGE: u64 = 70 << 20;

/// Data by ssh alone, by TLS alone, and as it comes.
fn each_via(way: Way) -> &'static [&'static str] {
    if way == Way::Here { &[""] } else { &["", "--via ssh", "--via tls"] }
}

fn sync_makes_an_equal_tree(way: Way) {
    for via in each_via(way) {
        let env = TestEnvironment::new();
        let (tree, copy) = (env.sender.path("tree"), env.receiver.path("copy"));
        odd_tree(&tree, is_root());
        file(&tree.join("large"), 1, LARGE);
        let route = Route::new(&env, way);
        let words = format!("sync -p -X -i --delete {SPECIALS} {via}");
        route.copy(&words, "tree/", "copy").end().with(0);
        assert_equal(&tree, &copy);
        assert_clean(&copy);
        let before = [inodes(&tree), inodes(&copy)];
        let again = route.copy(&words, "tree/", "copy").end().with(0);
        assert_eq!(again.text(), "", "the second time changes nothing");
        assert_equal(&tree, &copy);
        assert_eq!(touched(&before[0], &tree), [""; 0], "and touches nothing of the source");
        assert_eq!(touched(&before[1], &copy), [""; 0], "and nothing of the copy");
    }
}

fn assert_clean(copy: &Path) {
    let left: Vec<_> = names(copy).into_iter().filter(|name| name.starts_with(".tow-")).collect();
    assert_eq!(left, [".tow-mine"], "a temporary is left");
}

fn sync_makes_an_equal_tree_on_this_machine() {
    sync_makes_an_equal_tree(Way::Here);
}

fn sync_makes_an_equal_tree_on_the_other_machine() {
    sync_makes_an_equal_tree(Way::Push);
}

fn sync_makes_an_equal_tree_of_one_on_the_other_machine() {
    sync_makes_an_equal_tree(Way::Pull);
}

fn cp_makes_an_equal_tree(way: Way) {
    for via in each_via(way) {
        let env = TestEnvironment::new();
        odd_tree(&env.sender.path("tree"), is_root());
        let route = Route::new(&env, way);
        let words = format!("cp --preserve=all {SPECIALS} {via}");
        route.copy(&words, "tree", "copy").end().with(0);
        assert_equal(&env.sender.path("tree"), &env.receiver.path("copy"));
        fs::rename(env.receiver.path("copy"), env.receiver.path("tree")).unwrap();
        let before = inodes(&env.receiver.path("tree"));
        route.copy(&words, "tree", "").end().with(0);
        let touched = touched(&before, &env.receiver.path("tree"));
        assert_eq!(touched, [""; 0], "the second time touches nothing");
    }
}

fn cp_makes_an_equal_tree_on_this_machine() {
    cp_makes_an_equal_tree(Way::Here);
}

fn cp_makes_an_equal_tree_on_the_other_machine() {
    cp_makes_an_equal_tree(Way::Push);
}

fn cp_makes_an_equal_tree_of_one_on_the_other_machine() {
    cp_makes_an_equal_tree(Way::Pull);
}

/// Read-only directories are in their way, as they are not in root's.
fn a_user_without_rights_copies_what_is_theirs() {
    for way in [Way::Here, Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        let tree = env.sender.path("tree");
        odd_tree(&tree, false);
        let route = Route::new(&env, way).without_rights();
        route.copy("sync -p -X -i --delete --specials", "tree/", "copy").end().with(0);
        assert_equal(&tree, &env.receiver.path("copy"));
        let again = route.copy("sync -p -X -i --delete --specials", "tree/", "copy").end().with(0);
        assert_eq!(again.text(), "", "the second time changes nothing");
    }
}

fn files_go_into_a_directory_on_the_other_machine_as_with_scp() {
    let env = TestEnvironment::new();
    file(&env.sender.path("a"), 1, 1000);
    file(&env.sender.path("b"), 2, 300_000);
    fs::create_dir(env.receiver.path("there")).unwrap();
    let route = Route::new(&env, Way::Push);
    for name in ["a", "b"] {
        route.copy("cp", name, "there/").end().with(0);
    }
    route.copy("cp", "b", "there/a").end().with(0);
    assert_eq!(names(&env.receiver.path("there")), ["a", "b"]);
    assert_same(&env.sender.path("b"), &env.receiver.path("there/a"));
}

/// The connection beside ended before the sender knew of the last files, so it sent them once more.
fn contents_that_came_beside_ssh_do_not_come_again() {
    for (way, told) in [(Way::Push, "sent"), (Way::Pull, "received")] {
        let env = TestEnvironment::new();
        let tree = env.sender.path("tree");
        fs::create_dir(&tree).unwrap();
        (0..500).for_each(|number| file(&tree.join(number.to_string()), number, 4096));
        let copied = Route::new(&env, way).copy("cp --via tls --json", "tree", "copy").end();
        assert_same(&tree, &env.receiver.path("copy"));
        let (summary, total) = (copied.summary(), 500 * 4096);
        assert!((total..total * 4 / 3).contains(&summary.number(told)), "{}", summary.0);
    }
}

/// As rsync has it. They went into `copy/tree`.
fn a_list_names_what_is_in_the_source() {
    for way in [Way::Here, Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        fs::create_dir_all(env.sender.path("tree/sub")).unwrap();
        ["a", "b", "sub/c"].iter().for_each(|name| file(&env.sender.path("tree").join(name), 1, 1000));
        let route = Route::new(&env, way);
        let list = route.caller().path("list");
        // More options than one message has.
        fs::write(&list, "a\nsub/c\n".repeat(50_000)).unwrap();
        let words = format!("sync --files-from {}", list.display());
        for source in ["tree", "tree/"] {
            route.copy(&words, source, "copy").end().with(0);
            let mut copied = names(&env.receiver.path("copy"));
            copied.sort();
            assert_eq!(copied, ["a", "sub"], "{way:?}");
            assert_eq!(names(&env.receiver.path("copy/sub")), ["c"], "{way:?}");
        }
    }
}

fn a_path_on_the_other_machine_begins_at_home() {
    let env = TestEnvironment::new();
    let route = Route::new(&env, Way::Pull);
    // The directory where sshd's shell begins is the user's own affair; a wrapper's is ours.
    file(&env.sender.path("file"), 1, 1000);
    let program = env.sender.remote_tow(&route.program);
    let program = format!("cd '{}' && {program}", env.sender.path("").display());
    let rsh = route.sshd.as_ref().unwrap().rsh();
    let words = ["cp", "-e", &rsh, "--tow-path", &program, "elsewhere:file", "copy"];
    env.receiver.tow(words).end().with(0);
    assert_same(&env.sender.path("file"), &env.receiver.path("copy"));
}

fn a_copy_draws_from_the_plugins_that_are_configured() {
    const SIZE: u64 = 3 << 20;
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        file(&env.sender.path("file"), 1, SIZE);
        let route = Route::new(&env, way);
        let fetched = |flags: &str, to: &str| {
            let words = format!("sync --json --no-search {flags}");
            let summary = route.copy(&words, "file", to).end().summary();
            assert_same(&env.sender.path("file"), &env.receiver.path(to));
            summary.fetched()
        };
        assert_eq!(fetched("", "first"), SIZE, "{way:?}");
        assert_eq!(fetched("", "second"), 0, "{way:?}: it is here");
        assert_eq!(fetched("-W", "third"), SIZE, "{way:?}: what is here is no source");
        env.receiver.configure("[plugins]\nplugin = \"local\"\n");
        file(&env.sender.path("file"), 2, SIZE);
        for command in ["sync -W", "cp --no-search"] {
            let failed = route.copy(command, "file", "fourth").end();
            assert!(failed.code() != 0 && failed.err.contains("file"), "{command}: {}", failed.err);
        }
    }
}
