//! Rendezvous servers that share their entries through real servers of NATS: who speaks to one is found at another, and any may die.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::anywhere::{configuration, share_by_code, without, wrong};
use crate::environment::{LOOPBACK, Machine, Running, TestEnvironment, first_line};
use crate::machinery::tool;
use crate::runner::situations;
use crate::trees::{assert_same_bytes, file};

situations![
    a_get_goes_on_when_servers_of_both_kinds_die,
    who_comes_after_a_server_died_is_found_at_once,
    a_code_of_one_server_is_good_for_one_guess_at_any,
    servers_speak_to_nats_by_tls_and_believe_no_other_certificate,
    a_server_that_reaches_no_other_says_so_and_serves,
    what_is_no_cluster_is_refused_in_words,
];

/// Servers of NATS that know each other, and want a login.
struct Nats {
    addresses: Vec<SocketAddr>,
    running: Vec<Child>,
}

impl Nats {
    fn start(env: &TestEnvironment, count: usize) -> Self {
        Self::start_with(env, count, "")
    }

    /// With more in their configuration.
    fn start_with(env: &TestEnvironment, count: usize, more: &str) -> Self {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools/nats-server");
        let program = if kept.exists() { kept } else { tool("nats-server") };
        // Held all at once, so that they differ.
        let ports: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let mut addresses: Vec<_> = ports.iter().map(|port| port.local_addr().unwrap()).collect();
        drop(ports);
        let routes = addresses.split_off(count);
        let all: Vec<String> = routes.iter().map(|route| format!("\"nats://{route}\"")).collect();
        let run = |(address, route): (&SocketAddr, &SocketAddr)| {
            let path = env.dir().join(format!("nats-{}.conf", address.port()));
            let text = format!(
                "listen: \"{address}\"\nmax_payload: 65536\nauthorization {{ user: tow, password: secret }}\n\
                 cluster {{ name: test, listen: \"{route}\", routes: [{}] }}\n{more}\n",
                all.join(", ")
            );
            fs::write(&path, text).unwrap();
            let mut command = Command::new(&program);
            command.arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let running = addresses.iter().zip(&routes).map(run).collect();
        Self { addresses, running }
    }

    fn kill(&mut self, number: usize) {
        let _ = self.running[number].kill();
        let _ = self.running[number].wait();
    }

    /// All addresses, this one first.
    fn place(&self, first: usize) -> String {
        let count = self.addresses.len();
        let all = (first..first + count).map(|number| format!("nats://{}", self.addresses[number % count]));
        all.collect::<Vec<_>>().join(",")
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|number| self.kill(number));
    }
}

/// Three servers of each kind.
struct Cluster {
    nats: Nats,
    servers: Vec<Running>,
    places: Vec<String>,
}

impl Cluster {
    fn start(env: &TestEnvironment) -> Self {
        let nats = Nats::start(env, 3);
        let login = login(env);
        let mut servers: Vec<Running> = (0..3)
            .map(|number| {
                let words = ["rendezvous", "--listen", LOOPBACK, "--cluster", &nats.place(number)];
                let login = ["--cluster-login", login.to_str().unwrap()];
                env.machine(&format!("server-{number}")).tow(words.iter().chain(&login)).start()
            })
            .collect();
        let mut places = Vec::new();
        for server in &mut servers {
            places.push(server.wait_until("its place", |server| first_line(&server.output())));
            server.wait_until("shares", |server| server.error_text().contains("are shared").then_some(()));
        }
        Self { nats, servers, places }
    }

    /// This machine knows these of the servers.
    fn name(&self, machine: &Machine, numbers: &[usize]) {
        let places: Vec<&str> = numbers.iter().map(|number| self.places[*number].as_str()).collect();
        machine.configure(&configuration(&places.join("\", \"")));
    }
}

/// The file with the login.
fn login(env: &TestEnvironment) -> PathBuf {
    let login = env.dir().join("login");
    let private = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&login);
    std::io::Write::write_all(&mut private.unwrap(), b"tow:secret\n").unwrap();
    login
}

/// A certificate of its own for the loopback, and its key.
fn certificate(env: &TestEnvironment) -> [PathBuf; 2] {
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| env.dir().join(name));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=nats \
                 -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -out";
    let mut command = Command::new(tool("openssl"));
    command.args(words.split_whitespace()).arg(&certificate).arg("-keyout").arg(&key);
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
    [certificate, key]
}

fn share(machine: &Machine, words: &[&str]) -> (Running, String) {
    let fixed = ["share", "--json", "--listen", LOOPBACK, "file"];
    let mut sharing = machine.tow(fixed.iter().chain(words)).start();
    // Neither address nor server: what the configuration names is all that is left.
    let ticket = without(&without(&sharing.ticket(), "tow"), "meet");
    (sharing, ticket)
}

fn a_get_goes_on_when_servers_of_both_kinds_die() {
    let env = TestEnvironment::new();
    let mut cluster = Cluster::start(&env);
    let (sender, receiver, size) = (&env.sender, &env.receiver, 24 << 20);
    cluster.name(sender, &[0]);
    cluster.name(receiver, &[2]);
    file(&sender.path("file"), 1, size);
    let (_sharing, ticket) = share(sender, &["--limit-rate", "4M"]);
    let mut getting = receiver.get(&ticket, "file").start();
    getting.wait_for_bytes(size / 8);
    // That of the receiver's server, then that of the sender's.
    cluster.nats.kill(2);
    getting.wait_for_bytes(size / 4);
    cluster.servers.remove(0).kill();
    let late = env.machine("late");
    cluster.name(&late, &[1]);
    let also = late.get(&ticket, "file").start();
    getting.end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    // It came when the server that the sender speaks to was gone: the others know what was said there.
    also.end().summary();
    assert_same_bytes(&sender.path("file"), &late.path("file"));
}

fn who_comes_after_a_server_died_is_found_at_once() {
    let env = TestEnvironment::new();
    let mut cluster = Cluster::start(&env);
    let (sender, receiver) = (&env.sender, &env.receiver);
    cluster.name(sender, &[0, 1]);
    cluster.name(receiver, &[2]);
    file(&sender.path("file"), 1, 1 << 20);
    for killed in ["NATS", "rendezvous"] {
        match killed {
            "NATS" => cluster.nats.kill(0),
            _ => cluster.servers.remove(0).kill(),
        }
        let begun = Instant::now();
        let (sharing, ticket) = share(sender, &[]);
        receiver.get(&ticket, killed).end().summary();
        eprintln!(
            "one of three servers ({killed}) killed: shared, found and fetched after {:?}",
            begun.elapsed()
        );
        assert_same_bytes(&sender.path("file"), &receiver.path(killed));
        drop(sharing);
    }
}

fn a_code_of_one_server_is_good_for_one_guess_at_any() {
    let env = TestEnvironment::new();
    let mut cluster = Cluster::start(&env);
    let (sender, receiver, stranger) = (&env.sender, &env.receiver, &env.stranger);
    cluster.name(sender, &[0]);
    cluster.name(receiver, &[1]);
    cluster.name(stranger, &[2]);
    file(&sender.path("file"), 1, 1 << 20);
    let (mut sharing, code) = share_by_code(sender, &[]);
    // A guess at the third server makes the code void at the second.
    let guess = stranger.get(&wrong(&code), "file").end().failure();
    assert!(guess["message"].as_str().unwrap().contains("the code is wrong"), "{guess}");
    let renewed = sharing.wait_until("shows a new code", |sharing| {
        String::from_utf8(sharing.output()).unwrap().lines().nth(1).map(str::to_owned)
    });
    let void = receiver.get(&code, "file").end().failure();
    assert!(!receiver.path("file").exists(), "{void}");
    // If its number is that of the new one, this was a guess, too.
    let is_same = renewed.split('-').next() == code.split('-').next();
    let renewed = sharing.wait_until("shows the code that is good", |sharing| {
        String::from_utf8(sharing.output()).unwrap().lines().nth(1 + usize::from(is_same)).map(str::to_owned)
    });
    cluster.nats.kill(0);
    receiver.get(&renewed, "file").end().summary();
    assert_same_bytes(&sender.path("file"), &receiver.path("file"));
    let spent = stranger.get(&renewed, "file").end().failure();
    assert!(spent["message"].as_str().unwrap().contains("nobody waits"), "{spent}");
}

fn servers_speak_to_nats_by_tls_and_believe_no_other_certificate() {
    let env = TestEnvironment::new();
    let [certificate, key] = certificate(&env);
    let nats = Nats::start_with(&env, 1, &format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}"));
    let (place, login) = (nats.place(0).replace("nats://", "tls://"), login(&env));
    let run = |name: &str| {
        let words = ["rendezvous", "--listen", LOOPBACK, "--cluster", &place, "--cluster-login"];
        env.machine(name).tow(words.iter().copied().chain([login.to_str().unwrap()]))
    };
    file(&env.sender.path("file"), 1, 1 << 20);
    let mut servers = Vec::new();
    for machine in [&env.sender, &env.receiver] {
        let call = run(&format!("server-{}", servers.len()));
        let mut server = call.variable("SSL_CERT_FILE", certificate.to_str().unwrap()).start();
        let place = server.wait_until("its place", |server| first_line(&server.output()));
        server.wait_until("shares", |server| server.error_text().contains("are shared").then_some(()));
        machine.configure(&configuration(&place));
        servers.push(server);
    }
    let (_sharing, ticket) = share(&env.sender, &[]);
    env.receiver.get(&ticket, "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    // One that does not know the certificate; and one to whom a server says that it has none.
    let bare = Nats::start(&env, 1).place(0).replace("nats://", "tls://");
    for (place, why) in [(&place, "certificate"), (&bare, "tls")] {
        let words = ["rendezvous", "--listen", LOOPBACK, "--cluster", place, "--cluster-login"];
        let stranger = env.machine("stranger").tow(words.iter().copied().chain([login.to_str().unwrap()]));
        stranger.start().wait_until("says why", |stranger| {
            let said = stranger.error_text().to_lowercase();
            (said.contains("entries are not shared") && said.contains(why)).then_some(())
        });
    }
}

fn a_server_that_reaches_no_other_says_so_and_serves() {
    let env = TestEnvironment::new();
    let words = ["rendezvous", "--listen", LOOPBACK, "--cluster", "nats://127.0.0.1:1"];
    let mut server = env.machine("server").tow(words).start();
    let place = server.wait_until("its place", |server| first_line(&server.output()));
    server.wait_until("says why", |server| {
        let said = server.error_text();
        (said.contains("entries are not shared") && said.contains("refused")).then_some(())
    });
    file(&env.sender.path("file"), 1, 1 << 20);
    for machine in [&env.sender, &env.receiver] {
        machine.configure(&configuration(&place));
    }
    let (_sharing, ticket) = share(&env.sender, &[]);
    env.receiver.get(&ticket, "file").end().summary();
}

fn what_is_no_cluster_is_refused_in_words() {
    let env = TestEnvironment::new();
    let readable = env.dir().join("login");
    fs::write(&readable, "tow:secret").unwrap();
    let readable = readable.to_str().unwrap();
    let rows: [(&[&str], &str); 4] = [
        (&["http://127.0.0.1"], "nats://HOST:PORT"),
        (&["nats://tow:secret@127.0.0.1"], "everybody on this machine sees"),
        (&["nats://127.0.0.1", "--cluster-login", readable], "chmod"),
        (&["nats://127.0.0.1", "--cluster-login", "/nonexistent"], "/nonexistent"),
    ];
    for (words, expected) in rows {
        let fixed = ["rendezvous", "--json", "--listen", LOOPBACK, "--cluster"];
        let failure = env.sender.tow(fixed.iter().chain(words)).end().failure_with(2);
        let message = failure["message"].as_str().unwrap();
        assert!(message.contains(expected) && !message.contains("secret"), "{message}");
    }
}
