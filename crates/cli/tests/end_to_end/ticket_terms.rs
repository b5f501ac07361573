//! Tickets that end, that are taken back, and that their receivers may not pass on.

use std::fs;
use std::time::Duration;

use crate::environment::{LOOPBACK, TestEnvironment, soon};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, file};

situations![
    a_ticket_that_expired_opens_nothing,
    an_altered_ticket_opens_nothing,
    a_lease_ends_with_its_ticket,
    what_may_not_be_passed_on_is_not,
    a_ticket_that_was_taken_back_ends_at_its_holders,
    a_ticket_of_a_share_is_taken_back_while_it_runs,
    a_ticket_of_a_share_that_ended_is_taken_back_and_not_given_again,
    a_get_under_way_ends_when_its_ticket_is_taken_back,
    a_daemon_passes_on_what_it_got_only_if_its_configuration_says_so,
    a_daemon_passes_on_again_after_its_restart,
];

/// Time for what a holder or a daemon notices by itself.
const LONG: Duration = Duration::from_secs(60);

fn a_ticket_that_expired_opens_nothing() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 2 << 20);
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "--expires", "4s", "file"]).start();
    let ticket = share.ticket();
    env.receiver.get(&ticket, "file").end().summary();
    let listed = env.receiver.tow(["get", "--list", &ticket]).end();
    assert!(listed.err.contains("the ticket expires 2"), "{}", listed.err);
    // It ends by itself.
    let ended = share.end().with(1);
    assert!(ended.err.contains("the ticket expired at 2"), "{}", ended.err);
    let refused = env.stranger.tow(["get", &ticket]).end().with(1);
    assert!(refused.err.contains("the ticket expired at 2"), "{}", refused.err);
    assert!(fs::read_dir(env.stranger.path("")).unwrap().next().is_none(), "nothing is left");
}

fn an_altered_ticket_opens_nothing() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 2 << 20);
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "--expires", "1h", "file"]).start();
    let right: towpath_content::Ticket = share.ticket().parse().unwrap();
    let mut longer = right.clone();
    longer.terms.expires = longer.terms.expires.map(|end| end + 3600);
    let mut endless = right.clone();
    endless.terms = towpath_content::ticket::Terms::default();
    for altered in [longer, endless] {
        let refused = env.stranger.tow(["get", &altered.to_string()]).end();
        assert_ne!(refused.code(), 0);
        assert!(refused.err.contains("the ticket is not known here"), "{}", refused.err);
    }
    env.stranger.get(&right.to_string(), "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
}

fn a_lease_ends_with_its_ticket() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 100_000);
    let _daemon = env.sender.daemon();
    env.sender.tow(["put", "--expires", "2s", "file"]).end();
    let gone = soon(LONG, || env.sender.tow(["ls"]).end().text().is_empty().then_some(()));
    assert!(gone.is_some(), "the lease is there still");
}

fn what_may_not_be_passed_on_is_not() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 100_000);
    let _daemon = env.sender.daemon();
    let ticket = env.sender.tow(["put", "--no-swarm", "file"]).end().text();
    let ticket = ticket.trim();
    let refused = env.receiver.tow(["get", "--stay", ticket]).end().with(1);
    assert!(refused.err.contains("does not let its holders pass on"), "{}", refused.err);
    env.receiver.get(ticket, "file").end().summary();
    let listed = env.sender.tow(["ls"]).end().text();
    assert!(listed.contains("(is not passed on by its receivers)"), "{listed}");
}

fn a_get_under_way_ends_when_its_ticket_is_taken_back() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 24 << 20);
    let _daemon = env.sender.daemon();
    let ticket = env.sender.tow(["put", "file"]).end().text();
    let mut getting = env.receiver.get_slowly(ticket.trim(), "file", "1M").start();
    getting.wait_for_bytes(1 << 20);
    env.sender.tow(["done", ticket.trim()]).end().with(0);
    let failure = getting.end().failure();
    let why = failure["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("took the ticket back"), "{failure}");
    assert!(!env.receiver.path("file").exists());
}

fn a_daemon_passes_on_what_it_got_only_if_its_configuration_says_so() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let mut share = env.sender.share("file");
    let ticket = share.ticket();
    let listen = format!("listen = [\"{LOOPBACK}\"]\n");
    {
        let _daemon = env.stranger.daemon_with(&listen);
        let got = env.stranger.get(&ticket, "quiet").end();
        assert!(!got.text().contains(r#""event":"ticket""#), "off by default: {}", got.text());
    }
    let _daemon = env.receiver.daemon_with(&format!("{listen}[sharing]\npass_on = \"on\"\n"));
    let mut getting = env.receiver.get(&ticket, "file").start();
    let longer = getting.ticket();
    getting.end().summary();
    share.kill();
    env.stranger.get(&longer, "again").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("again"));
}

/// Also what was live when it came: only its issuer's word tells what it became, and the issuer is gone.
fn a_daemon_passes_on_again_after_its_restart() {
    for is_live in [false, true] {
        let env = TestEnvironment::new();
        file(&env.sender.path("file"), 1, 3 << 20);
        let mut issuer = match is_live {
            false => env.sender.share("file"),
            true => {
                let input = fs::File::open(env.sender.path("file")).unwrap();
                env.sender.tow(["put", "-", "--listen", LOOPBACK]).input(input).start()
            }
        };
        let ticket = issuer.ticket();
        let start = |pass_on: &str| {
            let config = format!("listen = [\"{LOOPBACK}\"]\n[sharing]\npass_on = \"{pass_on}\"\n");
            env.receiver.daemon_with(&config)
        };
        let daemon = start("on");
        let mut getting = env.receiver.get(&ticket, "file").start();
        let longer = getting.ticket();
        getting.end().summary();
        let records = || {
            let files = fs::read_dir(env.receiver.home("state/shares")).into_iter().flatten().flatten();
            let names = files.filter_map(|file| file.file_name().into_string().ok());
            names.filter(|name| name.starts_with("passed-on-") && name.ends_with(".json")).count()
        };
        assert!(soon(LONG, || (records() == 1).then_some(())).is_some(), "it is not recorded");
        issuer.kill();
        drop(daemon);
        {
            let _daemon = start("off");
            let words = ["get", "--timeout", "2", longer.as_str(), "-o", "refused"];
            assert_ne!(env.stranger.tow(words).end().code(), 0, "it is switched off");
        }
        let _daemon = start("on");
        env.stranger.get(&longer, "again").end().summary();
        assert_same_bytes(&env.sender.path("file"), &env.stranger.path("again"));
    }
}

fn a_ticket_that_was_taken_back_ends_at_its_holders() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let _daemon = env.sender.daemon();
    let put = env.sender.tow(["put", "file"]).end().text();
    let words = ["get", "--json", "--stay", "--listen", LOOPBACK, put.trim(), "-o", "file"];
    let mut holder = env.receiver.tow(words).start();
    let ticket = holder.ticket();
    holder.wait_until("has all", |running| {
        String::from_utf8_lossy(&running.output()).contains(r#""event":"summary""#).then_some(())
    });
    env.sender.tow(["done", put.trim()]).end().with(0);
    let ended = holder.end().with(1);
    assert!(ended.text().contains("the sender took the ticket back"), "{}", ended.text());
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    let refused = env.stranger.tow(["get", &ticket, "-o", "after"]).end().with(1);
    assert!(refused.err.contains("took the ticket back"), "{}", refused.err);
    assert!(!env.stranger.path("after").exists());
}

fn a_ticket_of_a_share_is_taken_back_while_it_runs() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let mut share = env.sender.share("file");
    let given = share.ticket();
    let words = ["get", "--json", "--stay", "--listen", LOOPBACK, given.as_str(), "-o", "file"];
    let mut holder = env.receiver.tow(words).start();
    let ticket = holder.ticket();
    holder.wait_until("has all", |running| {
        String::from_utf8_lossy(&running.output()).contains(r#""event":"summary""#).then_some(())
    });
    env.sender.tow(["done", &given]).end().with(0);
    let ended = holder.end().with(1);
    assert!(ended.text().contains("the sender took the ticket back"), "{}", ended.text());
    let refused = env.stranger.tow(["get", &ticket, "-o", "after"]).end().with(1);
    assert!(refused.err.contains("took the ticket back"), "{}", refused.err);
    assert!(!env.stranger.path("after").exists());
}

fn a_ticket_of_a_share_that_ended_is_taken_back_and_not_given_again() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let share = || {
        let mut share = env.sender.share("file");
        let ticket = share.ticket();
        (share, ticket)
    };
    let (running, first) = share();
    running.kill();
    let (running, again) = share();
    assert_eq!(first, again, "its end alone takes nothing back");
    running.kill();
    env.sender.tow(["done", &first]).end().with(0);
    assert_ne!(env.sender.tow(["done", &first]).end().code(), 0, "it is over already");
    let (_running, other) = share();
    assert_ne!(first, other);
    env.stranger.get(&other, "file").end().summary();
}
