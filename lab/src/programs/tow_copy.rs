//! `tow cp` and `tow sync`: the receiver pulls over ssh from a sender on which nothing of Towpath runs
//! before. Data go over TLS beside ssh where that works, as `tow` decides by itself.

use std::io;
use std::process::Command;

use super::place::{ReceiverHost, SenderHost, Server};
use super::{Need, OldVersion, Program, ProgramError, ProgramSummary, prepare, sshd, tow_get};

/// One of the two.
pub struct TowCopy {
    /// `cp` or `sync`.
    pub command: &'static str,
}

impl Program for TowCopy {
    fn name(&self) -> &'static str {
        if self.command == "cp" { "tow-cp" } else { "tow-sync" }
    }

    fn about(&self) -> &'static str {
        if self.command == "cp" { "tow cp over ssh" } else { "tow sync over ssh" }
    }

    fn needs(&self) -> &'static [Need] {
        &sshd::NEEDS
    }

    fn older(&self) -> OldVersion {
        OldVersion::Updated
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        if let Some(older) = sender.older {
            let mut put = sender.side.command(sender.side.tow, "put")?;
            put.args(["-q", "put"]).arg(older);
            let status = put.status().map_err(|error| prepare("tow put", error))?;
            if !status.success() {
                return Err(prepare("tow put", io::Error::other(status.to_string())));
            }
        }
        sshd::serve(sender)
    }

    fn receive(
        &self,
        contact: &str,
        sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let (home, own) = (sender.side.home()?, sender.side.own()?);
        let tow = sender.side.tow.display();
        let remote = format!("HOME='{}' TOW_HOME='{}' '{tow}'", home.display(), own.display());
        let mut source = format!("{}:{}", sshd::HOST, sender.source.display());
        // The content of the directory, not the directory itself.
        if sender.source.is_dir() {
            source.push_str(if self.command == "cp" { "/." } else { "/" });
        }
        let mut command = receiver.side.command(receiver.side.tow, "tow")?;
        command.args([self.command, "--json", "-e", &sshd::command(contact), "--tow-path", &remote]);
        command.arg(source).arg(&receiver.destination);
        Ok(command)
    }

    fn summary(&self, output: &str) -> Option<ProgramSummary> {
        tow_get::summary(output)
    }
}
