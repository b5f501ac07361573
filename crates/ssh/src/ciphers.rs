//! Choice of ssh's cipher: AES-GCM where both machines have the instructions for it, since it takes half the time of
//! ChaCha20, which ssh would take. Whoever configured ciphers keeps them, and so does another command than plain ssh.
//!
//! The other machine's instructions are known only after the first copy, and kept for the next one: an empty file for
//! each host and login.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use towpath_content::Oid;
use towpath_link::tls::has_fast_aes;

use crate::address::Remote;

/// The cipher that is preferred.
const PREFERRED: &str = "aes128-gcm@openssh.com";
/// Time that ssh has to print its configuration; it takes some 10 ms, unless that runs programs.
const LIMIT: Duration = Duration::from_secs(2);

/// Hosts that were seen to have instructions for AES.
#[derive(Debug, Clone)]
pub struct AesHosts {
    folder: PathBuf,
}

impl AesHosts {
    /// Those that are kept in this folder, which need not exist.
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Keeps whether the other machine has them. Nothing but time hangs on it, so an error is none.
    pub fn keep(&self, remote: &Remote, has_aes: bool) {
        let file = self.file(remote);
        let kept = match (has_aes, file.exists()) {
            (true, false) => fs::create_dir_all(&self.folder).and_then(|()| fs::write(file, b"")),
            (false, true) => fs::remove_file(file),
            _ => Ok(()),
        };
        if let Err(error) = kept {
            tracing::debug!(%error, "whether a host has AES is not kept");
        }
    }

    fn has(&self, remote: &Remote) -> bool {
        self.file(remote).exists()
    }

    fn file(&self, remote: &Remote) -> PathBuf {
        let login = remote.login().unwrap_or_default().as_bytes();
        let name = Oid::of(&[login, b"@", remote.host().as_bytes()].concat());
        self.folder.join(name.to_string().replace(':', "-"))
    }
}

/// Option of `ssh` for `remote`, if another cipher is better than the one that it would take.
pub(crate) async fn option(ssh: &OsStr, remote: &Remote, hosts: &AesHosts) -> Option<OsString> {
    if !has_fast_aes() || !hosts.has(remote) {
        return None;
    }
    let (mine, default) = tokio::join!(ciphers(ssh, &[], remote), ciphers(ssh, &["-F", "none"], remote));
    let ciphers = mine?;
    if Some(&ciphers) != default.as_ref() {
        return None;
    }
    Some(format!("Ciphers={}", preferred(&ciphers)?).into())
}

/// The same ciphers with the preferred one in front, if it is among them and not there yet. Written out, since older
/// versions of ssh have no `^`.
fn preferred(ciphers: &str) -> Option<String> {
    let mut names: Vec<&str> = ciphers.split(',').collect();
    let at = names.iter().position(|name| *name == PREFERRED).filter(|at| *at > 0)?;
    names[..=at].rotate_right(1);
    Some(names.join(","))
}

/// Ciphers that ssh would offer, as it prints them.
async fn ciphers(ssh: &OsStr, arguments: &[&str], remote: &Remote) -> Option<String> {
    let mut command = Command::new(ssh);
    command.arg("-G").args(arguments);
    if let Some(login) = remote.login() {
        command.arg("-l").arg(login);
    }
    command.arg(remote.host()).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await.ok()?.ok()?;
    let printed = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    printed.lines().find_map(|line| line.strip_prefix("ciphers ").map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_cipher_comes_first_and_the_others_stay_as_they_are() {
        assert_eq!(preferred("a,b,aes128-gcm@openssh.com,c").unwrap(), "aes128-gcm@openssh.com,a,b,c");
        assert_eq!(preferred("aes128-gcm@openssh.com,a"), None, "it is first");
        assert_eq!(preferred("a,b"), None, "this ssh does not have it");
    }
}
