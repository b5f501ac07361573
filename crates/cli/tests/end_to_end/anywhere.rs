//! Machines that know no address of each other meet at a rendezvous.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use serde_json::Value;
use towpath_content::{Hint, NodeId, Ticket};
use towpath_standalone::pictures::QrPicture;

use crate::environment::{LOOPBACK, Machine, Running, TOW, TestEnvironment, first_line};
use crate::holders::by_peer;
use crate::machinery::{is_root, tool};
use crate::network::Network;
use crate::runner::situations;
use crate::trees::{assert_same_bytes, file};

situations![
    a_sender_that_moved_is_found_where_it_is_now,
    a_ticket_alone_leads_to_no_private_server,
    what_a_ticket_alone_names_is_not_dialled_on_ones_own_network,
    receivers_that_know_only_the_rendezvous_draw_on_each_other,
    a_daemon_is_found_after_its_restart,
    a_wrong_server_is_refused_in_words,
    a_code_buys_the_ticket_once_and_a_get_goes_on_without_it,
    what_is_put_is_handed_over_by_a_code_and_taken_back_by_it,
    a_ticket_and_a_code_are_drawn_for_a_camera,
    a_wrong_code_is_void_and_a_new_one_is_shown,
    people_compare_words_before_the_ticket_goes,
    who_leaves_while_words_are_compared_leaves_the_code_as_it_is,
    a_code_that_nobody_can_come_with_is_none,
    what_is_said_of_a_relay_is_refused_where_there_is_none,
    a_share_by_a_code_for_one_receiver_ends_by_itself,
    a_code_waits_on_where_its_server_begins_anew,
    a_code_is_enough_on_one_network,
    who_guesses_codes_is_told_of_and_does_not_keep_the_right_one_out,
    codes_on_one_network_have_numbers_of_their_own,
    a_ticket_names_only_addresses_that_others_can_use,
];

/// A rendezvous server, and machines whose configuration names it.
struct Meeting {
    env: TestEnvironment,
    place: String,
    _server: Running,
}

impl Meeting {
    fn new(machines: &[&Machine], env: TestEnvironment) -> Self {
        let mut server = env.machine("server").tow(["rendezvous", "--listen", LOOPBACK]).start();
        let place = server.wait_until("its place", |server| first_line(&server.output()));
        for machine in machines {
            machine.configure(&configuration(&place));
        }
        Self { env, place, _server: server }
    }

    fn of_two() -> Self {
        let env = TestEnvironment::new();
        let (sender, receiver) = (env.machine("sender"), env.machine("receiver"));
        Self::new(&[&sender, &receiver], env)
    }
}

/// Codes of other situations wait on this network, too, and their numbers may be the same.
pub fn configuration(place: &str) -> String {
    format!("[rendezvous]\nservers = [\"{place}\"]\nlan = \"off\"\n")
}

/// A port of the loopback that nothing listens on.
fn free() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn share(machine: &Machine, address: &str, words: &[&str], path: &str) -> Running {
    let fixed = ["share", "--json", "--listen", address];
    machine.tow(fixed.iter().chain(words).chain(&[path])).start()
}

/// The ticket without the hints of this scheme.
pub fn without(ticket: &str, scheme: &str) -> String {
    let mut ticket: Ticket = ticket.parse().unwrap();
    ticket.hints.retain(|hint| hint.scheme() != scheme);
    ticket.to_string()
}

fn a_sender_that_moved_is_found_where_it_is_now() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 3 << 20);
    let mut first = share(sender, &free(), &[], "file");
    let ticket = first.ticket();
    first.kill();
    let mut second = share(sender, &free(), &[], "file");
    second.ticket();
    receiver.get(&ticket, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    receiver.get(&without(&ticket, "tow"), "again").end().summary();
    // A ticket from before there was a rendezvous: the configuration is enough.
    let third = meeting.env.machine("third");
    third.configure(&configuration(&meeting.place));
    third.get(&without(&ticket, "meet"), "file").end().summary();
    assert_same_bytes(&sender.path("file"), &third.path("file"));
    // And one that names nothing at all.
    third.get(&without(&without(&ticket, "meet"), "tow"), "again").end().summary();
}

fn a_ticket_alone_leads_to_no_private_server() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 1 << 20);
    let mut sharing = share(sender, &free(), &[], "file");
    let ticket = without(&sharing.ticket(), "tow");
    receiver.configure("");
    let words = ["get", &ticket, "--timeout", "2", "--json"];
    let failure = receiver.tow(words).end().failure();
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains("rendezvous"), "{message}");
}

fn what_a_ticket_alone_names_is_not_dialled_on_ones_own_network() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1 << 20);
    let bare = without(&share(&env.sender, LOOPBACK, &[], "file").ticket(), "tow");
    let node = NodeId([7; 32]);
    // What a ticket names, and how a person names the same.
    for (scheme, setting) in [("relay", Some("relays")), ("meet", Some("servers")), ("https", None)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let place = if setting.is_some() { format!("{node}@{address}") } else { format!("{address}/file") };
        let mut ticket: Ticket = bare.parse().unwrap();
        ticket.hints.push(Hint::new(format!("{scheme}://{place}"), 0, 1).unwrap());
        let ticket = ticket.to_string();
        let words = ["get", "--json", "--timeout", "1", &ticket, "-o", scheme];
        env.receiver.configure("");
        env.receiver.tow(words).end().failure();
        assert!(listener.accept().is_err(), "{scheme}: it was dialled");
        let url = format!("https://{place}");
        let from: &[&str] = if setting.is_none() { &["--from", &url] } else { &[] };
        let named = setting.map(|name| format!("[rendezvous]\nlan = \"off\"\n{name} = [\"{place}\"]\n"));
        env.receiver.configure(&named.unwrap_or_default());
        let mut getting = env.receiver.tow(words.iter().chain(from)).start();
        getting.wait_until("dials what its person named", |_| listener.accept().ok());
    }
}

fn receivers_that_know_only_the_rendezvous_draw_on_each_other() {
    let meeting = Meeting::of_two();
    let (sender, first, size) = (&meeting.env.sender, &meeting.env.receiver, 24 << 20);
    let second = meeting.env.machine("second");
    second.configure(&configuration(&meeting.place));
    file(&sender.path("file"), 1, size);
    let mut sharing = share(sender, LOOPBACK, &["--limit-rate", "4M"], "file");
    let ticket = without(&sharing.ticket(), "tow");
    let issuer = ticket.parse::<Ticket>().unwrap().node.to_string();
    let mut getting = first.get(&ticket, "file").start();
    getting.wait_for_bytes(size / 2);
    let summary = second.get(&ticket, "file").end().summary();
    getting.end().summary();
    assert_same_bytes(&sender.path("file"), &second.path("file"));
    let from_first: u64 =
        by_peer(&summary).iter().filter(|(node, _)| *node != issuer).map(|(_, bytes)| bytes).sum();
    eprintln!("the second receiver drew {} % from the first", from_first * 100 / size);
    // The first one had half, and draws on the sender, too. 63 to 66 % were measured, 45 on a machine with much else to do.
    assert!(from_first * 3 >= size, "{from_first} of {size}: {}", summary.0);
}

fn a_daemon_is_found_after_its_restart() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 2 << 20);
    let daemon = |address: &str| sender.daemon_of(sender.tow(["daemon", "--listen", address]));
    let first = daemon(&free());
    let put = sender.tow(["put", "file", "--json"]).end();
    let ticket = without(put.with(0).events()[0]["ticket"].as_str().unwrap(), "tow");
    first.kill();
    let second = daemon(&free());
    receiver.get(&ticket, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    drop(second);
}

fn a_wrong_server_is_refused_in_words() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1000);
    env.sender.configure("[rendezvous]\nservers = [\"meet.example.org:4433\"]\n");
    let failure = env.sender.tow(["share", "file", "--json"]).end().failure_with(2);
    assert!(failure["message"].as_str().unwrap().contains("NODE@HOST:PORT"), "{failure}");
    env.sender.configure("");
    let call = env.sender.tow(["share", "file", "--json"]).variable("TOW_RENDEZVOUS", "here");
    let failure = call.end().failure_with(2);
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains("TOW_RENDEZVOUS") && message.contains("'here'"), "{message}");
}

/// A sharing program, and the code that it shows.
pub fn share_by_code(machine: &Machine, words: &[&str]) -> (Running, String) {
    let fixed = ["share", "--listen", LOOPBACK, "--code"];
    let mut sharing = machine.tow(fixed.iter().chain(words).chain(&["file"])).start();
    let code = sharing.wait_until("shows a code", |sharing| first_line(&sharing.output()));
    (sharing, code)
}

fn a_code_buys_the_ticket_once_and_a_get_goes_on_without_it() {
    let meeting = Meeting::of_two();
    let (sender, receiver, size) = (&meeting.env.sender, &meeting.env.receiver, 12 << 20);
    file(&sender.path("file"), 1, size);
    let (_sharing, code) = share_by_code(sender, &["--limit-rate", "4M"]);
    let mut getting = receiver.get(&code, "file").start();
    getting.wait_for_bytes(size / 4);
    getting.kill();
    // The code is spent; what it bought is kept.
    let summary = receiver.get(&code, "file").end().summary();
    assert!(summary.number("kept") > 0, "{}", summary.0);
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    let failure = receiver.get(&code, "again").end().failure();
    assert!(failure["message"].as_str().unwrap().contains("nobody waits"), "{failure}");
    let failure = receiver.get("7-oter-lagoon", "again").end().failure_with(2);
    assert!(failure["message"].as_str().unwrap().contains("did you mean 'otter'"), "{failure}");
}

fn what_is_put_is_handed_over_by_a_code_and_taken_back_by_it() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 3 << 20);
    let refused = sender.tow(["put", "--code", "file"]).end().with(2);
    assert!(refused.err.contains("no daemon runs"), "{}", refused.err);
    let _daemon = sender.daemon();
    sender.tow(["put", "--code", "file", "pass"]).end().with(2);
    let mut putting = sender.tow(["put", "--code", "file"]).start();
    let code = putting.wait_until("shows a code", |putting| first_line(&putting.output()));
    receiver.get(&code, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    let ended = putting.end().with(0);
    assert!(ended.err.contains("the code is spent. Serving until 'tow done'"), "{}", ended.err);
    assert!(!sender.tow(["ls"]).end().with(0).text().is_empty());
    sender.tow(["done", &code.replace('-', " ")]).end().with(0);
    assert_eq!(sender.tow(["ls"]).end().with(0).text(), "");
    sender.tow(["done", &code]).end().with(1);
}

fn a_ticket_and_a_code_are_drawn_for_a_camera() {
    let meeting = Meeting::of_two();
    let sender = &meeting.env.sender;
    file(&sender.path("file"), 1, 1 << 20);
    fs::write(sender.path("small"), [7; 500]).unwrap();
    let drawn = |running: &Running| {
        let text = running.error_text();
        text.lines().filter(|line| !line.contains("tow")).map(str::to_owned).collect::<Vec<_>>()
    };
    let picture = |text: &str| QrPicture::new(text, 80).unwrap().lines();
    let mut sharing = sender.tow(["share", "--listen", LOOPBACK, "--qr", "file"]).start();
    let ticket = sharing.ticket();
    sharing.wait_until("serves", |sharing| sharing.error_text().contains("serving until").then_some(()));
    assert_eq!(drawn(&sharing), picture(&ticket));
    drop(sharing);
    let mut sharing = sender.tow(["share", "--listen", LOOPBACK, "--qr", "--code", "file"]).start();
    let code = sharing.wait_until("shows a code", |sharing| first_line(&sharing.output()));
    let expected = picture(&format!("tow get {code}"));
    let lines = sharing.wait_until("has drawn", |sharing| {
        Some(drawn(sharing)).filter(|lines| lines.len() >= expected.len())
    });
    assert_eq!(lines, expected);
    // What holds the file itself is too long.
    let small = sender.tow(["put", "--qr", "small"]).end().with(0);
    assert!(small.err.contains("no QR picture: "), "{}", small.err);
}

fn a_wrong_code_is_void_and_a_new_one_is_shown() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 1 << 20);
    let (mut sharing, code) = share_by_code(sender, &[]);
    let number = code.split('-').next().unwrap();
    let wrong = if code.ends_with("-otter") { "lagoon" } else { "otter" };
    let failure = receiver.get(&format!("{number}-{wrong}-{wrong}"), "file").end().failure();
    assert!(failure["message"].as_str().unwrap().contains("the code is wrong"), "{failure}");
    let renewed = sharing.wait_until("shows a new code", |sharing| {
        let output = String::from_utf8(sharing.output()).unwrap();
        output.lines().nth(1).map(str::to_owned)
    });
    assert_ne!(renewed, code);
    assert!(sharing.error_text().contains("somebody gave a wrong code"));
    receiver.get(&renewed, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
}

fn people_compare_words_before_the_ticket_goes() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 1 << 20);
    for (answer, succeeds) in [("y\n", true), ("n\n", false)] {
        let words = ["share", "--listen", LOOPBACK, "--code", "--verify", "--words", "3", "file"];
        let mut sharing = sender.tow(words).input_text(answer).start();
        let code = sharing.wait_until("shows a code", |sharing| first_line(&sharing.output()));
        assert_eq!(code.split('-').count(), 4, "{code}");
        let ended = receiver.tow(["get", &code, "-o", answer.trim()]).end();
        assert_eq!(ended.code() == 0, succeeds, "{}", ended.err);
        let shown = |text: &str| {
            let line = text.lines().find(|line| line.contains("end shows"))?;
            Some(line.rsplit(": ").next()?.to_owned())
        };
        let words = sharing.wait_until("shows words", |sharing| shown(&sharing.error_text()));
        assert_eq!(Some(words), shown(&ended.err), "{}", ended.err);
    }
}

/// With `--json`, as a script has it: each end tells the words, and the answer is read.
fn who_leaves_while_words_are_compared_leaves_the_code_as_it_is() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 1 << 20);
    let (answers, mut answer) = std::io::pipe().unwrap();
    let words = ["share", "--listen", LOOPBACK, "--code", "--verify", "--json", "-vv", "file"];
    let mut sharing = sender.tow(words).input(answers).start();
    let code = sharing.wait_until("shows a code", |sharing| events_of(sharing, "code").pop());
    let code = code["code"].as_str().unwrap();
    let compared = |running: &mut Running, times: usize| {
        running.wait_until("shows words", |running| {
            events_of(running, "compare").get(times).map(|event| event["words"].clone())
        })
    };
    let mut leaving = receiver.get(code, "file").start();
    assert_eq!(compared(&mut leaving, 0), compared(&mut sharing, 0));
    leaving.kill();
    // Nobody has to answer what is no question any more.
    sharing.wait_until("says so", |sharing| {
        sharing.error_text().contains("the other end left before that").then_some(())
    });
    let mut getting = receiver.get(code, "file").start();
    assert_eq!(compared(&mut getting, 0), compared(&mut sharing, 1));
    answer.write_all(b"y\n").unwrap();
    getting.end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    assert_eq!((events_of(&sharing, "code").len(), events_of(&sharing, "handed_over").len()), (1, 1));
}

fn a_code_that_nobody_can_come_with_is_none() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1000);
    env.sender.configure("[rendezvous]\nlan = \"off\"\n");
    let failure = env.sender.tow(["share", "--code", "--json", "file"]).end().failure();
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains("no server is configured, and multicast is turned off"), "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("rendezvous.servers"), "{failure}");
    if !is_root() {
        return;
    }
    // A machine that is on no network.
    env.sender.configure("");
    let alone = [tool("unshare").display().to_string(), "-n".into(), TOW.into()];
    let failure = env.sender.tow_as(&alone, ["share", "--code", "--json", "file"]).end().failure();
    assert!(failure["message"].as_str().unwrap().contains("this machine is on no network"), "{failure}");
}

fn what_is_said_of_a_relay_is_refused_where_there_is_none() {
    let env = TestEnvironment::new();
    for words in [["--public", "--json"], ["--node-rate=5M", "--json"], ["--limit-rate=5M", "--json"]] {
        let failure = env.sender.tow(["rendezvous"].iter().chain(&words)).end().failure_with(2);
        assert!(failure["hint"].as_str().unwrap().contains("--relay"), "{failure}");
    }
}

fn a_share_by_a_code_for_one_receiver_ends_by_itself() {
    let meeting = Meeting::of_two();
    let (sender, receiver) = (&meeting.env.sender, &meeting.env.receiver);
    file(&sender.path("file"), 1, 1 << 20);
    let (sharing, code) = share_by_code(sender, &["--once"]);
    receiver.get(&code, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    let ended = sharing.end().with(0);
    assert!(ended.err.contains("1 receiver has all of it: the ticket is taken back"), "{}", ended.err);
}

fn a_code_waits_on_where_its_server_begins_anew() {
    let env = TestEnvironment::new();
    let (sender, receiver, address) = (&env.sender, &env.receiver, free());
    let server = env.machine("server");
    let run = || {
        let mut running = server.tow(["rendezvous", "--listen", &address]).start();
        let place = running.wait_until("its place", |running| first_line(&running.output()));
        (running, place)
    };
    let (running, place) = run();
    // With a second way to come in, by which nobody comes.
    sender.configure(&configuration(&place).replace("off", "on"));
    receiver.configure(&configuration(&place));
    file(&sender.path("file"), 1, 1 << 20);
    let (mut sharing, code) = share_by_code(sender, &["-vv"]);
    running.kill();
    let (_running, again) = run();
    assert_eq!(again, place);
    sharing.wait_until("waits there again", |sharing| {
        sharing.error_text().contains("a mailbox is open again").then_some(())
    });
    receiver.get(&code, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
}

fn a_code_is_enough_on_one_network() {
    let (network, env) = (Network::plain(), TestEnvironment::new());
    file(&env.sender.path("file"), 1, 1 << 20);
    let mut sharing = env.sender.tow_as(&network.left(), ["share", "--code", "file"]).start();
    let code = sharing.wait_until("shows a code", |sharing| first_line(&sharing.output()));
    // What it needs elsewhere is said on a line.
    sharing.wait_until("says what it needs", |sharing| {
        sharing.error_text().contains("between networks both sides name a rendezvous server").then_some(())
    });
    env.receiver.tow_as(&network.right(), ["get", &code, "-o", "file"]).end().with(0);
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
}

/// Guesses by real programs; `TOW_TEST_GUESSES=1000` for as many as that.
const GUESSES: usize = 50;
/// Programs that guess at once.
const AT_ONCE: usize = 16;

/// The code without its last word, which is another one.
pub fn wrong(code: &str) -> String {
    let (rest, last) = code.rsplit_once('-').unwrap();
    format!("{rest}-{}", if last == "otter" { "lagoon" } else { "otter" })
}

/// Events of a share, of this kind.
fn events_of(sharing: &Running, kind: &str) -> Vec<Value> {
    let text = String::from_utf8(sharing.output()).unwrap();
    let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    whole.filter(|event| event["event"] == kind).collect()
}

fn who_guesses_codes_is_told_of_and_does_not_keep_the_right_one_out() {
    let asked = std::env::var("TOW_TEST_GUESSES").ok().and_then(|number| number.parse().ok());
    let guesses = asked.unwrap_or(GUESSES);
    let (network, env) = (Network::plain(), TestEnvironment::new());
    file(&env.sender.path("file"), 1, 1 << 20);
    fs::write(env.sender.path("answer"), "y\n").unwrap();
    let answer = fs::File::open(env.sender.path("answer")).unwrap();
    let mut sharing =
        env.sender.tow_as(&network.left(), ["share", "--code", "--json", "file"]).input(answer).start();
    let guess = |code: &str| env.stranger.tow_as(&network.right(), ["get", code, "-o", "stolen"]);
    // Each of the first voids the code, and the sender shows another one.
    let mut code = String::new();
    for shown in 1..=5 {
        let all = sharing.wait_until("shows a code", |sharing| {
            Some(events_of(sharing, "code")).filter(|codes| codes.len() == shown)
        });
        code = all[shown - 1]["code"].as_str().unwrap().to_owned();
        if shown < 5 {
            let refused = guess(&wrong(&code)).end().with(1);
            assert!(refused.err.contains("the code is wrong"), "{}", refused.err);
        }
    }
    // The fifth is longer, and stays.
    assert_eq!(code.split('-').count(), 4, "{code}");
    let standing = guesses.saturating_sub(4).max(1);
    guess(&wrong(&code)).end().with(1);
    // From the second on each is apart from the others.
    for begun in (1..standing).step_by(AT_ONCE) {
        let running: Vec<_> =
            (begun..standing.min(begun + AT_ONCE)).map(|_| guess(&wrong(&code)).start()).collect();
        for guessing in running {
            let refused = guessing.end().with(1);
            assert!(refused.err.contains("the code is wrong"), "{}", refused.err);
        }
    }
    let told = sharing.wait_until("was told of all", |sharing| {
        Some(events_of(sharing, "wrong_code")).filter(|told| told.len() == standing)
    });
    assert_eq!(told[standing - 1]["wrong"], standing);
    assert!(!env.stranger.path("stolen").exists());
    env.receiver.tow_as(&network.right(), ["get", &code, "-o", "file"]).end().with(0);
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
}

fn codes_on_one_network_have_numbers_of_their_own() {
    let (network, env) = (Network::plain(), TestEnvironment::new());
    file(&env.sender.path("file"), 1, 1 << 20);
    // By chance alone two of so many would have the same one, seven times in ten.
    let mut shares: Vec<Running> = Vec::new();
    let mut numbers = BTreeSet::new();
    for at in 0..15 {
        let machine = if at % 2 == 0 { network.left() } else { network.right() };
        let mut sharing = env.sender.tow_as(&machine, ["share", "--code", "file"]).start();
        let code = sharing.wait_until("shows a code", |sharing| first_line(&sharing.output()));
        let number = code.split('-').next().unwrap().to_owned();
        assert!(numbers.insert(number), "{code}: {numbers:?}");
        shares.push(sharing);
    }
}

fn a_ticket_names_only_addresses_that_others_can_use() {
    let (network, env) = (Network::plain(), TestEnvironment::new());
    file(&env.sender.path("file"), 1, 1 << 20);
    let named = || {
        let mut sharing = env.sender.tow_as(&network.left(), ["share", "file"]).start();
        let ticket: Ticket = sharing.ticket().parse().unwrap();
        let hosts = ticket.hints.iter().map(|hint| hint.rest().rsplit_once(':').unwrap().0.to_owned());
        (ticket.to_string(), hosts.collect::<Vec<_>>(), sharing)
    };
    network.left_ip(&["link", "add", "docker0", "type", "veth", "peer", "name", "inside"]);
    network.left_ip(&["link", "set", "inside", "up"]);
    network.left_ip(&["address", "add", "172.17.0.1/16", "dev", "docker0"]);
    network.left_ip(&["link", "set", "docker0", "up"]);
    let (ticket, hosts, sharing) = named();
    assert_eq!(hosts, ["198.51.100.2"], "{ticket}");
    env.receiver.tow_as(&network.right(), ["get", &ticket, "-o", "file"]).end().with(0);
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    sharing.kill();
    network.left_ip(&["link", "del", "net"]);
    assert_eq!(named().1, ["172.17.0.1"]);
    network.left_ip(&["link", "del", "docker0"]);
    assert_eq!(named().1[0], "127.0.0.1");
}
