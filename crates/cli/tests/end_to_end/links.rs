//! Gets and copies that go out by several of this machine's links at once, or to several addresses of the other one. On loopback two
//! names of one link have to do.

use std::fs;
use std::time::Duration;

use crate::environment::{LOOPBACK, Running, Summary, TestEnvironment};
use crate::link_changes::Scene;
use crate::network::{Network, Side};
use crate::runner::situations;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_file_comes_by_two_links_at_once,
    a_tree_comes_by_two_links_at_once,
    a_link_that_is_not_there_brings_nothing,
    what_is_no_link_of_this_machine_is_said,
    a_large_file_is_copied_by_two_links_at_once,
    small_files_are_copied_by_two_links_at_once,
    a_delta_is_made_whatever_link_it_comes_by,
    a_copy_bears_a_configured_link_that_is_not_there,
    a_copy_by_two_links_keeps_to_its_rate,
    a_copy_refuses_links_that_it_can_not_use,
    a_sender_with_two_lines_is_drawn_from_by_both_unasked,
    two_addresses_on_one_line_are_found_to_be_one,
    a_receiver_with_two_lines_uses_both_unasked_unless_it_is_told_not_to,
    a_copy_draws_from_both_lines_of_the_sender_unasked_unless_it_is_told_not_to,
];

/// Names of the links by which something came.
fn links(summary: &Summary) -> Vec<&str> {
    summary.sources().filter_map(|source| source["path"].as_str()).collect()
}

/// Serves `name`, so slowly that neither link brings all before the other one is there.
fn share(env: &TestEnvironment, name: &str) -> Running {
    env.sender.tow(["share", "--listen", LOOPBACK, "--limit-rate", "20M", name]).start()
}

fn a_file_comes_by_two_links_at_once() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 40 << 20);
    let mut share = share(&env, "file");
    let words = ["get", "--json", "--bind", "lo,127.0.0.1", &share.ticket(), "-o", "file"];
    let summary = env.receiver.tow(words).end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    assert_eq!(links(&summary), ["127.0.0.1", "lo"]);
}

fn a_tree_comes_by_two_links_at_once() {
    let env = TestEnvironment::new();
    fs::create_dir(env.sender.path("tree")).unwrap();
    for number in 0..20 {
        file(&env.sender.path(format!("tree/large {number}")), number, 1 << 20);
        file(&env.sender.path(format!("tree/small {number}")), number, 3000);
    }
    let mut share = share(&env, "tree");
    let words = ["get", "--json", "--bind", "lo,127.0.0.1", &share.ticket(), "-o", "tree"];
    let summary = env.receiver.tow(words).end().summary();
    assert_same(&env.sender.path("tree"), &env.receiver.path("tree"));
    assert_eq!(links(&summary), ["127.0.0.1", "lo"]);
}

/// It may come later, so the configuration may name it.
fn a_link_that_is_not_there_brings_nothing() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 4 << 20);
    let mut share = share(&env, "file");
    env.receiver.configure("bind = [\"towpath9\", \"lo\"]\n");
    let summary = env.receiver.get(&share.ticket(), "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    assert_eq!(links(&summary), ["lo"]);
}

fn what_is_no_link_of_this_machine_is_said() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1 << 20);
    let mut share = share(&env, "file");
    let ticket = share.ticket();
    for (link, problem) in [
        ("towpath9", "this machine has no interface or address 'towpath9' now"),
        ("192.0.2.7", "this machine has no interface or address '192.0.2.7' now"),
        ("no link", "'no link' is neither an address nor the name of an interface"),
    ] {
        let ended = env.receiver.tow(["get", "--bind", link, &ticket, "-o", "file"]).end();
        assert!(ended.with(2).err.contains(problem), "{link}");
        assert!(!env.receiver.path("file").exists());
    }
}

/// Links of a copy, by the names of its sources: the other side by each of them.
fn copied_by(summary: &Summary) -> Vec<&str> {
    links(summary).into_iter().filter_map(|path| path.rsplit_once(' ')).map(|(_, link)| link).collect()
}

/// Both are asked for the same; so slowly that neither brings all before the other one stands.
const TWO_LINKS: &str = "--no-search --json --limit-rate 20M --bind lo,127.0.0.1";

fn a_large_file_is_copied_by_two_links_at_once() {
    for way in [Way::Push, Way::Pull] {
        for command in ["cp", "sync"] {
            let env = TestEnvironment::new();
            file(&env.sender.path("file"), 1, 40 << 20);
            let summary =
                Route::new(&env, way).copy(&format!("{command} {TWO_LINKS}"), "file", "copy").end().summary();
            assert_same_bytes(&env.sender.path("file"), &env.receiver.path("copy"));
            assert_eq!(copied_by(&summary), ["127.0.0.1", "lo"], "{way:?} {command} {}", summary.0);
        }
    }
}

fn small_files_are_copied_by_two_links_at_once() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        let tree = env.sender.path("tree");
        fs::create_dir(&tree).unwrap();
        (0..3000).for_each(|number| file(&tree.join(number.to_string()), number, 10_000));
        let summary =
            Route::new(&env, way).copy(&format!("sync {TWO_LINKS}"), "tree/", "copy").end().summary();
        assert_same(&tree, &env.receiver.path("copy"));
        assert_eq!(copied_by(&summary), ["127.0.0.1", "lo"], "{way:?} {}", summary.0);
    }
}

fn a_delta_is_made_whatever_link_it_comes_by() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        let [tree, copy] = [env.sender.path("tree"), env.receiver.path("copy")];
        for folder in [&tree, &copy] {
            fs::create_dir(folder).unwrap();
            (0..12).for_each(|number| file(&folder.join(number.to_string()), number, 1 << 20));
        }
        for number in 0..12 {
            let changed = tree.join(number.to_string());
            let mut bytes = fs::read(&changed).unwrap();
            (0..20).for_each(|at| bytes[at * 50_000] ^= 1);
            fs::write(changed, bytes).unwrap();
        }
        let words = "sync --no-search --json --limit-rate 500K --bind lo,127.0.0.1 -I";
        let summary = Route::new(&env, way).copy(words, "tree/", "copy").end().summary();
        assert_same(&tree, &copy);
        assert!(summary.fetched() < 4 << 20, "{way:?} {}", summary.0);
    }
}

fn a_copy_bears_a_configured_link_that_is_not_there() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        file(&env.sender.path("file"), 1, 8 << 20);
        let route = Route::new(&env, way);
        route.caller().configure("bind = [\"towpath9\", \"lo\"]\n");
        let summary = route.copy("cp --via tls --json", "file", "copy").end().summary();
        assert_same_bytes(&env.sender.path("file"), &env.receiver.path("copy"));
        assert_eq!(copied_by(&summary), ["lo"], "{way:?} {}", summary.0);
    }
}

/// Of each link alone this would be twice as much in the time.
fn a_copy_by_two_links_keeps_to_its_rate() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        file(&env.sender.path("file"), 1, 12 << 20);
        let words = "cp --via tls --no-search --json --limit-rate 3M --bind lo,127.0.0.1";
        let route = Route::new(&env, way);
        let running = route.copy(words, "file", "copy").start();
        assert!(!running.ends_within(Duration::from_secs(3)), "{way:?}");
        let summary = running.end().summary();
        assert_same_bytes(&env.sender.path("file"), &env.receiver.path("copy"));
        assert_eq!(copied_by(&summary), ["127.0.0.1", "lo"], "{way:?} {}", summary.0);
    }
}

fn a_copy_refuses_links_that_it_can_not_use() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1 << 20);
    let many = ["lo"; 17].join(",");
    for (words, problem) in [
        ("cp --bind towpath9", "this machine has no interface or address 'towpath9' now"),
        ("sync --bind 192.0.2.7", "this machine has no interface or address '192.0.2.7' now"),
        ("sync --bind lo --via ssh", "--via ssh makes none"),
        (&format!("cp --bind {many}"), "at most 16 links"),
    ] {
        let ended = env.sender.tow(words.split(' ').chain(["file", "nowhere:copy"])).end();
        assert!(ended.with(2).err.contains(problem), "{words}");
    }
}

/// Bytes that a get of so many brings by each address of a sender whose lines have 20 Mbit/s, the first one without a name.
fn by_address(network: &Network, size: u64) -> Vec<(Option<String>, u64)> {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, size);
    network.limit(Side::Left, 20);
    let mut share = env.sender.tow_as(&network.left(), ["share", "file"]).start();
    let words = ["get", "--json", &share.ticket(), "-o", "file"];
    let summary = env.receiver.tow_as(&network.right(), words).end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    let path = |source: &serde_json::Value| source["path"].as_str().map(str::to_owned);
    summary.sources().map(|source| (path(source), source["bytes"].as_u64().unwrap())).collect()
}

fn a_sender_with_two_lines_is_drawn_from_by_both_unasked() {
    let size = 40 << 20;
    let came = by_address(&Network::double(), size);
    assert!(came.len() == 2 && came.iter().all(|(_, bytes)| *bytes > size / 6), "{came:?}");
}

fn two_addresses_on_one_line_are_found_to_be_one() {
    let (network, size) = (Network::double(), 40 << 20);
    // The second line is none.
    network.cut(Side::Left, true);
    network.add_addresses();
    let came = by_address(&network, size);
    let further: u64 = came.iter().filter(|(path, _)| path.is_some()).map(|(_, bytes)| bytes).sum();
    assert!(further < size / 3, "{came:?}");
}

/// The sender has one address, to which the receiver's second line has a route, too.
fn a_receiver_with_two_lines_uses_both_unasked_unless_it_is_told_not_to() {
    for may in [true, false] {
        let (network, env, size) = (Network::double(), TestEnvironment::new(), 40 << 20);
        file(&env.sender.path("file"), 1, size);
        network.limit(Side::Left, 20);
        network.route_by_second(Side::Right);
        if !may {
            env.receiver.configure(
                "[plugins]\nplugin = \"dealer\"\nof = [{ plugin = \"direct\", most_links = 1 }]\n",
            );
        }
        let words = ["share", "--listen", &format!("{}:0", network.address(Side::Left)), "file"];
        let mut share = env.sender.tow_as(&network.left(), words).start();
        let words = ["get", "--json", &share.ticket(), "-o", "file"];
        let summary = env.receiver.tow_as(&network.right(), words).end().summary();
        assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
        let by_second: u64 = summary.sources().filter(|source| source["path"] == "net2").map(bytes_of).sum();
        let expected = if may { size / 6..size } else { 0..1 };
        assert!(expected.contains(&by_second), "{may}: {by_second}");
    }
}

/// Whichever side starts it: the one that receives dials further addresses, and judges what they add.
fn a_copy_draws_from_both_lines_of_the_sender_unasked_unless_it_is_told_not_to() {
    for (way, command, may) in [(Way::Push, "cp", true), (Way::Pull, "sync", true), (Way::Pull, "cp", false)]
    {
        let (scene, size) = (Scene::new(), 40 << 20);
        file(&scene.env.sender.path("file"), 1, size);
        scene.network.limit(Side::Left, 20);
        if !may {
            let direct = "{ plugin = \"direct\", most_addresses = 1, most_links = 1 }";
            let tree = format!("[plugins]\nplugin = \"dealer\"\nof = [{direct}]\n");
            scene.env.receiver.configure(&tree);
        }
        let words = [command, "--json", "--no-search", "--via", "tls"];
        let summary = scene.copy_as(way, &words, "file", "copy").end().summary();
        assert_same_bytes(&scene.env.sender.path("file"), &scene.env.receiver.path("copy"));
        let has_path = |source: &&serde_json::Value| {
            source["path"].as_str().is_some_and(|path| path.ends_with("203.0.113.2"))
        };
        let further: u64 = summary.sources().filter(has_path).map(bytes_of).sum();
        let expected = if may { size / 6..size } else { 0..1 };
        assert!(expected.contains(&further), "{way:?} {command}: {further} of {}", summary.0);
    }
}

fn bytes_of(source: &serde_json::Value) -> u64 {
    source["bytes"].as_u64().unwrap()
}
