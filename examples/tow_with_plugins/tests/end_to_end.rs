//! The real program with plugins from outside, chosen by name in its configuration.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_towpath-tow-with-plugins");

/// A home with a configuration, and a folder to work in.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new(plugins: &str) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("config.toml"), format!("[plugins]\n{plugins}\n")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(words).env_clear().env("TOW_HOME", self.dir.path()).env("HOME", self.dir.path());
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn some_data() -> Vec<u8> {
    (0..3_000_000u32).flat_map(|i| (i / 251 + i).to_le_bytes()).collect()
}

/// Something that is shared until it is dropped.
struct Sharing {
    child: Child,
    ticket: String,
}

impl Sharing {
    fn start(machine: &Machine, path: &Path, words: &[&str]) -> Self {
        let mut command = machine.command(&["share", "--listen", "127.0.0.1:0"]);
        let mut child =
            command.args(words).arg(path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ticket = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
        Self { child, ticket: ticket.trim().to_owned() }
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_file_comes_from_a_directory_that_the_configuration_names() {
    let stick = TempDir::new().unwrap();
    let (sender, data) = (Machine::new("plugin = \"direct\""), some_data());
    fs::write(stick.path().join("some file"), &data).unwrap();
    fs::write(sender.path("some file"), &data).unwrap();
    let sharing = Sharing::start(&sender, &sender.path("some file"), &[]);
    let path = stick.path().display();
    let receiver = Machine::new(&format!(
        "plugin = \"cascade\"\nof = [{{ plugin = \"directory\", path = \"{path}\" }}, {{ plugin = \"direct\" }}]"
    ));
    let got = receiver.run(&["get", "--json", &sharing.ticket, "-o", "out"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert!(fs::read(receiver.path("out")).unwrap() == data, "other bytes");
    let summary = text(&got.stdout).lines().last().unwrap_or_default().to_owned();
    let source = format!("{{\"kind\":\"directory\",\"path\":\"{path}\",\"bytes\":{}}}", data.len());
    assert!(summary.contains(&source), "{summary}");
}

#[test]
fn a_medium_that_comes_in_mid_transfer_is_used() {
    let (media, data) = (TempDir::new().unwrap(), some_data());
    let (sender, outside) = (Machine::new("plugin = \"direct\""), TempDir::new().unwrap());
    fs::write(sender.path("file"), &data).unwrap();
    fs::create_dir(outside.path().join("stick")).unwrap();
    fs::write(outside.path().join("stick/any name"), &data).unwrap();
    let sharing = Sharing::start(&sender, &sender.path("file"), &["--limit-rate", "100K"]);
    let path = media.path().display();
    let receiver = Machine::new(&format!(
        "plugin = \"dealer\"\nof = [{{ plugin = \"direct\" }}]\n\
         finders = [{{ plugin = \"hints\" }}, {{ plugin = \"directories\", path = \"{path}\" }}]"
    ));
    let mut get = receiver.command(&["get", "--json", &sharing.ticket, "-o", "out"]);
    let mut get = get.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(get.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_under_way =
        |line: &String| line.contains("\"event\":\"transfer\"") && !line.contains("\"sources\":[]");
    assert!(lines.any(|line| is_under_way(&line)), "something comes from the sender");
    fs::rename(outside.path().join("stick"), media.path().join("stick")).unwrap();
    let summary = lines.last().unwrap_or_default();
    assert!(get.wait().unwrap().success(), "{summary}");
    assert!(fs::read(receiver.path("out")).unwrap() == data, "other bytes");
    let from = |kind: &str| summary.contains(&format!("{{\"kind\":\"{kind}\""));
    assert!(from("directory") && summary.contains("/stick"), "{summary}");
}

#[test]
fn a_plugin_that_loses_and_delays_is_put_up_with() {
    let (sender, data) = (Machine::new("plugin = \"direct\""), some_data());
    fs::write(sender.path("file"), &data).unwrap();
    let sharing = Sharing::start(&sender, &sender.path("file"), &[]);
    let receiver = Machine::new(
        "plugin = \"hindering\"\nof = { plugin = \"direct\" }\ndelay_seconds = 1\nlose_each = 3",
    );
    let got = receiver.run(&["get", &sharing.ticket, "-o", "out"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert!(fs::read(receiver.path("out")).unwrap() == data, "other bytes");
}

#[test]
fn the_configuration_names_the_plugins_that_there_are() {
    let machine = Machine::new("plugin = \"carrier-pigeon\"");
    let refused = machine.run(&["get", "blake3:00", "-o", "out"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("cascade, dealer, direct, directories, directory, hindering, hints, local"),
        "{said}"
    );
    let wrong = Machine::new("plugin = \"directory\"").run(&["get", "blake3:00", "-o", "out"]);
    assert!(text(&wrong.stderr).contains("'path' is missing"), "{}", text(&wrong.stderr));
    for (plugins, problem) in [
        ("plugin = \"hints\"", "'hints' finds sources and is none"),
        ("plugin = \"cascade\"\nof = [{ plugin = \"hints\" }]", "'hints' finds sources and is none"),
        (
            "plugin = \"dealer\"\nof = [{ plugin = \"direct\" }]\nfinders = [{ plugin = \"local\" }]",
            "'local' is a source and finds none",
        ),
        ("plugin = \"dealer\"\nof = [{ plugin = \"direct\" }]\nfinders = 3", "3 is not a list of finders"),
    ] {
        let refused = Machine::new(plugins).run(&["get", "blake3:00", "-o", "out"]);
        assert!(text(&refused.stderr).contains(problem), "{}", text(&refused.stderr));
    }
}
