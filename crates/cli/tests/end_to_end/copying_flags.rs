//! Every flag of `tow sync` and `tow cp` does something, and what rsync and cp do with it.
//!
//! Most flags are a line in [`SYNC`] or [`CP`]: the same scene is copied without the flag, with it,
//! and by rsync or cp with it. Without it something else must come out; rsync must end with the same
//! trees, itemised lines and exit code. What one scene can't show has a situation of its own, here or
//! in `copying_flags_remote`: see [`ELSEWHERE`].

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::likeness::{
    Outcome, Scene, age, attribute, has_rsync, is_root, link, list_user, mode, portrait, settle, words, write,
};
use crate::runner::{situations, skip};
use crate::searching;
use crate::trees;
use crate::{copying_by_daemon, copying_flags_remote, links};

situations![
    each_sync_flag_does_what_it_does_in_rsync,
    each_cp_flag_does_what_it_does_in_cp,
    each_flag_has_a_test,
    archive_alone_leaves_out_what_rsync_leaves_out,
    flags_that_rsync_can_not_undo_can_be_undone,
    runs_of_zeros_become_holes_only_when_asked_for,
    another_file_system_is_not_entered_when_so_asked,
    more_than_half_of_a_destination_asks_for_a_number_or_force,
    what_is_told_is_what_was_asked_for,
    tow_cp_tells_what_was_asked_for,
];

/// A flag, the words without it, and those with it.
type Case = (&'static str, &'static str, &'static str);

/// `rsync` is given `-aHAX --no-D`, which is what `tow sync` does on its own, besides these words.
const SYNC: &[Case] = &[
    ("recursive", "--no-r", "-r"),
    ("no-recursive", "", "--no-r"),
    ("links", "--no-l", "-l"),
    ("no-links", "", "--no-l"),
    ("perms", "--no-A --no-p", "-p"),
    ("no-perms", "--no-A", "--no-A --no-p"),
    ("times", "--no-t", "-t"),
    ("no-times", "", "--no-t"),
    ("group", "--no-g", "-g"),
    ("no-group", "", "--no-g"),
    ("owner", "--no-o", "-o"),
    ("no-owner", "", "--no-o"),
    ("D", "", "-D"),
    ("no-D", "-D", "--no-D"),
    ("devices", "", "--devices"),
    ("no-devices", "-D", "--no-devices"),
    ("specials", "", "--specials"),
    ("no-specials", "-D", "--no-specials"),
    ("hard-links", "--no-H", "-H"),
    ("no-hard-links", "", "--no-H"),
    ("acls", "--no-A", "-A"),
    ("no-acls", "", "--no-A"),
    ("xattrs", "--no-X", "-X"),
    ("no-xattrs", "", "--no-X"),
    ("chmod", "", "--chmod=Dg-rx,Fo-r,u+x"),
    ("chmod", "--chmod=D755", "--chmod=D755 --chmod=F640"),
    ("chown", "", "--chown=77:88"),
    ("chown", "", "--chown=:88"),
    // With -L and -X rsync loses the attributes of a directory that a link leads to.
    ("copy-links", "--no-X", "--no-X -L"),
    ("safe-links", "", "--safe-links"),
    ("checksum", "", "-c"),
    ("no-checksum", "-c", "--no-c"),
    ("size-only", "", "--size-only"),
    ("ignore-times", "", "-I"),
    ("update", "", "-u"),
    ("existing", "", "--existing"),
    ("existing", "", "--ignore-non-existing"),
    ("ignore-existing", "", "--ignore-existing"),
    ("min-size", "", "--min-size=10"),
    ("max-size", "", "--max-size=1K"),
    ("filter", "", "-f -_new"),
    ("filter", "--delete", "--filter=show_d/sub --filter=hide_d/* --delete"),
    ("F", "", "-F"),
    ("F", "-F", "-FF"),
    ("exclude", "", "--exclude=in*"),
    ("exclude", "--delete", "--exclude=/d/extra* --delete"),
    ("include", "--exclude=*", "--include=new --exclude=*"),
    ("include", "--exclude=in*", "--include=inside --exclude=in*"),
    ("include", "--exclude=in* --exclude=new", "--exclude=in* --include=new --exclude=new"),
    ("exclude-from", "", "--exclude-from=rules"),
    ("include-from", "--exclude=*e*", "--include-from=rules --exclude=*e*"),
    ("files-from", "", "--files-from=names"),
    ("files-from", "--files-from=names", "-r --files-from=names"),
    ("from0", "--exclude-from=rules0", "-0 --exclude-from=rules0"),
    ("from0", "", "-r --files-from=names0 --from0"),
    ("delete", "", "--delete"),
    ("delete", "", "--del"),
    ("delete", "", "--delete-before"),
    ("delete", "", "--delete-during"),
    ("delete", "", "--delete-delay"),
    ("delete", "", "--delete-after"),
    ("delete-excluded", "--delete --exclude=extra*", "--exclude=extra* --delete-excluded"),
    ("max-delete", "--delete", "--delete --max-delete=0"),
    ("force", "--exclude=nothing", "--force"),
    ("no-force", "--force", "--force --no-force"),
    ("backup", "", "-b"),
    ("backup", "--delete", "--delete --backup"),
    ("suffix", "-b", "-b --suffix=.old"),
    ("suffix", "-b --backup-dir=../kept", "-b --backup-dir=../kept --suffix=.old"),
    ("backup-dir", "-b", "-b --backup-dir=../kept"),
    ("backup-dir", "--delete -b", "--delete -b --backup-dir=kept"),
    ("backup-dir", "--delete --force", "--delete --force -b --backup-dir=../kept"),
    ("remove-source-files", "", "--remove-source-files"),
    ("dry-run", "", "-n"),
    ("dry-run", "--delete", "--delete -n"),
];

/// Flags for which rsync is told something else.
const IN_RSYNC: &[(&str, &str)] = &[
    // Deleting before changes the time of the directory, and rsync tells of that; tow deletes after.
    ("--delete-before", "--delete-after"),
    ("--delete --backup", "--delete-after --backup"),
];

/// Flags that `cp -a --remove-destination` is given besides; none where cp has no such thing.
const CP: &[(&str, &str, &str, Option<&str>)] = &[
    ("no-clobber", "", "-n", Some("-n")),
    // As with rsync only what is newer there is left alone; cp leaves what is as old, too.
    ("update", "", "-u", None),
    // Files that two links lead to cp links with each other, and forgets attributes of directories.
    ("dereference", "", "-L", None),
    // A file that is already the same is not copied, and needs no backup; cp makes one.
    ("backup", "", "-b", None),
    ("suffix", "-b", "--suffix=.old", None),
    ("no-preserve", "", "--no-preserve=mode,acl", None),
    ("no-preserve", "", "--no-preserve=ownership", Some("--no-preserve=ownership")),
    // And it keeps its time.
    ("no-preserve", "", "--no-preserve=timestamps", None),
    ("no-preserve", "", "--no-preserve=links", Some("--no-preserve=links")),
    ("no-preserve", "", "--no-preserve=xattr,acl", None),
    ("devices", "", "--devices", None),
    ("specials", "", "--specials", None),
    ("archive", "", "-a", None),
    ("target-directory", "", "-t other", Some("-t other")),
];

/// Flags that have a situation of their own, and those that ask for what is so anyway.
const ELSEWHERE: &[(&str, &str)] = &[
    ("archive", "archive_alone_leaves_out_what_rsync_leaves_out"),
    ("no-numeric-ids", "owners_go_by_name_unless_numbers_are_asked_for"),
    ("numeric-ids", "owners_go_by_name_unless_numbers_are_asked_for"),
    ("sparse", "runs_of_zeros_become_holes_only_when_asked_for"),
    ("no-sparse", "runs_of_zeros_become_holes_only_when_asked_for"),
    ("one-file-system", "another_file_system_is_not_entered_when_so_asked"),
    ("no-one-file-system", "another_file_system_is_not_entered_when_so_asked"),
    ("no-dry-run", "flags_that_rsync_can_not_undo_can_be_undone"),
    ("no-backup", "flags_that_rsync_can_not_undo_can_be_undone"),
    ("no-from0", "flags_that_rsync_can_not_undo_can_be_undone"),
    ("rsh", "the_other_side_is_reached_by_the_command_and_program_that_are_named"),
    ("tow-path", "the_other_side_is_reached_by_the_command_and_program_that_are_named"),
    ("by-daemon", "a_daemon_copies_where_and_as_its_caller_would"),
    ("bind", "a_large_file_is_copied_by_two_links_at_once"),
    ("via", "data_go_the_way_that_is_named"),
    ("compress", "compressed_data_are_fewer_on_the_way"),
    ("no-compress", "compressed_data_are_fewer_on_the_way"),
    ("whole-file", "a_changed_file_travels_whole_only_when_so_asked"),
    ("no-whole-file", "a_changed_file_travels_whole_only_when_so_asked"),
    ("bwlimit", "a_limited_rate_is_kept_to"),
    ("no-bwlimit", "a_limited_rate_is_kept_to"),
    ("limit-rate", "a_limited_rate_is_kept_to"),
    ("search", "a_copy_searches_where_it_is_asked_and_explains"),
    ("search-effort", "a_search_without_a_limit_is_not_limited"),
    ("explain", "a_copy_searches_where_it_is_asked_and_explains"),
    ("no-search", "a_copy_searches_nothing_if_it_is_not_wanted"),
    ("timeout", "a_silent_other_side_is_given_up_in_the_time_that_was_given"),
    ("no-timeout", "a_silent_other_side_is_given_up_in_the_time_that_was_given"),
    ("itemize-changes", "what_is_told_is_what_was_asked_for"),
    ("no-itemize-changes", "what_is_told_is_what_was_asked_for"),
    ("stats", "what_is_told_is_what_was_asked_for"),
    ("progress", "what_is_told_is_what_was_asked_for"),
    ("no-progress", "what_is_told_is_what_was_asked_for"),
    ("P", "what_is_told_is_what_was_asked_for"),
    ("human-readable", "what_is_told_is_what_was_asked_for"),
    ("no-human-readable", "what_is_told_is_what_was_asked_for"),
    ("verbose", "what_is_told_is_what_was_asked_for"),
    ("quiet", "what_is_told_is_what_was_asked_for"),
    ("json", "what_is_told_is_what_was_asked_for"),
];

/// They say what is so without them; that they change nothing is tested where they are parsed.
const ALWAYS_SO: &[&str] = &["partial", "no-partial", "help"];
/// The same of `tow cp`.
const ALWAYS_SO_IN_CP: &[&str] = &["recursive", "preserve", "force", "help"];

/// One of each kind, in each state that some flag is about.
pub fn one_of_each(folder: &Path) {
    let (source, destination) = (folder.join("src"), folder.join("dst"));
    for dir in ["d/sub", "empty", "file_there"] {
        fs::create_dir_all(source.join(dir)).unwrap();
    }
    for dir in ["d/sub", "extra_dir/below", "directory_there"] {
        fs::create_dir_all(destination.join(dir)).unwrap();
    }
    source_files(&source);
    source_specials(&source);
    destination_files(&destination);
    write(&folder.join("outside"), "outside", 0);
    write(&folder.join("rules"), "inside\nnew\n", 0);
    write(&folder.join("rules0"), "inside\0new\0", 0);
    write(&folder.join("names"), "new\nd\n", 0);
    write(&folder.join("names0"), "new\0d/sub\0", 0);
    settle(folder);
    age(&source.join("d"), 50);
    age(&source, 60);
}

fn source_files(source: &Path) {
    let file = |name: &str, text: &str, seconds| write(&source.join(name), text, seconds);
    file("same", "same", 0);
    file("touched", "touched", 9);
    file("alike", "alike", 0);
    file("newer_there", "older here", 0);
    file("changed", "changed, and longer", 9);
    file("new", "new", 0);
    file("d/inside", "inside", 0);
    file("d/sub/in_deep", "deep", 0);
    file("directory_there", "no longer a directory", 0);
    file("strict", "strict", 0);
    file("owned", "owned", 0);
    file("marked", "marked", 0);
    file("listed", "listed", 0);
    file("d/.rsync-filter", "- in_deep\n", 0);
    file("twin_1", "twins", 0);
    write(&source.join("big"), trees::bytes(1, 5000), 0);
    fs::hard_link(source.join("same"), source.join("same_again")).unwrap();
    fs::hard_link(source.join("twin_1"), source.join("d/twin_2")).unwrap();
    link("same", &source.join("link"), 0);
    link("d", &source.join("link_to_d"), 0);
    link("../outside", &source.join("link_out"), 0);
    mode(&source.join("strict"), 0o600);
    mode(&source.join("d/sub"), 0o750);
}

fn source_specials(source: &Path) {
    attribute(&source.join("marked"), "user.colour", b"blue");
    attribute(&source.join("d"), "user.colour", b"red");
    list_user(&source.join("listed"), 77);
    let special = |name: &str, kind, device| {
        mknodat(CWD, source.join(name), kind, Mode::from_raw_mode(0o644), device).unwrap();
    };
    special("fifo", FileType::Fifo, 0);
    age_of_special(&source.join("fifo"));
    if is_root() {
        special("device", FileType::CharacterDevice, makedev(1, 3));
        age_of_special(&source.join("device"));
        for name in ["owned", "link"] {
            std::os::unix::fs::lchown(source.join(name), Some(1234), Some(2345)).unwrap();
        }
    }
}

fn destination_files(destination: &Path) {
    let file = |name: &str, text: &str, seconds| write(&destination.join(name), text, seconds);
    file("same", "same", 0);
    file("touched", "touched", 0);
    file("alike", "alien", 0);
    file("newer_there", "newer there", 9);
    file("changed", "changed", 0);
    file("strict", "strict", 0);
    file("marked", "marked", 0);
    file("d/inside", "INSIDE", 5);
    file("extra", "extra", 0);
    file("extra_dir/below/file", "extra", 0);
    file("d/extra_in_d", "extra", 0);
    file("file_there", "no directory yet", 0);
    link("nowhere", &destination.join("link_to_d"), 0);
}

fn each_sync_flag_does_what_it_does_in_rsync() {
    let scene = Scene::new(one_of_each);
    let with_directory_in_the_way = Scene::new(|folder| {
        one_of_each(folder);
        write(&folder.join("dst/directory_there/with"), "something in it", 0);
    });
    let mut wrong = Vec::new();
    for (number, case) in SYNC.iter().enumerate() {
        let is_about_it = case.0.ends_with("force");
        let scene = if is_about_it { &with_directory_in_the_way } else { &scene };
        wrong.extend(judge_sync(scene, number, case));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SYNC.len(), wrong.join("\n"));
}

fn judge_sync(scene: &Scene, number: usize, (flag, before, with): &Case) -> Vec<String> {
    let ours = |name: &str, flags: &str| {
        scene.ours(&format!("{number}-{name}"), &words(&format!("sync -i {flags} src/ dst")))
    };
    let (without, with_it) = (ours("without", before), ours("with", with));
    let mut wrong = does_nothing(flag, with, &without, &with_it);
    if has_rsync() {
        let with = IN_RSYNC.iter().find(|(ours, _)| ours == with).map_or(*with, |(_, theirs)| theirs);
        let line = format!("-aHAX --no-D -i {with} src/ dst");
        let theirs = scene.theirs(&format!("{number}-theirs"), "rsync", &words(&line));
        wrong.extend(is_different(flag, with, &with_it, &theirs));
    }
    wrong
}

fn does_nothing(flag: &str, with: &str, without: &Outcome, with_it: &Outcome) -> Vec<String> {
    let same = without.differences(with_it).is_empty();
    same.then(|| format!("--{flag}: '{with}' does nothing: {}", with_it.errors)).into_iter().collect()
}

fn is_different(flag: &str, with: &str, ours: &Outcome, theirs: &Outcome) -> Option<String> {
    let differences = ours.differences(theirs);
    let said = format!("ours: {}theirs: {}", ours.errors, theirs.errors);
    let what = format!("--{flag}: '{with}' does something else:\n {}\n{said}", differences.join("\n "));
    (!differences.is_empty()).then_some(what)
}

/// Without what cp refuses: a file where a directory is, and the other way round.
fn scene_for_cp(folder: &Path) {
    one_of_each(folder);
    fs::remove_dir(folder.join("src/file_there")).unwrap();
    fs::remove_file(folder.join("src/directory_there")).unwrap();
    fs::remove_file(folder.join("dst/link_to_d")).unwrap();
    fs::create_dir(folder.join("there")).unwrap();
    fs::create_dir(folder.join("other")).unwrap();
    fs::rename(folder.join("dst"), folder.join("there/src")).unwrap();
    settle(folder);
}

fn each_cp_flag_does_what_it_does_in_cp() {
    let scene = Scene::new(scene_for_cp);
    let mut wrong = Vec::new();
    for (number, (flag, before, with, in_cp)) in CP.iter().enumerate() {
        let operands = |flags: &str| if flags.contains("-t ") { "src" } else { "src there" };
        let ours = |name: &str, flags: &str| {
            scene.ours(&format!("{number}-{name}"), &words(&format!("cp {flags} {}", operands(flags))))
        };
        let (without, with_it) = (ours("without", before), ours("with", with));
        wrong.extend(does_nothing(flag, with, &without, &with_it));
        if let Some(in_cp) = in_cp {
            // cp takes specials without being asked.
            let with_it = ours("with-all", &format!("--devices --specials {with}"));
            let line = format!("-a --remove-destination {in_cp} {}", operands(in_cp));
            let theirs = scene.theirs(&format!("{number}-theirs"), "cp", &words(&line));
            wrong.extend(is_different(flag, with, &with_it, &theirs));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CP.len(), wrong.join("\n"));
}

fn each_flag_has_a_test() {
    let scene = Scene::new(|_| ());
    let elsewhere = copying_flags_remote::SITUATIONS.iter().chain(searching::SITUATIONS);
    let elsewhere = elsewhere.chain(copying_by_daemon::SITUATIONS).chain(links::SITUATIONS);
    let situations = SITUATIONS.iter().chain(elsewhere);
    let names = situations.map(|situation| situation.name.rsplit("::").next().unwrap());
    let names: Vec<_> = names.collect();
    let elsewhere = |flag: &str| ELSEWHERE.iter().any(|(name, test)| *name == flag && names.contains(test));
    let in_sync =
        |flag: &str| SYNC.iter().any(|case| case.0 == flag) || elsewhere(flag) || ALWAYS_SO.contains(&flag);
    let in_cp = |flag: &str| {
        CP.iter().any(|case| case.0 == flag) || elsewhere(flag) || ALWAYS_SO_IN_CP.contains(&flag)
    };
    let help = |command: &str| scene.machine().tow([command, "--help"]).end().with(0).text();
    let (sync, cp) = (help("sync"), help("cp"));
    assert!(flags(&sync).len() > 60 && flags(&cp).len() > 20, "{sync}{cp}");
    let mut all = flags(&sync);
    all.extend(negations(&sync));
    let mut missing: Vec<_> = all.into_iter().filter(|flag| !in_sync(flag)).collect();
    missing.extend(flags(&cp).into_iter().filter(|flag| !in_cp(flag)));
    assert!(missing.is_empty(), "no test for {missing:?}");
}

/// Lines that begin with a flag, and not those on which what is said of one goes on.
fn flag_lines(help: &str) -> impl Iterator<Item = &str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    help.lines().filter(move |line| line.trim_start().starts_with('-') && indent(line) < 10)
}

/// The long names in a help text; `D` where there is none.
fn flags(help: &str) -> Vec<String> {
    let lines = flag_lines(help).filter(|line| line.contains("  "));
    lines.filter(|line| !is_list(line)).map(|line| names(line).1).collect()
}

/// The flags with a `--no-` form are listed by their shortest names.
fn negations(help: &str) -> Vec<String> {
    let lines = flag_lines(help);
    let (lists, flags): (Vec<_>, Vec<_>) = lines.partition(|line| is_list(line));
    let flags: Vec<_> = flags.into_iter().map(names).collect();
    let long = |short: &str| {
        let found = flags.iter().find(|(name, long)| name == short || *long == short);
        format!("no-{}", found.unwrap_or_else(|| panic!("-{short} is no flag")).1)
    };
    lists
        .iter()
        .flat_map(|line| line.split_whitespace())
        .map(|name| long(name.trim_start_matches('-')))
        .collect()
}

fn is_list(line: &str) -> bool {
    line.split_whitespace().all(|word| word.starts_with('-') && !word.ends_with(','))
}

/// Its letter, if it has one, and its long name.
fn names(line: &str) -> (String, String) {
    let words = line.split_whitespace().take_while(|word| word.starts_with('-'));
    let clean = |word: &str| {
        let end = word.find([',', '.', '[', '=']).unwrap_or(word.len());
        word[..end].trim_start_matches('-').to_owned()
    };
    let words: Vec<_> = words.map(clean).collect();
    (words[0].clone(), words[words.len() - 1].clone())
}

fn archive_alone_leaves_out_what_rsync_leaves_out() {
    let scene = Scene::new(one_of_each);
    let ours = scene.ours("ours", &words("sync -i -a src/ dst"));
    let without = scene.ours("without", &words("sync -i src/ dst"));
    assert!(!ours.differences(&without).is_empty());
    if has_rsync() {
        let theirs = scene.theirs("theirs", "rsync", &words("-i -a src/ dst"));
        assert_eq!(is_different("archive", "-a", &ours, &theirs), None);
    }
}

fn flags_that_rsync_can_not_undo_can_be_undone() {
    let scene = Scene::new(one_of_each);
    for (number, (flag, undone, plain)) in [
        ("-n", "-n --no-n", ""),
        ("-b", "-b --no-b", ""),
        ("-0 --files-from=names", "-0 --no-0 --files-from=names", "--files-from=names"),
    ]
    .into_iter()
    .enumerate()
    {
        let ours = |name: &str, flags: &str| {
            scene.ours(&format!("{number}-{name}"), &words(&format!("sync -i {flags} src/ dst")))
        };
        let (with, undone, plain) = (ours("with", flag), ours("undone", undone), ours("plain", plain));
        assert_eq!(undone.differences(&plain), Vec::<String>::new(), "{flag}");
        assert!(!with.differences(&plain).is_empty(), "{flag}");
    }
}

fn runs_of_zeros_become_holes_only_when_asked_for() {
    let scene = Scene::new(|folder| {
        fs::write(folder.join("zeros"), vec![0; 1 << 20]).unwrap();
        trees::sparse_file(&folder.join("holes"), 1 << 20, &[0]);
    });
    for (number, (flags, holes)) in [("-S", true), ("-S --no-S", false), ("", false)].into_iter().enumerate()
    {
        let name = number.to_string();
        scene.tow(&name, &words(&format!("sync {flags} zeros holes dst/"))).with(0);
        let blocks =
            |file: &str| fs::metadata(scene.machine().path(format!("{name}/dst/{file}"))).unwrap().blocks();
        assert_eq!(blocks("zeros") < 100, holes, "'{flags}'");
        assert!(blocks("holes") < 100, "'{flags}': holes of the source are holes");
        trees::assert_same_bytes(
            &scene.machine().path("scene/zeros"),
            &scene.machine().path(format!("{name}/dst/zeros")),
        );
    }
}

/// A file system in a directory, for as long as this is there.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn on(directory: &'a Path) -> Option<Self> {
        let mut command = Command::new("mount");
        let command = command.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(directory);
        command.status().is_ok_and(|status| status.success()).then_some(Self(directory))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn another_file_system_is_not_entered_when_so_asked() {
    let scene = Scene::new(|folder| fs::create_dir_all(folder.join("src/mount")).unwrap());
    for (number, (line, entered)) in
        [("sync -x", false), ("sync -x --no-x", true), ("sync", true), ("cp -x", false), ("cp", true)]
            .into_iter()
            .enumerate()
    {
        let name = number.to_string();
        let mount = scene.twin(&name).join("src/mount");
        let Some(mounted) = Mounted::on(&mount) else { skip("nothing can be mounted here") };
        fs::write(mount.join("file"), "elsewhere").unwrap();
        let folder = scene.machine().path(&name);
        scene.machine().tow(words(&format!("{line} src/ dst"))).folder(&folder).end().with(0);
        assert!(folder.join("dst/mount").is_dir(), "{line}: as in rsync the directory itself is made");
        assert_eq!(folder.join("dst/mount/file").exists(), entered, "{line}");
        drop(mounted);
    }
}

fn more_than_half_of_a_destination_asks_for_a_number_or_force() {
    let scene = Scene::new(|folder| {
        fs::create_dir(folder.join("src")).unwrap();
        fs::create_dir(folder.join("dst")).unwrap();
        write(&folder.join("src/a"), "a", 0);
        ["a", "b", "c", "d"].iter().for_each(|name| write(&folder.join("dst").join(name), "a", 0));
    });
    for (number, (flags, code, left)) in [
        ("--delete", 25, 4),
        ("--delete --max-delete=3", 0, 1),
        ("--delete --max-delete=2", 25, 2),
        ("--delete --force", 0, 1),
        ("--delete --force --no-force", 25, 4),
    ]
    .into_iter()
    .enumerate()
    {
        let name = number.to_string();
        scene.tow(&name, &words(&format!("sync {flags} src/ dst"))).with(code);
        let names = trees::names(&scene.machine().path(format!("{name}/dst")));
        assert_eq!(names.len(), left, "{flags}: {names:?}");
    }
}

fn what_is_told_is_what_was_asked_for() {
    let scene = Scene::new(one_of_each);
    let told = |name: &str, flags: &str| {
        let ended = scene.tow(name, &words(&format!("sync {flags} src/ dst"))).with(0);
        (ended.text(), ended.err)
    };
    let (plain, notes) = told("plain", "");
    assert_eq!(plain, "");
    assert!(notes.contains("fifo"), "{notes}");
    assert_eq!(told("quiet", "-q -v"), (String::new(), String::new()));
    for (number, (flags, has, has_not)) in [
        ("-i", ">f+++++++++ new", "alike"),
        ("-ii", ".f          alike", "sent "),
        ("-i --no-i", "", "new"),
        ("-v", "\nnew\n", "+++"),
        ("-v", "\nsent ", "alike"),
        ("--progress", "\nnew\n", "\nsent "),
        ("-P", "\nnew\n", "\nsent "),
        ("-P --no-progress", "", "new"),
        ("--stats", "\nNumber of files: ", "new"),
        ("--stats", "\nTotal transferred file size: 5,", "new"),
        ("--stats -h", "\nTotal transferred file size: 5.", "K bytes, "),
        ("--stats --no-h", "\nTotal transferred file size: 5", "file size: 5,"),
        ("--stats -h --no-h", "\nTotal transferred file size: 5", "file size: 5."),
        ("--json", "{\"event\":\"summary\"", "+++\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let (text, _) = told(&number.to_string(), flags);
        assert!(text.contains(has), "{flags}: no '{has}' in {text}");
        assert!(!text.contains(has_not), "{flags}: '{has_not}' in {text}");
    }
}

fn tow_cp_tells_what_was_asked_for() {
    let scene = Scene::new(scene_for_cp);
    let told = |name: &str, flags: &str| {
        let ended = scene.tow(name, &words(&format!("cp {flags} src there"))).with(0);
        (ended.text(), ended.err)
    };
    let (plain, notes) = told("plain", "");
    assert!(plain.is_empty() && notes.contains("fifo"), "{plain}{notes}");
    assert_eq!(told("quiet", "-q"), (String::new(), String::new()));
    assert!(told("verbose", "-v").0.contains("src/new\n"));
    assert!(told("json", "--json").0.contains("{\"event\":\"summary\""));
    // Flags for what is so anyway.
    let plain = portrait(&scene.machine().path("plain"));
    for flags in ["-r", "-p", "-f"] {
        assert!(scene.ours(flags, &words(&format!("cp {flags} src there"))).tree == plain, "{flags}");
    }
}

fn age_of_special(path: &Path) {
    let status = Command::new("touch").args(["-h", "-d", "@1200000000"]).arg(path).status();
    assert!(status.unwrap().success());
}
