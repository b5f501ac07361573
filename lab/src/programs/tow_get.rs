//! `tow get` of what `tow share` serves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde::Deserialize;

use super::place::{Receiver, Sender, Server};
use super::{Need, Program, ProgramError, prepare};

/// See above.
pub struct TowGet;

impl Program for TowGet {
    fn name(&self) -> &'static str {
        "tow-get"
    }

    fn about(&self) -> &'static str {
        "tow get from tow share"
    }

    fn needs(&self) -> &'static [Need] {
        &[]
    }

    fn serve(&self, sender: &Sender) -> Result<Server, ProgramError> {
        let mut command = sender.side.command(sender.side.tow, "share")?;
        command.args(["-q", "share"]).arg(sender.source);
        let output = sender.side.output("share");
        Server::start(sender, command, "share", Signal::INT, |_| {
            let ticket = fs::read_to_string(&output).ok()?;
            ticket.strip_suffix('\n').map(str::to_owned)
        })
    }

    fn receive(&self, contact: &str, _sender: &Sender, receiver: &Receiver) -> Result<Command, ProgramError> {
        let ticket = receiver.side.write("ticket", contact)?;
        let ticket = File::open(&ticket).map_err(|error| prepare("the ticket", error))?;
        let mut command = receiver.side.command(receiver.side.tow, "tow")?;
        command.args(["--json", "get", "-", "-o"]).arg(&receiver.destination).stdin(Stdio::from(ticket));
        Ok(command)
    }

    fn sources(&self, output: &str) -> BTreeMap<String, u64> {
        sources(output)
    }
}

/// The last line of `--json`, as far as it tells where bytes came from.
#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    by_source: BTreeMap<String, u64>,
    #[serde(default)]
    kept: u64,
    #[serde(default)]
    matched: u64,
}

/// Bytes by source. Peers are one: their names are keys, new in every run.
pub fn sources(output: &str) -> BTreeMap<String, u64> {
    let Some(summary) = output.lines().last().and_then(|line| serde_json::from_str::<Summary>(line).ok())
    else {
        return BTreeMap::new();
    };
    let mut sources = BTreeMap::new();
    for (source, bytes) in summary.by_source {
        let kind = source.split(' ').next().unwrap_or_default().to_owned();
        *sources.entry(kind).or_default() += bytes;
    }
    sources.extend([("kept".to_owned(), summary.kept), ("matched".to_owned(), summary.matched)]);
    sources.retain(|_, bytes| *bytes > 0);
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_sources() {
        let output = "{\"event\":\"transfer\"}\n{\"event\":\"summary\",\"by_source\":{\"peer a\":3,\"peer b\":4},\
                      \"kept\":5,\"matched\":0}\n";
        let expected = BTreeMap::from([("peer".to_owned(), 7), ("kept".to_owned(), 5)]);
        assert_eq!(sources(output), expected);
        assert!(sources("tow: no such file").is_empty());
    }
}
