//! Several copies into one directory at once, as with every other tool: of different files, of the same ones, and beside
//! one that was interrupted.

use crate::environment::{TOW, TestEnvironment};
use crate::machinery::tool;
use crate::runner::situations;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, assert_same_bytes, file, names};

situations![
    copies_go_beside_a_slow_one,
    the_same_tree_goes_to_one_place_several_times_at_once,
    a_destination_is_made_by_one_of_several_copies_at_once,
    an_interrupted_copy_goes_on_after_others_went_there,
];

const WAYS: [Way; 3] = [Way::Here, Way::Push, Way::Pull];

fn copies_go_beside_a_slow_one() {
    for way in WAYS {
        let env = TestEnvironment::new();
        let names_of_all = ["a", "b", "c"];
        names_of_all.iter().for_each(|name| file(&env.sender.path(name), 1, 30_000));
        file(&env.sender.path("big"), 2, 12 << 20);
        std::fs::create_dir(env.receiver.path("all")).unwrap();
        let route = Route::new(&env, way);
        // Within this machine nothing is slow; the others take their time.
        let slow = route.copy("cp --json --no-search --limit-rate 2M", "big", "all/");
        let mut slow = slow.start();
        if way != Way::Here {
            slow.wait_for_bytes(1 << 20);
        }
        let others = names_of_all.map(|name| route.copy("cp", name, "all/").start());
        others.into_iter().for_each(|other| drop(other.end().with(0)));
        if way != Way::Here {
            assert!(slow.runs(), "the others did not wait for it");
        }
        slow.end().with(0);
        assert_eq!(names(&env.receiver.path("all")), ["a", "b", "big", "c"]);
        for name in ["a", "big"] {
            assert_same_bytes(&env.sender.path(name), &env.receiver.path("all").join(name));
        }
    }
}

fn the_same_tree_goes_to_one_place_several_times_at_once() {
    let env = TestEnvironment::new();
    std::fs::create_dir(env.sender.path("tree")).unwrap();
    (0..300).for_each(|number| file(&env.sender.path(format!("tree/{number}")), number, 3000));
    let syncs = [0; 4].map(|_| env.sender.tow(["sync", "tree/", "copy"]).start());
    syncs.into_iter().for_each(|sync| drop(sync.end().with(0)));
    assert_same(&env.sender.path("tree"), &env.sender.path("copy"));
    assert!(names(&env.sender.home("state/resume")).is_empty());
}

fn a_destination_is_made_by_one_of_several_copies_at_once() {
    let env = TestEnvironment::new();
    std::fs::create_dir(env.sender.path("tree")).unwrap();
    file(&env.sender.path("tree/file"), 1, 3000);
    // Each has seen that the destination is missing before any of them makes it.
    let strace = tool("strace").display().to_string();
    let late = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=mkdirat:delay_enter=700000"].map(Into::into);
    let program: Vec<String> = [strace].into_iter().chain(late).chain([TOW.into()]).collect();
    let syncs = [0; 3].map(|_| env.sender.tow_as(&program, ["sync", "tree/", "copy"]).start());
    syncs.into_iter().for_each(|sync| drop(sync.end().with(0)));
    assert_same(&env.sender.path("tree"), &env.sender.path("copy"));
}

fn an_interrupted_copy_goes_on_after_others_went_there() {
    let env = TestEnvironment::new();
    file(&env.sender.path("big"), 2, 12 << 20);
    file(&env.sender.path("small"), 3, 2000);
    std::fs::create_dir(env.receiver.path("all")).unwrap();
    let route = Route::new(&env, Way::Push);
    let mut slow = route.copy("cp --json --no-search --limit-rate 2M", "big", "all/").start();
    slow.wait_for_bytes(7 << 20);
    // The other side has this one's record while both run.
    let beside = route.copy("cp --json --limit-rate 1K", "small", "all/").start();
    slow.interrupt();
    slow.end().with(130);
    beside.end().with(0);
    let summary = route.copy("cp --json --no-search", "big", "all/").end().summary();
    assert!(summary.fetched() < 8 << 20, "it went on: {}", summary.0);
    assert_eq!(names(&env.receiver.path("all")), ["big", "small"]);
    assert!(names(&env.receiver.home("state/resume")).is_empty());
}
