//! Links that are cut, come back, vanish or change their address in mid-transfer, at either end. Two machines have two networks
//! between them, `net` and `net2`, of which the second one changes. What ssh is elsewhere is a pipe here, which stands.

use std::fs;

use serde_json::Value;

use crate::environment::{Call, Machine, Running, TestEnvironment};
use crate::likeness::mode;
use crate::network::{Network, Side};
use crate::runner::situations;
use crate::sshd::Way;
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_copy_goes_on_by_the_other_link_and_by_both_once_the_cut_one_is_back,
    a_copy_goes_on_where_a_link_vanishes,
    a_link_of_a_copy_may_get_another_address_here,
    a_link_of_a_copy_may_get_another_address_at_the_other_side,
    small_files_of_a_copy_outlive_the_cut_of_a_link,
    small_files_that_a_slow_link_owes_are_asked_of_the_other_one,
    a_get_goes_on_by_the_other_link_and_by_both_once_the_cut_one_is_back,
    a_link_of_a_get_may_get_another_address_here,
    a_link_of_a_get_may_get_another_address_at_the_sender,
    a_get_goes_on_where_a_link_vanishes,
    a_link_that_loses_every_tenth_packet_costs_no_content,
    a_link_that_passes_the_handshake_and_then_nothing_holds_nobody_up,
];

/// The second link, as reports name it.
const SECOND: &str = "net2";
/// Bytes that show that a link is used.
const USED: u64 = 1 << 20;
/// Both links together, so slowly that all of it takes longer than finding a dead link and dialling it again.
const RATE: &str = "4M";
const SIZE: u64 = 80 << 20;
/// Bytes that the other link brings while it is found out that the cut one is dead.
const MEANWHILE: u64 = 28 << 20;

/// Two machines with two networks between them.
pub struct Scene {
    /// The networks.
    pub network: Network,
    /// What the machines have; the sender is on the left.
    pub env: TestEnvironment,
    rsh: String,
}

impl Scene {
    /// Nothing is on the machines.
    pub fn new() -> Self {
        let (network, env) = (Network::double(), TestEnvironment::new());
        let rsh = env.dir().join("rsh");
        fs::write(&rsh, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
        mode(&rsh, 0o755);
        let rsh = rsh.display().to_string();
        Self { network, env, rsh }
    }

    /// Side that starts a copy, and has the links; the other one is the remote end.
    fn sides(way: Way) -> [Side; 2] {
        if way == Way::Pull { [Side::Right, Side::Left] } else { [Side::Left, Side::Right] }
    }

    /// `tow COMMAND` from the sender to the receiver by both links.
    fn copy(&self, way: Way, command: &str, source: &str, destination: &str) -> Running {
        self.copy_as(way, &by_both(command), source, destination)
    }

    /// `tow` with these words from the sender to the receiver.
    pub fn copy_as(&self, way: Way, words: &[&str], source: &str, destination: &str) -> Running {
        self.copy_call(way, words, source, destination).start()
    }

    fn copy_call(&self, way: Way, words: &[&str], source: &str, destination: &str) -> Call {
        let path = |machine: &Machine, path: &str| machine.path(path).display().to_string();
        let (source, destination) = (path(&self.env.sender, source), path(&self.env.receiver, destination));
        let (caller, other, names) = match way {
            Way::Pull => (&self.env.receiver, &self.env.sender, [format!("there:{source}"), destination]),
            _ => (&self.env.sender, &self.env.receiver, [source, format!("there:{destination}")]),
        };
        let program = |side| if side == Side::Left { self.network.left() } else { self.network.right() };
        let [own, theirs] = Self::sides(way);
        let tow = other.remote_tow(&program(theirs));
        let words = words.iter().copied().chain(["-e", &self.rsh, "--tow-path", &tow]).map(str::to_owned);
        caller.tow_as(&program(own), words.chain(names))
    }

    /// A get of what the left machine shares, by both links of the right one.
    fn get(&self, ticket: &str) -> Call {
        let words = ["get", "--json", "--limit-rate", RATE, "--bind", "net,net2", ticket, "-o", "file"];
        self.env.receiver.tow_as(&self.network.right(), words)
    }

    fn share(&self) -> Running {
        self.env.sender.tow_as(&self.network.left(), ["share", "file"]).start()
    }
}

/// Words of a copy by both links.
const fn by_both(command: &str) -> [&str; 7] {
    [command, "--json", "--no-search", "--limit-rate", RATE, "--bind", "net,net2"]
}

/// The last event that tells what came by now; null before there is one.
fn last_progress(running: &Running) -> Value {
    let output = running.output();
    let lines = output.split(|byte| *byte == b'\n');
    let mut events = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    events.rfind(|event| event["done"].is_u64()).unwrap_or_default()
}

/// Bytes that the second link brought, as the last progress tells.
fn brought(running: &Running) -> u64 {
    let last = last_progress(running);
    let sources = last["sources"].as_array().into_iter().flatten();
    let by_second =
        sources.filter(|source| source["path"].as_str().is_some_and(|path| path.ends_with(SECOND)));
    by_second.filter_map(|source| source["bytes"].as_u64()).sum()
}

/// Waits until the second link has brought more than by now, and than this.
fn wait_for_use(running: &mut Running, before: u64) -> u64 {
    let before = before.max(brought(running));
    running.wait_until("uses the second link", |running| {
        let now = brought(running);
        (now >= before + USED).then_some(now)
    })
}

/// Waits until all links together have brought some more.
fn wait_for_others(running: &mut Running) {
    let done = |running: &Running| last_progress(running)["done"].as_u64().unwrap_or(0);
    let before = done(running);
    let is_on = |running: &mut Running| (done(running) >= before + MEANWHILE).then_some(());
    running.wait_until("goes on by the first link", is_on);
}

/// Copies one file, and changes something once both links are used. `uses_again`: the second one has to bring something after that.
fn change_in_mid_copy(way: Way, command: &str, uses_again: bool, change: impl Fn(&Scene, &mut Running)) {
    let scene = Scene::new();
    file(&scene.env.sender.path("file"), 1, SIZE);
    let mut running = scene.copy(way, command, "file", "copy");
    let before = wait_for_use(&mut running, 0);
    change(&scene, &mut running);
    if uses_again {
        wait_for_use(&mut running, before);
    }
    running.end().summary();
    assert_same_bytes(&scene.env.sender.path("file"), &scene.env.receiver.path("copy"));
}

fn a_copy_goes_on_by_the_other_link_and_by_both_once_the_cut_one_is_back() {
    for (way, command, side) in [(Way::Push, "cp", Side::Left), (Way::Pull, "sync", Side::Left)] {
        change_in_mid_copy(way, command, true, |scene, running| {
            scene.network.cut(side, true);
            wait_for_others(running);
            scene.network.cut(side, false);
        });
    }
}

fn a_copy_goes_on_where_a_link_vanishes() {
    for (way, command, side) in [(Way::Push, "sync", Side::Left), (Way::Pull, "cp", Side::Left)] {
        change_in_mid_copy(way, command, false, |scene, running| {
            scene.network.unplug(side);
            wait_for_others(running);
        });
    }
}

fn a_link_of_a_copy_may_get_another_address_here() {
    for way in [Way::Push, Way::Pull] {
        let [own, _] = Scene::sides(way);
        change_in_mid_copy(way, "sync", true, |scene, running| {
            scene.network.move_to(own, 77);
            wait_for_others(running);
        });
    }
}

/// It is told over what still stands.
fn a_link_of_a_copy_may_get_another_address_at_the_other_side() {
    for way in [Way::Push, Way::Pull] {
        let [_, other] = Scene::sides(way);
        change_in_mid_copy(way, "cp", true, |scene, running| {
            scene.network.move_to(other, 88);
            wait_for_others(running);
        });
    }
}

fn small_files_of_a_copy_outlive_the_cut_of_a_link() {
    for way in [Way::Push, Way::Pull] {
        let scene = Scene::new();
        let tree = scene.env.sender.path("tree");
        fs::create_dir(&tree).unwrap();
        (0..6000).for_each(|number| file(&tree.join(number.to_string()), number, 10_000));
        let mut running = scene.copy(way, "sync", "tree/", "copy");
        wait_for_use(&mut running, 0);
        scene.network.cut(Side::Left, true);
        wait_for_others(&mut running);
        running.end().summary();
        assert_same(&tree, &scene.env.receiver.path("copy"));
    }
}

/// It is not quiet, so without that it would be waited for.
fn small_files_that_a_slow_link_owes_are_asked_of_the_other_one() {
    for way in [Way::Push, Way::Pull] {
        let scene = Scene::new();
        let tree = scene.env.sender.path("tree");
        fs::create_dir(&tree).unwrap();
        (0..3000).for_each(|number| file(&tree.join(number.to_string()), number, 10_000));
        let call = scene.copy_call(way, &by_both("sync"), "tree/", "copy");
        let mut running = call.variable("TOW_LOG", "towpath_plugins::links=debug").start();
        wait_for_use(&mut running, 0);
        scene.network.slow_down(Side::Left);
        let ended = running.end().with(0);
        assert_same(&tree, &scene.env.receiver.path("copy"));
        assert!(ended.err.contains("others answered all that it owed"), "{way:?}: {}", ended.err);
    }
}

fn a_get_goes_on_by_the_other_link_and_by_both_once_the_cut_one_is_back() {
    let scene = Scene::new();
    file(&scene.env.sender.path("file"), 1, 2 * SIZE);
    let mut share = scene.share();
    let mut running = scene.get(&share.ticket()).start();
    let before = wait_for_use(&mut running, 0);
    scene.network.cut(Side::Left, true);
    wait_for_others(&mut running);
    scene.network.cut(Side::Left, false);
    wait_for_use(&mut running, before);
    running.end().summary();
    assert_same_bytes(&scene.env.sender.path("file"), &scene.env.receiver.path("file"));
}

fn a_link_of_a_get_may_get_another_address_here() {
    get_while_a_link_moves(Side::Right);
}

/// It is told over what still stands.
fn a_link_of_a_get_may_get_another_address_at_the_sender() {
    get_while_a_link_moves(Side::Left);
}

fn get_while_a_link_moves(side: Side) {
    let scene = Scene::new();
    file(&scene.env.sender.path("file"), 1, 2 * SIZE);
    let mut share = scene.share();
    let mut running = scene.get(&share.ticket()).start();
    let before = wait_for_use(&mut running, 0);
    scene.network.move_to(side, 77);
    // What came before is told late: that is not to pass for use of the new address.
    wait_for_others(&mut running);
    wait_for_use(&mut running, before);
    running.end().summary();
    assert_same_bytes(&scene.env.sender.path("file"), &scene.env.receiver.path("file"));
}

fn a_get_goes_on_where_a_link_vanishes() {
    let scene = Scene::new();
    file(&scene.env.sender.path("file"), 1, SIZE);
    let mut share = scene.share();
    let mut running = scene.get(&share.ticket()).start();
    wait_for_use(&mut running, 0);
    scene.network.unplug(Side::Right);
    wait_for_others(&mut running);
    running.end().summary();
    assert_same_bytes(&scene.env.sender.path("file"), &scene.env.receiver.path("file"));
}

/// Bytes by the second link of a get, and of a copy either way, where what its machines send there is lost like this.
fn with_losses(condition: &str) -> Vec<u64> {
    let size = 20 << 20;
    let scene = || {
        let scene = Scene::new();
        file(&scene.env.sender.path("file"), 1, size);
        [Side::Left, Side::Right].into_iter().for_each(|side| scene.network.lose(side, condition));
        scene
    };
    let came = |scene: &Scene, running: Running, name: &str| {
        let summary = running.end().summary();
        assert_same_bytes(&scene.env.sender.path("file"), &scene.env.receiver.path(name));
        let is_second = |path: &str| path.ends_with(SECOND);
        let by_second = summary.sources().filter(|source| source["path"].as_str().is_some_and(is_second));
        by_second.filter_map(|source| source["bytes"].as_u64()).sum::<u64>()
    };
    let got = {
        let scene = scene();
        let mut share = scene.share();
        let running = scene.get(&share.ticket()).start();
        came(&scene, running, "file")
    };
    let copied = [Way::Push, Way::Pull].map(|way| {
        let scene = scene();
        came(&scene, scene.copy(way, "sync", "file", "copy"), "copy")
    });
    [&[got][..], &copied].concat()
}

fn a_link_that_loses_every_tenth_packet_costs_no_content() {
    let by_second = with_losses("numgen random mod 10 0");
    assert_eq!(by_second.len(), 3);
}

/// Each connection by it passes a dozen packets, also those that are dialled later.
fn a_link_that_passes_the_handshake_and_then_nothing_holds_nobody_up() {
    let by_second = with_losses("ct packets gt 12");
    assert!(by_second.iter().all(|bytes| *bytes < USED), "{by_second:?}");
}
