//! A vault whose blocks come from several holders: its server, and copies of what that keeps, which are slow, gone, lie, or lack something.

use std::fs;
use std::path::Path;

use serde_json::Value;
use towpath_link::Identity;
use towpath_vault_protocol::ServerMessage;

use crate::environment::{LOOPBACK, Machine, Running, first_line};
use crate::lying_server::{Liar, LyingServer, RawMessage, raw};
use crate::runner::situations;
use crate::slow_line::SlowLine;
use crate::trees::bytes;
use crate::vault::{Vaults, assert_told, call, find, number, put, run, told};
use crate::vault_attacks::{keys_of, member, state};

situations![
    a_get_draws_from_a_slow_server_and_a_slow_copy_at_once,
    a_copy_that_lies_is_named_and_the_blocks_come_from_elsewhere,
    a_copy_that_dies_costs_its_share_and_one_that_is_gone_nothing,
    without_the_server_a_copy_gives_what_this_machine_saw_last,
    what_an_older_copy_lacks_comes_from_the_server_and_a_check_tells,
    a_copy_takes_nothing,
];

const LENGTH: u64 = 6 << 20;
/// Bytes a second of a slow line.
const SLOW: u64 = 4 << 20;

/// A vault with notes, a copy of what its server keeps, and machine `two`, which has joined and has no blocks.
struct Copied {
    vaults: Vaults,
    one: Machine,
    two: Machine,
    id: String,
    copy: Option<Running>,
    copy_place: String,
}

impl Copied {
    fn new() -> Self {
        let (vaults, one, two, id) = Vaults::with_two(&bytes(1, LENGTH));
        let mut this = Self { vaults, one, two, id, copy: None, copy_place: String::new() };
        this.copy();
        this
    }

    fn machine(&self) -> Machine {
        self.vaults.env.machine("copy")
    }

    /// Serves a copy of what the server keeps now.
    fn copy(&mut self) {
        let machine = self.machine();
        run("cp", &[Path::new("-a"), &self.vaults.folder(), &machine.path("vaults")]);
        let words = ["vault", "serve", "--read-only", "--folder", "vaults", "--listen", LOOPBACK];
        let mut copy = machine.tow(words).start();
        self.copy_place = copy.wait_until("its place", |copy| first_line(&copy.output()));
        self.copy = Some(copy);
    }

    /// Machine `two` goes to the server by a slow line.
    fn slow_server(&self) {
        fs::write(state(&self.two, &self.id).join("server"), slow(&self.vaults.place)).unwrap();
    }

    /// Somebody with the copy's key who stands before it.
    fn liar(&self) -> LyingServer {
        let key = find(&self.machine().home(""), "node.key");
        let identity = Identity::load_or_create(&key).unwrap();
        LyingServer::new(&identity, &self.copy_place, member(&keys_of(&self.two, &self.id)))
    }

    fn add(&self, place: &str) {
        let told = told(&self.two, &["holders", place]);
        assert_eq!(told["holders"].as_array().unwrap().last().unwrap(), place);
    }

    /// Machine `two` gets the notes, which are these; what the server and the others gave.
    fn get(&self, seed: u64) -> Vec<Value> {
        let words = ["get", "notes", "-o", "back", "--overwrite", "--json"];
        let events = call(&self.two, &words).with(0).events();
        assert!(fs::read(self.two.path("back")).unwrap() == bytes(seed, LENGTH));
        events.into_iter().filter(|event| event["event"] == "holder").collect()
    }
}

/// A slow way to a server.
fn slow(place: &str) -> String {
    let (node, address) = place.split_once('@').unwrap();
    format!("{node}@{}", SlowLine::to(address, SLOW, SLOW).address)
}

/// Lies about objects once so many were told.
struct ObjectLiar<F>(usize, F);

impl<F: FnMut() -> Option<RawMessage> + Send> Liar for ObjectLiar<F> {
    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        match (&message, self.0) {
            (ServerMessage::Object(_), 0) => (self.1)(),
            (ServerMessage::Object(_), _) => {
                self.0 -= 1;
                Some(raw(message.to_frames()))
            }
            _ => Some(raw(message.to_frames())),
        }
    }
}

fn a_get_draws_from_a_slow_server_and_a_slow_copy_at_once() {
    let copied = Copied::new();
    assert!(copied.get(1).is_empty(), "nobody named another holder");
    fs::remove_dir_all(state(&copied.two, &copied.id).join("blocks")).unwrap();
    copied.slow_server();
    copied.add(&slow(&copied.copy_place));
    let holders = copied.get(1);
    assert_eq!(holders.len(), 2, "{holders:?}");
    for holder in &holders {
        assert!(number(holder, "bytes") > LENGTH / 4 && holder["fault"].is_null(), "{holders:?}");
    }
    let all: u64 = holders.iter().map(|holder| number(holder, "bytes")).sum();
    assert!((LENGTH..LENGTH * 5 / 4).contains(&all), "hardly anything comes twice: {holders:?}");
    // All is here now.
    assert!(copied.get(1).is_empty());
    // A put is the server's alone.
    fs::write(copied.two.path("notes"), bytes(2, LENGTH)).unwrap();
    put(&copied.two, "notes");
    assert_eq!(number(&told(&copied.one, &["check"]), "faults"), 0);
}

fn a_copy_that_lies_is_named_and_the_blocks_come_from_elsewhere() {
    let copied = Copied::new();
    copied.slow_server();
    let liar = copied.liar();
    copied.add(&liar.place);
    liar.lie(ObjectLiar(40, || Some(raw(ServerMessage::Object(vec![7; 9000].into()).to_frames()))));
    let holders = copied.get(1);
    let (server, copy) = (&holders[0], &holders[1]);
    assert!(server["fault"].is_null() && number(server, "bytes") > LENGTH / 2, "{holders:?}");
    assert_eq!((&copy["holder"], number(copy, "objects")), (&liar.place.clone().into(), 40));
    assert!(copy["fault"].as_str().unwrap().starts_with("it gave other bytes for "), "{holders:?}");
    fs::remove_dir_all(state(&copied.two, &copied.id).join("blocks")).unwrap();
    let got = call(&copied.two, &["get", "notes", "-o", "again"]).with(0);
    let named = format!("holder {}: it gave other bytes for ", liar.place);
    assert!(got.err.contains(&named), "{}", got.err);
}

fn a_copy_that_dies_costs_its_share_and_one_that_is_gone_nothing() {
    let mut copied = Copied::new();
    copied.slow_server();
    let liar = copied.liar();
    copied.add(&liar.place);
    liar.lie(ObjectLiar(60, || None));
    let holders = copied.get(1);
    assert_eq!(number(&holders[1], "objects"), 60, "{holders:?}");
    assert!(holders[1]["fault"].is_string() && holders[0]["fault"].is_null(), "{holders:?}");
    // With kill -9, long before.
    copied.copy.take().unwrap().kill();
    told(&copied.two, &["holders", &copied.copy_place, "--remove", &liar.place]);
    fs::remove_dir_all(state(&copied.two, &copied.id).join("blocks")).unwrap();
    let holders = copied.get(1);
    assert_eq!(number(&holders[1], "objects"), 0, "{holders:?}");
    assert!(holders[1]["fault"].is_string() && number(&holders[0], "bytes") >= LENGTH, "{holders:?}");
}

fn without_the_server_a_copy_gives_what_this_machine_saw_last() {
    let mut copied = Copied::new();
    copied.vaults.stop();
    assert_told(call(&copied.two, &["get", "notes"]), &["the vault's server"]);
    copied.add(&copied.copy_place);
    let got = call(&copied.two, &["get", "notes", "-o", "back", "--json"]).with(0);
    assert!(got.err.contains("going by what this machine saw last"), "{}", got.err);
    assert!(fs::read(copied.two.path("back")).unwrap() == bytes(1, LENGTH));
    // Then the copy is gone, too.
    copied.copy.take().unwrap().kill();
    fs::remove_dir_all(state(&copied.two, &copied.id).join("blocks")).unwrap();
    let words = ["get", "notes", "-o", "again"];
    assert_told(call(&copied.two, &words), &["none of the vault's 1 holders", &copied.copy_place]);
    copied.vaults.start();
    fs::write(state(&copied.two, &copied.id).join("server"), &copied.vaults.place).unwrap();
    assert!(copied.get(1)[1]["fault"].is_string());
}

fn what_an_older_copy_lacks_comes_from_the_server_and_a_check_tells() {
    let copied = Copied::new();
    copied.add(&copied.copy_place);
    let check = ["check", "--holder", &copied.copy_place, "--json"];
    let events = call(&copied.two, &check).with(0).events();
    let [holder, checked] = &events[events.len() - 2..] else { panic!("{events:?}") };
    assert!(number(holder, "bytes") >= LENGTH && holder["fault"].is_null(), "{events:?}");
    assert_eq!((number(checked, "faults"), number(checked, "bytes")), (0, LENGTH));
    fs::write(copied.one.path("notes"), bytes(2, LENGTH)).unwrap();
    put(&copied.one, "notes");
    let holders = copied.get(2);
    assert!(number(&holders[0], "bytes") >= LENGTH, "{holders:?}");
    let events = call(&copied.two, &check).with(1).events();
    let fault = events.iter().find(|event| event["event"] == "fault");
    assert!(fault.unwrap()["error"].as_str().unwrap().contains("lacks"), "{events:?}");
    assert_eq!(number(&told(&copied.two, &["check"]), "faults"), 0, "the server has it");
}

fn a_copy_takes_nothing() {
    let copied = Copied::new();
    let refused = call(&copied.one, &["init", &copied.copy_place]);
    assert_told(refused, &["only hands out what it has"]);
    fs::write(state(&copied.two, &copied.id).join("server"), &copied.copy_place).unwrap();
    told(&copied.two, &["holders"]);
    let wrong = call(&copied.two, &["holders", "nowhere"]).with(2);
    assert!(wrong.err.contains("'nowhere' is not NODE@HOST:PORT"), "{}", wrong.err);
    let wrong = call(&copied.two, &["holders", "--remove", &copied.vaults.place]).with(2);
    assert!(wrong.err.contains("is no holder of this vault"), "{}", wrong.err);
}
