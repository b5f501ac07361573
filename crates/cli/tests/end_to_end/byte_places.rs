//! A daemon that keeps its own bytes elsewhere: in a bucket of a real server of object storage, or on another disk.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::environment::{LOOPBACK, Machine, Running, TestEnvironment, WAIT_LIMIT, first_line, soon};
use crate::machinery::{Mounted, tool};
use crate::runner::situations;
use crate::trees::{PIECE, bytes};

situations![
    a_killed_daemon_serves_what_it_put_into_a_bucket,
    what_came_for_an_application_is_kept_in_the_bucket,
    what_nobody_holds_any_more_leaves_the_bucket,
    a_bucket_that_denies_is_named_and_its_keys_are_not,
    a_place_of_another_daemon_is_refused,
    a_place_that_is_lost_is_named_and_nothing_is_forgotten,
    what_was_changed_in_the_place_is_never_delivered,
    a_full_place_takes_no_more_and_keeps_what_it_has,
];

/// Lines in which a server says that it is there.
const MAX_LINES: usize = 200;
pub(crate) const SECRET: &str = "not-to-be-shown";

/// A server of object storage with an empty bucket.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    child: Child,
}

impl Server {
    pub(crate) fn start(env: &TestEnvironment) -> Self {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools/versitygw");
        let program = if kept.exists() { kept } else { tool("versitygw") };
        let folder = env.dir().join("buckets");
        fs::create_dir_all(folder.join("bytes")).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut child = Command::new(program)
            .env("ROOT_ACCESS_KEY", "test")
            .env("ROOT_SECRET_KEY", SECRET)
            .args(["--port", &address, "posix"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let is_there = (0..MAX_LINES).any(|_| {
            line.clear();
            lines.read_line(&mut line).is_ok() && line.contains(&address)
        });
        assert!(is_there, "the server does not say that it listens");
        // What else it says is taken, so that it does not block.
        std::thread::spawn(move || drop(lines.read_to_end(&mut Vec::new())));
        Self { url: format!("http://{address}"), folder, child }
    }

    /// A configuration with the bucket for place, and keys in a file.
    fn configuration(&self, machine: &Machine, prefix: &str) -> String {
        self.configuration_with(machine, prefix, SECRET)
    }

    fn configuration_with(&self, machine: &Machine, prefix: &str, secret: &str) -> String {
        let keys = keys(machine, secret);
        format!(
            "[store]\nbytes = \"s3://bytes/{prefix}\"\nbytes_endpoint = \"{}\"\nbytes_credentials = \"{}\"\n",
            self.url,
            keys.display()
        )
    }

    /// Objects in the bucket below a prefix.
    fn objects(&self, prefix: &str) -> usize {
        let objects = self.folder.join("bytes").join(prefix).join("objects");
        fs::read_dir(objects).map_or(0, Iterator::count)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file with keys.
pub(crate) fn keys(machine: &Machine, secret: &str) -> PathBuf {
    let keys = machine.home("keys");
    let _ = fs::remove_file(&keys);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&keys);
    let text = format!("[default]\naws_access_key_id = test\naws_secret_access_key = {secret}\n");
    file.unwrap().write_all(text.as_bytes()).unwrap();
    keys
}

/// Puts a stream into the machine's daemon; returns its ticket.
fn put_stream(machine: &Machine, data: &[u8]) -> String {
    let (reader, mut writer) = pipe().unwrap();
    let mut put = machine.tow(["put", "-", "--listen", LOOPBACK]).input(reader).start();
    let ticket = put.ticket();
    writer.write_all(data).unwrap();
    drop(writer);
    put.end().with(0);
    ticket
}

/// Bytes on the machine's own disk that belong to objects.
fn local_bytes(machine: &Machine) -> u64 {
    let objects = fs::read_dir(machine.home("data/objects")).unwrap();
    objects.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// A daemon that is to fail with this status; what it says.
fn failed_start(machine: &Machine, code: i32) -> String {
    machine.tow(["daemon", "--listen", LOOPBACK]).end().with(code).err
}

fn a_killed_daemon_serves_what_it_put_into_a_bucket() {
    let env = TestEnvironment::new();
    let server = Server::start(&env);
    let configuration = server.configuration(&env.sender, "one");
    let daemon = env.sender.daemon_with(&configuration);
    let (large, small) = (bytes(1, 90 * PIECE + 1234), bytes(2, 70_000));
    let tickets = [put_stream(&env.sender, &large), put_stream(&env.sender, &small)];
    assert_eq!((server.objects("one"), local_bytes(&env.sender)), (2, 0));
    daemon.kill();
    let _daemon = env.sender.daemon_with(&configuration);
    for (ticket, expected) in tickets.iter().zip([&large, &small]) {
        let got = env.receiver.tow(["get", ticket, "-o", "-"]).end().with(0).out;
        assert!(got == **expected, "{} of {} bytes, or others", got.len(), expected.len());
    }
    env.receiver.get(&tickets[0], "file").end().summary();
    assert!(fs::read(env.receiver.path("file")).unwrap() == large);
}

fn what_came_for_an_application_is_kept_in_the_bucket() {
    let env = TestEnvironment::new();
    let server = Server::start(&env);
    let sending = env.sender.daemon();
    let _receiving = env.receiver.daemon_with(&server.configuration(&env.receiver, "cache"));
    let data = bytes(1, 20 * PIECE + 5);
    fs::write(env.sender.path("file"), &data).unwrap();
    let ticket = first_line(&env.sender.tow(["put", "file"]).end().with(0).out).unwrap();
    assert!(env.receiver.tow(["get", &ticket, "-o", "-"]).end().with(0).out == data);
    // It is kept after the application has it.
    let kept = soon(WAIT_LIMIT, || (server.objects("cache") == 1).then_some(()));
    assert!(kept.is_some() && local_bytes(&env.receiver) == 0);
    sending.kill();
    // Without its sender, it can come from nowhere else.
    assert!(env.receiver.tow(["get", &ticket, "-o", "-"]).end().with(0).out == data);
}

fn what_nobody_holds_any_more_leaves_the_bucket() {
    let env = TestEnvironment::new();
    let server = Server::start(&env);
    let _daemon =
        env.sender.daemon_with(&format!("{}cache = 0\n", server.configuration(&env.sender, "gone")));
    let tickets = [put_stream(&env.sender, &bytes(1, 500_000)), put_stream(&env.sender, &bytes(2, 500_000))];
    env.sender.tow(["gc"]).end().with(0);
    assert_eq!(server.objects("gone"), 2, "they are held");
    env.sender.tow(["done", &tickets[0]]).end().with(0);
    env.sender.tow(["gc"]).end().with(0);
    assert_eq!(server.objects("gone"), 1);
    assert!(env.receiver.tow(["get", &tickets[1], "-o", "-"]).end().with(0).out == bytes(2, 500_000));
}

fn a_bucket_that_denies_is_named_and_its_keys_are_not() {
    let env = TestEnvironment::new();
    let server = Server::start(&env);
    let wrong = "another-secret";
    env.sender.configure(&server.configuration_with(&env.sender, "one", wrong));
    let said = failed_start(&env.sender, 1);
    assert!(
        said.contains("s3://bytes/one refuses access") && said.contains("check the credentials"),
        "{said}"
    );
    assert!(!said.contains(wrong), "{said}");
    // Without keys it is told which are missing, and with those of the environment it starts.
    let configuration = server.configuration(&env.sender, "one");
    env.sender.configure(&configuration.lines().take(3).map(|line| format!("{line}\n")).collect::<String>());
    let said = failed_start(&env.sender, 2);
    assert!(said.contains("AWS_ACCESS_KEY_ID"), "{said}");
    let call = env.sender.tow(["daemon", "--listen", LOOPBACK]);
    let call = call.variable("AWS_ACCESS_KEY_ID", "test").variable("AWS_SECRET_ACCESS_KEY", SECRET);
    let daemon: Running = env.sender.daemon_of(call.variable("TOW_LOG", "trace"));
    put_stream(&env.sender, &bytes(1, 100_000));
    assert!(!daemon.error_text().contains(SECRET), "no secret is logged");
    assert!(!env.sender.tow(["daemon", "--check-config"]).end().with(0).text().contains(SECRET));
}

fn a_place_of_another_daemon_is_refused() {
    let env = TestEnvironment::new();
    let place = env.dir().join("disk");
    let configuration = format!("[store]\nbytes = \"{}\"\n", place.display());
    let _daemon = env.sender.daemon_with(&configuration);
    put_stream(&env.sender, &bytes(1, 100_000));
    env.stranger.configure(&configuration);
    let said = failed_start(&env.stranger, 1);
    assert!(said.contains("belongs to another store") && said.contains("of its own"), "{said}");
}

fn a_place_that_is_lost_is_named_and_nothing_is_forgotten() {
    let env = TestEnvironment::new();
    let (place, away) = (env.dir().join("disk"), env.dir().join("away"));
    let configuration = format!("[store]\nbytes = \"{}\"\n", place.display());
    let daemon = env.sender.daemon_with(&configuration);
    let data = bytes(1, 3 * PIECE);
    let ticket = put_stream(&env.sender, &data);
    assert_eq!(local_bytes(&env.sender), 0);
    daemon.kill();
    fs::rename(&place, &away).unwrap();
    let said = failed_start(&env.sender, 1);
    assert!(said.contains("is not there") && said.contains("mount the disk"), "{said}");
    // It moved, and the configuration says so.
    let _daemon = env.sender.daemon_with(&format!("[store]\nbytes = \"{}\"\n", away.display()));
    assert!(env.receiver.tow(["get", &ticket, "-o", "-"]).end().with(0).out == data);
}

fn what_was_changed_in_the_place_is_never_delivered() {
    let env = TestEnvironment::new();
    let server = Server::start(&env);
    let _daemon = env.sender.daemon_with(&server.configuration(&env.sender, "changed"));
    let data = bytes(1, 3 * PIECE);
    let ticket = put_stream(&env.sender, &data);
    let objects = fs::read_dir(server.folder.join("bytes/changed/objects")).unwrap();
    for object in objects {
        let path = object.unwrap().path();
        let mut changed = fs::read(&path).unwrap();
        changed[300_000] ^= 1;
        fs::write(path, changed).unwrap();
    }
    env.receiver.tow(["get", "--timeout", "3", &ticket, "-o", "got"]).end().with(1);
    assert!(!env.receiver.path("got").exists());
}

fn a_full_place_takes_no_more_and_keeps_what_it_has() {
    let env = TestEnvironment::new();
    let disk = env.dir().join("disk");
    let _mounted = Mounted::tmpfs(&disk, "size=2m");
    let place = disk.join("bytes");
    let _daemon = env.sender.daemon_with(&format!("[store]\nbytes = \"{}\"\n", place.display()));
    let small = bytes(1, 2 * PIECE);
    let ticket = put_stream(&env.sender, &small);
    let large = env.sender.path("large");
    fs::write(&large, bytes(2, 20 * PIECE)).unwrap();
    let input = fs::File::open(&large).unwrap();
    let ended = env.sender.tow(["put", "-", "--listen", LOOPBACK]).input(input).end().with(1);
    assert!(ended.err.contains("is full") && ended.err.contains("make room there"), "{}", ended.err);
    assert!(env.receiver.tow(["get", &ticket, "-o", "-"]).end().with(0).out == small);
    put_stream(&env.sender, &bytes(3, PIECE));
}
