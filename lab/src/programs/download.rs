//! Programs that load a file from nginx and are nothing more: wget, and aria2 with the several
//! connections it is known for, from one address of the server or from all.

use std::process::Command;

use super::place::{ReceiverHost, SenderHost, Server};
use super::{Need, Program, ProgramError, need, web};

const WGET: [Need; 2] = [Need::Program("wget", "wget"), web::NGINX];
const ARIA2: [Need; 2] = [Need::Program("aria2c", "aria2"), web::NGINX];

/// Program that downloads.
pub enum Download {
    /// On one connection.
    Wget,
    /// On four.
    Aria2,
    /// On four from each address of the server.
    Aria2Links,
}

impl Program for Download {
    fn name(&self) -> &'static str {
        match self {
            Self::Wget => "wget",
            Self::Aria2 => "aria2",
            Self::Aria2Links => "aria2-links",
        }
    }

    fn about(&self) -> &'static str {
        match self {
            Self::Wget => "wget from nginx",
            Self::Aria2 => "aria2c from nginx, four connections",
            Self::Aria2Links => "aria2c from nginx by each link, four connections",
        }
    }

    fn needs(&self) -> &'static [Need] {
        match self {
            Self::Wget => &WGET,
            Self::Aria2 | Self::Aria2Links => &ARIA2,
        }
    }

    fn carries_trees(&self) -> bool {
        false
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        match self {
            Self::Aria2Links => web::serve_at(sender, sender.parent(), &sender.side.addresses()),
            _ => web::serve(sender, sender.parent()),
        }
    }

    fn receive(
        &self,
        contact: &str,
        sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let program = self.needs()[0].name();
        let mut command = receiver.side.command(&need(self.needs(), program)?, program)?;
        match self {
            Self::Wget => command.args(["--no-config", "--no-hsts", "-nv", "-O"]).arg(&receiver.destination),
            Self::Aria2 | Self::Aria2Links => {
                let (parent, name) = (receiver.destination.parent(), receiver.destination.file_name());
                let split = if matches!(self, Self::Aria2) { "-s4" } else { "-s8" };
                command.args(["--no-conf", "--quiet", "-x4", split, "-k1M", "--file-allocation=none"]);
                command.arg("--dir").arg(parent.unwrap_or(&receiver.side.dir));
                command.arg("--out").arg(name.unwrap_or_default())
            }
        };
        command.args(contact.split(' ').map(|contact| format!("{contact}/{}", sender.name())));
        Ok(command)
    }
}
