//! Place where a program runs: a host, directories of its own, and servers that are waited for.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{ProgramError, prepare};
use crate::measure::{Process, ProcessEnd, ProcessError, descendants};

/// Folders of system administration's programs, which not everybody's PATH names.
const MORE_PATHS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Hides directories, in the name space of mounts that `ip netns exec` makes for each program, and becomes
/// the program.
const HIDE: &str =
    "while [ \"$1\" != -- ]; do mount -t tmpfs none \"$1\" || exit; shift; done; shift; exec \"$0\" \"$@\"";
/// A server serves within this time, or something is wrong.
const WAIT_LIMIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(5);
/// Bytes of a log that an error tells.
const LOG_END: usize = 400;
/// A listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// Machines that can run programs.
pub trait Hosts {
    /// A command that will run on this host.
    fn command(&self, host: &str, program: &OsStr) -> Command;
    /// Address at which the others reach it.
    fn address(&self, host: &str) -> Ipv4Addr;
    /// Its addresses, one for each of its links.
    fn addresses(&self, host: &str) -> Vec<Ipv4Addr>;
}

/// A host, as one program of one run sees it.
pub struct PlaceSide<'a> {
    /// The machines.
    pub hosts: &'a dyn Hosts,
    /// Host.
    pub host: &'a str,
    /// Its private directory, fresh.
    pub dir: PathBuf,
    /// The program `tow`.
    pub tow: &'a Path,
    /// Directories of this machine that another one would not have: an empty file system hides each from
    /// this host's programs.
    pub hidden: Vec<PathBuf>,
}

impl PlaceSide<'_> {
    /// A command on this host: no input, homes of its own, output and errors in files of this name.
    pub fn command(&self, program: &Path, name: &str) -> Result<Command, ProgramError> {
        let mut command = match &self.hidden[..] {
            [] => self.hosts.command(self.host, program.as_os_str()),
            hidden => {
                let mut command = self.hosts.command(self.host, OsStr::new("sh"));
                command.args(["-c", HIDE]).arg(program).args(hidden).arg("--");
                command
            }
        };
        command.current_dir(&self.dir).env("HOME", self.home()?).env("TOW_HOME", self.own()?);
        command.stdin(Stdio::null());
        command.stdout(self.log(&self.output(name))?).stderr(self.log(&self.errors(name))?);
        Ok(command)
    }

    /// The address of this host.
    pub fn address(&self) -> Ipv4Addr {
        self.hosts.address(self.host)
    }

    /// All of its addresses: those of each link are reached over that link.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.hosts.addresses(self.host)
    }

    /// The home of its programs.
    pub fn home(&self) -> Result<PathBuf, ProgramError> {
        let home = self.dir.join("home");
        fs::create_dir_all(&home).map_err(|error| prepare(home.display().to_string(), error))?;
        Ok(home)
    }

    /// Folder in which `tow` keeps what is its own: hidden in the home, as everywhere.
    pub fn own(&self) -> Result<PathBuf, ProgramError> {
        let own = self.home()?.join(".towpath");
        fs::create_dir_all(&own).map_err(|error| prepare(own.display().to_string(), error))?;
        Ok(own)
    }

    /// File with the output of a command of this name.
    pub fn output(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.out"))
    }

    /// File with its complaints.
    pub fn errors(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.err"))
    }

    /// Writes a file of its configuration.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, ProgramError> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|error| prepare(path.display().to_string(), error))?;
        Ok(path)
    }

    fn log(&self, path: &Path) -> Result<File, ProgramError> {
        File::create(path).map_err(|error| prepare(path.display().to_string(), error))
    }
}

/// The host that has the data.
pub struct SenderHost<'a> {
    /// The host.
    pub side: PlaceSide<'a>,
    /// The file or directory.
    pub source: &'a Path,
    /// An older version that it has besides, and knows.
    pub older: Option<&'a Path>,
}

impl SenderHost<'_> {
    /// The directory that holds the source.
    pub fn parent(&self) -> &Path {
        self.source.parent().unwrap_or(Path::new("/"))
    }

    /// The source's own name. Data have plain names.
    pub fn name(&self) -> String {
        self.source.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// A host that wants them.
pub struct ReceiverHost<'a> {
    /// The host.
    pub side: PlaceSide<'a>,
    /// Destination: nothing is there, or the older version if the program updates it.
    pub destination: PathBuf,
    /// An older version, if the program reads it elsewhere.
    pub older: Option<&'a Path>,
}

/// The sender's side while it serves.
pub struct Server {
    process: Process,
    signal: Signal,
    idle: usize,
    /// CPU time that is not the transfer's.
    before: Duration,
    /// Contact that a receiver must know: a ticket, an address, a path.
    pub contact: String,
}

impl Server {
    /// Starts a server and waits until `ready` has what receivers must know.
    pub fn start(
        sender: &SenderHost,
        command: Command,
        name: &'static str,
        signal: Signal,
        mut ready: impl FnMut(u32) -> Option<String>,
    ) -> Result<Self, ProgramError> {
        let mut process = Process::start(command)?;
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(contact) = ready(process.id()) {
                let idle = descendants(process.id()).len();
                return Ok(Self { process, signal, idle, before: Duration::ZERO, contact });
            }
            if process.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(ProgramError::Server { program: name, log: end_of(&sender.side.errors(name)) });
            }
            thread::sleep(TICK);
        }
    }

    /// Forgets what it has done so far, once what it does for others is over.
    pub fn forget(&mut self) {
        self.process.settle(self.idle);
        self.before = self.process.cpu();
    }

    /// Ends it, and tells what it took.
    pub fn stop(self) -> Result<ProcessEnd, ProcessError> {
        let ended = self.process.stop(self.signal, self.idle)?;
        Ok(ProcessEnd { cpu: ended.cpu.saturating_sub(self.before), ..ended })
    }
}

/// The end of a log.
pub fn end_of(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_END)..]).trim().replace('\n', "; ");
    if end.is_empty() { "it said nothing".into() } else { end }
}

/// A port on which nobody listens.
pub fn free_port() -> Result<u16, ProgramError> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port()).map_err(|error| prepare("a free port", error))
}

/// True if something listens on a port in the network of process `id`.
pub fn is_listening(id: u32, port: u16) -> bool {
    let is_it = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        state == Some(LISTENING) && local.is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
    };
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
        table.lines().any(is_it)
    })
}

/// Path of a program.
pub fn find(name: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let more = MORE_PATHS.iter().map(PathBuf::from);
    env::split_paths(&paths)
        .chain(more)
        .map(|dir| dir.join(name))
        .find(|path| is_executable(path).is_ok_and(|it| it))
}

fn is_executable(path: &Path) -> io::Result<bool> {
    let metadata = fs::metadata(path)?;
    Ok(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
