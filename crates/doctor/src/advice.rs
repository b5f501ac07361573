//! Rows of a table from findings: what was looked at, how it is, and what to do about it. Pure.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use towpath_link::own_addresses::AddressKind;

use crate::findings::{
    AddressFinding, ClockFinding, DaemonFinding, Findings, MulticastFinding, ServerAnswer, ServerFinding,
    StateFinding,
};
use crate::router::{self, RouterKind};

/// With less free space nothing can be kept, in bytes.
const NO_SPACE: u64 = 64 << 20;
/// With less it is told.
const LITTLE_SPACE: u64 = 1 << 30;

/// State of what was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// It works.
    Ok,
    /// Something does without, or is not known.
    Note,
    /// What is configured, or needed, does not work.
    Wrong,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckRow {
    /// What was looked at.
    pub what: &'static str,
    /// How it is.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl CheckRow {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: CheckState::Ok, found: found.into(), advice: None }
    }

    fn note(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, state: CheckState::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn wrong(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, state: CheckState::Wrong, found: found.into(), advice: Some(advice.into()) }
    }
}

/// All rows, in the order in which things depend on each other. `version` is that of this program.
pub fn rows(findings: &Findings, version: &str) -> Vec<CheckRow> {
    let mut rows = addresses(&findings.addresses);
    rows.extend(findings.ports.iter().map(port));
    rows.push(multicast(&findings.multicast));
    rows.extend(rendezvous(&findings.rendezvous));
    rows.push(router(findings));
    rows.extend(findings.relays.iter().map(relay));
    rows.extend(findings.pass.as_deref().map(pass));
    rows.push(daemon(&findings.daemon, version));
    rows.push(state(&findings.state));
    rows.push(ssh(findings.ssh.as_ref()));
    rows.push(clock(findings.clock));
    rows
}

fn addresses(all: &[AddressFinding]) -> Vec<CheckRow> {
    let far = all.iter().filter(|own| own.kind != AddressKind::Loopback);
    let mut rows: Vec<CheckRow> = far.clone().map(address).collect();
    let is_reached = |own: &AddressFinding| matches!(own.kind, AddressKind::Private | AddressKind::Public);
    if far.clone().next().is_none() {
        rows.push(CheckRow::note(
            "address",
            "none but loopback",
            "connect to a network; transfers within this machine work",
        ));
    } else if !far.clone().any(is_reached) {
        let found = "none that other links reach";
        rows.push(CheckRow::note("address", found, "see why this machine has got no address by DHCP"));
    }
    rows
}

fn address(own: &AddressFinding) -> CheckRow {
    let who = match own.kind {
        AddressKind::Loopback => "loopback: this machine alone",
        AddressKind::LinkLocal => "link-local: machines on the same link",
        AddressKind::Container => "containers and virtual machines of this machine",
        AddressKind::Private => "private: machines of the same site can dial it",
        AddressKind::Public => "public: anybody can dial it, unless a firewall hinders",
    };
    let family = if own.ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let named = if own.is_named { "; in tickets" } else { "" };
    CheckRow::ok("address", format!("{} on {}: {family}, {who}{named}", own.ip, own.interface))
}

fn port((address, tried): &(SocketAddr, Result<(), String>)) -> CheckRow {
    match tried {
        Ok(()) if address.port() == 0 => {
            CheckRow::ok("listening", format!("works at {}, any port", address.ip()))
        }
        Ok(()) => CheckRow::ok("listening", format!("works at {address}")),
        Err(why) => CheckRow::wrong(
            "listening",
            format!("not at {address}: {why}"),
            "see who has that port ('ss -ltnp'), or change 'listen' in the configuration",
        ),
    }
}

fn multicast(found: &MulticastFinding) -> CheckRow {
    let else_how =
        "codes are found by a rendezvous server, or not at all; a firewall must let UDP port 5353 pass";
    match found {
        MulticastFinding::Off => CheckRow::ok("multicast", "off, as the configuration says"),
        MulticastFinding::Heard(after) => {
            CheckRow::ok("multicast", format!("a code that is announced is found here in {}", time(*after)))
        }
        MulticastFinding::NotHeard => {
            CheckRow::note("multicast", "a code that is announced is not found", else_how)
        }
        MulticastFinding::Trouble(why) => CheckRow::note("multicast", why, else_how),
    }
}

fn rendezvous(servers: &[ServerFinding]) -> Vec<CheckRow> {
    if servers.is_empty() {
        let advice = "for codes and tickets between networks run 'tow rendezvous' on a machine that both sides reach, and name it \
                      under rendezvous.servers, or in TOW_RENDEZVOUS";
        return vec![CheckRow::note("rendezvous", "none is configured", advice)];
    }
    let row = |server: &ServerFinding| match &server.answer {
        Ok(answer) => {
            let seen =
                answer.seen.first().map(|(_, seen)| format!("; it sees this machine at {}", seen.ip()));
            CheckRow::ok("rendezvous", reached(&server.place, answer) + &seen.unwrap_or_default())
        }
        Err(why) => unreached("rendezvous", &server.place, why),
    };
    servers.iter().map(row).collect()
}

fn reached(place: &str, answer: &ServerAnswer) -> String {
    let round_trip = answer.round_trip.map(|round_trip| format!(", round trip {}", time(round_trip)));
    format!("{place} reached{}", round_trip.unwrap_or_default())
}

fn unreached(what: &'static str, place: &str, why: &str) -> CheckRow {
    // Errors of dialling begin with the address.
    let found = if why.starts_with(place) { why.to_owned() } else { format!("{place}: {why}") };
    CheckRow::wrong(
        what,
        found,
        "see that it runs, that its port is open (TCP), and that the key before '@' is the one it prints",
    )
}

fn router(findings: &Findings) -> CheckRow {
    let own: Vec<IpAddr> = findings.addresses.iter().map(|own| own.ip).collect();
    let second = "name a second server, also here: --rendezvous";
    match router::kind(&findings.rendezvous, &own) {
        RouterKind::Unknown => {
            let found = "not known: only a rendezvous server can tell";
            CheckRow::note("router", found, "name one, also here: --rendezvous")
        }
        RouterKind::Missing => CheckRow::ok("router", "none: servers see this machine's own address"),
        RouterKind::KeepsPort { outside } => CheckRow::ok("router", format!("{outside}, {KEEPS_PORT}")),
        RouterKind::LikelyKeepsPort { outside } => CheckRow::ok("router", format!("{outside}, {SEEMS_TO}")),
        RouterKind::SomeRouter { outside } => {
            CheckRow::note("router", format!("{outside}, {CHANGES}"), second)
        }
        RouterKind::Symmetric { outside } => symmetric(outside, &findings.relays),
    }
}

const KEEPS_PORT: &str =
    "keeps the port of a connection, whomever it goes to (cone, or restricted): others can meet this machine";
const SEEMS_TO: &str = "keeps ports, as one server sees it (cone, or restricted); two would be sure";
const CHANGES: &str = "changes ports; one server can't tell whether for each connection";

fn symmetric(outside: IpAddr, relays: &[ServerFinding]) -> CheckRow {
    let found = format!(
        "{outside}, gives each connection another port (symmetric): only machines that can be dialled are met"
    );
    let helps = |relay: &ServerFinding| matches!(&relay.answer, Ok(answer) if answer.refused.is_none());
    match relays.iter().any(helps) {
        true => CheckRow::ok("router", found + ", or all by the relay"),
        false => CheckRow::note(
            "router",
            found,
            "name a relay under rendezvous.relays ('tow relay'), or forward a port of the router to this machine and listen there",
        ),
    }
}

fn relay(server: &ServerFinding) -> CheckRow {
    match &server.answer {
        Err(why) => unreached("relay", &server.place, why),
        Ok(answer) => match &answer.refused {
            None => CheckRow::ok("relay", reached(&server.place, answer) + "; this machine may wait there"),
            Some(why) => refused(server, answer, why),
        },
    }
}

fn refused(server: &ServerFinding, answer: &ServerAnswer, why: &str) -> CheckRow {
    if answer.has_pass {
        let found = format!("{}: {why}, though it was shown the pass", server.place);
        let advice =
            "copy the pass anew from the relay's machine to the file that rendezvous.relay_pass names";
        return CheckRow::wrong("relay", found, advice);
    }
    let advice = "fine if the relay names this machine's node (--node, see 'tow status'), which was not tried; else configure \
                  rendezvous.relay_pass";
    CheckRow::note("relay", format!("{}; {why}, without a pass", reached(&server.place, answer)), advice)
}

fn pass(why: &str) -> CheckRow {
    CheckRow::wrong("relay pass", why, "without it the relays let only nodes wait that they name")
}

fn daemon(found: &DaemonFinding, version: &str) -> CheckRow {
    match found {
        DaemonFinding::Missing => CheckRow::ok("daemon", "none runs: commands do its work themselves"),
        DaemonFinding::Running { version: its, listening } => running(its, listening, version),
        DaemonFinding::Silent { socket, is_left: true, why } => {
            let found = format!("none runs, and its socket {} is there: {why}", socket.display());
            CheckRow::note("daemon", found, "start it again, or remove the socket")
        }
        DaemonFinding::Silent { socket, why, .. } => CheckRow::wrong(
            "daemon",
            format!("{}: {why}", socket.display()),
            "restart it; its log tells more",
        ),
    }
}

fn running(its: &str, listening: &[String], version: &str) -> CheckRow {
    if its != version {
        let found = format!("runs, of version {its}; this program is {version}");
        return CheckRow::note("daemon", found, "restart it");
    }
    match listening {
        [] => CheckRow::note("daemon", "runs, and listens nowhere", "see 'listen' in the configuration"),
        all => CheckRow::ok("daemon", format!("runs, listening at {}", all.join(", "))),
    }
}

fn state(found: &StateFinding) -> CheckRow {
    let folder = found.folder.display();
    if let Some(why) = &found.trouble {
        let advice = "see whose it is, or name another one with TOW_HOME";
        return CheckRow::wrong("state", format!("{folder} can't be written: {why}"), advice);
    }
    let mib = |free: u64| format!("{folder}: {} MiB free", free >> 20);
    let advice = "free some space: 'tow gc' removes what is cached";
    match found.free {
        Some(free) if free < NO_SPACE => CheckRow::wrong("state", mib(free), advice),
        Some(free) if free < LITTLE_SPACE => CheckRow::note("state", mib(free), advice),
        Some(free) => CheckRow::ok("state", format!("{folder}: {} GiB free", free >> 30)),
        None => CheckRow::ok("state", folder.to_string()),
    }
}

fn ssh(found: Option<&PathBuf>) -> CheckRow {
    let advice = "install one for 'tow cp' and 'tow sync' with other machines";
    match found {
        Some(path) => CheckRow::ok("ssh", path.display().to_string()),
        None => CheckRow::note("ssh", "no program ssh in PATH", advice),
    }
}

fn clock(found: ClockFinding) -> CheckRow {
    match found {
        ClockFinding::Plausible => CheckRow::ok("clock", "plausible"),
        ClockFinding::BeforeProgram(behind) => CheckRow::wrong(
            "clock",
            format!("{} days before this program was installed", behind.as_secs() / (24 * 60 * 60)),
            "set it: tickets that expire go by it",
        ),
    }
}

/// A duration, for people.
fn time(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "under 1 ms".into(),
        millis @ 1..1000 => format!("{millis} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests;
