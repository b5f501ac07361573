//! Scenarios, pings, and the two ends of a connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use towpath_lab::net::Lab;
use towpath_simnet::link::Counters;
use towpath_simnet::scenario::Scenario;

use crate::runner::skip;

/// For what takes a moment on a quiet machine.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Port on which the receiving end listens.
const PORT: u16 = 7000;

/// Ends the situation if labs can't be had here.
pub fn need_lab() {
    need(rustix::process::geteuid().is_root(), "needs root");
    need(Path::new("/dev/net/tun").exists(), "needs /dev/net/tun");
    for program in ["ip", "ping"] {
        let found = Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        need(found.is_ok(), &format!("needs {program} (packages iproute2, iputils-ping)"));
    }
}

/// Ends the situation if something it needs is not here.
pub fn need(is_here: bool, what: &str) {
    match is_here {
        true => (),
        false if std::env::var_os("CI").is_some() => panic!("{what}, and CI skips nothing"),
        false => skip(what),
    }
}

pub fn scenario(text: &str) -> Scenario {
    Scenario::parse(&format!("about = 'a test'\n{text}")).unwrap()
}

pub fn up(text: &str) -> Lab {
    need_lab();
    let scenario = scenario(text);
    Lab::up(&scenario, &scenario.cases[0]).unwrap()
}

/// Report of `ping`.
#[derive(Debug, PartialEq)]
pub struct Pings {
    pub sent: u64,
    pub received: u64,
    /// The shortest; nothing if none came back.
    pub shortest: Option<Duration>,
}

/// Sends so many pings, fast.
pub fn ping(lab: &Lab, from: &str, to: Ipv4Addr, count: u32) -> Pings {
    let mut command = lab.command(from, "ping");
    command.args(["-q", "-n", "-i", "0.01", "-W", "1", "-c", &count.to_string(), &to.to_string()]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    read_pings(&text).unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// So many pings, all of which come back: how they went, and how many packets each link carried meanwhile. `ping` waits
/// for the last one two round trips only, so on a busy machine it may take another go.
pub fn answered(lab: &Lab, from: &str, to: Ipv4Addr, count: u32) -> (Pings, Vec<u64>) {
    let packets = || lab.counters().unwrap().into_iter().map(|link| total(link).packets).collect::<Vec<_>>();
    // Late packets are not to be counted in the next go.
    let pause = Duration::from_millis(200);
    look_every(pause, &format!("{from} to {to}: all of {count} pings come back"), || {
        let before = packets();
        let pings = ping(lab, from, to, count);
        let carried = || packets().iter().zip(before).map(|(after, before)| after - before).collect();
        (pings.received == u64::from(count)).then(|| (pings, carried()))
    })
}

pub fn read_pings(text: &str) -> Option<Pings> {
    let summary = text.lines().find(|line| line.contains("packets transmitted"))?;
    let mut numbers = summary.split([' ', ',']).filter_map(|word| word.parse().ok());
    let (sent, received) = (numbers.next()?, numbers.next()?);
    let times = text.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    let shortest = times.and_then(|line| line.split('/').next()?.parse::<f64>().ok());
    Some(Pings { sent, received, shortest: shortest.map(|millis| Duration::from_secs_f64(millis / 1e3)) })
}

pub fn total(counters: [Counters; 2]) -> Counters {
    let [forth, back] = counters;
    Counters {
        packets: forth.packets + back.packets,
        lost: forth.lost + back.lost,
        overflows: forth.overflows + back.overflows,
        ..forth
    }
}

/// Waits until it is so.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    look_every(Duration::from_millis(20), what, || is_so().then_some(()));
}

/// Looks again and again, with a pause after each time, until `look` sees something.
fn look_every<T>(pause: Duration, what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < WAIT_LIMIT, "{what}: not after {WAIT_LIMIT:?}");
        thread::sleep(pause);
    }
}

/// Sends `len` bytes from one host to another by TCP: whether they came as they were sent.
pub fn transfer(lab: &Lab, from: &str, to: &str, len: usize) -> bool {
    let this = std::env::current_exe().unwrap();
    let mut receiver = lab.command(to, &this);
    receiver.args(["helper-receive", &len.to_string()]).stdout(Stdio::piped());
    let mut receiver = receiver.spawn().unwrap();
    // It says one byte as soon as it listens.
    receiver.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut sender = lab.command(from, &this);
    sender.args(["helper-send", &lab.address(to).to_string(), &len.to_string()]);
    sender.status().unwrap().success() && receiver.wait().unwrap().success()
}

/// This program is also both ends of a connection.
pub fn helper() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(|word| &word[..]).collect::<Vec<_>>()[..] {
        ["helper-receive", len] => Some(receive(len.parse().unwrap())),
        ["helper-send", to, len] => {
            let mut stream = TcpStream::connect((*to, PORT)).unwrap();
            stream.write_all(&bytes(len.parse().unwrap())).unwrap();
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

fn receive(len: usize) -> ExitCode {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    std::io::stdout().write_all(b".").unwrap();
    std::io::stdout().flush().unwrap();
    let mut received = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    if received == bytes(len) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Bytes that tell where they belong.
fn bytes(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(4);
    (0..len).map(|_| random.u8(..)).collect()
}
