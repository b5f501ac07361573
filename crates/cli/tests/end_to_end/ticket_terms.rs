//! Tickets that end, that are taken back, and that their receivers may not pass on.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use towpath_content::Ticket;

use crate::environment::{LOOPBACK, Machine, Running, TestEnvironment, soon};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, file};

situations![
    a_ticket_that_expired_opens_nothing,
    an_altered_ticket_opens_nothing,
    a_lease_ends_with_its_ticket,
    what_may_not_be_passed_on_is_not,
    a_ticket_that_was_taken_back_ends_at_its_holders,
    a_holder_that_passes_nothing_on_any_more_tells_who_comes_late_that_the_ticket_was_taken_back,
    a_ticket_of_a_share_is_taken_back_while_it_runs,
    a_ticket_of_a_share_that_ended_is_taken_back_and_not_given_again,
    who_serves_what_a_share_that_ended_shared_hears_that_it_was_taken_back,
    a_get_under_way_ends_when_its_ticket_is_taken_back,
    a_daemon_passes_on_what_it_got_only_if_its_configuration_says_so,
    a_daemon_passes_on_again_after_its_restart,
    one_receiver_alone_fetches_what_is_shared_once,
    two_receivers_and_no_third_fetch_also_after_the_share_began_again,
    a_limited_ticket_is_not_given_without_its_limit_nor_another_with_it,
    mirrors_know_no_limit,
    a_receiver_is_told_when_the_ticket_expires,
    what_is_put_is_listed_with_the_life_of_its_ticket,
    what_is_put_is_taken_back_by_its_path_or_first_digits,
    a_share_that_runs_is_listed_with_who_fetched_and_taken_back_by_its_path,
    who_fetched_is_told_of_each_ticket_of_one_file,
    a_daemon_tells_who_fetched_what_is_put_and_what_it_passes_on,
    what_the_sender_fetches_itself_does_not_end_a_share_for_one,
    a_ticket_is_read_as_mail_programs_break_it,
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
    let right: Ticket = share.ticket().parse().unwrap();
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
    assert!(listed.contains("(has no end, is not passed on by its receivers)"), "{listed}");
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

/// Its issuer is gone, and what it was told is all that the holder has left of it.
fn a_holder_that_passes_nothing_on_any_more_tells_who_comes_late_that_the_ticket_was_taken_back() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let issuer = env.sender.daemon();
    let put = env.sender.tow(["put", "file"]).end().text();
    let config = format!("listen = [\"{LOOPBACK}\"]\n[sharing]\npass_on = \"on\"\n");
    let _holder = env.receiver.daemon_with(&config);
    let mut getting = env.receiver.get(put.trim(), "file").start();
    let longer = getting.ticket();
    getting.end().summary();
    let records = |kind: &str| {
        let files = fs::read_dir(env.receiver.home("state/shares")).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names.filter(|name| name.starts_with(kind) && name.ends_with(".json")).count()
    };
    let is_passed_on = || (records("passed-on-") == 1).then_some(());
    assert!(soon(LONG, is_passed_on).is_some(), "it is not recorded");
    env.sender.tow(["done", put.trim()]).end().with(0);
    let is_over = || (records("withdrawn-") == 1 && records("passed-on-") == 0).then_some(());
    assert!(soon(LONG, is_over).is_some(), "the holder did not ask");
    issuer.kill();
    let refused = env.stranger.tow(["get", &longer, "-o", "after"]).end().with(1);
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

fn who_serves_what_a_share_that_ended_shared_hears_that_it_was_taken_back() {
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
    share.kill();
    let telling = env.sender.tow(["done", "--wait", &given]).start();
    let ended = holder.end().with(1);
    assert!(ended.text().contains("the sender took the ticket back"), "{}", ended.text());
    let refused = env.stranger.tow(["get", &ticket, "-o", "after"]).end().with(1);
    assert!(refused.err.contains("took the ticket back"), "{}", refused.err);
    assert!(!env.stranger.path("after").exists());
    telling.kill();
}

/// A share with these flags, of `file`.
fn share_with(env: &TestEnvironment, words: &[&str]) -> (Running, String) {
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "file"].iter().chain(words)).start();
    let ticket = share.ticket();
    (share, ticket)
}

fn one_receiver_alone_fetches_what_is_shared_once() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 12 << 20);
    let (share, ticket) = share_with(&env, &["--once"]);
    let mut first = env.receiver.get_slowly(&ticket, "file", "4M").start();
    first.wait_for_bytes(2 << 20);
    let refused = env.stranger.tow(["get", &ticket]).end().with(1);
    assert!(refused.err.contains("the ticket was for one receiver"), "{}", refused.err);
    first.kill();
    let refused = env.stranger.tow(["get", &ticket]).end().with(1);
    assert!(refused.err.contains("the ticket was for one receiver"), "{}", refused.err);
    assert!(fs::read_dir(env.stranger.path("")).unwrap().next().is_none(), "nothing is left");
    // It goes on: the same node.
    let summary = env.receiver.get(&ticket, "file").end().summary();
    assert!(summary.number("kept") > 0, "{}", summary.0);
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    let ended = share.end().with(0);
    assert!(ended.err.contains("tow: 1 receiver has all of it: the ticket is taken back"), "{}", ended.err);
    let (_again, other) = share_with(&env, &["--once"]);
    assert_ne!(ticket, other);
    env.stranger.get(&other, "file").end().summary();
}

fn two_receivers_and_no_third_fetch_also_after_the_share_began_again() {
    let env = TestEnvironment::new();
    let third = env.machine("third");
    file(&env.sender.path("file"), 1, 12 << 20);
    let flags = ["--max-fetches", "2", "--json"];
    let (share, ticket) = share_with(&env, &flags);
    env.receiver.get(&ticket, "file").end().summary();
    let mut second = env.stranger.get_slowly(&ticket, "file", "4M").start();
    second.wait_for_bytes(2 << 20);
    second.kill();
    let told = String::from_utf8(share.output()).unwrap();
    assert!(!told.contains("spent"), "one of two has it: {told}");
    share.kill();
    let (share, again) = share_with(&env, &flags);
    let secret = |text: &str| text.parse::<Ticket>().unwrap().bound_secret();
    assert!(secret(&ticket) == secret(&again), "the same command goes on");
    let refused = third.tow(["get", &again]).end().with(1);
    assert!(refused.err.contains("the ticket was for a few receivers"), "{}", refused.err);
    env.stranger.get(&again, "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
    let ended = share.end().with(0).events();
    let spent = ended.last().unwrap();
    assert_eq!((spent["event"].as_str(), spent["receivers"].as_u64()), (Some("spent"), Some(2)), "{ended:?}");
    let complete = ended.iter().any(|event| event["event"] == "fetch" && event["state"] == "complete");
    assert!(complete, "how the last fetch ended is told before: {ended:?}");
}

fn a_limited_ticket_is_not_given_without_its_limit_nor_another_with_it() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 100_000);
    let given = |words: &[&str]| {
        let (share, ticket) = share_with(&env, words);
        share.kill();
        ticket.parse::<Ticket>().unwrap()
    };
    let (open, once) = (given(&["--no-swarm"]), given(&["--once"]));
    assert!(once.terms.no_swarm && once.terms == open.terms);
    assert!(open.bound_secret() != once.bound_secret());
    assert!(once.bound_secret() == given(&["--once"]).bound_secret());
    assert!(
        once.bound_secret() == given(&["--max-fetches", "3"]).bound_secret(),
        "only the limit is another"
    );
    assert!(once.bound_secret() != given(&["--no-swarm"]).bound_secret());
}

fn mirrors_know_no_limit() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 100_000);
    for flags in [&["--once", "--mirror", "https://example.org/file"][..], &["--once", "--max-fetches", "2"]]
    {
        let refused = env.sender.tow(["share", "file"].iter().chain(flags)).end().with(2);
        assert!(refused.err.contains("cannot be used with"), "{}", refused.err);
    }
    env.sender.tow(["share", "file", "--max-fetches", "0"]).end().with(2);
}

fn a_receiver_is_told_when_the_ticket_expires() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 100_000);
    let (_share, ticket) = share_with(&env, &["--expires", "2099-12-31"]);
    let got = env.receiver.tow(["get", &ticket]).end().with(0);
    let told = got.err.find("tow: the ticket expires 2100-01-01 00:00:00 UTC");
    assert!(told.is_some(), "{}", got.err);
    let end = got.err.lines().last().unwrap();
    assert!(!end.contains("expires"), "before it begins: {}", got.err);
    let events = env.stranger.get(&ticket, "file").end().with(0).events();
    assert_eq!(
        (events[0]["event"].as_str(), events[0]["expires"].as_u64()),
        (Some("terms"), Some(4_102_444_800))
    );
    let (_share, endless) = share_with(&env, &[]);
    let got = env.receiver.tow(["get", &endless, "-o", "other"]).end().with(0);
    assert!(!got.err.contains("expires"), "{}", got.err);
}

fn what_is_put_is_listed_with_the_life_of_its_ticket() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    for (number, (name, flags)) in
        [("plain", &[][..]), ("ends", &["--expires", "2099-12-31"]), ("kept", &["--no-swarm"])]
            .into_iter()
            .enumerate()
    {
        file(&env.sender.path(name), number as u64, 100_000);
        env.sender.tow(["put", name].iter().chain(flags)).end().with(0);
    }
    let listed = env.sender.tow(["ls"]).end().with(0).text();
    for (name, life) in [
        ("plain", "(has no end, may be passed on by its receivers)"),
        ("ends", "(expires 2100-01-01 00:00:00 UTC, may be passed on by its receivers)"),
        ("kept", "(has no end, is not passed on by its receivers)"),
    ] {
        let is_told = listed.lines().any(|line| line.contains(&format!("/{name}  ")) && line.ends_with(life));
        assert!(is_told, "{name}: {listed}");
    }
}

fn what_is_put_is_taken_back_by_its_path_or_first_digits() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    let put = |name: &str, flags: &[&str]| {
        let put = env.sender.tow(["put", "--json", name].iter().chain(flags)).end().with(0).events();
        put[0]["oid"].as_str().unwrap().to_owned()
    };
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        file(&env.sender.path(name), number as u64, 100_000);
    }
    let [one, two, three] = ["one", "two", "three"].map(|name| put(name, &[]));
    let listed = || env.sender.tow(["ls"]).end().with(0).text();
    env.sender.tow(["done", "two"]).end().with(0);
    assert!(listed().contains(&one) && !listed().contains(&two), "{}", listed());
    let digits = one.split_once(':').unwrap().1;
    let refused = env.sender.tow(["done", &digits[..7]]).end().with(2);
    assert!(refused.err.contains("too short"), "{}", refused.err);
    env.sender.tow(["done", &digits[..8]]).end().with(0);
    assert!(!listed().contains(&one) && listed().contains(&three), "{}", listed());
    // The same content by another ticket: its digits are those of both, and so is the path.
    let again = put("three", &["--no-swarm"]);
    assert_ne!(three, again);
    for name in ["three", &three.split_once(':').unwrap().1[..12]] {
        let refused = env.sender.tow(["done", name]).end().with(2);
        assert!(refused.err.contains(&three) && refused.err.contains(&again), "{}", refused.err);
    }
    env.sender.tow(["done", &again[..20]]).end().with(0);
    env.sender.tow(["done", "three"]).end().with(0);
    assert!(listed().is_empty(), "{}", listed());
    let refused = env.sender.tow(["done", "three"]).end().with(1);
    assert!(refused.err.contains("nothing is put as 'three'"), "{}", refused.err);
}

fn a_ticket_is_read_as_mail_programs_break_it() {
    let env = TestEnvironment::new();
    fs::create_dir(env.sender.path("tree")).unwrap();
    ["a", "b"].iter().for_each(|name| file(&env.sender.path("tree").join(name), 1, 1000));
    let _daemon = env.sender.daemon();
    let ticket = env.sender.tow(["put", "tree"]).end().text();
    let words: Vec<_> =
        ticket.trim().as_bytes().chunks(60).map(|line| str::from_utf8(line).unwrap()).collect();
    assert!(words.len() > 2);
    let lines = words.join("\n  ");
    env.receiver.tow(["get", &lines, "-o", "lines"]).end().with(0);
    env.receiver.tow(["get", "-", "-o", "input"]).input_text(&lines).end().with(0);
    env.receiver.tow(["get", "-o", "words"].iter().chain(&words)).end().with(0);
    for copy in ["lines", "input", "words"] {
        assert_same_bytes(&env.sender.path("tree").join("b"), &env.receiver.path(copy).join("b"));
    }
    // What follows the ticket is a path of the tree.
    env.receiver.tow(["get", "-o", "part"].iter().chain(&words).chain(&["b"])).end().with(0);
    assert_same_bytes(&env.sender.path("tree").join("b"), &env.receiver.path("part"));
    let cut = env.receiver.tow(["get", "-o", "cut"].iter().chain(&words[..2])).end().with(2);
    assert!(cut.err.contains("cut short"), "{}", cut.err);
    env.sender.tow(["done"].iter().chain(&words)).end().with(0);
    assert!(env.sender.tow(["ls"]).end().text().is_empty());
}

/// The line of `tow ls --json` with this in field `held`, once it has so many receivers.
fn listed(machine: &Machine, held: &str, receivers: usize) -> Value {
    let all = || machine.tow(["ls", "--json"]).end().with(0).events();
    let told = soon(LONG, || {
        let line = all().into_iter().find(|line| line["held"] == held)?;
        (line["fetched"].as_array()?.len() == receivers).then_some(line)
    });
    told.unwrap_or_else(|| panic!("{held} with {receivers} receivers: {:?}", all()))
}

fn a_share_that_runs_is_listed_with_who_fetched_and_taken_back_by_its_path() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let mut share = env.sender.share("file");
    let ticket = share.ticket();
    assert_eq!(listed(&env.sender, "share", 0)["ticket"], ticket.as_str());
    env.receiver.get(&ticket, "file").end().summary();
    env.receiver.get(&ticket, "again").end().summary();
    let mut slow = env.stranger.get_slowly(&ticket, "half", "1M").start();
    slow.wait_for_bytes(1 << 20);
    slow.kill();
    let line = listed(&env.sender, "share", 2);
    let outcomes: Vec<_> =
        line["fetched"].as_array().unwrap().iter().map(|one| one["outcome"].as_str().unwrap()).collect();
    assert!(outcomes.contains(&"whole") && outcomes.contains(&"broken_off"), "{line}");
    let told = env.sender.tow(["ls"]).end().with(0).text();
    assert!(told.contains("  share  ") && told.contains("has all of it: "), "{told}");
    // By its path, while it runs; then nobody gets it.
    env.sender.tow(["done", "file"]).end().with(0);
    share.wait_until("was told", |share| share.error_text().contains("it was taken back").then_some(()));
    let refused = env.stranger.tow(["get", &ticket, "-o", "after"]).end().with(1);
    assert!(refused.err.contains("took the ticket back"), "{}", refused.err);
    assert_eq!(env.sender.tow(["ls"]).end().with(0).text(), "", "it runs on, and serves nobody");
    share.kill();
    assert_eq!(env.sender.tow(["ls"]).end().with(0).text(), "", "one that was killed is listed no more");
}

fn who_fetched_is_told_of_each_ticket_of_one_file() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let mut shares = ["1h", "2h"]
        .map(|life| env.sender.tow(["share", "--listen", LOOPBACK, "--expires", life, "file"]).start());
    let tickets = shares.each_mut().map(Running::ticket);
    env.receiver.get(&tickets[0], "file").end().summary();
    env.stranger.get(&tickets[1], "file").end().summary();
    env.stranger.get(&tickets[1], "again").end().summary();
    let told = soon(LONG, || {
        let lines = env.sender.tow(["ls", "--json"]).end().with(0).events();
        let of = |ticket: &str| {
            let line = lines.iter().find(|line| line["ticket"] == ticket)?;
            let fetched = line["fetched"].as_array()?.iter();
            Some(fetched.map(|one| one["times"].as_u64().unwrap()).collect::<Vec<_>>())
        };
        let told = [of(&tickets[0])?, of(&tickets[1])?];
        (told.iter().flatten().sum::<u64>() >= 3).then_some(told)
    });
    assert_eq!(told, Some([vec![1], vec![2]]));
}

fn a_daemon_tells_who_fetched_what_is_put_and_what_it_passes_on() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let _sender = env.sender.daemon();
    let put = env.sender.tow(["put", "--json", "file"]).end().with(0).events();
    let ticket = put[0]["ticket"].as_str().unwrap();
    let _holder =
        env.receiver.daemon_with(&format!("listen = [\"{LOOPBACK}\"]\n[sharing]\npass_on = \"on\"\n"));
    let mut getting = env.receiver.get(ticket, "file").start();
    let longer = getting.ticket();
    getting.end().summary();
    let line = listed(&env.sender, "pinned", 1);
    let receiver = &line["fetched"][0];
    assert_eq!((&receiver["outcome"], &receiver["times"]), (&"whole".into(), &1.into()), "{line}");
    let node = env.receiver.tow(["status", "--json"]).end().with(0).events()[0]["node"].clone();
    assert_eq!(receiver["node"], node);
    env.sender.tow(["done", line["oid"].as_str().unwrap()]).end().with(0);
    let told = env.receiver.tow(["ls"]).end().with(0).text();
    assert!(told.contains("passed on of peer") && told.contains("(by the daemon)"), "{told}");
    drop(longer);
}

fn what_the_sender_fetches_itself_does_not_end_a_share_for_one() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 3 << 20);
    let (share, ticket) = share_with(&env, &["--once"]);
    env.sender.get(&ticket, "own").end().summary();
    env.receiver.get(&ticket, "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    share.end().with(0);
}
