//! scp, as it is with its defaults: the SFTP protocol over ssh in today's versions.

use std::process::Command;

use super::place::{ReceiverHost, SenderHost, Server};
use super::{Need, Program, ProgramError, need, sshd};

const SCP: [Need; 4] =
    [Need::Program("scp", "openssh-client"), sshd::NEEDS[0], sshd::NEEDS[1], sshd::NEEDS[2]];

/// See above.
pub struct Scp;

impl Program for Scp {
    fn name(&self) -> &'static str {
        "scp"
    }

    fn about(&self) -> &'static str {
        "scp -r"
    }

    fn needs(&self) -> &'static [Need] {
        &SCP
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        sshd::serve(sender)
    }

    fn receive(
        &self,
        contact: &str,
        sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let mut command = receiver.side.command(&need(&SCP, "scp")?, "scp")?;
        command.args(["-q", "-r", "-F", contact]);
        command.arg(format!("{}:{}", sshd::HOST, sender.source.display())).arg(&receiver.destination);
        Ok(command)
    }
}
