//! Several paths under one ticket, and what filters keep at home.

use std::fs;
use std::path::Path;

use crate::environment::{Ended, LOOPBACK, Machine, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same, entries, file};

situations![
    several_paths_have_one_ticket,
    the_same_paths_and_filters_have_the_same_ticket,
    what_filters_leave_out_at_the_sharing_side_is_not_there,
    puts_of_several_paths_have_a_ticket_each_unless_asked_for_one,
    a_put_of_several_paths_outlives_its_daemon,
    what_can_not_be_one_tree_is_refused,
];

/// `notes`, `photos/{one,two.tmp,sub/three}`, `.secret`.
fn files(machine: &Machine) {
    fs::create_dir_all(machine.path("photos/sub")).unwrap();
    for (seed, name) in (1..).zip(["notes", "photos/one", "photos/two.tmp", "photos/sub/three", ".secret"]) {
        file(&machine.path(name), seed, 4000);
    }
}

fn paths(names: &[&str]) -> Vec<std::path::PathBuf> {
    names.iter().map(|name| Path::new(name).to_path_buf()).collect()
}

fn share(machine: &Machine, words: &[&str]) -> crate::environment::Running {
    machine.tow(["share", "--listen", LOOPBACK].iter().chain(words)).start()
}

fn tickets(ended: &Ended) -> Vec<String> {
    let events = ended.events().into_iter().filter(|event| event["event"] == "ticket");
    events.map(|event| event["ticket"].as_str().unwrap().to_owned()).collect()
}

fn several_paths_have_one_ticket() {
    let env = TestEnvironment::new();
    files(&env.sender);
    let mut sharing = share(&env.sender, &["photos", "notes", ".secret"]);
    let ticket = sharing.ticket();
    // Under the name of such trees, and each under its own.
    env.receiver.tow(["get", "--json", &ticket]).end().summary();
    for name in ["photos", "notes", ".secret"] {
        assert_same(&env.sender.path(name), &env.receiver.path("shared").join(name));
    }
    env.receiver.tow(["get", &ticket, "photos/sub", "notes", "-o", "."]).end().with(0);
    assert_same(&env.sender.path("photos/sub"), &env.receiver.path("sub"));
    drop(sharing);
    let mut named = share(&env.sender, &["--name", "for ann", "photos", "notes"]);
    env.receiver.tow(["get", "--json", &named.ticket()]).end().summary();
    assert_same(&env.sender.path("notes"), &env.receiver.path("for ann/notes"));
    assert!(!env.receiver.path("for ann/.secret").exists());
}

fn the_same_paths_and_filters_have_the_same_ticket() {
    let env = TestEnvironment::new();
    files(&env.sender);
    let ticket = |words: &[&str]| {
        let mut sharing = share(&env.sender, words);
        let ticket = sharing.ticket();
        // All of it is read, so that its content has a name.
        env.receiver.tow(["get", "--list", &ticket]).end().with(0);
        ticket
    };
    let several = ticket(&["photos", "notes"]);
    assert_eq!(ticket(&["notes", "photos"]), several);
    let filtered = ticket(&["photos", "--exclude=*.tmp"]);
    assert_eq!(ticket(&["photos", "--exclude=*.tmp"]), filtered);
    assert_ne!(ticket(&["photos"]), filtered);
    assert_ne!(ticket(&["photos", "--exclude=*.bak"]), filtered);
}

fn what_filters_leave_out_at_the_sharing_side_is_not_there() {
    let env = TestEnvironment::new();
    files(&env.sender);
    fs::write(env.sender.path("photos/.rsync-filter"), "- three\n").unwrap();
    let mut sharing = share(&env.sender, &["photos", "notes", "--exclude=*.tmp", "-FF"]);
    let ticket = sharing.ticket();
    env.receiver.get(&ticket, "all").end().summary();
    let expected = ["", "notes", "photos", "photos/one", "photos/sub"];
    assert_eq!(entries(&env.receiver.path("all")), paths(&expected));
    let failure = env.receiver.tow(["get", "--json", &ticket, "photos/two.tmp"]).end().failure();
    assert_eq!(failure["kind"], "not_found", "{failure}");
    // Of a single directory patterns begin in it.
    let mut single = share(&env.sender, &["photos", "--include=/one", "--exclude=/*"]);
    env.receiver.get(&single.ticket(), "one").end().summary();
    assert_eq!(entries(&env.receiver.path("one")), paths(&["", "one"]));
}

fn puts_of_several_paths_have_a_ticket_each_unless_asked_for_one() {
    let env = TestEnvironment::new();
    files(&env.sender);
    // The daemon that follows listens there alone.
    let fixed = ["put", "--json", "--listen", LOOPBACK];
    let put = |words: &[&str]| env.sender.tow(fixed.iter().chain(words)).end().with(0);
    let words = ["photos", "notes", "--exclude=*.tmp"];
    // Without a daemon it is fetched from the next one.
    let before = tickets(&put(&["photos", "notes", "--exclude=sub", "--together"]));
    let _daemon = env.sender.daemon();
    let each = tickets(&put(&words));
    let together = tickets(&put(&[&words[..], &["--together", "--name=both"]].concat()));
    assert_eq!((before.len(), each.len(), together.len()), (1, 2, 1));
    env.receiver.tow(["get", "--json", &before[0]]).end().summary();
    env.receiver.tow(["get", "--json", &together[0]]).end().summary();
    let expected = ["", "notes", "photos", "photos/one", "photos/two.tmp"];
    assert_eq!(entries(&env.receiver.path("shared")), paths(&expected));
    let expected = ["", "notes", "photos", "photos/one", "photos/sub", "photos/sub/three"];
    assert_eq!(entries(&env.receiver.path("both")), paths(&expected));
    env.receiver.get(&each[0], "photos").end().summary();
    assert!(!env.receiver.path("photos/two.tmp").exists() && env.receiver.path("photos/one").exists());
    // It is one thing to whoever lists and ends it.
    env.sender.tow(["done", &together[0]]).end().with(0);
    assert_eq!(env.receiver.get(&together[0], "ended").end().failure()["kind"], "refused");
}

fn a_put_of_several_paths_outlives_its_daemon() {
    let env = TestEnvironment::new();
    files(&env.sender);
    let daemon = env.sender.daemon();
    let put =
        env.sender.tow(["put", "--json", "--together", "photos", "notes", "--exclude=one"]).end().with(0);
    daemon.kill();
    let _daemon = env.sender.daemon();
    let listed = env.sender.tow(["ls", "--json"]).end().with(0).events();
    assert_eq!((listed.len(), &listed[0]["kind"]), (1, &"tree".into()), "{listed:?}");
    let ticket = listed[0]["ticket"].as_str().unwrap();
    env.receiver.get(ticket, "all").end().summary();
    let expected = ["", "notes", "photos", "photos/sub", "photos/sub/three", "photos/two.tmp"];
    assert_eq!(entries(&env.receiver.path("all")), paths(&expected), "{}", tickets(&put)[0]);
}

fn what_can_not_be_one_tree_is_refused() {
    let env = TestEnvironment::new();
    files(&env.sender);
    fs::create_dir(env.sender.path("other")).unwrap();
    file(&env.sender.path("other/notes"), 1, 10);
    for (words, why) in [
        (&["share", "notes", "other/notes"][..], "same last name"),
        (&["share", "notes", "--exclude=no*"], "left out by the filters"),
        (&["share", "notes", "--name=a/b"], "is no name"),
        (&["put", "notes", "photos", "--name=x"], "--together"),
        (&["put", "-", "--exclude=x"], "not for '-'"),
    ] {
        let ended = env.sender.tow(words).end().with(2);
        assert!(ended.err.contains(why), "{words:?}: {}", ended.err);
        assert!(ended.out.is_empty());
    }
}
