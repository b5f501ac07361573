//! A channel to another process, through scripts in the place of ssh.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;
use towpath_link::Identity;
use towpath_link::pipe::PipeError;
use towpath_plugins::Direct;
use towpath_protocol::PeerConfig;
use towpath_ssh::SshError;
use towpath_ssh::address::Address;
use towpath_ssh::channel::{Channel, Rsh, exit_after, serve_stdio};

use crate::support::*;

const DATA: usize = 3 << 20;
const SECRET: &[u8] = b"not offered";
/// Variable with the file where the far end leaves its process id; says that this process is one, too.
const PID_FILE: &str = "TOW_TEST_PID_FILE";

/// The far end of the other tests, when they start this program again as `tow remote`: sends
/// every control message back.
#[tokio::test]
async fn remote_side() {
    let Some(pid_file) = std::env::var_os(PID_FILE) else { return };
    std::fs::write(pid_file, std::process::id().to_string()).unwrap();
    // The tests' runner printed to standard output already, so the pipe was put aside.
    rustix::stdio::dup2_stdout(File::options().write(true).open("/proc/self/fd/3").unwrap()).unwrap();
    let identity = Identity::generate().unwrap();
    let service = service(&identity, &pattern(DATA), SECRET);
    let peer = serve_stdio(identity.node_id(), service, PeerConfig::default()).await.unwrap();
    println!("this must not get into the pipe");
    exit_after(&peer, Duration::from_secs(3));
    let (sender, mut receiver) = peer.control().unwrap();
    while let Some(message) = receiver.next().await {
        if message != "hang" {
            sender.send(message).await.unwrap();
            continue;
        }
        // As a scan of a dead file system would.
        let (_never, hangs) = std::sync::mpsc::channel::<()>();
        let (sender, runtime) = (sender.clone(), tokio::runtime::Handle::current());
        let hang = move || {
            runtime.block_on(sender.send(message)).unwrap();
            hangs.recv()
        };
        tokio::task::spawn_blocking(hang).await.unwrap().unwrap();
    }
    drop(sender);
    peer.closed().await;
}

/// A directory of scripts.
struct Scripts(TempDir);

impl Scripts {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// In the place of ssh: hands the command to a shell, with processes between, as ssh has.
    fn rsh(&self) -> PathBuf {
        self.script("rsh", r#"test "$1" = -l && shift 2; shift; cat | sh -c "$*" | cat"#)
    }

    /// In the place of tow: this program.
    fn tow(&self) -> PathBuf {
        let program = std::env::current_exe().unwrap();
        let run = format!(
            "test \"$1\" = remote || exit 2\nexec 3>&1 1>&2\n{PID_FILE}='{}' exec '{}' --exact channel::remote_side --nocapture",
            self.path("pid").display(),
            program.display()
        );
        self.script("tow", &run)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(std::fs::read_to_string(self.path("pid")).unwrap().parse().unwrap()).unwrap()
    }

    /// The process of the far end, which runs.
    fn far_end(&self) -> OwnedFd {
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        assert!(!ends_within(&process, Duration::ZERO));
        process
    }
}

async fn open(rsh: impl AsRef<OsStr>, tow: impl AsRef<OsStr>) -> Result<Channel, SshError> {
    let Ok(Address::Remote(remote)) = Address::parse(OsStr::new("me@box:path")) else { panic!() };
    let (rsh, identity) = (Rsh::choose(Some(rsh.as_ref())).unwrap(), Identity::generate().unwrap());
    let service = service(&identity, b"here", SECRET);
    let opening = Channel::open(
        &remote,
        (&rsh, tow.as_ref()),
        None,
        identity.node_id(),
        service,
        PeerConfig::default(),
    );
    tokio::time::timeout(LIMIT, opening).await.unwrap()
}

/// True if a process ends within this time.
fn ends_within(process: &OwnedFd, time: Duration) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time.try_into().unwrap())).unwrap() > 0
}

async fn expect_gone(process: OwnedFd) {
    let ends = tokio::task::spawn_blocking(move || ends_within(&process, Duration::from_secs(10)));
    assert!(ends.await.unwrap(), "still runs");
}

#[tokio::test]
async fn messages_and_data_go_through_and_nothing_is_left() {
    let scripts = Scripts::new();
    let channel = open(scripts.rsh(), scripts.tow()).await.unwrap();
    let (sender, mut receiver) = channel.peer().control().unwrap();
    for n in 0..100u32 {
        let message = Bytes::from(vec![n as u8; 100_000]);
        sender.send(message.clone()).await.unwrap();
        assert!(receiver.next().await.unwrap() == message);
    }
    let direct: Arc<Direct> =
        Arc::new(Direct::over(Arc::clone(channel.peer()), Identity::generate().unwrap()));
    fetch(direct.clone(), &pattern(DATA)).await.unwrap();
    assert!(fetch(direct, SECRET).await.unwrap_err().contains("not known here"), "one object is offered");
    drop(sender);
    assert_eq!(receiver.next().await, None);
    let far_end = scripts.far_end();
    channel.close().await;
    expect_gone(far_end).await;
}

#[tokio::test]
async fn killing_ssh_ends_the_far_end_even_if_it_is_busy() {
    for busy in [false, true] {
        let scripts = Scripts::new();
        let channel = open(scripts.rsh(), scripts.tow()).await.unwrap();
        if busy {
            let (sender, mut receiver) = channel.peer().control().unwrap();
            sender.send(Bytes::from_static(b"hang")).await.unwrap();
            assert_eq!(receiver.next().await.unwrap(), "hang");
        }
        let far_end = scripts.far_end();
        drop(channel);
        expect_gone(far_end).await;
    }
}

#[tokio::test]
async fn a_far_end_that_dies_is_told() {
    let scripts = Scripts::new();
    let mut channel = open(scripts.rsh(), scripts.tow()).await.unwrap();
    let (_sender, mut receiver) = channel.peer().control().unwrap();
    kill_process(scripts.pid(), Signal::KILL).unwrap();
    assert_eq!(tokio::time::timeout(LIMIT, receiver.next()).await.unwrap(), None);
    let error = channel.failure().await;
    assert!(matches!(&error, SshError::Lost { host, .. } if host == "box"), "{error:?}");
}

#[tokio::test]
async fn what_went_wrong_is_told_by_the_status_or_by_the_first_bytes() {
    let scripts = Scripts::new();
    let (rsh, nothing) = (scripts.rsh(), scripts.path("nothing"));
    let script = |name, text| scripts.script(name, text);
    let echo = script("echo", "cat");
    let odd = script("odd", "printf 'towpipe\\002'; sleep 1");
    let unexecutable = scripts.path("unexecutable");
    std::fs::write(&unexecutable, "").unwrap();
    let rsh_exit = script("rsh255", "exit 255");
    let refusing = script("refusing", "echo 'unknown command' >&2; exit 2");
    let noisy = script("noisy", "echo Welcome to this machine; cat");
    // A pipe through `cat` would hide the status of what runs in its middle.
    let plain = script("plain", r#"test "$1" = -l && shift 2; shift; exec sh -c "$*""#);
    let failed = async |rsh, tow| open(rsh, tow).await.err().expect("it works");
    let error = failed(&nothing, &nothing).await;
    assert!(matches!(&error, SshError::NoSuchCommand { program } if *program == *nothing), "{error:?}");
    for (rsh, tow, code) in [
        (&plain, &nothing, 127),
        (&plain, &unexecutable, 126),
        (&rsh_exit, &nothing, 255),
        (&plain, &refusing, 2),
    ] {
        let SshError::Ended { way, status, was_there } = failed(rsh, tow).await else { panic!("{code}") };
        assert_eq!((status.code(), was_there), (Some(code), false));
        let command: Vec<_> = [rsh.as_os_str(), OsStr::new("-l"), OsStr::new("me"), OsStr::new("box")]
            .map(OsStr::to_owned)
            .into();
        assert_eq!(
            (way.host.as_os_str(), &*way.tow, way.command),
            (OsStr::new("box"), tow.as_os_str(), command)
        );
    }
    let failure = async |tow| match failed(&rsh, tow).await {
        SshError::NotOpened { source, .. } => source,
        error => panic!("{error:?}"),
    };
    assert!(matches!(failure(&noisy).await, PipeError::NotTowpath { begin } if begin == *b"Welcome "));
    assert!(matches!(failure(&echo).await, PipeError::SameRole));
    assert!(matches!(failure(&odd).await, PipeError::Version { found: 2 }));
}

#[tokio::test]
async fn without_a_pipe_the_far_end_fails_at_once() {
    let scripts = Scripts::new();
    let Ok(output) = tokio::process::Command::new(scripts.tow())
        .arg("remote")
        .stdin(std::process::Stdio::null())
        .output()
        .await
    else {
        panic!()
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("NoStdio"), "{text}");
}
