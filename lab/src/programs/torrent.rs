//! BitTorrent: libtorrent at both sides, introduced to each other, no tracker. The torrent is made
//! before the transfer, and not measured.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::place::{ReceiverHost, SenderHost, Server, free_port};
use super::{Need, Program, ProgramError, need};

const NEEDS: [Need; 1] = [Need::PythonModule("libtorrent", "python3-libtorrent")];
const SCRIPT: &str = include_str!("torrent.py");

/// See above.
pub struct Torrent;

impl Program for Torrent {
    fn name(&self) -> &'static str {
        "bittorrent"
    }

    fn about(&self) -> &'static str {
        "libtorrent at both sides, the torrent made before"
    }

    fn needs(&self) -> &'static [Need] {
        &NEEDS
    }

    fn carries_trees(&self) -> bool {
        false
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        let side = &sender.side;
        let script = side.write("torrent.py", SCRIPT)?;
        let (port, torrent) = (free_port()?, torrent(sender));
        let mut command = side.command(&need(&NEEDS, "libtorrent")?, "seed")?;
        command.arg(script).args(["seed", &side.address().to_string(), &port.to_string()]);
        command.arg(&torrent).arg(sender.source);
        let (output, contact) = (side.output("seed"), format!("{}:{port}", side.address()));
        Server::start(sender, command, "seed", Signal::TERM, |_| {
            let said = fs::read_to_string(&output).ok()?;
            said.contains("serving").then(|| contact.clone())
        })
    }

    fn receive(
        &self,
        contact: &str,
        sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let script = receiver.side.write("torrent.py", SCRIPT)?;
        let mut command = receiver.side.command(&need(&NEEDS, "libtorrent")?, "torrent")?;
        command.arg(script).args(["get", &receiver.side.address().to_string(), contact]);
        command.arg(torrent(sender)).arg(&receiver.destination);
        Ok(command)
    }
}

fn torrent(sender: &SenderHost) -> PathBuf {
    sender.side.dir.join("data.torrent")
}
