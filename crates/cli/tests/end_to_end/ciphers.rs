//! Plain `ssh` is asked for AES-GCM once the other machine is known to have instructions for it, unless somebody
//! configured ciphers. Through a real sshd, with an `ssh` in `PATH` that writes down what was negotiated.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::environment::TestEnvironment;
use crate::machinery::tool;
use crate::runner::situations;
use crate::sshd::{HOST, Route, Way};
use crate::trees::{assert_same, file};

situations![
    the_quick_cipher_is_taken_from_the_second_copy_on,
    who_configured_ciphers_keeps_them,
    a_command_that_starts_ssh_for_the_daemon_takes_the_quick_cipher_too,
];

/// Ciphers of a copy, as ssh tells of them.
fn negotiated(env: &TestEnvironment, route: &Route<'_>, to: &str, flags: &[&str]) -> String {
    let bin = env.dir().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let (log, script) = (env.dir().join("ssh.log"), bin.join("ssh"));
    let real = format!("{} -v -E '{}'", tool("ssh").display(), log.display());
    let configured = route.sshd.as_ref().unwrap().rsh().replace("ssh -F", &format!("{real} -F"));
    fs::write(&script, format!("#!/bin/sh\nexec {configured} \"$@\"\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&log, b"").unwrap();
    let to = format!("{HOST}:{}", env.receiver.path(to).display());
    let words = ["cp", "--via", "ssh", "--tow-path", &route.other().remote_tow(&route.program), "file", &to];
    let path = format!("{}:/usr/bin:/bin", bin.display());
    env.sender.tow(words.iter().chain(flags)).variable("PATH", &path).end().with(0);
    let log = fs::read_to_string(log).unwrap();
    let lines = log.lines().filter_map(|line| line.split_once("kex: server->client cipher: "));
    let ciphers: Vec<&str> = lines.filter_map(|(_, rest)| rest.split_whitespace().next()).collect();
    assert_eq!(ciphers.len(), 1, "one connection: {log}");
    ciphers[0].to_owned()
}

fn prepared() -> TestEnvironment {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 100_000);
    env
}

/// True if this machine, which is both, has the instructions.
fn has_aes() -> bool {
    fs::read_to_string("/proc/cpuinfo").unwrap().split_whitespace().any(|word| word == "aes")
}

fn the_quick_cipher_is_taken_from_the_second_copy_on() {
    let env = prepared();
    let route = Route::new(&env, Way::Push);
    let first = negotiated(&env, &route, "first", &[]);
    let second = negotiated(&env, &route, "second", &[]);
    assert_eq!(second, if has_aes() { "aes128-gcm@openssh.com".into() } else { first });
    assert_same(&env.sender.path("file"), &env.receiver.path("second"));
}

fn a_command_that_starts_ssh_for_the_daemon_takes_the_quick_cipher_too() {
    let env = prepared();
    let (route, _daemon) = (Route::new(&env, Way::Push), env.sender.daemon());
    let first = negotiated(&env, &route, "first", &["--by-daemon"]);
    let second = negotiated(&env, &route, "second", &["--by-daemon"]);
    assert_eq!(second, if has_aes() { "aes128-gcm@openssh.com".into() } else { first });
    assert_same(&env.sender.path("file"), &env.receiver.path("second"));
    route.sshd.as_ref().unwrap().configure_client("Ciphers aes256-ctr,aes128-gcm@openssh.com");
    assert_eq!(negotiated(&env, &route, "third", &["--by-daemon"]), "aes256-ctr");
}

fn who_configured_ciphers_keeps_them() {
    let env = prepared();
    let route = Route::new(&env, Way::Push);
    negotiated(&env, &route, "first", &[]);
    route.sshd.as_ref().unwrap().configure_client("Ciphers aes256-ctr,aes128-gcm@openssh.com");
    assert_eq!(negotiated(&env, &route, "second", &[]), "aes256-ctr");
}
