//! Machines in network namespaces: on one network, on two, or behind routers that let in answers only. They go when this is dropped.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::environment::TOW;
use crate::machinery::{is_root, tool};
use crate::runner::skip;

/// Address of the server that everybody reaches.
pub const SERVER: &str = "198.51.100.1";

/// Device of a machine that leads to a network, and how that is called.
struct NetworkPlug {
    device: &'static str,
    hub: &'static str,
    port: &'static str,
    prefix: &'static str,
}

/// The network that all are on, and the second one of the two machines.
const FIRST: NetworkPlug = NetworkPlug { device: "net", hub: "hub", port: "port", prefix: "198.51.100" };
const SECOND: NetworkPlug = NetworkPlug { device: "net2", hub: "hub2", port: "second", prefix: "203.0.113" };

/// One of the two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left one.
    Left,
    /// The right one.
    Right,
}

/// A router in front of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Router {
    /// There is none.
    Missing,
    /// Only answers are let in, and a port is the same outside whomever it speaks to.
    Restricted,
    /// Only answers are let in, and each connection has another port outside.
    Symmetric,
}

/// A network with a server and two machines, `left` and `right`.
pub struct Network {
    prefix: String,
    /// Namespaces that were made.
    made: Vec<String>,
    left: String,
    right: String,
}

impl Network {
    /// One network: all see each other.
    pub fn plain() -> Self {
        Self::behind(Router::Missing, Router::Missing)
    }

    /// All see each other, and the two machines have a second network, `net2`, between them.
    pub fn double() -> Self {
        let network = Self::plain();
        network.add_hub(&SECOND);
        network.plug_in(&network.left, &SECOND, 2);
        network.plug_in(&network.right, &SECOND, 3);
        // An address of one network is not to be had by the other one, also not by a link that asks for it there.
        for name in [&network.left, &network.right] {
            let words = ["netns", "exec", name, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"];
            run(Command::new("ip").args(words), "");
        }
        network
    }

    /// From now on a machine's second device has the address of this number, and no other.
    pub fn move_to(&self, side: Side, number: u8) {
        let name = self.machine_of(side);
        ip(&["-n", name, "address", "flush", "dev", SECOND.device]);
        ip(&["-n", name, "address", "add", &format!("{}.{number}/24", SECOND.prefix), "dev", SECOND.device]);
    }

    /// A machine's cable of the second network is cut, which it is not told; or mended.
    pub fn cut(&self, side: Side, is_cut: bool) {
        let (hub, port) = (format!("{}hub", self.prefix), format!("{}{}", SECOND.port, number_of(side)));
        match is_cut {
            true => ip(&["-n", &hub, "link", "set", &port, "nomaster"]),
            false => ip(&["-n", &hub, "link", "set", &port, "master", SECOND.hub]),
        }
    }

    /// What a machine sends goes out by each of its devices at no more than these megabits a second.
    pub fn limit(&self, side: Side, megabits: u32) {
        let rate = format!("{megabits}mbit");
        for device in [FIRST.device, SECOND.device] {
            self.pass_bucket(side, device, &["rate", &rate, "burst", "32k", "latency", "50ms"]);
        }
    }

    /// From now on a machine's second device sends half a megabit a second, packet by packet, and loses nothing.
    pub fn slow_down(&self, side: Side) {
        self.pass_bucket(side, SECOND.device, &["rate", "512kbit", "burst", "3k", "limit", "4m"]);
    }

    fn pass_bucket(&self, side: Side, device: &str, bucket: &[&str]) {
        let tc = tool("tc").display().to_string();
        let fixed =
            ["netns", "exec", self.machine_of(side), &tc, "qdisc", "add", "dev", device, "root", "tbf"];
        run(Command::new("ip").args(fixed).args(bucket), "");
    }

    /// Of what a machine sends by its second device the packets that this condition of `nft` holds for are lost.
    pub fn lose(&self, side: Side, condition: &str) {
        let (name, nft) = (self.machine_of(side), tool("nft").display().to_string());
        let at =
            |words: &[&str], input| run(Command::new("ip").args(["netns", "exec", name]).args(words), input);
        // Packets of each connection are counted.
        at(&["sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1"], "");
        let device = SECOND.device;
        let rules = format!(
            "table ip lossy {{\nchain out {{\ntype filter hook output priority 0;\noifname \"{device}\" {condition} drop\n}}\n}}\n"
        );
        at(&[&nft, "-f", "-"], &rules);
    }

    /// Both machines have another address on the first device, in a network of its own.
    pub fn add_addresses(&self) {
        for (name, number) in [(&self.left, 2), (&self.right, 3)] {
            ip(&["-n", name, "address", "add", &format!("192.0.2.{number}/24"), "dev", FIRST.device]);
        }
    }

    /// A machine's second device leads to the other one's first address, too.
    pub fn route_by_second(&self, side: Side) {
        let other = if side == Side::Left { Side::Right } else { Side::Left };
        let router = format!("{}.{}", SECOND.prefix, number_of(other));
        ip(&["-n", self.machine_of(side), "route", "add", "default", "via", &router, "dev", SECOND.device]);
    }

    /// A machine's address on the first network.
    pub fn address(&self, side: Side) -> String {
        format!("{}.{}", FIRST.prefix, number_of(side))
    }

    /// A machine's device of the second network vanishes.
    pub fn unplug(&self, side: Side) {
        ip(&["-n", self.machine_of(side), "link", "del", SECOND.device]);
    }

    fn machine_of(&self, side: Side) -> &str {
        if side == Side::Left { &self.left } else { &self.right }
    }

    /// The machines are behind routers.
    pub fn behind(left: Router, right: Router) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !is_root() {
            skip("only root may make network namespaces");
        }
        tool("ip");
        let prefix = format!("tow{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut network = Self { prefix, made: Vec::new(), left: String::new(), right: String::new() };
        network.add("hub");
        network.add_hub(&FIRST);
        let server = network.add("server");
        network.plug(&server, 1);
        network.left = network.machine("left", 2, left);
        network.right = network.machine("right", 3, right);
        network
    }

    /// Words that start `tow` at the server.
    pub fn server(&self) -> Vec<String> {
        at(&format!("{}server", self.prefix))
    }

    /// The same on the left machine.
    pub fn left(&self) -> Vec<String> {
        at(&self.left)
    }

    /// The same on the right one.
    pub fn right(&self) -> Vec<String> {
        at(&self.right)
    }

    /// `ip` with these words on the left machine.
    pub fn left_ip(&self, words: &[&str]) {
        ip(&[&["-n", &self.left], words].concat());
    }

    /// Rules of `nft` for the left machine.
    pub fn left_rules(&self, rules: &str) {
        let nft = tool("nft").display().to_string();
        run(Command::new("ip").args(["netns", "exec", &self.left, &nft, "-f", "-"]), rules);
    }

    /// Packets that such a rule with the comment `name` counted.
    pub fn left_packets(&self, name: &str) -> u64 {
        let nft = tool("nft").display().to_string();
        let words = ["netns", "exec", &self.left, &nft, "list", "ruleset"];
        let listed = Command::new("ip").args(words).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let line = listed.lines().find(|line| line.contains(&format!("comment \"{name}\""))).unwrap();
        let (_, count) = line.split_once("packets ").unwrap();
        count.split(' ').next().unwrap().parse().unwrap()
    }

    fn add(&mut self, name: &str) -> String {
        let name = format!("{}{name}", self.prefix);
        ip(&["netns", "add", &name]);
        self.made.push(name.clone());
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        name
    }

    fn add_hub(&self, plug: &NetworkPlug) {
        let hub = format!("{}hub", self.prefix);
        ip(&["-n", &hub, "link", "add", plug.hub, "type", "bridge"]);
        ip(&["-n", &hub, "link", "set", plug.hub, "up"]);
    }

    /// A device `net` in `name` that leads to all others, with the address of this number.
    fn plug(&self, name: &str, number: u8) {
        self.plug_in(name, &FIRST, number);
    }

    fn plug_in(&self, name: &str, plug: &NetworkPlug, number: u8) {
        let (hub, port) = (format!("{}hub", self.prefix), format!("{}{number}", plug.port));
        ip(&[
            "link",
            "add",
            &port,
            "netns",
            &hub,
            "type",
            "veth",
            "peer",
            "name",
            plug.device,
            "netns",
            name,
        ]);
        ip(&["-n", &hub, "link", "set", &port, "master", plug.hub, "up"]);
        ip(&["-n", name, "address", "add", &format!("{}.{number}/24", plug.prefix), "dev", plug.device]);
        ip(&["-n", name, "link", "set", plug.device, "up"]);
    }

    fn machine(&mut self, side: &str, number: u8, kind: Router) -> String {
        let host = self.add(side);
        if kind == Router::Missing {
            self.plug(&host, number);
            return host;
        }
        let router = self.add(&format!("{side}r"));
        self.plug(&router, number);
        ip(&[
            "link", "add", "inner", "netns", &router, "type", "veth", "peer", "name", "net", "netns", &host,
        ]);
        ip(&["-n", &router, "address", "add", &format!("10.9.{number}.1/24"), "dev", "inner"]);
        ip(&["-n", &router, "link", "set", "inner", "up"]);
        ip(&["-n", &host, "address", "add", &format!("10.9.{number}.2/24"), "dev", "net"]);
        ip(&["-n", &host, "link", "set", "net", "up"]);
        ip(&["-n", &host, "route", "add", "default", "via", &format!("10.9.{number}.1")]);
        run(
            Command::new("ip").args(["netns", "exec", &router, "sysctl", "-qw", "net.ipv4.ip_forward=1"]),
            "",
        );
        let how = if kind == Router::Symmetric { "fully-random" } else { "persistent" };
        let rules = format!(
            "table ip nat {{\nchain post {{\ntype nat hook postrouting priority 100;\n\
             oifname \"net\" snat to 198.51.100.{number} {how}\n}}\n}}\n\
             table ip filter {{\nchain in {{\ntype filter hook input priority 0;\niifname \"net\" ct state new drop\n}}\n\
             chain through {{\ntype filter hook forward priority 0;\niifname \"net\" ct state new drop\n}}\n}}\n"
        );
        let nft = tool("nft").display().to_string();
        run(Command::new("ip").args(["netns", "exec", &router, &nft, "-f", "-"]), &rules);
        host
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Number of a machine's addresses at first.
const fn number_of(side: Side) -> u8 {
    if matches!(side, Side::Left) { 2 } else { 3 }
}

fn at(name: &str) -> Vec<String> {
    ["ip", "netns", "exec", name, TOW].map(str::to_owned).to_vec()
}

fn ip(words: &[&str]) {
    run(Command::new("ip").args(words), "");
}

fn run(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), std::env::var_os("CI")) {
        (true, _) => {}
        (false, None) if why.contains("not permitted") => skip(&format!("no network namespaces here: {why}")),
        (false, _) => panic!("{command:?}: {why}"),
    }
}
