//! A site's cache: what one machine has it fetch the next one takes from it, by the ticket's right; and what becomes of gets when it
//! is not there, says no, lies or dies.

use std::fs;

use serde_json::Value;
use towpath_content::Ticket;
use towpath_content::node_id::hex;

use crate::environment::{Ended, LOOPBACK, Machine, Running, TestEnvironment};
use crate::holders::by_peer;
use crate::runner::situations;
use crate::trees::{assert_same, assert_same_bytes, bytes, file};

situations![
    what_one_machine_had_fetched_the_next_takes_from_the_cache,
    what_was_deleted_on_a_machine_is_taken_from_the_cache_again,
    machines_that_ask_at_once_draw_on_the_sender_once,
    gets_go_on_when_the_cache_is_killed_and_started_again,
    gets_go_to_the_sender_if_the_cache_is_away_full_or_says_no,
    what_was_live_is_not_fetched_beyond_the_caches_limit,
    what_the_cache_gives_is_checked_and_a_liar_is_left,
    who_may_not_use_the_cache_draws_on_what_is_there_by_the_ticket_alone,
    a_forged_ticket_brings_nothing_that_another_one_brought,
    a_ticket_that_was_taken_back_is_served_no_more,
];

const MACHINES: [&str; 3] = ["first", "second", "third"];

/// A site: a cache, and machines that are told of it.
struct Site {
    env: TestEnvironment,
    cache: Machine,
    machines: Vec<Machine>,
}

/// The node of a machine.
fn node(machine: &Machine) -> String {
    let status = machine.tow(["status", "--json"]).end().with(0).events();
    status[0]["node"].as_str().unwrap().to_owned()
}

impl Site {
    /// The cache has this configuration, too, and runs.
    fn new(configuration: &str) -> (Self, Running) {
        let env = TestEnvironment::new();
        let cache = env.machine("cache");
        let machines: Vec<_> = MACHINES.iter().map(|name| env.machine(name)).collect();
        let nodes: Vec<_> = machines.iter().map(|machine| format!("\"{}\"", node(machine))).collect();
        cache.configure(&format!("[site_cache]\nmachines = [{}]\n{configuration}", nodes.join(", ")));
        let daemon = run(&cache, LOOPBACK);
        let site = Self { env, cache, machines };
        site.point_to(&place(&daemon));
        (site, daemon)
    }

    /// The machines' configuration names this cache.
    fn point_to(&self, place: &str) {
        for machine in &self.machines {
            machine.configure(&format!("[site_cache]\naddress = \"{place}\"\n"));
        }
    }
}

fn run(cache: &Machine, address: &str) -> Running {
    cache.daemon_of(cache.tow(["daemon", "--cache", "--listen", address]))
}

/// The line that a cache prints for the machines, as far as it is the address.
fn place(daemon: &Running) -> String {
    let text = daemon.error_text();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("tow:   site_cache.address = "));
    line.unwrap_or_else(|| panic!("no address: {text}")).trim_matches('"').to_owned()
}

fn issuer(ticket: &str) -> String {
    ticket.parse::<Ticket>().unwrap().node.to_string()
}

/// Bytes of a get that came from this node.
fn from(node: &str, get: Ended) -> u64 {
    by_peer(&get.summary()).iter().filter(|(by, _)| by == node).map(|(_, bytes)| bytes).sum()
}

fn share(machine: &Machine, words: &[&str], path: &str) -> Running {
    let fixed = ["share", "--json", "--listen", LOOPBACK];
    machine.tow(fixed.iter().chain(words).chain(&[path])).start()
}

/// Bytes that a share sent, to all that fetched. It ends by that.
fn sent(share: Running) -> u64 {
    share.interrupt();
    let ended = share.end();
    let fetches = ended.events().into_iter().filter(|event| event["event"] == "fetch");
    let is_over = |event: &Value| event["state"] != "begun" && event["state"] != "under_way";
    fetches.filter(is_over).map(|event| event["bytes"].as_u64().unwrap()).sum()
}

fn what_one_machine_had_fetched_the_next_takes_from_the_cache() {
    let (site, _daemon) = Site::new("");
    let sender = &site.env.sender;
    fs::create_dir(sender.path("tree")).unwrap();
    (0..40).for_each(|number| file(&sender.path(format!("tree/{number}")), number, 9_000 * number));
    file(&sender.path("tree/large"), 77, 9 << 20);
    file(&sender.path("small"), 1, 3 << 20);
    // Its name is live at first.
    file(&sender.path("large"), 2, 70 << 20);
    for name in ["small", "large", "tree"] {
        let mut share = sender.share(name);
        let ticket = share.ticket();
        let first = site.machines[0].get(&ticket, name).end();
        assert_eq!(from(&issuer(&ticket), first), 0, "the first one has it fetched: {name}");
        share.kill();
        site.machines[1].get(&ticket, name).end().summary();
        for machine in &site.machines[..2] {
            match name {
                "tree" => assert_same(&sender.path(name), &machine.path(name)),
                _ => assert_same_bytes(&sender.path(name), &machine.path(name)),
            }
        }
    }
    let left = fs::read_dir(site.cache.home("data/site-cache")).unwrap().count();
    assert_eq!(left, 0, "all of it is the store's");
}

fn what_was_deleted_on_a_machine_is_taken_from_the_cache_again() {
    let (site, _daemon) = Site::new("");
    let (sender, machine) = (&site.env.sender, &site.machines[0]);
    file(&sender.path("file"), 1, 3 << 20);
    let mut share = sender.share("file");
    let ticket = share.ticket();
    machine.get(&ticket, "file").end().summary();
    share.kill();
    // It is known still that this sender sent it, and where it was.
    fs::remove_file(machine.path("file")).unwrap();
    machine.get(&ticket, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &machine.path("file"));
}

fn machines_that_ask_at_once_draw_on_the_sender_once() {
    let (site, _daemon) = Site::new("");
    let sender = &site.env.sender;
    fs::create_dir(sender.path("tree")).unwrap();
    (0..20).for_each(|number| file(&sender.path(format!("tree/{number}")), number, 1 << 19));
    let size = 24 << 20;
    file(&sender.path("file"), 1, size);
    for (name, size) in [("file", size), ("tree", 20 << 19)] {
        let mut sharing = share(sender, &["--limit-rate", "6M"], name);
        let ticket = sharing.ticket();
        let gets: Vec<_> = site.machines.iter().map(|machine| machine.get(&ticket, name).start()).collect();
        for (get, machine) in gets.into_iter().zip(&site.machines) {
            assert_eq!(from(&issuer(&ticket), get.end()), 0);
            assert_same(&sender.path(name), &machine.path(name));
        }
        let sent = sent(sharing);
        assert!(sent >= size && sent <= size * 105 / 100, "{sent} of {size} for {name}");
    }
}

fn gets_go_on_when_the_cache_is_killed_and_started_again() {
    let (site, daemon) = Site::new("");
    let (sender, size) = (&site.env.sender, 24 << 20);
    file(&sender.path("file"), 1, size);
    let mut sharing = share(sender, &["--limit-rate", "4M"], "file");
    let ticket = sharing.ticket();
    let mut gets: Vec<_> =
        site.machines[..2].iter().map(|machine| machine.get(&ticket, "file").start()).collect();
    gets.iter_mut().for_each(|get| get.wait_for_bytes(size / 3));
    let place = place(&daemon);
    daemon.kill();
    let _daemon = run(&site.cache, place.split_once('@').unwrap().1);
    for get in gets {
        let brought = by_peer(&get.end().summary());
        let is_senders = |(node, _): &(String, u64)| *node == issuer(&ticket);
        assert!(brought.iter().any(is_senders), "the sender brought the rest: {brought:?}");
    }
    // What the cache had still counts.
    assert_eq!(from(&issuer(&ticket), site.machines[2].get(&ticket, "file").end()), 0);
    for machine in &site.machines {
        assert_same_bytes(&sender.path("file"), &machine.path("file"));
    }
    // Two thirds for each of the first two, and two thirds for the cache; a third came before.
    let sent = sent(sharing);
    assert!(sent < 3 * size, "{sent}");
}

fn gets_go_to_the_sender_if_the_cache_is_away_full_or_says_no() {
    let size = 6 << 20;
    for (what, configuration, words, is_away) in [
        ("it is not there", "", &[][..], true),
        ("it is too small", "[store]\ncache = \"1M\"\n", &[], false),
        ("its disk is full", "[limits]\ndisk_free = \"900000G\"\n", &[], false),
        ("the ticket is not to be passed on", "", &["--no-swarm"], false),
    ] {
        let (site, daemon) = Site::new(configuration);
        if is_away {
            daemon.kill();
        }
        let sender = &site.env.sender;
        file(&sender.path("file"), 1, size);
        let mut sharing = share(sender, words, "file");
        let ticket = sharing.ticket();
        let get = site.machines[0].get(&ticket, "file").end();
        assert_eq!(from(&issuer(&ticket), get), size, "{what}");
        assert_same_bytes(&sender.path("file"), &site.machines[0].path("file"));
    }
}

fn what_was_live_is_not_fetched_beyond_the_caches_limit() {
    let (site, _daemon) = Site::new("[store]\ncache = \"8M\"\n");
    let (sender, size) = (&site.env.sender, 70 << 20);
    file(&sender.path("file"), 1, size);
    let mut sharing = share(sender, &["--limit-rate", "40M"], "file");
    let ticket = sharing.ticket();
    assert!(ticket.parse::<Ticket>().unwrap().oid.is_live(), "its size is not known at first");
    let get = site.machines[0].get(&ticket, "file").end();
    assert_eq!(from(&issuer(&ticket), get), size);
    let left = fs::read_dir(site.cache.home("data/site-cache")).unwrap();
    let bytes: u64 = left.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < size, "{bytes}");
    let sent = sent(sharing);
    assert!(sent < size + size / 2, "{sent}");
}

fn what_the_cache_gives_is_checked_and_a_liar_is_left() {
    let (site, _daemon) = Site::new("");
    let (sender, size) = (&site.env.sender, 8 << 20);
    file(&sender.path("file"), 1, size);
    let mut share = sender.share("file");
    let ticket = share.ticket();
    site.machines[0].get(&ticket, "file").end().summary();
    let oid = ticket.parse::<Ticket>().unwrap().oid;
    let kept = site.cache.home("data/objects").join(hex(oid.digest()));
    fs::write(&kept, bytes(9, size)).unwrap();
    let summary = site.machines[1].get(&ticket, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &site.machines[1].path("file"));
    let brought = by_peer(&summary);
    assert_eq!(brought, [(issuer(&ticket), size)], "nothing of the liar's counts");
    assert!(!summary.0["wrong"].as_array().unwrap().is_empty(), "{}", summary.0);
}

fn who_may_not_use_the_cache_draws_on_what_is_there_by_the_ticket_alone() {
    let (site, daemon) = Site::new("");
    let (sender, size) = (&site.env.sender, 5 << 20);
    file(&sender.path("file"), 1, size);
    let mut share = sender.share("file");
    let ticket = share.ticket();
    let other = &site.env.stranger;
    other.configure(&format!("[site_cache]\naddress = \"{}\"\n", place(&daemon)));
    assert_eq!(from(&issuer(&ticket), other.get(&ticket, "before").end()), size, "it begins nothing");
    site.machines[0].get(&ticket, "file").end().summary();
    let late = &site.env.receiver;
    late.configure(&format!("[site_cache]\naddress = \"{}\"\n", place(&daemon)));
    assert_eq!(from(&issuer(&ticket), late.get(&ticket, "file").end()), 0);
}

fn a_forged_ticket_brings_nothing_that_another_one_brought() {
    let (site, _daemon) = Site::new("");
    let sender = &site.env.sender;
    file(&sender.path("file"), 1, 5 << 20);
    let mut sharing = sender.share("file");
    let ticket: Ticket = sharing.ticket().parse().unwrap();
    site.machines[0].get(&ticket.to_string(), "file").end().summary();
    // Another sender, which has something else: its ticket is for what only the hash is known of.
    file(&site.env.stranger.path("else"), 2, 5 << 20);
    let mut other = site.env.stranger.share("else");
    let own: Ticket = other.ticket().parse().unwrap();
    let secret = towpath_content::ticket::Secret([7; 16]);
    for forged in [Ticket { oid: ticket.oid, ..own }, Ticket { secret, ..ticket }] {
        let get = ["get", "--timeout", "3", &forged.to_string(), "-o", "forged"];
        let refused = site.machines[1].tow(get).end();
        assert_ne!(refused.code(), 0, "{}", refused.text());
        assert!(!site.machines[1].path("forged").exists());
    }
}

fn a_ticket_that_was_taken_back_is_served_no_more() {
    let (site, mut daemon) = Site::new("");
    let sender = &site.env.sender;
    let _sending = sender.daemon();
    file(&sender.path("file"), 1, 5 << 20);
    let put = sender.tow(["put", "--json", "file"]).end().with(0).events();
    let ticket = put[0]["ticket"].as_str().unwrap().to_owned();
    site.machines[0].get(&ticket, "file").end().summary();
    sender.tow(["done", &ticket]).end().with(0);
    // It asks the sender after five seconds, and then ever more seldom.
    daemon.wait_until("is told", |_| {
        let get = ["get", "--json", "--timeout", "3", &ticket, "-o", "late"];
        let get = site.machines[1].tow(get).end();
        let is_over = get.code() != 0;
        let _ = fs::remove_file(site.machines[1].path("late"));
        is_over.then_some(())
    });
}
