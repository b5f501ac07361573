//! `--chmod` against rsync, and by the manual.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use towpath_files::Chmod;

use crate::rsync;

/// This process's umask, which rsync inherits; read without changing it for other threads.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// One item of a list; some are malformed.
fn item() -> impl Strategy<Value = String> {
    let letters = |letters: &'static str, range: std::ops::Range<usize>| {
        vec(select(letters.chars().collect::<Vec<_>>()), range)
            .prop_map(|all| all.into_iter().collect::<String>())
    };
    let symbolic = (letters("DFugoa", 0..3), select(vec!["+", "-", "="]), letters("rwxXst", 0..4));
    let copying = (letters("DFugoa", 0..3), select(vec!["+", "-", "="]), letters("ugor", 1..3));
    prop_oneof![
        6 => symbolic.prop_map(|(who, operator, what)| who + operator + &what),
        3 => copying.prop_map(|(who, operator, what)| who + operator + &what),
        3 => (letters("DF", 0..2), 0u32..0o7777).prop_map(|(kind, mode)| format!("{kind}{mode:o}")),
        1 => letters("DFugoa+-=rwxXst0789", 0..5),
    ]
}

/// Applies a list with rsync to files and directories of many modes, all in one run.
fn compare(list: &str, modes: &[u32]) -> Result<(), TestCaseError> {
    let tmp = rsync::tempdir();
    let (from, to) = (tmp.path().join("s"), tmp.path().join("r"));
    fs::create_dir(&from).unwrap();
    for mode in modes {
        let (file, dir) = (from.join(format!("f{mode:o}")), from.join(format!("d{mode:o}")));
        fs::write(&file, b"").unwrap();
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(*mode)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(*mode | 0o100)).unwrap();
    }
    let output = rsync::run(&[b"-rp".to_vec(), format!("--chmod={list}").into_bytes()], &from, &to);
    let parsed = Chmod::parse(list, umask());
    prop_assert_eq!(parsed.is_ok(), output.status.success(), "{:?} {:?}", parsed, output);
    let Ok(chmod) = parsed else { return Ok(()) };
    for mode_before in modes {
        let (file, dir) = (format!("f{mode_before:o}"), format!("d{mode_before:o}"));
        for (name, is_dir) in [(file, false), (dir, true)] {
            let ours = chmod.apply(mode(&from.join(&name)), is_dir);
            prop_assert_eq!(format!("{ours:o}"), format!("{:o}", mode(&to.join(&name))), "{}", name);
        }
    }
    Ok(())
}

#[test]
fn modes_come_out_as_rsync_makes_them() {
    if !rsync::is_recent() {
        return;
    }
    let cases = rsync::cases(120).div_ceil(8);
    let try_some = || {
        let lists = vec(item(), 1..4).prop_map(|items| items.join(","));
        // Readable by whoever runs this.
        let modes = vec((0u32..0o10000).prop_map(|mode| mode | 0o400), 6);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        TestRunner::new(config).run(&(lists, modes), |(list, modes)| compare(&list, &modes)).unwrap();
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(try_some))));
}

fn applied(list: &str, umask: u32, mode: u32, is_dir: bool) -> u32 {
    Chmod::parse(list, umask).unwrap().apply(mode, is_dir)
}

#[test]
fn the_examples_of_the_manual_mean_what_it_says() {
    let list = "Dg+s,ug+w,Fo-w,+X";
    assert_eq!(applied(list, 0o022, 0o755, true), 0o2775);
    assert_eq!(applied(list, 0o022, 0o646, false), 0o664);
    assert_eq!(applied(list, 0o022, 0o546, false), 0o775);
    assert_eq!(applied("D2775,F664", 0, 0o700, true), 0o2775);
    assert_eq!(applied("D2775,F664", 0, 0o4700, false), 0o664);
    assert_eq!(applied("g=u,o=", 0, 0o2741, false), 0o770);
}

#[test]
fn the_umask_holds_where_nobody_is_named() {
    assert_eq!(applied("+w", 0o022, 0o444, false), 0o644);
    assert_eq!(applied("a+w", 0o022, 0o444, false), 0o666);
    assert_eq!(applied("=rwx", 0o027, 0o000, false), 0o750);
    assert_eq!(applied("+u", 0o077, 0o700, false), 0o700);
    assert_eq!(applied("-r", 0o022, 0o666, false), 0o222);
}

#[test]
fn x_asks_for_the_mode_before_all_changes_and_file_types_stay() {
    assert_eq!(applied("a-x,a+X", 0, 0o700, false), 0o711);
    assert_eq!(applied("a+x,a+X", 0, 0o600, false), 0o711);
    assert_eq!(applied("644", 0, 0o100777, false), 0o100644);
}

#[test]
fn several_lists_are_one_after_the_other() {
    let mut chmod = Chmod::parse("a=r", 0).unwrap();
    chmod.append(Chmod::parse("u+w", 0).unwrap());
    assert_eq!(chmod.apply(0o777, false), 0o644);
}

#[test]
fn what_is_malformed_is_named() {
    for bad in
        ["", "u", "u+x,", ",u+x", "DF+x", "u755", "8", "10000", "u+q", "u+rg", "u+gr", "u+ug", "D", "u+-x"]
    {
        let error = Chmod::parse(bad, 0).unwrap_err();
        assert!(bad.contains(&error.item), "{bad} {error}");
    }
    let error = Chmod::parse("u+x,o\u{1b}", 0).unwrap_err().to_string();
    assert!(error.contains("\"o\\u{1b}\"") && error.contains("D755"), "{error}");
}
