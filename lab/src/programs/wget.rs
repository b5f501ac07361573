//! wget from nginx.

use std::process::Command;

use super::place::{Receiver, Sender, Server};
use super::{Need, Program, ProgramError, need, web};

const NEEDS: [Need; 2] = [Need::Program("wget", "wget"), web::NGINX];

/// See above.
pub struct Wget;

impl Program for Wget {
    fn name(&self) -> &'static str {
        "wget"
    }

    fn about(&self) -> &'static str {
        "wget from nginx"
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
        let mut command = receiver.side.command(&need(&NEEDS, "wget")?, "wget")?;
        command.args(["--no-config", "--no-hsts", "-nv", "-O"]).arg(&receiver.destination);
        command.arg(format!("{contact}/{}", sender.name()));
        Ok(command)
    }
}
