//! Every program that is installed carries a file and a tree, with both hosts being this machine: no
//! namespaces, no root.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::data::{DataStore, digest};
use crate::measure::Process;

struct Here;

impl Hosts for Here {
    fn command(&self, _host: &str, program: &OsStr) -> Command {
        Command::new(program)
    }

    fn address(&self, _host: &str) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }

    fn addresses(&self, _host: &str) -> Vec<Ipv4Addr> {
        vec![Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)]
    }
}

/// The program beside this test, which the tests of the whole workspace build.
fn tow() -> Option<PathBuf> {
    let path = env::current_exe().unwrap().parent()?.with_file_name("tow");
    path.exists().then_some(path)
}

fn side(dir: &Path, name: &'static str) -> PlaceSide<'static> {
    let dir = dir.join(name);
    fs::create_dir(&dir).unwrap();
    let tow = Box::leak(tow().unwrap_or_default().into_boxed_path());
    PlaceSide { hosts: &Here, host: name, dir, tow, hidden: Vec::new() }
}

/// True if the program can be tried; in CI, those on which the project itself leans must be there.
fn is_here(program: &dyn Program) -> bool {
    let needs_tow = program.name().starts_with("tow-");
    let is_here = missing(program).is_empty() && (!needs_tow || tow().is_some());
    let is_optional = !needs_tow && !program.name().starts_with("rsync");
    assert!(is_here || is_optional || env::var_os("CI").is_none(), "{} can't be tried", program.name());
    if !is_here {
        eprintln!("skipped: {} is not here", program.name());
    }
    is_here
}

fn carry(program: &dyn Program, line: &str) {
    let dir = tempfile::tempdir().unwrap();
    let data = DataStore::open(&dir.path().join("data")).unwrap().get(line).unwrap();
    let sender = SenderHost { side: side(dir.path(), "sender"), source: &data.source, older: None };
    let side = side(dir.path(), "receiver");
    let destination = side.dir.join("result");
    let older = data.older.as_deref().filter(|_| program.older() == OldVersion::Read);
    if let Some(older) = data.older.as_ref().filter(|_| program.older() == OldVersion::Updated) {
        fs::copy(older, &destination).unwrap();
    }
    let receiver = ReceiverHost { side, destination, older };

    let server = program.serve(&sender).unwrap_or_else(|error| panic!("{}: {error}", program.name()));
    let command = program.receive(&server.contact, &sender, &receiver).unwrap();
    let ended = Process::start(command).unwrap().wait(Duration::from_secs(60));
    let ended = ended.unwrap_or_else(|error| panic!("{} {line}: {error}", program.name()));
    let said: Vec<_> = (fs::read_dir(&receiver.side.dir).unwrap().flatten())
        .filter(|entry| entry.path().extension().is_some_and(|it| it == "err"))
        .map(|entry| end_of(&entry.path()))
        .collect();
    assert!(ended.status.success(), "{} {line}: {said:?}", program.name());
    let served = server.stop().unwrap();
    assert!(served.cpu > Duration::ZERO);
    let found = digest(&receiver.destination).unwrap();
    assert_eq!(found.digest, data.content.digest, "{} {line}", program.name());
    let output = fs::read_to_string(receiver.side.output("tow")).unwrap_or_default();
    let summary = program.summary(&output);
    assert_eq!(summary.is_some(), program.name().starts_with("tow-"), "{summary:?}");
    assert!(summary.is_none_or(|summary| !summary.sources.is_empty()), "{output}");
}

#[test]
fn every_program_carries_files() {
    for program in ALL.iter().filter(|program| is_here(**program)) {
        carry(*program, "random 300k");
        carry(*program, "similar 300k");
    }
}

#[test]
fn most_programs_carry_trees() {
    for program in ALL.iter().filter(|program| program.carries_trees() && is_here(**program)) {
        carry(*program, "small-files 20");
    }
}

#[test]
fn towpath_and_rsync_carry_odd_trees() {
    for name in ["tow-cp", "tow-sync", "tow-get", "tow-get-daemon", "rsync", "rsync-ssh", "rsync-whole"] {
        let program = find(name).unwrap();
        if is_here(program) {
            carry(program, "odd-tree");
        }
    }
}

#[test]
fn names_differ_and_needs_name_packages() {
    for program in ALL {
        assert_eq!(find(program.name()).unwrap().about(), program.about());
        assert!(program.needs().iter().all(|need| !need.package().is_empty()));
    }
}
