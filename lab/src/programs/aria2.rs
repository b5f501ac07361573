//! aria2 from nginx, with the several connections it is known for.

use std::process::Command;

use super::place::{Receiver, Sender, Server};
use super::{Need, Program, ProgramError, need, web};

const NEEDS: [Need; 2] = [Need::Program("aria2c", "aria2"), web::NGINX];

/// See above.
pub struct Aria2;

impl Program for Aria2 {
    fn name(&self) -> &'static str {
        "aria2"
    }

    fn about(&self) -> &'static str {
        "aria2c from nginx, four connections"
    }

    fn needs(&self) -> &'static [Need] {
        &NEEDS
    }

    fn carries_trees(&self) -> bool {
        false
    }

    fn serve(&self, sender: &Sender) -> Result<Server, ProgramError> {
        web::serve(sender, sender.parent())
    }

    fn receive(&self, contact: &str, sender: &Sender, receiver: &Receiver) -> Result<Command, ProgramError> {
        let mut command = receiver.side.command(&need(&NEEDS, "aria2c")?, "aria2c")?;
        let (parent, name) = (receiver.destination.parent(), receiver.destination.file_name());
        command.args(["--no-conf", "--quiet", "-x4", "-s4", "-k1M", "--file-allocation=none"]);
        command.arg("--dir").arg(parent.unwrap_or(&receiver.side.dir)).arg("--out");
        command.arg(name.unwrap_or_default()).arg(format!("{contact}/{}", sender.name()));
        Ok(command)
    }
}
