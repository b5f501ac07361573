//! Nothing stays behind, and the program's commands.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::machinery::{eventually, need_lab, read_pings, up};
use crate::runner::situations;

situations![
    what_runs_in_a_lab_ends_with_it,
    the_commands_change_a_lab_that_is_up,
    an_interrupt_takes_the_lab_down,
    a_killed_lab_is_removed_by_the_next_start,
    a_lab_that_is_not_there_is_named,
];

const PROGRAM: &str = env!("CARGO_BIN_EXE_towpath-lab");

/// True if anything bears this lab's name.
fn is_left(lab: &str) -> bool {
    let prefix = format!("towpath-{lab}-");
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let has_hosts = names.into_iter().any(|name| name.file_name().to_string_lossy().starts_with(&prefix));
    has_hosts || Path::new("/run/towpath-lab").join(lab).exists()
}

fn what_runs_in_a_lab_ends_with_it() {
    let lab = up("hosts = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\n");
    let mut polite = lab.command("a", "sleep").arg("1000").spawn().unwrap();
    let mut stubborn = lab.command("b", "sh");
    let mut stubborn = stubborn.args(["-c", "trap '' TERM; while :; do sleep 1; done"]).spawn().unwrap();
    let (name, files) = (lab.name().to_owned(), lab.directory("a").to_owned());
    assert!(is_left(&name) && files.exists());
    drop(lab);
    assert!(!files.exists());
    for child in [&mut polite, &mut stubborn] {
        assert!(!child.wait().unwrap().success());
    }
    // Another situation may have taken the name.
    eventually("all is gone", || !is_left(&name) || name_is_taken(&name));
}

/// By a lab that was made since: its owner lives.
fn name_is_taken(lab: &str) -> bool {
    fs::read_to_string(Path::new("/run/towpath-lab").join(lab).join("owner")).is_ok()
}

/// `towpath-lab up`, until dropped.
struct Up {
    process: Child,
    name: String,
    _scenario: tempfile::NamedTempFile,
}

impl Up {
    fn new() -> Self {
        need_lab();
        let scenario = tempfile::NamedTempFile::new().unwrap();
        let text = "about = 'a test'\nhosts = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\ndelay = '1ms'\n";
        fs::write(scenario.path(), text).unwrap();
        let mut up = Command::new(PROGRAM);
        let mut process = up.arg("up").arg(scenario.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let name = line.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(is_left(&name), "{line}");
        Self { process, name, _scenario: scenario }
    }

    fn end(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        self.process.wait().unwrap();
    }

    /// Something that runs in a host, for long.
    fn start_sleeping(&self) -> Child {
        let mut exec = Command::new(PROGRAM);
        exec.args(["exec", &self.name, "b", "sh", "-c", "echo; exec sleep 1000"]).stdout(Stdio::piped());
        let mut running = exec.spawn().unwrap();
        BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        running
    }

    fn received(&self) -> u64 {
        let output = lab(&["exec", &self.name, "a", "ping", "-c3", "-i", "0.01", "-W1", "10.64.0.2"]);
        let text = String::from_utf8_lossy(&output.stdout);
        read_pings(&text).unwrap_or_else(|| panic!("{text}{}", said(&output))).received
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        lab(&["down"]);
    }
}

fn lab(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn the_commands_change_a_lab_that_is_up() {
    let up = Up::new();
    eventually("all pings come back", || up.received() == 3);
    assert!(lab(&["set", &up.name, "link0", "forth", "cut=true"]).status.success());
    assert_eq!(up.received(), 0);
    assert!(lab(&["set", &up.name, "link0", "cut=false"]).status.success());
    eventually("all pings come back", || up.received() == 3);
    for (words, expected) in [
        (["set", &up.name, "link0", "rate=fast"], "`fast` is not a rate like 100mbit"),
        (["set", &up.name, "link9", "cut=true"], "there is no link `link9`, but link0"),
        (["exec", &up.name, "c", "true"], "there is no host `c`, but "),
    ] {
        let output = lab(&words);
        assert!(!output.status.success() && said(&output).contains(expected), "{}", said(&output));
    }
    assert!(lab(&["down", &up.name]).status.success());
}

fn an_interrupt_takes_the_lab_down() {
    let mut up = Up::new();
    let mut running = up.start_sleeping();
    up.end(Signal::INT);
    assert!(!running.wait().unwrap().success());
    eventually("all is gone", || !is_left(&up.name) || name_is_taken(&up.name));
}

fn a_killed_lab_is_removed_by_the_next_start() {
    let mut up = Up::new();
    let mut running = up.start_sleeping();
    up.end(Signal::KILL);
    // Other situations start labs too, so that it may be gone already.
    drop(Up::new());
    assert!(!running.wait().unwrap().success(), "what ran in it was ended");
    eventually("all is gone", || !is_left(&up.name) || name_is_taken(&up.name));
}

fn a_lab_that_is_not_there_is_named() {
    for words in [&["down", "nolab"][..], &["exec", "nolab", "a", "true"], &["set", "nolab", "x", "cut=true"]]
    {
        let output = lab(words);
        assert!(!output.status.success());
        need_lab();
        assert!(said(&output).contains("there is no lab `nolab`"), "{}", said(&output));
    }
}
