//! Files on plain web servers: published ones, and mirrors beside a sender.

use std::fs;
use std::path::Path;

use crate::environment::{LOOPBACK, Running, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, file};
use crate::web_server::WebServer;

situations![
    a_published_file_comes_from_a_web_server_alone,
    without_encryption_the_contents_name_is_needed,
    an_interrupted_get_from_the_web_goes_on,
    a_server_without_ranges_will_do,
    a_mirror_helps_a_slow_sender_and_may_die,
    a_mirror_brings_the_rest_when_the_sender_dies,
    a_folder_on_a_web_server_helps_with_a_tree,
    a_mirror_with_another_version_spoils_nothing,
    a_ticket_cannot_have_this_network_asked,
    an_encrypted_way_is_not_left_for_another,
    an_older_version_spares_what_it_has,
    a_token_in_a_url_is_sent_and_never_shown,
];

const SIZE: u64 = 12 << 20;

/// A file on a web server, published; the id of its content.
fn publish(env: &TestEnvironment, size: u64) -> String {
    let path = env.sender.path("www/file");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    file(&path, 1, size);
    env.sender.tow(["publish", "www/file"]).end().text().trim().to_owned()
}

fn assert_arrived(env: &TestEnvironment) {
    assert_same_bytes(&env.sender.path("www/file"), &env.receiver.path("file"));
}

/// A sender with a slow line, and its ticket.
fn slow_share(env: &TestEnvironment, path: &str) -> (Running, String) {
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "--limit-rate", "2M", path]).start();
    let ticket = share.ticket();
    (share, ticket)
}

fn a_published_file_comes_from_a_web_server_alone() {
    for size in [0, 100, 300_000, SIZE] {
        let env = TestEnvironment::new();
        publish(&env, size);
        let server = WebServer::nginx(&env.sender.path("www"), 0);
        let get = env.receiver.tow(["get", "--json", &server.tls_url("file.tow")]);
        let summary = get.variable("SSL_CERT_FILE", &server.certificate()).end().summary();
        assert_arrived(&env);
        assert_eq!(summary.from("mirror"), size);
        let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
        assert_eq!(modified(&env.sender.path("www/file")), modified(&env.receiver.path("file")));
    }
}

fn without_encryption_the_contents_name_is_needed() {
    let env = TestEnvironment::new();
    let oid = publish(&env, 1000);
    let server = WebServer::nginx(&env.sender.path("www"), 0);
    let refused = env.receiver.tow(["get", "--json", &server.url("file.tow")]).end().failure();
    assert!(refused["message"].as_str().unwrap().contains("without encryption"), "{refused}");
    let not_trusted = env.receiver.tow(["get", "--json", &server.tls_url("file.tow")]).end().failure();
    assert!(not_trusted["message"].as_str().unwrap().contains("certificate"), "{not_trusted}");
    let other = format!("blake3:{}", "7".repeat(64));
    let other =
        env.receiver.tow(["get", "--json", &other, "--from", &server.url("file.tow")]).end().failure();
    assert!(other["message"].as_str().unwrap().contains("names other content"), "{other}");
    env.receiver.tow(["get", "--json", &oid, "--from", &server.url("file.tow")]).end().summary();
    assert_arrived(&env);
}

fn a_token_in_a_url_is_sent_and_never_shown() {
    let env = TestEnvironment::new();
    publish(&env, SIZE);
    let (_share, ticket) = slow_share(&env, "www/file");
    let server = WebServer::nginx(&env.sender.path("www"), 0);
    // Capitals mean the same.
    let url = |name: &str| {
        format!("{}?token=S3cret", server.tls_url(name).replace("https://localhost", "HTTPS://LocalHost"))
    };
    let get = |name: &str, words: &[&str]| {
        let call = env.receiver.tow([&["get", "--json", "-o", name], words].concat());
        let call = call.variable("SSL_CERT_FILE", &server.certificate()).variable("TOW_LOG", "trace");
        let ended = call.end();
        for text in [ended.text(), ended.err.clone()] {
            let shown = text.lines().find(|line| line.contains("S3cret"));
            assert_eq!(shown, None, "{words:?}");
        }
        ended
    };
    let alone = get("alone", &[&url("file.tow")]);
    assert!(alone.err.contains("TRACE"), "it tells much: {}", alone.err);
    assert_eq!(alone.summary().from("mirror"), SIZE);
    assert!(get("both", &[&ticket, "--from", &url("file")]).summary().from("mirror") > SIZE / 10);
    assert!(server.log().lines().filter(|line| line.contains("/file?token=S3cret")).count() > 1);
    get("wrong", &[&url("missing.tow")]).failure();
    get("no-tow", &[&url("file")]).failure_with(2);
    get("user", &[&url("file.tow").replace("LocalHost", "me:S3cret@LocalHost")]).failure_with(2);
}

fn an_interrupted_get_from_the_web_goes_on() {
    let env = TestEnvironment::new();
    let oid = publish(&env, SIZE);
    // Four connections of 1 MiB a second.
    let server = WebServer::nginx(&env.sender.path("www"), 1 << 20);
    let words = ["get", "--json", &oid, "--from", &server.url("file.tow")];
    let mut first = env.receiver.tow(words).start();
    first.wait_for_bytes(SIZE / 3);
    first.kill();
    let summary = env.receiver.tow(words).end().summary();
    assert_arrived(&env);
    assert!(summary.from("mirror") <= SIZE - SIZE / 4, "{:?}", summary.from("mirror"));
}

fn a_server_without_ranges_will_do() {
    let env = TestEnvironment::new();
    let oid = publish(&env, SIZE);
    let server = WebServer::without_ranges(&env.sender.path("www"));
    let words = ["get", "--json", &oid, "--from", &server.url("file.tow")];
    assert_eq!(env.receiver.tow(words).end().summary().from("mirror"), SIZE);
    assert_arrived(&env);
}

fn a_mirror_helps_a_slow_sender_and_may_die() {
    let env = TestEnvironment::new();
    publish(&env, SIZE);
    let (_share, ticket) = slow_share(&env, "www/file");
    let server = WebServer::nginx(&env.sender.path("www"), 1 << 20);
    let mut get = env.receiver.tow(["get", "--json", &ticket, "--from", &server.url("file")]).start();
    get.wait_for_bytes(SIZE / 3);
    server.kill();
    let summary = get.end().summary();
    assert_arrived(&env);
    assert!(summary.from("mirror") > SIZE / 10, "{:?}", summary.from("mirror"));
    assert!(summary.from("peer") > SIZE / 10, "{:?}", summary.from("peer"));
}

fn a_mirror_brings_the_rest_when_the_sender_dies() {
    let env = TestEnvironment::new();
    publish(&env, SIZE);
    let (share, ticket) = slow_share(&env, "www/file");
    let server = WebServer::nginx(&env.sender.path("www"), 1 << 20);
    let mut get = env.receiver.tow(["get", "--json", &ticket, "--from", &server.url("file")]).start();
    get.wait_for_bytes(SIZE / 3);
    share.kill();
    get.end().summary();
    assert_arrived(&env);
}

fn a_folder_on_a_web_server_helps_with_a_tree() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("sub dir")).unwrap();
    file(&tree.join("large"), 1, 4 << 20);
    file(&tree.join("sub dir/with %"), 2, 2 << 20);
    file(&tree.join("sub dir/small"), 3, 20_000);
    let server = WebServer::nginx(&tree, 0);
    let (_share, ticket) = slow_share(&env, "tree");
    let summary = env.receiver.tow(["get", "--json", &ticket, "--from", &server.url("")]).end().summary();
    for name in ["large", "sub dir/with %", "sub dir/small"] {
        assert_same_bytes(&tree.join(name), &env.receiver.path("tree").join(name));
    }
    assert!(summary.from("mirror") > 2 << 20, "{}", summary.from("mirror"));
}

fn a_mirror_with_another_version_spoils_nothing() {
    let env = TestEnvironment::new();
    publish(&env, SIZE);
    let other = env.sender.path("other");
    fs::create_dir_all(&other).unwrap();
    // As long, and something else.
    file(&other.join("file"), 2, SIZE);
    let server = WebServer::nginx(&other, 0);
    let (_share, ticket) = slow_share(&env, "www/file");
    let summary = env.receiver.tow(["get", "--json", &ticket, "--from", &server.url("file")]).end().summary();
    assert_arrived(&env);
    assert_eq!(summary.from("mirror"), 0);
    assert_eq!(summary.from("peer"), SIZE);
}

fn a_ticket_cannot_have_this_network_asked() {
    let env = TestEnvironment::new();
    publish(&env, 1 << 20);
    let server = WebServer::nginx(&env.sender.path("www"), 0);
    let url = server.url("file");
    let words = ["share", "--listen", LOOPBACK, "--mirror", &url, "www/file"];
    let mut share = env.sender.tow(words).start();
    let before = server.answers();
    let ticket = share.ticket();
    let named: towpath_content::Ticket = ticket.parse().unwrap();
    assert!(named.hints.iter().any(|hint| hint.method == url), "the ticket names the mirror");
    let summary = env.receiver.get(&ticket, "file").end().summary();
    assert_eq!(summary.from("mirror"), 0);
    assert_eq!(server.answers(), before, "nobody here named it");
    assert_arrived(&env);
}

fn an_encrypted_way_is_not_left_for_another() {
    let env = TestEnvironment::new();
    let oid = publish(&env, 1 << 20);
    let server = WebServer::nginx(&env.sender.path("www"), 0);
    let trusting = |words: &[&str]| env.receiver.tow(words).variable("SSL_CERT_FILE", &server.certificate());
    let url = server.downgraded_url("file.tow");
    let refused = trusting(&["get", "--json", &oid, "--from", &url]).end().failure();
    assert!(refused["message"].as_str().unwrap().contains("from https to http"), "{refused}");
    // What is not encrypted is left out, and the rest goes on.
    let (_share, ticket) = slow_share(&env, "www/file");
    let (plain, downgraded) = (server.url("file"), server.downgraded_url("file"));
    let words = ["get", "--json", "--require-encryption", &ticket, "--from", &plain, "--from", &downgraded];
    let summary = trusting(&words).end().summary();
    assert_arrived(&env);
    assert_eq!(summary.from("mirror"), 0);
    assert_eq!(summary.from("peer"), 1 << 20);
}

fn an_older_version_spares_what_it_has() {
    let env = TestEnvironment::new();
    let older = env.receiver.path("file-1");
    file(&older, 1, SIZE);
    let mut content = fs::read(&older).unwrap();
    // Longer in the middle, so that all behind it lies elsewhere.
    content.splice(6_000_000..6_001_000, vec![7; 3000]);
    fs::create_dir_all(env.sender.path("www")).unwrap();
    fs::write(env.sender.path("www/file"), content).unwrap();
    let oid = env.sender.tow(["publish", "www/file"]).end().text().trim().to_owned();
    let server = WebServer::nginx(&env.sender.path("www"), 0);
    let words = ["get", "--json", "--limit-rate", "300K", &oid, "--from", &server.url("file.tow")];
    let summary = env.receiver.tow(words).end().summary();
    assert_arrived(&env);
    assert!(summary.from("mirror") < 64 << 10, "{}", summary.from("mirror"));
    assert!(summary.from("older version") > SIZE - (64 << 10), "{}", summary.from("older version"));
}
