//! Each command is interrupted at twenty moments drawn from a seed, by each of the signals that ask for its end. It says
//! so in a line at most, ends with the status that the guide names, and panics nowhere.

use std::time::Duration;

use rustix::process::Signal;

use crate::environment::{Call, Running, TestEnvironment, WAIT_LIMIT, soon};
use crate::runner::situations;
use crate::sshd::{Route, Way};
use crate::trees::file;

situations![
    a_copy_within_this_machine,
    a_sync_within_this_machine,
    a_copy_to_another_machine,
    a_sync_from_another_machine,
    a_get_of_a_tree,
    a_get_to_standard_output,
    a_share,
    a_put_of_a_stream,
    an_index,
    what_was_ignored_at_the_start_stays_ignored,
    a_daemon_ends_well_and_at_once_if_it_is_asked_twice,
];

const MOMENTS: u64 = 20;
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Waits until a program heeds signals. Earlier ones end it as they end any program.
fn wait_until_it_listens(running: &mut Running) {
    // Their numbers are 1, 2 and 15; the lowest bit is signal 1's.
    const THEM: u64 = 0x4003;
    let listens = soon(WAIT_LIMIT, || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        (caught & THEM == THEM || !running.runs()).then_some(())
    });
    assert!(listens.is_some(), "it heeds no signals");
}

/// The milliseconds after which the `number`th interruption comes: drawn by xorshift.
fn moment(seed: u64, number: u64, most: u64) -> Duration {
    let mut state =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    for shift in [13, 7, 17] {
        state ^= if shift == 7 { state >> shift } else { state << shift };
    }
    Duration::from_millis(state % most)
}

fn tree(env: &TestEnvironment) {
    (0..600u64).for_each(|number| {
        let folder = env.sender.path(format!("tree/{}", number / 50));
        std::fs::create_dir_all(&folder).unwrap();
        file(&folder.join(number.to_string()), number, 5000);
    });
    file(&env.sender.path("tree/big"), 1, 30 << 20);
}

/// Interrupts what `call` makes, and lets `after` clean up.
fn interrupt_each(
    seed: u64,
    most: u64,
    status: i32,
    mut call: impl FnMut() -> Call,
    mut after: impl FnMut(),
) {
    for number in 0..MOMENTS {
        let signal = SIGNALS[(seed + number) as usize % SIGNALS.len()];
        let when = moment(seed, number, most);
        let mut running = call().start();
        wait_until_it_listens(&mut running);
        let has_ended = running.ends_within(when);
        interrupt(running, signal, has_ended, status, &format!("{signal:?} after {when:?}"));
        after();
    }
}

fn interrupt(running: Running, signal: Signal, has_ended: bool, status: i32, context: &str) {
    if !has_ended {
        running.signal(signal);
    }
    let ended = running.end();
    let lines = ended.err.lines().filter(|line| line.starts_with("tow: interrupted")).count();
    assert!(!ended.err.contains("panicked"), "{context}: {}", ended.err);
    // It may have been done.
    if ended.code() == 0 {
        return;
    }
    assert_eq!((ended.code(), lines), (status, 1), "{context}: {}", ended.err);
}

fn copy(way: Way, words: &str, status: i32, seed: u64) {
    let env = TestEnvironment::new();
    tree(&env);
    let route = Route::new(&env, way);
    let destination = env.receiver.path("copy");
    let call = || route.copy(words, "tree", "copy");
    interrupt_each(seed, 700, status, call, || drop(std::fs::remove_dir_all(&destination)));
    // Nothing was spoilt: it goes through.
    route.copy(words, "tree", "copy").end().with(0);
}

fn a_copy_within_this_machine() {
    copy(Way::Here, "cp", 130, 1);
}

fn a_sync_within_this_machine() {
    copy(Way::Here, "sync", 20, 2);
}

fn a_copy_to_another_machine() {
    copy(Way::Push, "cp", 130, 3);
}

fn a_sync_from_another_machine() {
    copy(Way::Pull, "sync", 20, 4);
}

fn a_get_of_a_tree() {
    let env = TestEnvironment::new();
    tree(&env);
    let mut share = env.sender.share(env.sender.path("tree"));
    let ticket = share.ticket();
    let destination = env.receiver.path("copy");
    let call = || env.receiver.tow(["get", &ticket, "-o", "copy"]);
    interrupt_each(5, 900, 130, call, || drop(std::fs::remove_dir_all(&destination)));
}

fn a_get_to_standard_output() {
    let env = TestEnvironment::new();
    tree(&env);
    let mut share = env.sender.share(env.sender.path("tree/big"));
    let ticket = share.ticket();
    interrupt_each(6, 500, 130, || env.receiver.tow(["get", &ticket, "-o", "-"]), || ());
}

fn a_share() {
    let env = TestEnvironment::new();
    tree(&env);
    interrupt_each(7, 500, 130, || env.sender.tow(["share", "--listen", "127.0.0.1:0", "tree"]), || ());
}

fn a_put_of_a_stream() {
    let env = TestEnvironment::new();
    let big = env.sender.path("big");
    file(&big, 1, 30 << 20);
    let call = || {
        let put = env.sender.tow(["put", "--listen", "127.0.0.1:0", "-"]);
        put.input(std::fs::File::open(&big).unwrap())
    };
    interrupt_each(8, 500, 130, call, || ());
}

fn an_index() {
    let env = TestEnvironment::new();
    tree(&env);
    interrupt_each(9, 300, 130, || env.sender.tow(["index", "tree"]), || ());
}

fn what_was_ignored_at_the_start_stays_ignored() {
    let env = TestEnvironment::new();
    tree(&env);
    let words = ["share", "--listen", "127.0.0.1:0", "tree"];
    let ignoring = ["/usr/bin/env", "--ignore-signal=HUP", crate::environment::TOW].map(str::to_owned);
    let mut share = env.sender.tow_as(&ignoring, words).start();
    share.ticket();
    share.signal(Signal::HUP);
    assert!(!share.ends_within(Duration::from_millis(300)), "nohup");
    share.signal(Signal::TERM);
    share.end().with(130);
}

fn a_daemon_ends_well_and_at_once_if_it_is_asked_twice() {
    let env = TestEnvironment::new();
    tree(&env);
    for count in [1, 2] {
        let mut daemon = env.sender.daemon();
        if count == 2 {
            // Somebody who fetches slowly holds it up.
            let ticket = env.sender.tow(["put", "tree"]).end().with(0).text().trim().to_owned();
            let mut get = env.receiver.get_slowly(&ticket, "copy", "1M").start();
            get.wait_for_bytes(1 << 20);
            daemon.signal(Signal::TERM);
            daemon.wait_until("says what it waits for", |daemon| {
                daemon.error_text().contains("waiting for what is under way").then_some(())
            });
            assert!(daemon.runs());
        }
        daemon.signal(Signal::TERM);
        daemon.end().with(0);
    }
}
