//! rsync, from its daemon and over ssh.

use std::process::Command;

use rustix::process::{Signal, getgid, getuid};

use super::place::{ReceiverHost, SenderHost, Server, free_port, is_listening};
use super::{Need, OldVersion, Program, ProgramError, need, sshd};

const RSYNC: Need = Need::Program("rsync", "rsync");
const OVER_SSH: [Need; 4] = [RSYNC, sshd::NEEDS[0], sshd::NEEDS[1], sshd::NEEDS[2]];

/// Transport by which it reaches the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Its own protocol, in clear.
    Daemon,
    /// ssh.
    Ssh,
    /// ssh, and no file is made from an older one.
    SshWhole,
}

/// One of them.
pub struct Rsync {
    /// Transport.
    pub over: Over,
}

impl Program for Rsync {
    fn name(&self) -> &'static str {
        match self.over {
            Over::Daemon => "rsync",
            Over::Ssh => "rsync-ssh",
            Over::SshWhole => "rsync-whole",
        }
    }

    fn about(&self) -> &'static str {
        match self.over {
            Over::Daemon => "rsync -aH from its daemon",
            Over::Ssh => "rsync -aH over ssh",
            Over::SshWhole => "rsync -aHW over ssh",
        }
    }

    fn needs(&self) -> &'static [Need] {
        if self.over == Over::Daemon { &OVER_SSH[..1] } else { &OVER_SSH }
    }

    fn older(&self) -> OldVersion {
        OldVersion::Updated
    }

    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError> {
        if self.over != Over::Daemon {
            return sshd::serve(sender);
        }
        let port = free_port()?;
        let config = sender.side.write("rsyncd.conf", &config(sender))?;
        let mut command = sender.side.command(&need(&OVER_SSH, "rsync")?, "rsyncd")?;
        command.args(["--daemon", "--no-detach", "--port", &port.to_string(), "--config"]).arg(config);
        let contact = format!("rsync://{}:{port}/data", sender.side.address());
        Server::start(sender, command, "rsyncd", Signal::TERM, |id| {
            is_listening(id, port).then(|| contact.clone())
        })
    }

    fn receive(
        &self,
        contact: &str,
        sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError> {
        let slash = if sender.source.is_dir() { "/" } else { "" };
        let mut command = receiver.side.command(&need(&OVER_SSH, "rsync")?, "rsync")?;
        command.arg(if self.over == Over::SshWhole { "-aHW" } else { "-aH" });
        match self.over {
            Over::Daemon => command.arg(format!("{contact}/{}{slash}", sender.name())),
            Over::Ssh | Over::SshWhole => {
                command.args(["-e", &sshd::command(contact)]);
                command.arg(format!("{}:{}{slash}", sshd::HOST, sender.source.display()))
            }
        };
        command.arg(&receiver.destination);
        Ok(command)
    }
}

fn config(sender: &SenderHost) -> String {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let lines = [
        "use chroot = no\nreverse lookup = no".to_owned(),
        format!("pid file = {}", sender.side.dir.join("rsyncd.pid").display()),
        format!("log file = {}", sender.side.errors("rsyncd").display()),
        format!("[data]\npath = {}\nread only = yes\nuid = {uid}\ngid = {gid}\n", sender.parent().display()),
    ];
    lines.join("\n")
}
