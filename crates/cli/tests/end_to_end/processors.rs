//! Content that a machine's configuration refuses does not pass it, whichever command would bring it.

use std::fs;

use crate::environment::{Machine, TestEnvironment};
use crate::runner::situations;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same_bytes, file, names};

situations![
    what_the_receiver_refuses_is_not_copied,
    what_the_sender_refuses_is_not_copied,
    what_the_receiver_refuses_is_not_got,
    compression_is_never_or_always_as_configured,
];

/// Some files were left out.
const PARTIAL: i32 = 3;

/// Two files that may pass, and three that may not.
fn prepare(env: &TestEnvironment, rules: &Machine) {
    rules.configure("[processors]\nrefuse_names = [\"*.exe\"]\nrefuse_larger = \"1M\"\n");
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    for (name, len) in
        [("good", 700), ("more", 900_000), ("empty.exe", 0), ("small.exe", 700), ("large", 2 << 20)]
    {
        file(&tree.join(name), 1, len);
    }
}

fn what_the_receiver_refuses_is_not_copied() {
    for way in [Way::Here, Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        prepare(&env, if way == Way::Here { &env.sender } else { &env.receiver });
        let route = Route::new(&env, way);
        let ended = route.copy("cp -r", "tree", "copy").end().with(PARTIAL);
        assert!(ended.err.contains("refused by rules"), "{way:?}: {}", ended.err);
        assert_eq!(names(&env.receiver.path("copy")), ["good", "more"], "{way:?}");
        assert_same_bytes(&env.sender.path("tree/more"), &env.receiver.path("copy/more"));
    }
}

/// At this side of a copy the inspectors see sizes and bytes.
fn what_the_sender_refuses_is_not_copied() {
    let env = TestEnvironment::new();
    prepare(&env, &env.sender);
    Route::new(&env, Way::Push).copy("cp -r", "tree", "copy").end().with(PARTIAL);
    assert_eq!(names(&env.receiver.path("copy")), ["empty.exe", "good", "more", "small.exe"]);
}

fn what_the_receiver_refuses_is_not_got() {
    let env = TestEnvironment::new();
    prepare(&env, &env.receiver);
    let mut share = env.sender.share("tree");
    let ticket = share.ticket();
    env.receiver.get(&ticket, "copy").end().with(PARTIAL);
    assert_eq!(names(&env.receiver.path("copy")), ["good", "more"]);
    // The same through a daemon.
    let _daemon = env.receiver.daemon();
    env.receiver.get(&ticket, "other").end().with(PARTIAL);
    assert_eq!(names(&env.receiver.path("other")), ["good", "more"]);
}

fn compression_is_never_or_always_as_configured() {
    const LEN: u64 = 8 << 20;
    for (sender, receiver, is_compressed) in [
        ("asked", "asked", false),
        ("always", "asked", true),
        ("asked", "always", true),
        ("never", "always", false),
    ] {
        let env = TestEnvironment::new();
        let choose = |choice| format!("[processors]\ncompression = \"{choice}\"\n");
        fs::write(env.sender.path("zeros but for the last"), [vec![7; LEN as usize], vec![1]].concat())
            .unwrap();
        env.sender.configure(&choose(sender));
        env.receiver.configure(&choose(receiver));
        let mut share = env.sender.share("zeros but for the last");
        let ticket = share.ticket();
        let daemon = env.receiver.daemon();
        env.receiver.get(&ticket, "copy").end().with(0);
        let page = crate::running::metrics(&env.receiver);
        let received = page["towpath_network_bytes_total{direction=\"received\",dialled_by=\"this_node\"}"];
        assert_eq!(received < LEN / 4, is_compressed, "{sender}, {receiver}: {received} bytes");
        daemon.interrupt();
    }
}
