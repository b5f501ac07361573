//! Neither side's memory grows with the data: `VmHWM`, the most that was ever resident.

use std::fs;
use std::path::Path;

use crate::environment::TestEnvironment;
use crate::runner::{situations, skip};
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_large_file_needs_little_memory,
    many_small_files_need_little_memory,
    standard_output_needs_little_memory
];

const LIMIT: u64 = 128 << 20;

fn look_at_memory() {
    if !Path::new("/proc/self/status").exists() {
        skip("needs /proc, to see the memory of a process");
    }
}

/// Sends `source` to `copy` and watches both sides.
fn watch(env: &TestEnvironment, source: &Path) {
    look_at_memory();
    let mut share = env.sender.share(source);
    let get = env.receiver.get(&share.ticket(), "copy").start();
    let mut receiver = 0;
    get.end_watched(|get| receiver = receiver.max(get.peak_memory())).summary();
    let sender = share.peak_memory();
    assert!((1..LIMIT).contains(&sender), "the sender took {} MiB", sender >> 20);
    assert!((1..LIMIT).contains(&receiver), "the receiver took {} MiB", receiver >> 20);
}

fn a_large_file_needs_little_memory() {
    let env = TestEnvironment::new();
    let source = env.sender.path("large");
    file(&source, 1, 256 << 20);
    watch(&env, &source);
    assert_same_bytes(&source, &env.receiver.path("copy"));
}

fn many_small_files_need_little_memory() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("many");
    for folder in 0..30 {
        let folder = tree.join(folder.to_string());
        fs::create_dir_all(&folder).unwrap();
        (0..1000).for_each(|number| {
            fs::write(folder.join(number.to_string()), format!("{folder:?} {number}")).unwrap()
        });
    }
    watch(&env, &tree);
    assert_same(&tree, &env.receiver.path("copy"));
}

/// A reader that is slower than the network must not make the program hold the rest.
fn standard_output_needs_little_memory() {
    look_at_memory();
    let env = TestEnvironment::new();
    let source = env.sender.path("large");
    file(&source, 2, 160 << 20);
    let mut share = env.sender.share(&source);
    let get = env.receiver.tow(["get", &share.ticket(), "-o", "-"]).start();
    let mut receiver = 0;
    let ended = get.end_watched(|get| receiver = receiver.max(get.peak_memory())).with(0);
    assert!(ended.out == fs::read(&source).unwrap(), "the bytes differ");
    assert!((1..LIMIT).contains(&receiver), "the receiver took {} MiB", receiver >> 20);
}
