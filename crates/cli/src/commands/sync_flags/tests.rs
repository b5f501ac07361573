//! Each flag in each of its forms, and what they come to together.

use std::os::unix::ffi::OsStringExt;

use clap::Parser;

use super::*;
use crate::commands::Arguments;
use crate::commands::sync::SyncCommand;

fn try_parse(words: &[&OsStr]) -> Result<SyncArguments, String> {
    let around = ["tow", "sync"].map(OsStr::new).into_iter();
    let words = around.chain(words.iter().copied()).chain(["src", "dest"].map(OsStr::new));
    let parsed = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
    Ok(parsed.into_sync().unwrap_or_else(|| panic!("not tow sync")).arguments)
}

fn parse(line: &str) -> SyncArguments {
    let words: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
    try_parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn refusal(line: &str) -> String {
    let words: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
    try_parse(&words).map(|parsed| panic!("{line}: {parsed:?}")).unwrap_or_else(|error: String| error)
}

/// The rules, in which `_` may stand for the space after the rule's name.
fn lines(arguments: &SyncArguments) -> Vec<String> {
    let lines = arguments.options.filters.iter();
    lines.map(|line| String::from_utf8_lossy(line).replace('_', " ")).collect()
}

/// Effect of a flag: the words before it that make a difference visible, the flag in each of
/// its forms, and what holds after it but not without it.
type Case = (&'static str, &'static str, &'static [&'static str], fn(&SyncArguments) -> bool);

const CASES: &[Case] = &[
    ("archive", "--no-o --no-D", &["-a", "--archive"], |a| {
        let p = &a.options.preserve;
        p.owner && p.group && p.devices && p.specials && !p.hard_links && !p.acls && !p.xattrs
    }),
    ("recursive", "--no-r", &["-r", "--recursive"], |a| a.options.recursive),
    ("no-recursive", "", &["--no-r", "--no-recursive"], |a| !a.options.recursive),
    ("links", "--no-l", &["-l", "--links"], |a| a.options.preserve.links),
    ("no-links", "", &["--no-l", "--no-links"], |a| !a.options.preserve.links),
    ("perms", "--no-p", &["-p", "--perms"], |a| a.options.preserve.perms),
    ("no-perms", "", &["--no-p", "--no-perms"], |a| !a.options.preserve.perms),
    ("times", "--no-t", &["-t", "--times"], |a| a.options.preserve.times),
    ("no-times", "", &["--no-t", "--no-times"], |a| !a.options.preserve.times),
    ("group", "--no-g", &["-g", "--group"], |a| a.options.preserve.group),
    ("no-group", "", &["--no-g", "--no-group"], |a| !a.options.preserve.group),
    ("owner", "--no-o", &["-o", "--owner"], |a| a.options.preserve.owner),
    ("no-owner", "", &["--no-o", "--no-owner"], |a| !a.options.preserve.owner),
    ("numeric-ids", "", &["--numeric-ids"], |a| a.options.preserve.numeric_ids),
    ("no-numeric-ids", "--numeric-ids", &["--no-numeric-ids"], |a| !a.options.preserve.numeric_ids),
    ("D", "", &["-D", "--devices --specials"], |a| a.options.preserve.devices && a.options.preserve.specials),
    ("no-D", "-D", &["--no-D"], |a| !a.options.preserve.devices && !a.options.preserve.specials),
    ("devices", "", &["--devices"], |a| a.options.preserve.devices && !a.options.preserve.specials),
    ("no-devices", "-D", &["--no-devices"], |a| !a.options.preserve.devices && a.options.preserve.specials),
    ("specials", "", &["--specials"], |a| a.options.preserve.specials && !a.options.preserve.devices),
    ("no-specials", "-D", &["--no-specials"], |a| a.options.preserve.devices && !a.options.preserve.specials),
    ("hard-links", "-a", &["-H", "--hard-links"], |a| a.options.preserve.hard_links),
    ("no-hard-links", "", &["--no-H", "--no-hard-links"], |a| !a.options.preserve.hard_links),
    ("acls", "-a --no-p", &["-A", "--acls"], |a| a.options.preserve.acls && a.options.preserve.perms),
    ("no-acls", "", &["--no-A", "--no-acls"], |a| !a.options.preserve.acls && a.options.preserve.perms),
    ("xattrs", "-a", &["-X", "--xattrs"], |a| a.options.preserve.xattrs),
    ("no-xattrs", "", &["--no-X", "--no-xattrs"], |a| !a.options.preserve.xattrs),
    ("sparse", "", &["-S", "--sparse"], |a| a.options.sparse),
    ("no-sparse", "-S", &["--no-S", "--no-sparse"], |a| !a.options.sparse),
    ("chmod", "--chmod=a", &["--chmod b", "--chmod=b"], |a| a.options.chmod == ["a", "b"]),
    ("chown", "--chown a:b", &["--chown c:d", "--chown=c:d"], |a| a.options.chown.as_deref() == Some("c:d")),
    ("copy-links", "", &["-L", "--copy-links"], |a| a.options.copy_links),
    ("safe-links", "", &["--safe-links"], |a| a.options.safe_links),
    ("one-file-system", "", &["-x", "--one-file-system"], |a| a.options.one_file_system),
    ("no-one-file-system", "-x", &["--no-x", "--no-one-file-system"], |a| !a.options.one_file_system),
    ("checksum", "", &["-c", "--checksum", "-cI", "-c --size-only"], |a| a.options.check == Check::Content),
    ("no-checksum", "-c", &["--no-c", "--no-checksum"], |a| a.options.check == Check::Quick),
    ("size-only", "-I", &["--size-only"], |a| a.options.check == Check::SizeOnly),
    ("ignore-times", "", &["-I", "--ignore-times"], |a| a.options.check == Check::Never),
    ("update", "", &["-u", "--update"], |a| a.options.update),
    ("existing", "", &["--existing", "--ignore-non-existing"], |a| a.options.existing),
    ("ignore-existing", "", &["--ignore-existing"], |a| a.options.ignore_existing),
    ("min-size", "--min-size 1", &["--min-size 2K", "--min-size=2KiB"], |a| a.options.min_size == Some(2048)),
    ("max-size", "--max-size 1", &["--max-size 2kb-1", "--max-size=1999"], |a| {
        a.options.max_size == Some(1999)
    }),
    ("filter", "-f :_x", &["-f -_a", "-f=-_a", "-f-_a", "--filter -_a", "--filter=-_a"], |a| {
        lines(a) == [": x", "- a"]
    }),
    ("F", "", &["-F"], |a| lines(a) == [": /.rsync-filter"]),
    ("exclude", "--include=+x", &["--exclude -a", "--exclude=-a"], |a| lines(a) == ["+ +x", "- -a"]),
    ("include", "--exclude=x", &["--include -a", "--include=-a"], |a| lines(a) == ["- x", "+ -a"]),
    ("exclude-from", "", &["--exclude-from FILE", "--exclude-from=FILE"], |a| lines(a) == ["- one", "- two"]),
    ("include-from", "", &["--include-from FILE", "--include-from=FILE"], |a| lines(a) == ["+ one", "+ two"]),
    ("files-from", "", &["--files-from FILE", "--files-from=FILE"], |a| {
        a.options.files_from == Some(vec![b"one".to_vec(), b"two".to_vec()]) && !a.options.recursive
    }),
    ("from0", "--files-from FILE", &["-0", "--from0"], |a| {
        a.options.files_from == Some(vec![b"one\ntwo\n".to_vec()])
    }),
    ("no-from0", "-0 --exclude-from FILE", &["--no-from0", "--no-0"], |a| lines(a) == ["- one", "- two"]),
    (
        "delete",
        "",
        &["--delete", "--del", "--delete-before", "--delete-during", "--delete-delay", "--delete-after"],
        |a| a.options.delete && !a.options.delete_excluded,
    ),
    ("delete-excluded", "", &["--delete-excluded"], |a| a.options.delete && a.options.delete_excluded),
    ("max-delete", "", &["--max-delete 7", "--max-delete=7"], |a| a.options.max_delete == Some(7)),
    ("force", "", &["--force"], |a| a.options.force),
    ("no-force", "--force", &["--no-force"], |a| !a.options.force),
    ("backup", "", &["-b", "--backup"], |a| a.options.backup && a.options.suffix == b"~"),
    ("no-backup", "-b", &["--no-b", "--no-backup"], |a| !a.options.backup),
    ("backup-dir", "", &["--backup-dir x", "--backup-dir=x"], |a| {
        a.options.backup && a.options.backup_dir.as_deref() == Some(b"x") && a.options.suffix.is_empty()
    }),
    ("suffix", "", &["--suffix .old", "--suffix=.old"], |a| a.options.suffix == b".old"),
    ("remove-source-files", "", &["--remove-source-files"], |a| a.options.remove_source_files),
    ("rsh", "-e x", &["-e rsh", "-ersh", "--rsh rsh", "--rsh=rsh"], |a| {
        a.rsh.as_deref() == Some(OsStr::new("rsh"))
    }),
    ("tow-path", "", &["--tow-path /x", "--tow-path=/x"], |a| a.tow_path == "/x"),
    ("via", "--via ssh", &["--via tls", "--via=tls"], |a| a.options.via == Via::Tls),
    ("bind", "--bind lo", &["--bind eth0,wlan0", "--bind=eth0,wlan0"], |a| a.bind == ["eth0", "wlan0"]),
    ("compress", "", &["-z", "--compress"], |a| a.options.compress),
    ("no-compress", "-z", &["--no-z", "--no-compress"], |a| !a.options.compress),
    ("search", "", &["--search x", "--search=x"], |a| a.options.search == [b"x"]),
    ("no-search", "--search x", &["--no-search"], |a| a.options.no_search && a.options.search.is_empty()),
    ("search-effort", "", &["--search-effort all", "--search-effort=all"], |a| {
        a.options.search_effort == SearchEffort::All
    }),
    ("by-daemon", "", &["--by-daemon"], |a| a.by_daemon),
    ("explain", "", &["--explain"], |a| a.shown.explain),
    ("whole-file", "", &["-W", "--whole-file"], |a| a.options.whole_file),
    ("no-whole-file", "-W", &["--no-W", "--no-whole-file"], |a| !a.options.whole_file),
    ("bwlimit", "", &["--bwlimit 2", "--bwlimit=2K", "--bwlimit=2048b"], |a| a.options.limit_rate == 2048),
    ("no-bwlimit", "--bwlimit 2", &["--no-bwlimit", "--bwlimit=0"], |a| a.options.limit_rate == 0),
    ("limit-rate", "", &["--limit-rate 2K", "--limit-rate=2048"], |a| a.options.limit_rate == 2048),
    ("timeout", "", &["--timeout 9", "--timeout=9"], |a| a.options.timeout == 9),
    ("no-timeout", "--timeout 9", &["--no-timeout"], |a| a.options.timeout == 0),
    ("dry-run", "", &["-n", "--dry-run"], |a| a.options.dry_run),
    ("no-dry-run", "-n", &["--no-n", "--no-dry-run"], |a| !a.options.dry_run),
    ("itemize-changes", "", &["-i", "--itemize-changes"], |a| {
        a.shown.itemize == 1 && !a.options.report_unchanged
    }),
    ("no-itemize-changes", "-ii", &["--no-i", "--no-itemize-changes"], |a| a.shown.itemize == 0),
    ("stats", "", &["--stats"], |a| a.shown.stats),
    ("progress", "", &["--progress"], |a| a.shown.progress == Some(true)),
    ("no-progress", "-P", &["--no-progress"], |a| a.shown.progress == Some(false)),
    ("P", "", &["-P", "--partial --progress"], |a| a.shown.progress == Some(true)),
    ("human-readable", "", &["-h", "--human-readable"], |a| a.shown.human == 2),
    ("no-human-readable", "-hh", &["--no-h", "--no-human-readable"], |a| a.shown.human == 0),
];

/// Those that say what is so anyway.
const ALWAYS_SO: &[&str] = &["partial", "no-partial"];

#[test]
fn each_flag_does_what_it_says_in_each_of_its_forms() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    for (name, before, forms, holds) in CASES {
        for form in *forms {
            let with = |line: &str| parse(&line.replace("FILE", file.to_str().unwrap()));
            assert!(!holds(&with(before)), "{name}: so without {form} too");
            let after = with(&format!("{before} {form}"));
            assert!(holds(&after), "{name}: {form} does not do it: {after:?}");
        }
    }
}

#[test]
fn each_flag_has_a_case() {
    let has_case = |name: &str| CASES.iter().any(|case| case.0 == name) || ALWAYS_SO.contains(&name);
    for flag in FLAGS {
        assert!(has_case(flag.long), "--{} has no case", flag.long);
        let negation = format!("no-{}", flag.long);
        assert!(!flag.can_be_undone() || has_case(&negation), "--{negation} has no case");
    }
    for flag in ALWAYS_SO {
        assert_eq!(parse(&format!("--{flag}")), parse(""));
    }
}

#[test]
fn without_flags_it_is_what_rsync_calls_ahax() {
    let plain = parse("").options;
    assert_eq!(CopyOptions { suffix: b"~".to_vec(), ..CopyOptions::default() }, plain);
    for line in ["-aHAX", "-HAXa", "-rlptgoHAXD", "-aH -AX"] {
        let mut options = parse(line).options;
        assert!(options.preserve.devices && options.preserve.specials, "{line}");
        (options.preserve.devices, options.preserve.specials) = (false, false);
        // Metadata that gives rights is asked for by name.
        assert!(options.preserve.special_bits && options.preserve.privileged_xattrs, "{line}");
        (options.preserve.special_bits, options.preserve.privileged_xattrs) = (false, false);
        assert_eq!(options, plain, "{line}");
    }
}

#[test]
fn flags_apply_in_their_order_also_in_one_word() {
    assert!(!parse("-o --no-o").options.preserve.owner);
    assert!(parse("--no-o -avo").options.preserve.owner);
    assert!(!parse("-a --no-D").options.preserve.devices);
    assert!(parse("--no-D -a").options.preserve.devices);
    assert!(!parse("-A --no-p").options.preserve.perms);
    let mixed = parse("--include a -f -_b --exclude c -f :_d --include e");
    assert_eq!(lines(&mixed), ["+ a", "- b", "- c", ": d", "+ e"]);
    assert_eq!(
        lines(&parse("--exclude a -FF --exclude b -F")),
        ["- a", ": /.rsync-filter", "- .rsync-filter", "- b"]
    );
}

#[test]
fn letters_go_together_as_people_type_them() {
    let usual = parse("-avzhP --delete -ne ssh");
    assert!(usual.options.compress && usual.options.dry_run && usual.options.delete);
    assert_eq!((usual.shown.human, usual.shown.progress), (2, Some(true)));
    assert_eq!(usual.rsh.as_deref(), Some(OsStr::new("ssh")));
    assert!(parse("-aii").options.report_unchanged);
    assert_eq!(parse("-hhh").shown.human, 3);
}

#[test]
fn only_r_in_so_many_words_enters_the_directories_of_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list");
    std::fs::write(&file, "d\n").unwrap();
    let with = |flags: &str| parse(&format!("{flags} --files-from {}", file.display())).options.recursive;
    assert!(!with("") && !with("-a") && with("-r") && with("-ar") && !with("-r --no-r"));
}

#[test]
fn values_that_make_no_sense_are_refused_with_what_would() {
    for (line, says) in [
        ("--max-size=1x", "1.5K"),
        ("--bwlimit=1b", "512"),
        ("--via=udp", "ssh or tls"),
        ("--max-delete=x", "not a number"),
        ("--timeout=x", "not a number"),
        ("--suffix=a/b", "--backup-dir"),
        ("-b --suffix=", "--backup-dir"),
        ("--delete --no-r", "-r"),
        ("--exclude-from=/nowhere/at/all", "/nowhere/at/all"),
        ("--files-from=/nowhere/at/all", "/nowhere/at/all"),
    ] {
        let error = refusal(line);
        assert!(error.contains(says), "{line}: {error}");
    }
    let not_text = OsString::from_vec(b"--chown=\xff".to_vec());
    assert!(try_parse(&[&not_text]).unwrap_err().contains("not text"));
    assert_eq!(parse("--max-delete=-1").options.max_delete, Some(0));
}

#[test]
fn what_rsync_has_and_tow_has_not_is_named_wherever_it_stands() {
    for (line, names) in [
        ("--inplace", "--inplace"),
        ("-avR", "--relative (-R)"),
        ("-T/tmp", "--temp-dir (-T)"),
        ("--link-dest=/x -a", "--link-dest"),
        ("-a --info=progress2", "--info"),
        ("--no-inc-recursive", "--no-inc-recursive"),
        ("--rsync-path=/x", "--tow-path"),
    ] {
        let error = refusal(line);
        assert!(error.contains("tow sync has no") && error.contains(names), "{line}: {error}");
    }
    assert!(refusal("--no-such-thing").contains("unexpected argument"), "unknown to both");
}

#[test]
fn the_flags_of_every_command_go_with_these() {
    let parsed = Arguments::try_parse_from(["tow", "sync", "-avvqi", "--json", "a", "b", "c"]).unwrap();
    assert_eq!(parsed.flags(), (2, true, true));
    let sync: SyncCommand = parsed.into_sync().unwrap();
    assert_eq!(sync.operands, ["a", "b", "c"]);
    assert_eq!(sync.arguments.shown.itemize, 1);
}

#[test]
fn h_alone_is_help_and_operands_are_needed() {
    let parse = |words: &[&str]| Arguments::try_parse_from([&["tow", "sync"], words].concat());
    assert!(parse(&["-h"]).unwrap().into_sync().unwrap().help);
    assert!(!parse(&["-h", "a", "b"]).unwrap().into_sync().unwrap().help);
    for words in [&[][..], &["a"], &["-h", "a"]] {
        let error = parse(words).unwrap_err();
        assert!(error.to_string().contains("SRC and DEST"), "{words:?}: {error}");
        assert_eq!(error.exit_code(), 2);
    }
}
