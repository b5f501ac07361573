//! An sshd with keys and a configuration of its own, for every program that goes over ssh.
//!
//! Its contact is the path of a client's configuration, in which the sender is called [`HOST`].

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::place::{SenderHost, Server, find, free_port, is_listening};
use super::{Need, ProgramError, need, prepare};

/// Name of the sender for ssh.
pub const HOST: &str = "sender";
/// Needs of ssh.
pub const NEEDS: [Need; 3] = [
    Need::Program("sshd", "openssh-server"),
    Need::Program("ssh", "openssh-client"),
    Need::Program("ssh-keygen", "openssh-client"),
];
/// sshd wants this directory, and where no init runs nobody makes it.
const RUN: &str = "/run/sshd";

/// Starts it.
pub fn serve(sender: &SenderHost) -> Result<Server, ProgramError> {
    let side = &sender.side;
    let keygen = need(&NEEDS, "ssh-keygen")?;
    ["host", "user"].iter().try_for_each(|name| make_key(&keygen, &side.dir.join(name)))?;
    if rustix::process::getuid().is_root() {
        fs::create_dir_all(RUN).map_err(|error| prepare(RUN, error))?;
    }
    let port = free_port()?;
    let at = |name: &str| side.dir.join(name).display().to_string();
    let server = side.write("sshd_config", &server_config(sender, port, at))?;
    let client = side.write("ssh_config", &client_config(sender, port, at)?)?;
    let key = fs::read_to_string(at("host.pub")).map_err(|error| prepare(at("host.pub"), error))?;
    side.write("known", &format!("[{}]:{port} {key}", side.address()))?;
    let mut command = side.command(&need(&NEEDS, "sshd")?, "sshd")?;
    command.args(["-D", "-e", "-f"]).arg(server);
    Server::start(sender, command, "sshd", Signal::TERM, |id| {
        is_listening(id, port).then(|| client.display().to_string())
    })
}

/// The words that start ssh, for `-e`.
pub fn command(contact: &str) -> String {
    format!("ssh -F '{contact}'")
}

fn make_key(keygen: &Path, path: &Path) -> Result<(), ProgramError> {
    let mut command = Command::new(keygen);
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    let output = command.output().map_err(|error| prepare("ssh-keygen", error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(ProgramError::Server {
            program: "ssh-keygen",
            log: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

fn server_config(sender: &SenderHost, port: u16, at: impl Fn(&str) -> String) -> String {
    let address = sender.side.address();
    let mut lines = vec![
        format!("Port {port}\nListenAddress {address}"),
        format!("HostKey \"{}\"\nAuthorizedKeysFile \"{}\"", at("host"), at("user.pub")),
        format!("PidFile \"{}\"", at("pid")),
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n".into(),
    ];
    if let Some(server) = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"]
        .iter()
        .find(|path| Path::new(path).exists())
    {
        lines.push(format!("Subsystem sftp {server}\n"));
    }
    lines.join("\n")
}

fn client_config(
    sender: &SenderHost,
    port: u16,
    at: impl Fn(&str) -> String,
) -> Result<String, ProgramError> {
    let lines = [
        format!("Host {HOST}\nHostName {}\nPort {port}", sender.side.address()),
        format!("IdentityFile \"{}\"\nUser {}", at("user"), user()?),
        format!("UserKnownHostsFile \"{}\"\nGlobalKnownHostsFile /dev/null", at("known")),
        "IdentitiesOnly yes\nIdentityAgent none\nBatchMode yes\nLogLevel ERROR\n".into(),
    ];
    Ok(lines.join("\n"))
}

/// User who runs this, and may log in.
fn user() -> Result<String, ProgramError> {
    let id = find("id").unwrap_or_else(|| "id".into());
    let output = Command::new(id).arg("-un").output().map_err(|error| prepare("id -un", error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
