//! Comparison of trees in all that `rsync -aHAX` carries, and rsync itself to compare with.
//!
//! A scene is a folder with trees in it. It is built once; each program then gets a twin of it, and
//! what counts is the whole twin afterwards, with the source in it, what was told, and the exit code.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lsetxattr, utimensat,
};

use crate::environment::{Ended, Machine, TestEnvironment};

/// A time that entries have unless they say otherwise.
pub const THEN: u64 = 1_200_000_000;

/// The exit code of a program that did not end.
pub const HUNG: i32 = 124;

/// All that can be seen of each entry of a tree.
pub type Portrait = BTreeMap<PathBuf, String>;

/// Looks at a tree. Of the folder itself only what is in it counts.
pub fn portrait(root: &Path) -> Portrait {
    let (mut portrait, mut first_names) = (Portrait::new(), BTreeMap::new());
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for name in names(&root.join(&folder)) {
            let path = folder.join(name);
            let metadata = fs::symlink_metadata(root.join(&path)).unwrap();
            if metadata.is_dir() {
                open.push(path.clone());
            } else if metadata.nlink() > 1 {
                // The least name stands for the group, whatever order they come in.
                let group: &mut Vec<PathBuf> = first_names.entry(metadata.ino()).or_default();
                group.push(path.clone());
            }
            portrait.insert(path.clone(), entry(&root.join(&path), &metadata));
        }
    }
    for mut group in first_names.into_values() {
        group.sort();
        for path in &group {
            portrait.get_mut(path).unwrap().push_str(&format!(" one of {group:?}"));
        }
    }
    portrait
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

fn entry(path: &Path, metadata: &fs::Metadata) -> String {
    let kind = metadata.file_type();
    let content = match kind {
        kind if kind.is_dir() => "directory".into(),
        kind if kind.is_symlink() => format!("link to {}", fs::read_link(path).unwrap().display()),
        kind if kind.is_file() => format!("file {}", content(&fs::read(path).unwrap())),
        kind if kind.is_fifo() => "fifo".into(),
        kind if kind.is_socket() => "socket".into(),
        _ => format!("device {}", metadata.rdev()),
    };
    let mode = if kind.is_symlink() { 0 } else { metadata.mode() & 0o7777 };
    let owner = format!("{}:{}", metadata.uid(), metadata.gid());
    let is_recent = metadata.mtime().cast_unsigned() > THEN + 1_000_000;
    let time =
        if is_recent { "now".into() } else { format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()) };
    format!("{content} {mode:o} {owner} {time}{}", attributes(path))
}

/// Short files as they are, so that a difference can be read.
fn content(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() < 40 => format!("{text:?}"),
        _ => format!("{} bytes, {}", bytes.len(), towpath_content::Oid::of(bytes)),
    }
}

fn attributes(path: &Path) -> String {
    let (mut names, mut value) = (vec![0; 4096], vec![0; 4096]);
    let length = llistxattr(path, &mut names[..]).unwrap();
    let mut names: Vec<_> = names[..length].split_inclusive(|&byte| byte == 0).collect();
    names.sort();
    let mut text = String::new();
    for name in names {
        let name = CStr::from_bytes_with_nul(name).unwrap();
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        text.push_str(&format!(
            " {}={:?}",
            name.to_string_lossy(),
            value[..length].escape_ascii().to_string()
        ));
    }
    text
}

/// Differences between two trees, a line each.
pub fn differences(one: &Portrait, other: &Portrait) -> Vec<String> {
    let paths = one.keys().chain(other.keys().filter(|path| !one.contains_key(*path)));
    let seen = |portrait: &Portrait, path| portrait.get(path).cloned().unwrap_or_else(|| "nothing".into());
    paths
        .filter(|path| one.get(*path) != other.get(*path))
        .map(|path| format!("{}: {} | {}", path.display(), seen(one, path), seen(other, path)))
        .collect()
}

/// End of a copy.
pub struct Outcome {
    /// The scene afterwards.
    pub tree: Portrait,
    /// The itemised lines, sorted.
    pub items: Vec<String>,
    /// The exit code.
    pub code: i32,
    /// Standard error, for those who have to find out.
    pub errors: String,
}

impl Outcome {
    /// Differences, for a person.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = differences(&self.tree, &other.tree);
        let linked: Vec<_> = linked(&self.items).chain(linked(&other.items)).collect();
        let (ours, theirs) = [self, other].map(|it| without_hard_links(&it.items, &linked)).into();
        all.extend(ours.iter().filter(|line| !theirs.contains(line)).map(|line| format!("< {line}")));
        all.extend(theirs.iter().filter(|line| !ours.contains(line)).map(|line| format!("> {line}")));
        if self.code != other.code {
            all.push(format!("exit code {} | {}", self.code, other.code));
        }
        all
    }
}

/// A machine with trees to copy on it.
pub struct Scene {
    environment: TestEnvironment,
}

impl Scene {
    /// Builds the trees.
    pub fn new(build: impl FnOnce(&Path)) -> Self {
        let environment = TestEnvironment::new();
        let folder = environment.sender.path("scene");
        fs::create_dir(&folder).unwrap();
        build(&folder);
        Self { environment }
    }

    /// Machine that has the files.
    pub const fn machine(&self) -> &Machine {
        &self.environment.sender
    }

    /// Machine that is somewhere else, but on the same disk.
    pub const fn elsewhere(&self) -> &Machine {
        &self.environment.receiver
    }

    /// Another scene that is the same.
    pub fn twin(&self, name: &str) -> PathBuf {
        let twin = self.machine().path(name);
        let status = Command::new("cp").arg("-a").arg(self.machine().path("scene")).arg(&twin).status();
        assert!(status.unwrap().success());
        twin
    }

    /// Runs `tow` in a twin of that name.
    pub fn tow<S: AsRef<OsStr>>(&self, name: &str, words: &[S]) -> Ended {
        let twin = self.twin(name);
        self.machine().tow(words).folder(&twin).end()
    }

    /// The same, and looks at how it ended.
    pub fn ours<S: AsRef<OsStr>>(&self, name: &str, words: &[S]) -> Outcome {
        let ended = self.tow(name, words);
        let (items, code) = (items(&ended.text()), ended.code());
        Outcome { tree: portrait(&self.machine().path(name)), items, code, errors: ended.err }
    }

    /// Runs another program in a twin of that name, for so long: rsync hangs now and then. The exit
    /// code is [`HUNG`] then.
    pub fn theirs<S: AsRef<OsStr>>(&self, name: &str, program: &str, words: &[S]) -> Outcome {
        let twin = self.twin(name);
        let ended =
            Command::new("timeout").args(["3", program]).args(words).current_dir(&twin).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        let items = items(&String::from_utf8_lossy(&ended.stdout));
        Outcome { tree: portrait(&twin), items, code: ended.status.code().unwrap(), errors }
    }
}

/// The lines that tell of an entry, sorted: the order is everybody's own affair.
pub fn items(output: &str) -> Vec<String> {
    let is_item = |line: &&str| {
        let bytes = line.as_bytes();
        let kinds = bytes.len() > 12 && b"<>ch.".contains(&bytes[0]) && b"fdLDS".contains(&bytes[1]);
        line.starts_with("*deleting ") || (kinds && bytes[11] == b' ')
    };
    let mut items: Vec<String> = output.lines().filter(is_item).map(Into::into).collect();
    items.sort();
    items
}

/// The lines without those of files with several names. Which of the names is the first is also
/// everybody's own affair, and with it what there is to do about the others; the trees tell.
fn without_hard_links<'a>(items: &'a [String], linked: &[&str]) -> Vec<&'a String> {
    let is_linked = |item: &&String| {
        let name = item.get(12..).unwrap_or("").split(" => ").next();
        item.starts_with('h') || linked.iter().any(|linked| Some(*linked) == name)
    };
    items.iter().filter(|item| !is_linked(item)).collect()
}

/// The names that lines of hard links tell of.
fn linked(items: &[String]) -> impl Iterator<Item = &str> {
    let links = items.iter().filter(|item| item.starts_with('h'));
    links.flat_map(|item| item[12..].split(" => ").map(str::trim))
}

/// True if there is an rsync to compare with.
pub fn has_rsync() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| Command::new("rsync").arg("--version").output().is_ok())
}

/// True if owners, devices and mounts can be had.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file with this in it, of that long ago.
pub fn write(path: &Path, text: impl AsRef<[u8]>, seconds: u64) {
    fs::write(path, text).unwrap();
    age(path, seconds);
}

/// Gives a file or directory a time: so many seconds after [`THEN`].
pub fn age(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::new(THEN + seconds, 5);
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// A symbolic link of that long ago.
pub fn link(target: &str, path: &Path, seconds: u64) {
    std::os::unix::fs::symlink(target, path).unwrap();
    let time = Timespec { tv_sec: (THEN + seconds).cast_signed(), tv_nsec: 5 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Sets a mode.
pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Sets an extended attribute.
pub fn attribute(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Lets the user of this number read and write a file, by its access control list.
pub fn list_user(path: &Path, user: u8) {
    // Version 2; then tag, rights and id of owner, user, group, mask, others.
    let entry = |tag: u8, rights: u8, id: [u8; 4]| [&[tag, 0, rights, 0][..], &id].concat();
    let (none, user) = ([0xff; 4], [user, 0, 0, 0]);
    let entries =
        [entry(1, 6, none), entry(2, 6, user), entry(4, 4, none), entry(0x10, 6, none), entry(0x20, 4, none)];
    attribute(path, "system.posix_acl_access", &[&[2, 0, 0, 0][..], &entries.concat()].concat());
}

/// Gives all directories below a folder the same time, so that how they were made does not show.
pub fn settle(folder: &Path) {
    for name in names(folder) {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            settle(&path);
            age(&path, 0);
        }
    }
}

/// The words of a line.
pub fn words(line: &str) -> Vec<&OsStr> {
    line.split_whitespace().map(|word| OsStr::from_bytes(word.as_bytes())).collect()
}
