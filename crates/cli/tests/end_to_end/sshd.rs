//! A real sshd, and what must be said to `tow` so that it goes through it.
//!
//! It has keys and a configuration of its own, listens on 127.0.0.1 alone, lets in only the user
//! that runs the tests, and is killed by its own id when dropped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::environment::{Call, Machine, TOW, TestEnvironment, WAIT_LIMIT, soon};
use crate::machinery::{descendants, give_to_nobody, is_root, tool, unprivileged};

/// Name of the other machine.
pub const HOST: &str = "elsewhere";
/// A port that was free a moment ago may be taken.
const TRIES: usize = 5;

/// A running sshd.
pub struct Sshd {
    child: Child,
    dir: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// Starts one.
    pub fn start(env: &TestEnvironment) -> Self {
        let (sshd, keygen) = (tool("sshd"), tool("ssh-keygen"));
        tool("ssh");
        let dir = env.dir().join("sshd");
        fs::create_dir(&dir).unwrap();
        for key in ["host", "user"] {
            let mut command = Command::new(&keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key));
            assert!(command.status().unwrap().success());
        }
        fs::copy(dir.join("user.pub"), dir.join("allowed")).unwrap();
        (0..TRIES).find_map(|_| Self::try_start(&sshd, &dir)).expect("sshd finds no free port")
    }

    fn try_start(sshd: &Path, dir: &Path) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        configure(dir, port);
        let log = File::create(dir.join("log")).unwrap();
        let mut command = Command::new(sshd);
        command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config")).stdin(Stdio::null()).stderr(log);
        let mut this = Self { child: command.spawn().unwrap(), dir: dir.into() };
        let listens = soon(WAIT_LIMIT, || {
            let has_ended = this.child.try_wait().unwrap().is_some();
            let log = fs::read_to_string(dir.join("log")).unwrap();
            let (listens, is_taken) = (log.contains("Server listening"), has_ended && log.contains("in use"));
            assert!(listens || is_taken || !has_ended, "sshd does not start: {log}");
            (listens || is_taken).then_some(listens)
        });
        listens.expect("sshd says nothing").then_some(this)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// For `-e`.
    pub fn rsh(&self) -> String {
        format!("ssh -F '{}'", self.dir.join("ssh_config").display())
    }

    /// One more line in the configuration of ssh.
    pub fn configure_client(&self, line: &str) {
        let path = self.dir.join("ssh_config");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{text}{line}\n")).unwrap();
    }
}

fn configure(dir: &Path, port: u16) {
    let at = |name: &str| dir.join(name).display().to_string();
    let server = [
        format!("Port {port}"),
        "ListenAddress 127.0.0.1".into(),
        format!("HostKey \"{}\"", at("host")),
        format!("AuthorizedKeysFile \"{}\"", at("allowed")),
        format!("PidFile \"{}\"", at("pid")),
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n".into(),
    ];
    let client = [
        format!("Host {HOST}\nHostName 127.0.0.1\nPort {port}"),
        format!("IdentityFile \"{}\"", at("user")),
        format!("UserKnownHostsFile \"{}\"\nGlobalKnownHostsFile /dev/null", at("known")),
        format!("User {}", user()),
        "IdentitiesOnly yes\nIdentityAgent none\nBatchMode yes\nLogLevel ERROR\n".into(),
    ];
    let host_key = fs::read_to_string(dir.join("host.pub")).unwrap();
    fs::write(dir.join("known"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
    fs::write(dir.join("sshd_config"), server.join("\n")).unwrap();
    fs::write(dir.join("ssh_config"), client.join("\n")).unwrap();
}

/// User who runs the tests, and may log in.
fn user() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap()
}

/// Side that starts a copy from the sender to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Both are one machine.
    Here,
    /// The sender.
    Push,
    /// The receiver.
    Pull,
}

/// The way from the sender to the receiver, and the programs at both sides.
pub struct Route<'a> {
    /// The machines.
    pub env: &'a TestEnvironment,
    way: Way,
    /// Unless the way is within this machine.
    pub sshd: Option<Sshd>,
    /// The words that start `tow`.
    pub program: Vec<String>,
}

impl<'a> Route<'a> {
    /// A way, with an sshd at its other end.
    pub fn new(env: &'a TestEnvironment, way: Way) -> Self {
        let sshd = (way != Way::Here).then(|| Sshd::start(env));
        Self { env, way, sshd, program: vec![TOW.into()] }
    }

    /// Both sides run as somebody who is not root, who owns what there is so far.
    pub fn without_rights(mut self) -> Self {
        self.program = unprivileged(self.env);
        if let Some(sshd) = self.sshd.as_ref().filter(|_| is_root()) {
            give_to_nobody(&sshd.dir.join("user"));
        }
        self
    }

    /// Machine that starts copies.
    pub fn caller(&self) -> &'a Machine {
        if self.way == Way::Pull { &self.env.receiver } else { &self.env.sender }
    }

    /// Machine that ssh leads to.
    pub fn other(&self) -> &'a Machine {
        if self.way == Way::Pull { &self.env.sender } else { &self.env.receiver }
    }

    /// The same machines, and another one of them calls.
    pub fn turn(&mut self, way: Way) {
        self.way = way;
    }

    /// Waits until nothing runs at the other side.
    pub fn wait_for_the_other_side(&self) {
        let Some(sshd) = &self.sshd else { return };
        let alone = soon(WAIT_LIMIT, || descendants(sshd.id()).is_empty().then_some(()));
        alone.expect("something runs on at the other side");
    }

    /// `tow WORDS SOURCE DESTINATION`: a path at the sender, and one at the receiver.
    pub fn copy(&self, words: &str, source: &str, destination: &str) -> Call {
        let path = |machine: &Machine, path: &str| machine.path(path).into_os_string().into_string().unwrap();
        let source = self.named(path(&self.env.sender, source), self.way == Way::Pull);
        let destination = self.named(path(&self.env.receiver, destination), self.way == Way::Push);
        let mut all: Vec<String> = words.split_whitespace().map(Into::into).collect();
        if let Some(sshd) = self.sshd.as_ref().filter(|_| self.way != Way::Here) {
            all.extend(["-e".into(), sshd.rsh()]);
            all.extend(["--tow-path".into(), self.other().remote_tow(&self.program)]);
        }
        all.extend([source, destination]);
        self.caller().tow_as(&self.program, all)
    }

    fn named(&self, path: String, is_remote: bool) -> String {
        if is_remote { format!("{HOST}:{path}") } else { path }
    }
}
