//! `tow get` of what `tow share` serves, or what `tow put` handed to a daemon.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;

use super::place::{ReceiverHost, SenderHost, Server, end_of};
use super::{Need, OldVersion, Program, ProgramError, ProgramSummary, prepare};

/// Line that a daemon prints when it can be spoken to.
const READY: &str = "local API at";
/// Text by which `tow ls --json` has the name of what was put, and that of its content once this is hashed.
const LIVE: &str = r#""oid":"live:"#;
const HASHED: &str = r#""content":"#;
/// Number of questions, and the pause between, as `tow put` can't be told to wait: a minute in all, and
/// longer on a slow machine.
const LOOKS: u32 = 1200;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Server of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// `tow share`, which reads the source while it is fetched.
    Share,
    /// `tow daemon`, which read the source before: what that took is not counted.
    Daemon,
}

/// One of them.
pub struct TowGet {
    /// Server.
    pub from: From,
    /// It brings up to date what lies at the destination.
    pub updates: bool,
}

impl Program for TowGet {
    fn name(&self) -> &'static str {
        match (self.from, self.updates) {
            (From::Share, _) => "tow-get",
            (From::Daemon, false) => "tow-get-daemon",
            (From::Daemon, true) => "tow-get-update",
        }
    }

    fn about(&self) -> &'static str {
        match (self.from, self.updates) {
            (From::Share, _) => "tow get from tow share",
            (From::Daemon, false) => "tow get from tow daemon, after tow put",
            (From::Daemon, true) => "tow get --update from tow daemon, after tow put",
        }
    }

    fn older(&self) -> OldVersion {
        if self.updates { OldVersion::Updated } else { OldVersion::Unused }
    }

    fn needs(&self) -> &'static [Need] {
        &[]
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        if self.from == From::Daemon {
            return serve_put(sender);
        }
        let mut command = sender.side.command(sender.side.tow, "share")?;
        command.args(["-q", "share"]).arg(sender.source);
        let output = sender.side.output("share");
        Server::start(sender, command, "share", Signal::INT, |_| {
            let ticket = fs::read_to_string(&output).ok()?;
            ticket.strip_suffix('\n').map(str::to_owned)
        })
    }

    fn receive(
        &self,
        contact: &str,
        _sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let ticket = receiver.side.write("ticket", contact)?;
        let ticket = File::open(&ticket).map_err(|error| prepare("the ticket", error))?;
        let mut command = receiver.side.command(receiver.side.tow, "tow")?;
        command.args(["--json", "get", "-", "-o"]).arg(&receiver.destination).stdin(Stdio::from(ticket));
        command.args(self.updates.then_some("--update"));
        Ok(command)
    }

    fn summary(&self, output: &str) -> Option<ProgramSummary> {
        summary(output)
    }
}

/// A daemon, and its ticket for what was put.
fn serve_put(sender: &SenderHost) -> Result<Server, ProgramError> {
    let side = &sender.side;
    let mut command = side.command(side.tow, "daemon")?;
    command.arg("daemon");
    let log = side.errors("daemon");
    let mut server = Server::start(sender, command, "daemon", Signal::INT, |_| {
        fs::read_to_string(&log).is_ok_and(|log| log.contains(READY)).then(String::new)
    })?;
    let mut put = side.command(side.tow, "put")?;
    let put =
        put.args(["-q", "put"]).arg(sender.source).status().map_err(|error| prepare("tow put", error))?;
    if !put.success() {
        return Err(ProgramError::Server { program: "tow put", log: end_of(&side.errors("put")) });
    }
    wait_until_hashed(sender)?;
    let ticket = side.output("put");
    let ticket = fs::read_to_string(&ticket).map_err(|error| prepare(ticket.display().to_string(), error))?;
    server.contact = ticket.trim_end().to_owned();
    server.forget();
    Ok(server)
}

/// A put has its ticket before its content is hashed; what is measured begins after that.
fn wait_until_hashed(sender: &SenderHost) -> Result<(), ProgramError> {
    let side = &sender.side;
    for _ in 0..LOOKS {
        let mut list = side.command(side.tow, "ls")?;
        list.args(["ls", "--json"]).status().map_err(|error| prepare("tow ls", error))?;
        let list = side.output("ls");
        let list = fs::read_to_string(&list).map_err(|error| prepare(list.display().to_string(), error))?;
        if list.lines().all(|line| !line.contains(LIVE) || line.contains(HASHED)) {
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(ProgramError::Server { program: "tow daemon", log: end_of(&side.errors("daemon")) })
}

/// The last line of `--json`, as far as it tells where bytes came from.
#[derive(Deserialize)]
struct GetFields {
    #[serde(default)]
    sources: Vec<SourceFields>,
    #[serde(default)]
    kept: u64,
    #[serde(default)]
    matched: u64,
}

#[derive(Deserialize)]
struct SourceFields {
    kind: String,
    bytes: u64,
}

/// Bytes by kind of source. Peers are one: their names are keys, new in every run.
pub fn summary(output: &str) -> Option<ProgramSummary> {
    let last = output.lines().last()?;
    let fields: GetFields = serde_json::from_str(last).ok()?;
    let mut sources = BTreeMap::new();
    for source in fields.sources {
        *sources.entry(source.kind).or_default() += source.bytes;
    }
    sources.extend([("kept".to_owned(), fields.kept), ("matched".to_owned(), fields.matched)]);
    sources.retain(|_, bytes| *bytes > 0);
    Some(ProgramSummary { sources, told: serde_json::from_str(last).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_sources() {
        let output = "{\"event\":\"transfer\"}\n{\"event\":\"summary\",\"sources\":[\
                      {\"kind\":\"peer\",\"node\":\"a\",\"bytes\":3},{\"kind\":\"peer\",\"node\":\"b\",\"bytes\":4}],\
                      \"kept\":5,\"matched\":0}\n";
        let expected = BTreeMap::from([("peer".to_owned(), 7), ("kept".to_owned(), 5)]);
        let summary = summary(output).unwrap();
        assert_eq!(summary.sources, expected);
        assert_eq!(summary.told["sources"][1]["bytes"], 4);
        assert_eq!(super::summary("tow: no such file"), None);
    }
}
