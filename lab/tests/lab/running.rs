//! Scenarios that are run: results are right, and checked. How long anything takes is nobody's business
//! here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::machinery::{need, need_lab};
use crate::runner::situations;

situations![
    the_short_figure_brings_right_results,
    a_cut_link_is_waited_for,
    a_link_that_only_delays_loses_nothing_and_is_named,
    every_receiver_of_a_star_is_served,
    a_wrong_result_is_found,
    a_transfer_that_does_not_end_is_a_row,
    a_program_is_varied_and_its_rows_are_reported_again,
    an_interrupted_transfer_is_measured_from_where_it_goes_on,
    all_of_it_can_be_kept_in_memory,
    a_scenario_that_is_wrong_is_told,
];

const PROGRAM: &str = env!("CARGO_BIN_EXE_towpath-lab");
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

/// A run with a directory for data and results of its own.
struct Lab {
    dir: TempDir,
}

impl Lab {
    fn new() -> Self {
        need_lab();
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn run(&self, scenario: &Path, words: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(scenario).args(words).current_dir(self.dir.path());
        command.args(["--out", "out", "--cache", "data"]).output().unwrap()
    }

    fn rows(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join(format!("out/{name}.jsonl"))).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A file of the situation's own.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

fn scenario(name: &str) -> PathBuf {
    Path::new(SCENARIOS).join(format!("{name}.toml"))
}

/// The program that `cargo test --workspace` builds beside the lab.
fn need_tow() {
    need(Path::new(PROGRAM).with_file_name("tow").exists(), "needs tow beside towpath-lab");
}

fn need_rsync() {
    need(
        towpath_lab::programs::missing(towpath_lab::programs::find("rsync").unwrap()).is_empty(),
        "needs rsync",
    );
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn assert_right(rows: &[Value], output: &Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
    for row in rows {
        assert!(row["error"].is_null(), "{row}");
        assert!(row["measured"]["sent"].as_u64() > row["bytes"].as_u64(), "{row}");
        assert!(row["measured"]["sender"]["cpu_seconds"].as_f64() > Some(0.0), "{row}");
    }
}

fn the_short_figure_brings_right_results() {
    let lab = Lab::new();
    need_tow();
    let cases = ["100 Mbit/s", "100 Mbit/s, RTT 33 ms, 1 % loss, cubic"];
    let words =
        ["--short", "--data", "random 4k", "--data", "random 100k", "--case", cases[0], "--case", cases[1]];
    let output = lab.run(&scenario("figure6"), &words);
    let rows = lab.rows("figure6");
    assert_right(&rows, &output);
    for program in ["tow-cp", "tow-get", "rsync", "scp"] {
        let count = rows.iter().filter(|row| row["program"] == program).count();
        assert!(count == 4 || program == "scp", "{program}: {count} rows");
    }
    let table = text(&output.stdout);
    assert!(table.contains("| 100 Mbit/s | random 4k |") && table.contains("commit"), "{table}");
    let drawn = fs::read_to_string(lab.dir.path().join("out/figure6.svg")).unwrap();
    assert!(drawn.contains("tow-get"));
}

/// Towpath goes on by itself when a link that was cut in mid-transfer is restored.
fn a_cut_link_is_waited_for() {
    let lab = Lab::new();
    need_tow();
    let output = lab.run(&scenario("cut"), &["--short", "--program", "tow-get"]);
    let rows = lab.rows("cut");
    assert_right(&rows, &output);
    // 4 MiB take longer at 20 Mbit/s than the second before the cut, which lasts until the ninth.
    assert!(rows[0]["measured"]["seconds"].as_f64() > Some(9.0), "{}", rows[0]);
}

/// Each packet by it takes two seconds more from the second second on; neither side is told. How much longer a transfer may take
/// by that is looked at in simulated time (`plugins::simulated`).
fn a_link_that_only_delays_loses_nothing_and_is_named() {
    let lab = Lab::new();
    need_tow();
    let programs = ["both", "copy by both"];
    let words = programs.iter().flat_map(|name| ["--program", name]);
    let words: Vec<&str> = std::iter::once("--short").chain(words).collect();
    let output = lab.run(&scenario("dot-link-delays"), &words);
    let rows = lab.rows("dot-link-delays");
    assert_right(&rows, &output);
    assert_eq!(rows.iter().map(|row| row["program"].as_str().unwrap()).collect::<Vec<_>>(), programs);
    for row in &rows {
        for link in ["link0", "link1"] {
            assert!(brought_by(row, link) > 1 << 20, "{link}: {row}");
        }
    }
}

/// Bytes that came by a link, as the program says.
fn brought_by(row: &Value, link: &str) -> u64 {
    let sources = row["measured"]["told"][0]["sources"].as_array().unwrap();
    let is_it = |source: &&Value| source["path"].as_str().is_some_and(|path| path.ends_with(link));
    sources.iter().filter(is_it).map(|source| source["bytes"].as_u64().unwrap()).sum()
}

fn every_receiver_of_a_star_is_served() {
    let lab = Lab::new();
    need_tow();
    let output = lab.run(&scenario("star"), &["--data", "random 50k", "--program", "tow-get", "--runs", "1"]);
    let rows = lab.rows("star");
    assert_right(&rows, &output);
    assert_eq!(rows[0]["measured"]["receivers"].as_array().unwrap().len(), 8);
    assert!(rows[0]["measured"]["sent"].as_u64() > Some(8 * 50_000), "{}", rows[0]);
}

/// A `tow` that behaves as this script.
fn impostor(lab: &Lab, get: &str) -> PathBuf {
    let script =
        format!("#!/bin/sh\ncase \"$*\" in\n*share*) echo ticket; exec sleep 60;;\n*) {get};;\nesac\n");
    let path = lab.write("tow", &script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

const SMALL: &str = "about = 'a test'\nhosts = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\n\
                     [run]\nfrom = 'a'\nto = 'b'\nprograms = ['tow-get']\ndata = ['random 4k']\nruns = 1\n";

fn a_wrong_result_is_found() {
    let lab = Lab::new();
    let tow = impostor(&lab, "for path; do :; done; echo wrong > \"$path\"");
    let output = lab.run(&lab.write("small.toml", SMALL), &["--tow", tow.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = lab.rows("small")[0]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("WRONG RESULT at b"), "{error}");
}

fn a_transfer_that_does_not_end_is_a_row() {
    let lab = Lab::new();
    let tow = impostor(&lab, "sleep 60");
    let path = lab.write("small.toml", &format!("{SMALL}limit = '500ms'\n"));
    let output = lab.run(&path, &["--tow", tow.to_str().unwrap(), "--runs", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("2 of 2 transfers failed"), "{}", text(&output.stderr));
    assert_eq!(lab.rows("small")[1]["error"], "not done after 0.5 s");
}

fn a_program_is_varied_and_its_rows_are_reported_again() {
    let lab = Lab::new();
    // It fails with nothing to say if both are there.
    let tow = impostor(
        &lab,
        "for path; do :; done; cat \"$TOW_HOME/config.toml\" \"${path%/*}/earlier\" > /dev/null && exit 3",
    );
    let program = "{ name = 'varied', of = 'tow-get', config = 'words', at = 'renamed' }";
    let small = SMALL.replace("'tow-get'", program).replace("random 4k", "similar 40k");
    let path = lab.write("small.toml", &small);
    let output = lab.run(&path, &["--tow", tow.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = lab.rows("small")[0]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("exit status: 3: it said nothing"), "{error}");

    let mut again = Command::new(PROGRAM);
    again
        .arg("report")
        .arg(&path)
        .arg("out/small.jsonl")
        .args(["--out", "again"])
        .current_dir(lab.dir.path());
    let again = again.output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("|  | similar 40k | failed |"), "{}", text(&again.stdout));
    let read = |dir: &str| fs::read_to_string(lab.dir.path().join(dir).join("small.jsonl")).unwrap();
    assert_eq!(read("again"), read("out"));
}

/// A small scenario of rsync alone, over a link that takes its time.
fn rsync(lab: &Lab, program: &str, data: &str) -> PathBuf {
    let text = SMALL.replace("between = ['a', 'b']\n", "between = ['a', 'b']\nrate = '20mbit'\n");
    let text = text.replace("'tow-get'", program).replace("random 4k", data);
    lab.write("small.toml", &format!("{text}tmpfs = true\n"))
}

fn an_interrupted_transfer_is_measured_from_where_it_goes_on() {
    let lab = Lab::new();
    need_rsync();
    let program = "{ name = 'resumed', of = 'rsync', args = ['--append-verify'], interrupt = '60%' }";
    let tow = impostor(&lab, "true");
    // Seconds, so that a busy machine, too, sees in time how far it is.
    let output = lab.run(&rsync(&lab, program, "random 6m"), &["--tow", tow.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let row = &lab.rows("small")[0];
    assert_eq!(row["program"], "resumed");
    // rsync writes in large blocks, so how much is there when it is killed varies; all of it is more.
    assert!(row["measured"]["sent"].as_u64() < Some(6 << 20), "{row}");
}

fn all_of_it_can_be_kept_in_memory() {
    let lab = Lab::new();
    need_rsync();
    let tow = impostor(&lab, "true");
    let path = rsync(&lab, "'rsync'", "small-files 40 changed 4 at=elsewhere useless 30");
    let output = lab.run(&path, &["--tow", tow.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lab.rows("small")[0]["files"], 40);
    assert_eq!(fs::read_dir(lab.dir.path().join("data")).unwrap().count(), 0, "nothing was made on the disk");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let own = lab.rows("small")[0]["command"].as_str().unwrap().to_owned();
    let files = own.split(' ').next_back().unwrap().split("/b/").next().unwrap().to_owned();
    assert!(!mounts.contains(&files), "{files}");
}

fn a_scenario_that_is_wrong_is_told() {
    let lab = Lab::new();
    let tow = impostor(&lab, "true");
    let path = lab.write("small.toml", &SMALL.replace("'b'\nprograms", "'c'\nprograms"));
    let output = lab.run(&path, &["--tow", tow.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("there is no host `c`; there is: a, b"),
        "{}",
        text(&output.stderr)
    );
}
