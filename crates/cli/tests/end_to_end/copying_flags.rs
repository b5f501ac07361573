//! Every flag of `tow sync` and `tow cp` does something, and what rsync does with it.
//!
//! Most flags are a line in [`TABLE`]: the same scene is copied without the flag, with it, and by
//! rsync with it. Without it something else must come out, rsync must end with the same trees, the
//! same itemised lines and the same exit code. What one scene can't show has a situation below.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::environment::{Ended, Summary};
use crate::likeness::{
    Scene, age, attribute, has_rsync, is_root, items, link, list_user, mode, portrait, settle, words, write,
};
use crate::runner::{situations, skip};
use crate::trees;

situations![
    each_flag_of_the_table_does_something_and_what_rsync_does,
    each_flag_has_a_test,
];

/// A flag, the words with it that let it be seen, and it.
type Case = (&'static str, &'static str, &'static str);

/// `rsync` is given `-rlptgoHAX`, which is what `tow sync` does on its own, besides these words.
const TABLE: &[Case] = &[
    ("archive", "--no-p --no-t", "-a -H -A -X"),
    ("recursive", "--no-r", "-r"),
    ("no-recursive", "", "--no-r"),
    ("links", "--no-l", "-l"),
    ("no-links", "", "--no-l"),
    ("perms", "--no-A --no-p", "-p"),
    ("no-perms", "--no-A", "--no-p"),
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
    ("chmod", "--chmod=D755", "--chmod=F640"),
    ("chown", "", "--chown=77:88"),
    ("chown", "", "--chown=:88"),
    ("copy-links", "", "-L"),
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
    ("filter", "", "--filter=hide,d/* --filter=show,d/sub --delete"),
    ("F", "", "-F"),
    ("F", "-F", "-F"),
    ("exclude", "", "--exclude=in*"),
    ("exclude", "", "--exclude=/d/sub/ --delete"),
    ("include", "--exclude=*", "--exclude=* --include=new"),
    ("include", "--exclude=in*", "--include=inside --exclude=in*"),
    ("exclude-from", "", "--exclude-from=rules"),
    ("include-from", "--exclude=*e*", "--include-from=rules --exclude=*e*"),
    ("files-from", "", "--files-from=names"),
    ("files-from", "--files-from=names", "-r --files-from=names"),
    ("from0", "--files-from=names0", "-0 --files-from=names0"),
    ("from0", "-r --files-from=names0", "-r --files-from=names0 --from0"),
    ("no-from0", "-0 --files-from=names", "--no-from0 --files-from=names"),
    ("delete", "", "--delete"),
    ("delete", "", "--del"),
    ("delete", "", "--delete-before"),
    ("delete", "", "--delete-during"),
    ("delete", "", "--delete-delay"),
    ("delete", "", "--delete-after"),
    ("delete-excluded", "--delete --exclude=extra*", "--exclude=extra* --delete-excluded"),
    ("max-delete", "--delete", "--delete --max-delete=0"),
    ("force", "--exclude=nothing", "--force"),
    ("no-force", "--force", "--no-force"),
    ("backup", "", "-b"),
    ("backup", "--delete", "--delete --backup"),
    ("no-backup", "-b", "--no-b"),
    ("suffix", "-b", "-b --suffix=.old"),
    ("suffix", "-b --backup-dir=../kept", "-b --backup-dir=../kept --suffix=.old"),
    ("backup-dir", "-b", "-b --backup-dir=../kept"),
    ("backup-dir", "--delete -b", "--delete --backup-dir=kept"),
    ("backup-dir", "--delete --force", "--delete --force -b --backup-dir=../kept"),
    ("remove-source-files", "", "--remove-source-files"),
    ("dry-run", "", "-n"),
    ("dry-run", "--delete", "--delete -n"),
    ("no-dry-run", "-n", "--no-n"),
    ("itemize-changes", "", "-i"),
    ("no-itemize-changes", "", "--no-i"),
];

/// One of each kind, in each state that some flag is about.
fn scene(folder: &Path) {
    let (source, destination) = (folder.join("src"), folder.join("dst"));
    for dir in ["d/sub", "empty", "file_there"] {
        fs::create_dir_all(source.join(dir)).unwrap();
    }
    for dir in ["d/sub", "extra_dir/below", "directory_there"] {
        fs::create_dir_all(destination.join(dir)).unwrap();
    }
    source_files(&source);
    destination_files(&destination);
    write(&folder.join("outside"), "outside", 0);
    write(&folder.join("rules"), "inside\nnew\n", 0);
    write(&folder.join("names"), "new\nd\n", 0);
    write(&folder.join("names0"), "new\0d/sub\0", 0);
    settle(folder);
    age(&source.join("d"), 50);
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
    write(&source.join("big"), trees::bytes(1, 5000), 0);
    fs::hard_link(source.join("same"), source.join("same_again")).unwrap();
    file("twin_1", "twins", 0);
    fs::hard_link(source.join("twin_1"), source.join("d/twin_2")).unwrap();
    link("same", &source.join("link"), 0);
    link("d", &source.join("link_to_d"), 0);
    link("../outside", &source.join("link_out"), 0);
    mode(&source.join("strict"), 0o600);
    mode(&source.join("d/sub"), 0o750);
    attribute(&source.join("marked"), "user.colour", b"blue");
    attribute(&source.join("d"), "user.colour", b"red");
    list_user(&source.join("listed"), 77);
    let special = |name: &str, kind, device| {
        mknodat(CWD, source.join(name), kind, Mode::from_raw_mode(0o644), device).unwrap();
    };
    special("fifo", FileType::Fifo, 0);
    if is_root() {
        special("device", FileType::CharacterDevice, makedev(1, 3));
        std::os::unix::fs::lchown(source.join("owned"), Some(1234), Some(2345)).unwrap();
        std::os::unix::fs::lchown(source.join("link"), Some(1234), Some(2345)).unwrap();
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

fn each_flag_of_the_table_does_something_and_what_rsync_does() {
    let mut wrong = Vec::new();
    let scene = Scene::new(scene);
    for (number, (flag, before, with)) in TABLE.iter().enumerate() {
        wrong.extend(judge(&scene, number, flag, before, with));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn judge(scene: &Scene, number: usize, flag: &str, before: &str, with: &str) -> Vec<String> {
    let ours = |name: &str, flags: &str| {
        scene.ours(&format!("{number}-{name}"), &words(&format!("sync -i {flags} src/ dst")))
    };
    let (without, with_it) = (ours("without", before), ours("with", with));
    let mut wrong = Vec::new();
    if without.differences(&with_it).is_empty() {
        wrong.push(format!("--{flag}: '{with}' does nothing: {}", with_it.errors));
    }
    if has_rsync() {
        let theirs =
            scene.theirs(&format!("{number}-theirs"), "rsync", &words(&format!("-rlptgoHAX -i {with} src/ dst")));
        let differences = with_it.differences(&theirs);
        if !differences.is_empty() {
            let said = format!("ours: {}theirs: {}", with_it.errors, theirs.errors);
            wrong.push(format!("--{flag}: '{with}' is not as in rsync:\n {}\n{said}", differences.join("\n ")));
        }
    }
    wrong
}

fn each_flag_has_a_test() {
}
