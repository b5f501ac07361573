//! Two machines in a temporary folder, and the programs that run on them.
//!
//! Nothing outside the folder is read or written, nothing but 127.0.0.1 is listened on. Standard
//! output and error go to files there, so that they can be looked at while the program runs.
//! Every wait has an end, and a program that is dropped is killed by its own id.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

/// No wait is longer.
pub const WAIT_LIMIT: Duration = Duration::from_secs(90);
/// Time between two looks whether something is so: shorter at first.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY_AT_FIRST: Duration = Duration::from_millis(1);
const FIRST_LOOKS: usize = 30;
/// The program.
pub const TOW: &str = env!("CARGO_BIN_EXE_tow");
/// Address at which everybody listens: any free port of this machine alone.
pub const LOOPBACK: &str = "127.0.0.1:0";

/// Looks again and again until `look` sees something, where nothing tells; none if that takes longer than `limit`.
pub fn soon<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    for looks in 0.. {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() > deadline {
            break;
        }
        sleep(if looks < FIRST_LOOKS { LOOK_EVERY_AT_FIRST } else { LOOK_EVERY });
    }
    None
}

/// Works again and again, with a pause after each time, until it is to stop.
pub fn until_stopped(stop: &AtomicBool, pause: Duration, mut work: impl FnMut()) {
    while !stop.load(Ordering::Relaxed) {
        work();
        sleep(pause);
    }
}

/// A sender, a receiver, and one more.
pub struct TestEnvironment {
    /// Machine that has something.
    pub sender: Machine,
    /// Machine that wants it.
    pub receiver: Machine,
    /// Machine that has something too.
    pub stranger: Machine,
    dir: TempDir,
}

impl TestEnvironment {
    /// New machines.
    pub fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// The same on a disk in memory, if there is one: for very many files.
    pub fn new_in_memory() -> Self {
        Self::within(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn within(dir: TempDir) -> Self {
        let machine = |name: &str| Machine::new(&dir.path().join(name));
        Self { sender: machine("sender"), receiver: machine("receiver"), stranger: machine("stranger"), dir }
    }

    /// One more machine.
    pub fn machine(&self, name: &str) -> Machine {
        Machine::new(&self.dir().join(name))
    }

    /// The folder that everything is in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// A home, and a folder to work in.
pub struct Machine {
    home: PathBuf,
    folder: PathBuf,
    output: PathBuf,
    calls: AtomicUsize,
}

impl Machine {
    fn new(base: &Path) -> Self {
        let at = |name: &str| base.join(name);
        let machine =
            Self { home: at("home"), folder: at("files"), output: at("output"), calls: AtomicUsize::new(0) };
        for folder in [&machine.home, &machine.folder, &machine.output] {
            fs::create_dir_all(folder).unwrap();
        }
        machine
    }

    /// A path in the machine's folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// A path in the machine's home.
    pub fn home(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// A call of the program with these words.
    pub fn tow<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Call {
        self.tow_as(&[TOW.into()], words)
    }

    /// The same, where `program` is the words that start it, such as `strace tow`.
    pub fn tow_as<S: AsRef<OsStr>>(&self, program: &[String], words: impl IntoIterator<Item = S>) -> Call {
        let words: Vec<OsString> = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let output = |kind: &str| self.output.join(format!("{number}.{kind}"));
        let mut program = heeding_signals().iter().map(OsStr::new).chain(program.iter().map(OsStr::new));
        let mut command = Command::new(program.next().unwrap());
        command.args(program).args(&words).env_clear().env("TOW_HOME", &self.home).env("HOME", &self.home);
        command.current_dir(&self.folder).stdin(Stdio::null());
        let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let (out, err) = (output("out"), output("err"));
        Call { command, out, err, shown: format!("tow {shown}"), at_terminal: false }
    }

    /// Serves `path`, and may be waited for.
    pub fn share(&self, path: impl AsRef<Path>) -> Running {
        let (path, words) = (path.as_ref(), ["share", "--listen", LOOPBACK]);
        self.tow(words.iter().map(OsStr::new).chain([path.as_os_str()])).start()
    }

    /// Fetches into `destination` and tells events.
    pub fn get(&self, ticket: &str, destination: impl AsRef<Path>) -> Call {
        let words = ["get", "--json", ticket, "-o"];
        self.tow(words.iter().map(OsStr::new).chain([destination.as_ref().as_os_str()]))
    }

    /// [`Self::get`], slowly.
    pub fn get_slowly(&self, ticket: &str, destination: impl AsRef<Path>, rate: &str) -> Call {
        let words = ["get", "--json", "--no-search", "--limit-rate", rate, ticket, "-o"];
        self.tow(words.iter().map(OsStr::new).chain([destination.as_ref().as_os_str()]))
    }

    /// Words that tell another machine's shell to run this machine's program.
    pub fn remote_tow(&self, program: &[String]) -> String {
        let program: Vec<_> = program.iter().map(|word| format!("'{word}'")).collect();
        format!("HOME='{0}' TOW_HOME='{0}' {1}", self.home.display(), program.join(" "))
    }

    /// A daemon that answers.
    pub fn daemon(&self) -> Running {
        self.daemon_of(self.tow(["daemon", "--listen", LOOPBACK]))
    }

    /// Writes the configuration of its daemon.
    pub fn configure(&self, text: &str) {
        fs::write(self.home("config.toml"), text).unwrap();
    }

    /// [`Self::daemon`] with this configuration.
    pub fn daemon_with(&self, configuration: &str) -> Running {
        self.configure(configuration);
        self.daemon()
    }

    /// A daemon that is called so, and answers.
    pub fn daemon_of(&self, call: Call) -> Running {
        let mut running = call.start();
        running.wait_until("answers at its socket", |daemon| {
            daemon.error_text().contains("local API at").then_some(())
        });
        running
    }
}

/// Words that start a program so that it heeds signals as at a terminal. They are needed only where these tests were
/// told to ignore signals (`nohup`, `&` in a script).
fn heeding_signals() -> &'static [&'static str] {
    // Their numbers are 1, 2 and 15; the lowest bit is signal 1's.
    const THEM: u64 = 0x4003;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    match u64::from_str_radix(mask.trim(), 16).unwrap() & THEM {
        0 => &[],
        _ => &["/usr/bin/env", "--default-signal=HUP,INT,TERM"],
    }
}

/// A program that can be started.
pub struct Call {
    command: Command,
    out: PathBuf,
    err: PathBuf,
    shown: String,
    at_terminal: bool,
}

impl Call {
    /// Its standard error is a terminal.
    pub const fn at_terminal(mut self) -> Self {
        self.at_terminal = true;
        self
    }

    /// Gives it something to read.
    pub fn input(mut self, input: impl Into<Stdio>) -> Self {
        self.command.stdin(input);
        self
    }

    /// Gives it a text to read.
    pub fn input_text(self, text: &str) -> Self {
        let path = self.out.with_extension("in");
        fs::write(&path, text).unwrap();
        self.input(File::open(path).unwrap())
    }

    /// Sets a variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Takes a variable away.
    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Runs it in another folder than the machine's.
    pub fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        let err = File::create(&self.err).unwrap();
        let (err, terminal) = match self.at_terminal {
            false => (Stdio::from(err), None),
            true => {
                let (end, terminal) = terminal(err);
                (end.into(), Some(terminal))
            }
        };
        self.command.stdout(File::create(&self.out).unwrap()).stderr(err);
        let child = self.command.spawn().unwrap();
        Running { child, out: self.out, err: self.err, shown: self.shown, terminal }
    }

    /// Runs it to its end.
    pub fn end(self) -> Ended {
        self.start().end()
    }
}

/// The end of a new terminal that a program writes to, and who notes in `shown` what it would show, until all such ends
/// are closed.
fn terminal(mut shown: File) -> (OwnedFd, JoinHandle<()>) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let noting = spawn(move || {
        // The last end's close is told as an error.
        let _ = std::io::copy(&mut File::from(terminal), &mut shown);
    });
    (end, noting)
}

/// A program that was started. Dropping it kills it.
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    shown: String,
    terminal: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Bytes that it wrote to standard output so far.
    pub fn output(&self) -> Vec<u8> {
        fs::read(&self.out).unwrap()
    }

    /// Text that it wrote to standard error so far.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    fn describe(&self) -> String {
        let out = self.output();
        let tail = String::from_utf8_lossy(&out[out.len().saturating_sub(2000)..]).into_owned();
        format!("'{}'; standard output: {tail}; standard error: {}", self.shown, self.error_text())
    }

    /// Looks again and again until `look` sees something.
    pub fn wait_until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let seen = soon(WAIT_LIMIT, || {
            // In this order: what it said right before it ended counts.
            let has_ended = self.child.try_wait().unwrap().is_some();
            let seen = look(self);
            assert!(seen.is_some() || !has_ended, "ended before this: {what}: {}", self.describe());
            seen
        });
        seen.unwrap_or_else(|| panic!("waited too long for this: {what}: {}", self.describe()))
    }

    /// The ticket, as soon as it is printed.
    pub fn ticket(&mut self) -> String {
        self.wait_until("prints its ticket", |running| {
            let line = first_line(&running.output())?;
            Some(match serde_json::from_str::<Value>(&line) {
                Ok(event) => event["ticket"].as_str().unwrap().to_owned(),
                Err(_) => line,
            })
        })
    }

    /// Waits until a getting program says that it has so many bytes.
    pub fn wait_for_bytes(&mut self, bytes: u64) {
        self.wait_until(&format!("has {bytes} bytes"), |running| {
            let done = |event: &Value| event["done"].as_u64().unwrap_or(0);
            events(&running.output()).iter().any(|event| done(event) >= bytes).then_some(())
        });
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// As ^C does.
    pub fn interrupt(&self) {
        kill_process(self.pid(), Signal::INT).unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// As `kill -9` does; returns when it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// [`Self::kill`] after so long, unless it has ended by then.
    pub fn kill_after(self, time: Duration) {
        self.ends_within(time);
        self.kill();
    }

    /// True if it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// True if it ends within this time; waits no longer than that.
    pub fn ends_within(&self, time: Duration) -> bool {
        // One that was waited for has no number any more.
        let Ok(process) = pidfd_open(self.pid(), PidfdFlags::empty()) else { return true };
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time.try_into().unwrap())).unwrap() > 0
    }

    /// The most memory it ever had, in bytes; 0 if it just ended.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        status.ok().and_then(|status| peak_memory_of(&status)).unwrap_or(0)
    }

    /// Waits for its end, and looks at it now and then.
    pub fn end_watched(mut self, mut look: impl FnMut(&Self)) -> Ended {
        let start = Instant::now();
        while !self.ends_within(LOOK_EVERY) {
            assert!(start.elapsed() < WAIT_LIMIT, "does not end: {}", self.describe());
            look(&self);
        }
        let status = self.child.wait().unwrap();
        self.terminal.take().into_iter().for_each(|terminal| terminal.join().unwrap());
        Ended { status, out: self.output(), err: self.error_text(), shown: self.shown.clone() }
    }

    /// Waits for its end.
    pub fn end(self) -> Ended {
        self.end_watched(|_| ())
    }
}

fn peak_memory_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// The first line, if it is complete.
pub fn first_line(output: &[u8]) -> Option<String> {
    let end = output.iter().position(|&byte| byte == b'\n')?;
    Some(String::from_utf8(output[..end].to_vec()).unwrap())
}

/// The complete lines so far, each of them an object.
fn events(output: &[u8]) -> Vec<Value> {
    let whole = output.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let lines = output[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("a line of --json is not an object")).collect()
}

/// A program that ended.
pub struct Ended {
    status: ExitStatus,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: String,
    shown: String,
}

impl Ended {
    /// It must have ended with this status.
    pub fn with(self, code: i32) -> Self {
        let out = String::from_utf8_lossy(&self.out[self.out.len().saturating_sub(2000)..]);
        let context = format!("'{}'; standard output: {out}; standard error: {}", self.shown, self.err);
        assert_eq!(self.status.code(), Some(code), "{}: {context}", self.status);
        self
    }

    /// True if a signal ended it.
    pub fn is_killed(&self) -> bool {
        self.status.code().is_none()
    }

    /// Its exit status.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{}: '{}' {}", self.status, self.shown, self.err))
    }

    /// Its standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    /// Events that `--json` told; each line must be an object.
    pub fn events(&self) -> Vec<Value> {
        assert!(self.out.is_empty() || self.out.ends_with(b"\n"), "cut off: {}", self.text());
        events(&self.out)
    }

    fn last_event(&self, kind: &str) -> Value {
        let last = self.events().pop().unwrap_or_else(|| panic!("no events: '{}' {}", self.shown, self.err));
        assert_eq!(last["event"], kind, "{last}");
        last
    }

    /// The summary, which is the last event; it ended well.
    pub fn summary(self) -> Summary {
        Summary(self.with(0).last_event("summary"))
    }

    /// The summary of a transfer that left something out.
    pub fn partial_summary(self) -> Summary {
        Summary(self.with(3).last_event("summary"))
    }

    /// The error, which is the last event; it failed.
    pub fn failure(self) -> Value {
        self.failure_with(1)
    }

    /// The same with another status.
    pub fn failure_with(self, code: i32) -> Value {
        self.with(code).last_event("failed")
    }

    /// The summary of a copy that ended with this status.
    pub fn summary_with(self, code: i32) -> Summary {
        Summary(self.with(code).last_event("summary"))
    }
}

/// The last event of a transfer that came to its end.
pub struct Summary(pub Value);

impl Summary {
    /// A number of the summary.
    pub fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    /// Bytes of the sources of a kind.
    pub fn from(&self, kind: &str) -> u64 {
        self.sources().filter(|source| source["kind"] == kind).map(bytes_of).sum()
    }

    /// Bytes that came over the network.
    pub fn fetched(&self) -> u64 {
        self.sources().filter(|source| source["kind"] != "this machine").map(bytes_of).sum()
    }

    /// The sources that it lists.
    pub fn sources(&self) -> impl Iterator<Item = &Value> {
        self.0["sources"].as_array().unwrap().iter()
    }
}

fn bytes_of(source: &Value) -> u64 {
    source["bytes"].as_u64().unwrap()
}
