//! A copy through ssh is interrupted in any way: nothing runs on, nothing half has a final name,
//! and the same command goes on where it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::environment::{Running, Summary, TestEnvironment, soon};
use crate::machinery::{Process, descendants};
use crate::runner::situations;
use crate::searching::{SLOW, World, searched};
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, assert_same_bytes, bytes, entries, file, names, size};

situations![
    the_pushing_side_is_killed,
    the_pulling_side_is_killed,
    ssh_is_killed_while_it_pushes,
    ssh_is_killed_while_it_pulls,
    ssh_is_killed_while_data_may_go_over_tls,
    the_other_side_is_killed_while_it_receives,
    the_other_side_is_killed_while_it_sends,
    a_copy_within_this_machine_is_killed,
    a_delta_that_is_interrupted_goes_on,
    an_interrupted_sync_ends_with_20,
    an_interrupted_cp_ends_with_130,
];

/// Time that processes may take to end.
const SECONDS: Duration = Duration::from_secs(8);
/// Bytes that may be sent twice: pieces under way, and the descriptor.
const TWICE: u64 = 2 << 20;

/// A tree that takes three seconds, and a copy of it.
struct Load<'a> {
    route: Route<'a>,
    tree: PathBuf,
    copy: PathBuf,
}

impl<'a> Load<'a> {
    fn new(env: &'a TestEnvironment, way: Way) -> Self {
        let tree = env.sender.path("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        file(&tree.join("big"), 1, 9 << 20);
        (0..30).for_each(|number| file(&tree.join(format!("sub/{number}")), 100 + number, 50_000));
        Self { route: Route::new(env, way), tree, copy: env.receiver.path("copy") }
    }

    /// A copy that is in the middle, and everything that works for it.
    fn half(&self, words: &str) -> (Running, Vec<Process>) {
        let words = format!("{words} --json --no-search --limit-rate 4M");
        let mut running = self.route.copy(&words, "tree/", "copy/").start();
        running.wait_for_bytes(4 << 20);
        let mut processes = descendants(running.id());
        processes.extend(self.route.sshd.iter().flat_map(|sshd| descendants(sshd.id())));
        (running, processes)
    }

    /// Nothing runs any more, and what has its final name is whole.
    fn assert_ended(&self, processes: &[Process]) {
        let left = || processes.iter().find(|process| process.runs());
        let ended = soon(SECONDS, || left().is_none().then_some(()));
        assert!(ended.is_some(), "{:?} is left", left());
        for path in entries(&self.copy).iter().filter(|path| !is_staging(path)) {
            if self.copy.join(path).is_file() {
                assert_same_bytes(&self.tree.join(path), &self.copy.join(path));
            }
        }
    }

    /// The same command, at full speed.
    fn assert_goes_on(&self, words: &str) {
        let summary = self.route.copy(&format!("{words} --json"), "tree/", "copy/").end().summary();
        assert_same(&self.tree, &self.copy);
        self.assert_little_twice(&summary);
    }

    fn assert_little_twice(&self, summary: &Summary) {
        let missing = size(&self.tree) - (4 << 20);
        assert!(summary.fetched() <= missing + TWICE, "of {missing} bytes missing: {}", summary.0);
    }
}

fn is_staging(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().contains(".tow-"))
}

/// Kills the process of this name on the way, as `kill -9` does.
fn kill_on_the_way(way: Way, via: &str, name: &str) {
    let env = TestEnvironment::new();
    let load = Load::new(&env, way);
    let words = format!("sync {via}");
    let (running, processes) = load.half(&words);
    let victim = processes.iter().find(|process| process.name == name);
    victim.unwrap_or_else(|| panic!("{name} is not in {processes:?}")).signal(Signal::KILL);
    let failure = running.end().failure_with(12);
    assert_eq!(failure["kind"], "unreachable", "{failure}");
    load.assert_ended(&processes);
    load.assert_goes_on(&words);
}

/// Kills the side that was started by hand.
fn kill_the_near_side(way: Way) {
    let env = TestEnvironment::new();
    let load = Load::new(&env, way);
    let (running, processes) = load.half("sync");
    running.kill();
    load.assert_ended(&processes);
    load.assert_goes_on("sync");
}

fn the_pushing_side_is_killed() {
    kill_the_near_side(Way::Push);
}

fn the_pulling_side_is_killed() {
    kill_the_near_side(Way::Pull);
}

fn ssh_is_killed_while_it_pushes() {
    kill_on_the_way(Way::Push, "--via ssh", "ssh");
}

fn ssh_is_killed_while_it_pulls() {
    kill_on_the_way(Way::Pull, "--via ssh", "ssh");
}

fn ssh_is_killed_while_data_may_go_over_tls() {
    kill_on_the_way(Way::Push, "", "ssh");
}

fn the_other_side_is_killed_while_it_receives() {
    kill_on_the_way(Way::Push, "", "tow");
}

fn the_other_side_is_killed_while_it_sends() {
    kill_on_the_way(Way::Pull, "", "tow");
}

/// No network is between, so that it is killed at any time instead of in the middle.
fn a_copy_within_this_machine_is_killed() {
    let env = TestEnvironment::new();
    let load = Load::new(&env, Way::Here);
    for delay in [5, 20, 40, 60, 80, 120] {
        let running = load.route.copy("sync", "tree/", "copy/").start();
        running.kill_after(Duration::from_millis(delay));
        if load.copy.exists() {
            load.assert_ended(&[]);
        }
    }
    load.route.copy("sync --delete", "tree/", "copy/").end().with(0);
    assert_same(&load.tree, &load.copy);
}

fn interrupt(command: &str, code: i32) {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        let load = Load::new(&env, way);
        let (running, processes) = load.half(command);
        running.interrupt();
        let failure = running.end().failure_with(code);
        assert_eq!(failure["kind"], "interrupted", "{failure}");
        load.assert_ended(&processes);
        if command == "sync" {
            load.assert_goes_on(command);
        }
    }
}

/// Four parts, and as much that is new in each third; half of the file is here when the copy is killed.
fn a_delta_that_is_interrupted_goes_on() {
    const THIRD: u64 = 8 << 20;
    const NEW: u64 = 300_000;
    let world = World::new();
    let mut content = bytes(1, 3 * THIRD);
    fs::write(world.at("dest/file"), &content).unwrap();
    for third in 0..3 {
        let at = (third * THIRD + THIRD / 2) as usize;
        content[at..at + NEW as usize].copy_from_slice(&bytes(50 + third, NEW));
    }
    content.extend_from_slice(b"and longer");
    fs::write(world.source(), content).unwrap();
    let route = Route::new(&world.here, Way::Pull);
    let words = format!("cp --json --via ssh --limit-rate {SLOW}");
    let start = || route.copy(&words, world.source().to_str().unwrap(), "dest/file");
    let mut running = start().start();
    running.wait_for_bytes(THIRD);
    running.kill();
    let summary = start().end().summary();
    assert_same_bytes(&world.source(), &world.at("dest/file"));
    assert_eq!(searched(&summary, "changed"), 1, "{}", summary.0);
    let literal = summary.number("literal");
    assert!((NEW..5 * NEW / 2).contains(&literal), "{}", summary.0);
    assert_eq!(names(&world.at("dest")), ["below", "file"], "a temporary is left");
}

fn an_interrupted_sync_ends_with_20() {
    interrupt("sync", 20);
}

fn an_interrupted_cp_ends_with_130() {
    interrupt("cp", 130);
}
