//! zsync from nginx. Its index of the file is made before the transfer, and not measured.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::place::{ReceiverHost, SenderHost, Server, end_of};
use super::{Need, OldVersion, Program, ProgramError, need, prepare, web};

const NEEDS: [Need; 3] = [Need::Program("zsync", "zsync"), Need::Program("zsyncmake", "zsync"), web::NGINX];

/// See above.
pub struct Zsync;

impl Program for Zsync {
    fn name(&self) -> &'static str {
        "zsync"
    }

    fn about(&self) -> &'static str {
        "zsync from nginx, its index made before"
    }

    fn needs(&self) -> &'static [Need] {
        &NEEDS
    }

    fn carries_trees(&self) -> bool {
        false
    }

    fn older(&self) -> OldVersion {
        OldVersion::Read
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        let side = &sender.side;
        let link = side.dir.join("data");
        symlink(sender.source, &link).map_err(|error| prepare("a link to the data", error))?;
        let mut make = side.command(&need(&NEEDS, "zsyncmake")?, "zsyncmake")?;
        make.args(["-u", "data", "-f", "data", "-o", "data.zsync"]).arg(&link);
        let made = make.status().map_err(|error| prepare("zsyncmake", error))?;
        if !made.success() {
            let log = end_of(&side.errors("zsyncmake"));
            return Err(ProgramError::Server { program: "zsyncmake", log });
        }
        web::serve(sender, &side.dir)
    }

    fn receive(
        &self,
        contact: &str,
        _sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let mut command = receiver.side.command(&need(&NEEDS, "zsync")?, "zsync")?;
        command.args(["-q", "-o"]).arg(&receiver.destination);
        if let Some(older) = receiver.older {
            command.arg("-i").arg(older);
        }
        command.arg(format!("{contact}/data.zsync"));
        Ok(command)
    }
}
