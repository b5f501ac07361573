//! What a put chooses by what the line carries: fewest bytes now, or less to read and to keep later.

use std::fs;

use serde_json::Value;

use crate::runner::situations;
use crate::slow_line::SlowLine;
use crate::trees::bytes;
use crate::vault::{Vaults, call, number, told};
use crate::vault_attacks::state;

situations![
    a_fast_line_writes_anew_what_has_patches,
    a_modem_sends_the_fewest_bytes,
    a_line_that_is_slow_up_alone_sends_the_fewest_bytes,
];

/// Chunks have 4 to 16 KiB, so of so many bytes each a place in one.
const APART: usize = 12_000;

/// Puts a file of `length` bytes over such a line, gets it, changes places all over it twice, and then its end: what the last put tells.
fn put_last(up: u64, down: u64, length: u64) -> Value {
    let mut vaults = Vaults::new();
    let (node, address) = vaults.place.split_once('@').unwrap();
    let line = SlowLine::to(address, up, down);
    vaults.place = format!("{node}@{}", line.address);
    let machine = vaults.env.machine("one");
    let id = vaults.init(&machine);
    let mut content = bytes(1, length);
    let mut put = |first: usize, apart: usize| {
        for at in (first..length as usize - 1400).step_by(apart) {
            content.splice(at..at + 1400, bytes(at as u64, 1400));
        }
        fs::write(machine.path("notes"), &content).unwrap();
        told(&machine, &["put", "notes", "--explain"])
    };
    put(length as usize, 1);
    fs::remove_dir_all(state(&machine, &id).join("blocks")).unwrap();
    told(&machine, &["get", "notes", "-o", "back"]);
    put(1000, APART);
    put(2600, APART);
    let last = put(length as usize - 1500, APART);
    content[5] ^= 1;
    fs::write(machine.path("notes"), &content).unwrap();
    let shown = call(&machine, &["put", "notes", "--explain"]).with(0).text();
    assert!(shown.lines().last().is_some_and(|line| line.starts_with("line: ")), "{shown}");
    told(&machine, &["get", "notes", "-o", "back", "--overwrite"]);
    assert!(fs::read(machine.path("back")).unwrap() == content);
    last
}

fn a_fast_line_writes_anew_what_has_patches() {
    let last = put_last(1_000_000, 1_000_000, 200_000);
    assert!(number(&last, "rewritten") > 4096 && number(&last, "saved") > 1024, "{last}");
    assert!(number(&last, "up") > 100_000 && number(&last, "down") > 100_000, "{last}");
}

fn a_modem_sends_the_fewest_bytes() {
    let last = put_last(7000, 7000, 24_000);
    assert!(number(&last, "rewritten") == 0 && number(&last, "left") > 1024, "{last}");
    assert!((1..12_000).contains(&number(&last, "up")), "{last}");
    assert!((1..12_000).contains(&number(&last, "down")), "{last}");
}

fn a_line_that_is_slow_up_alone_sends_the_fewest_bytes() {
    let last = put_last(60_000, 1_000_000, 200_000);
    assert!(number(&last, "rewritten") == 0 && number(&last, "left") > 1024, "{last}");
    assert!(number(&last, "up") < 100_000 && number(&last, "down") > 100_000, "{last}");
}
