//! The programs of `examples/local-api`, in Python and in C: what either puts the other gets.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::environment::{Call, Ended, Machine, TestEnvironment, first_line};
use crate::machinery::tool;
use crate::runner::situations;
use crate::trees::{PIECE, bytes, file};

situations![
    python_puts_and_c_gets,
    c_puts_and_python_gets,
    both_cut_where_lines_end,
    both_follow_a_stream_and_notice_that_it_was_given_up,
    both_say_what_went_wrong,
];

fn example(name: &str) -> String {
    format!("{}/../../examples/local-api/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The words that start a program.
type Program = Vec<String>;

fn python() -> Program {
    vec![tool("python3").display().to_string(), example("tow_api.py")]
}

fn c(env: &TestEnvironment) -> Program {
    let program = env.dir().join("tow_api");
    let mut compiler = Command::new(tool("cc"));
    compiler.args(["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=gnu11", "-o"]).arg(&program);
    assert!(compiler.arg(example("tow_api.c")).status().unwrap().success());
    vec![program.display().to_string()]
}

/// A call of `program` at the daemon of `machine`.
fn call(machine: &Machine, program: &Program, words: &[&str]) -> Call {
    let socket = machine.home("run/tow.sock");
    machine.tow_as(program, [&[socket.to_str().unwrap()], words].concat())
}

fn ticket(ended: Ended) -> String {
    first_line(&ended.with(0).out).unwrap()
}

/// Puts in every way, gets each whole and a range of it.
fn put_and_get(env: &TestEnvironment, puts: &Program, gets: &Program) {
    let (_sending, _receiving) = (env.sender.daemon(), env.receiver.daemon());
    let all = bytes(1, 9 * PIECE + 77);
    // A name that JSON has to escape.
    let name = "a \"name\" \\ with\ttrouble é";
    fs::write(env.sender.path(name), &all).unwrap();
    let input = || File::open(env.sender.path(name)).unwrap();
    let put = |words: &[&str]| call(&env.sender, puts, words);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let piped = put(&["put-descriptor", "-"]).input(reader).start();
    writer.write_all(&all).unwrap();
    drop(writer);
    let tickets = [
        ticket(put(&["put", name]).end()),
        ticket(put(&["put-parts", name]).end()),
        ticket(put(&["put-parts", "-"]).input(input()).end()),
        ticket(put(&["put-descriptor", name]).end()),
        ticket(put(&["put-descriptor", "-"]).input(input()).end()),
        ticket(piped.end()),
    ];
    for ticket in &tickets {
        for machine in [&env.receiver, &env.sender] {
            let get = |words: &[&str]| call(machine, gets, words).end().with(0).out;
            assert!(get(&["get", ticket]) == all, "other bytes");
            assert!(get(&["get", ticket, "300000-300999"]) == all[300_000..301_000], "another range");
        }
    }
}

fn python_puts_and_c_gets() {
    let env = TestEnvironment::new();
    put_and_get(&env, &python(), &c(&env));
}

fn c_puts_and_python_gets() {
    let env = TestEnvironment::new();
    put_and_get(&env, &c(&env), &python());
}

/// The chunks of what `program` puts, a line each as the daemon tells them.
fn chunks_of_lines(env: &TestEnvironment, program: &Program, name: &str) -> Vec<String> {
    let ticket = ticket(call(&env.sender, program, &["put-lines", name]).end());
    assert!(
        call(&env.sender, program, &["get", &ticket]).end().with(0).out
            == fs::read(env.sender.path(name)).unwrap()
    );
    let listed = env.sender.tow(["ls", "--json"]).end().with(0);
    let objects = String::from_utf8(listed.out).unwrap();
    let object = objects.lines().find(|object| object.contains(&ticket)).unwrap();
    let oid = object.split("\"oid\":\"").nth(1).unwrap().split('"').next().unwrap();
    let mut curl = Command::new(tool("curl"));
    curl.args(["--silent", "--fail", "--unix-socket"]).arg(env.sender.home("run/tow.sock"));
    let told = curl.arg(format!("http://tow/v1/objects/{oid}/recipe")).output().unwrap();
    assert!(told.status.success());
    let chunk = |line: &str| line[line.find("\"len\"").unwrap()..].to_owned();
    String::from_utf8(told.stdout).unwrap().lines().map(chunk).collect()
}

fn both_cut_where_lines_end() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    let lines: String = (0..20_000).map(|line| format!("the line of number {line}\n")).collect();
    let inserted = lines.replacen("number 9000\n", "number 9000\nand one more\n", 1);
    fs::write(env.sender.path("log"), lines).unwrap();
    fs::write(env.sender.path("next"), inserted + "no end").unwrap();
    let (python, c) = (python(), c(&env));
    let before = chunks_of_lines(&env, &python, "log");
    assert!(before.len() > 20, "{}", before.len());
    assert_eq!(before, chunks_of_lines(&env, &c, "log"));
    let after = chunks_of_lines(&env, &c, "next");
    assert_eq!(after, chunks_of_lines(&env, &python, "next"));
    let other = after.iter().filter(|chunk| !before.contains(*chunk)).count();
    assert!(other <= 3, "{other} of {} chunks are new", after.len());
}

/// `puts` reads a pipe and `gets` follows; then the producer's bytes end in an error.
fn follow(env: &TestEnvironment, puts: &Program, gets: &Program) {
    let (reader, mut producer) = std::io::pipe().unwrap();
    let mut put = call(&env.sender, puts, &["put-parts", "-"]).input(reader).start();
    let mut get = call(&env.receiver, gets, &["get", &put.ticket()]).start();
    let all = bytes(2, 5 * PIECE + 9);
    let (first, rest) = all.split_at(3 * PIECE as usize);
    producer.write_all(first).unwrap();
    get.wait_until("follows", |get| (get.output().len() as u64 >= PIECE).then_some(()));
    producer.write_all(rest).unwrap();
    drop(producer);
    put.end().with(0);
    assert!(get.end().with(0).out == all, "other bytes");
}

/// A file that can't be read: its put is given up, and says so.
fn give_up(env: &TestEnvironment, program: &Program) {
    let said = call(&env.sender, program, &["put-parts", "/proc/self/mem"]).end().with(1);
    let ticket = first_line(&said.out).unwrap();
    let got = call(&env.sender, program, &["get", &ticket]).end().with(1);
    assert!(got.out.is_empty() && !got.err.is_empty(), "{}", got.err);
}

fn both_follow_a_stream_and_notice_that_it_was_given_up() {
    let env = TestEnvironment::new();
    let (python, c) = (python(), c(&env));
    let (_sending, _receiving) = (env.sender.daemon(), env.receiver.daemon());
    follow(&env, &python, &c);
    follow(&env, &c, &python);
    give_up(&env, &python);
    give_up(&env, &c);
}

fn both_say_what_went_wrong() {
    let env = TestEnvironment::new();
    let daemon = env.sender.daemon();
    file(&env.sender.path("single"), 3, 1000);
    let programs = [python(), c(&env)];
    let failure = |words: &[&str]| {
        let said = |program| call(&env.sender, program, words).end().with(1).err;
        programs.iter().map(said).collect::<Vec<_>>().join("")
    };
    let put = ticket(call(&env.sender, &programs[0], &["put", "single"]).end());
    let cases: [(&[&str], &str); 4] = [
        (&["put", "not there"], "o such file or directory"),
        (&["put-descriptor", "/dev/null"], "only a regular file or a pipe"),
        (&["get", "tow:nonsense"], "the ticket is damaged or cut short"),
        (&["get", &put, "5000-"], "outside of the object, which has 1000 bytes"),
    ];
    for (words, expected) in cases {
        let said = failure(words);
        assert_eq!(said.matches(expected).count(), programs.len(), "{words:?}: {said}");
    }
    for program in &programs {
        let usage = env.sender.tow_as::<&Path>(program, []).end().with(2);
        assert!(usage.err.contains("put-parts FILE"), "{}", usage.err);
    }
    daemon.kill();
    let said = failure(&["put", "single"]);
    assert_eq!(said.matches("'tow daemon'").count(), programs.len(), "{said}");
    assert!(!said.contains("Traceback"), "{said}");
}
