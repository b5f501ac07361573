//! Network namespaces: what a host is here.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use toml::Value;

use crate::error::LabError;

/// Folder where `ip netns` keeps the names.
const NAMES: &str = "/run/netns";

/// A namespace by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace(String);

impl Namespace {
    /// Makes one.
    pub fn add(name: String) -> Result<Self, LabError> {
        run(Command::new("ip").args(["netns", "add", &name]))?;
        Ok(Self(name))
    }

    /// Those that are there and whose names start with `prefix`.
    pub fn with_prefix(prefix: &str) -> Vec<Self> {
        let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(prefix)).map(Self).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Removes it; its devices go with it as soon as no process is in it.
    pub fn delete(&self) -> Result<(), LabError> {
        run(Command::new("ip").args(["netns", "del", &self.0])).map(drop)
    }

    /// Command that runs `program` in it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }

    /// Runs `work` in a thread that is in it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let file = File::open(self.path())?;
        let in_thread = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(in_thread).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Lets `ip` do these lines in it.
    pub fn batch(&self, lines: &str) -> Result<(), LabError> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.0, "-batch", "-"]).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(LabError::tried("running `ip`"))?;
        if let Some(mut input) = child.stdin.take() {
            // If `ip` stops reading, its own words tell why.
            let _ = input.write_all(lines.as_bytes());
        }
        let output = child.wait_with_output().map_err(LabError::tried("running `ip`"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(&command, &output.stderr)),
        }
    }

    /// Sets a kernel parameter, given as `net.ipv4.tcp_rmem`.
    pub fn sysctl(&self, key: &str, value: &Value) -> Result<(), LabError> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Boolean(is_on) => u8::from(*is_on).to_string(),
            Value::Integer(number) => number.to_string(),
            _ => return Err(LabError::Scenario(format!("{key}: not text, a number or true or false"))),
        };
        if !key.starts_with("net.") || key.contains('/') {
            let what = format!("`{key}` is no kernel parameter of a network, like net.ipv4.tcp_rmem");
            return Err(LabError::Scenario(what));
        }
        if key == "net.ipv4.tcp_congestion_control" {
            allow_congestion_control(&text);
        }
        let path = PathBuf::from(format!("/proc/sys/{}", key.replace('.', "/")));
        let write = || (path.exists(), fs::write(&path, &text));
        let (is_there, written) = self.enter(write).map_err(LabError::tried("entering a namespace"))?;
        written.map_err(|error| {
            let why = match is_there {
                false => "a namespace has none of its own, or the kernel lacks it",
                true => "the kernel does not take this value",
            };
            LabError::Scenario(format!("{key} = {text}: {why} ({error})"))
        })
    }

    /// Open: its inode, which tells it from others in `/proc`, is nobody else's until this is closed.
    pub fn open(&self) -> Option<File> {
        File::open(self.path()).ok()
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(NAMES).join(&self.0)
    }
}

/// Namespaces may only choose among the algorithms that the machine allows to everybody, which are few
/// at first. That one more is allowed changes nothing for other programs, and stays so: labs that
/// stand side by side may need it. If it can't be allowed, choosing it tells why.
fn allow_congestion_control(name: &str) {
    const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let allowed = fs::read_to_string(ALLOWED).unwrap_or_default();
    if !allowed.split_whitespace().any(|it| it == name) {
        let _ = fs::write(ALLOWED, format!("{} {name}", allowed.trim()));
    }
}

/// Runs a program that sets something up, to its end.
pub fn run(command: &mut Command) -> Result<Vec<u8>, LabError> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output.map_err(LabError::tried(format!("running `{program}`")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(failed(command, &output.stderr)),
    }
}

fn failed(command: &Command, said: &[u8]) -> LabError {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    LabError::Command { command: words.join(" "), said: String::from_utf8_lossy(said).trim().into() }
}
