//! Neither side's memory grows with the data: `VmHWM`, the most that was ever resident.

use std::fs;
use std::path::Path;

use towpath_content::tree::{Encoder, Entry, Event, Kind, Metadata};

use crate::environment::{TestEnvironment, first_line};
use crate::local_client::LocalClient;
use crate::runner::{situations, skip};
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_large_file_needs_little_memory,
    many_small_files_need_little_memory,
    a_list_of_a_million_entries_needs_little_memory,
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

/// One whose descriptor an application wrote.
fn a_list_of_a_million_entries_needs_little_memory() {
    look_at_memory();
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    let put = LocalClient::of(&env.sender).call("POST /v1/put-stream?kind=tree", "", &very_many_entries());
    let events = put.and_then(|answer| answer.ok("the put")).unwrap();
    let ticket = serde_json::from_str::<serde_json::Value>(&first_line(&events).unwrap()).unwrap();
    let get = env.receiver.tow(["get", "--list", ticket["ticket"].as_str().unwrap()]).start();
    let mut receiver = 0;
    let ended = get.end_watched(|get| receiver = receiver.max(get.peak_memory())).with(0);
    let lines = ended.out.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, 1_000_000);
    assert!((1..LIMIT / 2).contains(&receiver), "the receiver took {} MiB", receiver >> 20);
}

/// The descriptor of a directory with a million links.
fn very_many_entries() -> Vec<u8> {
    let mut encoder = Encoder::new(false);
    let mut push = |event| encoder.push(&event).unwrap();
    let entry = |name: String, kind| Entry {
        name: name.into_bytes(),
        kind,
        metadata: Metadata::default(),
        hard_link: None,
    };
    push(Event::Enter(entry(String::new(), Kind::Directory)));
    for number in 0..1_000_000 {
        push(Event::Leaf(entry(format!("{number:07}"), Kind::Symlink { target: b"there".to_vec() })));
    }
    push(Event::Leave);
    encoder.finish().unwrap()
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
