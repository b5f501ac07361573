//! A source that is made up from a seed: the steps of its walk, the contents of its files, and what is at the destination
//! before and after.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use towpath_content::tree::{Entry, Event, Kind, Metadata, Time, Xattr};

/// What is at a path: mode, seconds of its last change, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    Directory(u32, i64),
    File(u32, i64, Vec<u8>),
    Link(Vec<u8>),
}

impl Thing {
    /// Of a file.
    pub fn content(&self) -> Option<&[u8]> {
        if let Self::File(_, _, content) = self { Some(content) } else { None }
    }
}

pub type Things = BTreeMap<PathBuf, Thing>;

/// A step of the sender.
pub enum WalkStep {
    /// With the number of the entry, if it is a file.
    Event(Box<Event>, Option<u64>),
    /// The next directory is told without what is in it.
    Closed,
}

/// See the head of this module.
pub struct Sample {
    pub walk: Vec<WalkStep>,
    pub contents: HashMap<u64, Vec<u8>>,
    /// What the source has.
    pub source: Things,
    /// What only the destination has, and what it keeps of that.
    pub extra: Things,
    pub kept: Things,
    random: Rng,
    entries: u64,
    /// The first names of files with several, by group.
    groups: Vec<(Entry, PathBuf)>,
}

/// A directory that the sender tells without what is in it.
const CLOSED: &str = "zz closed";

impl Sample {
    /// About so many entries.
    pub fn new(seed: u64, entries: u64) -> Self {
        let mut sample = Self {
            walk: Vec::new(),
            contents: HashMap::new(),
            source: Things::new(),
            extra: Things::new(),
            kept: Things::new(),
            random: Rng::with_seed(seed),
            entries: 0,
            groups: Vec::new(),
        };
        sample.enter("", Path::new(""));
        sample.enter("source", Path::new(""));
        while sample.entries < entries {
            sample.directory(Path::new(""), 0);
        }
        sample.walk.push(WalkStep::Closed);
        sample.enter(CLOSED, Path::new(CLOSED));
        (0..3).for_each(|_| sample.walk.push(WalkStep::Event(Box::new(Event::Leave), None)));
        let extra = |path: &str| (PathBuf::from(path), Thing::File(0o644, 7, path.as_bytes().to_vec()));
        sample.extra = ["0 extra", "zz"].map(extra).into();
        sample.kept = [extra(&format!("{CLOSED}/mine"))].into();
        sample
    }

    /// Makes what the destination has before: what only it has, and old versions of some files.
    pub fn make_destination(&self, to: &Path) {
        let is_old = |path: &Path| path.as_os_str().len().is_multiple_of(3);
        let files =
            self.source.iter().filter(|(path, thing)| matches!(thing, Thing::File(..)) && is_old(path));
        let old = files.map(|(path, _)| (path.clone(), Thing::File(0o600, 5, b"old".to_vec())));
        for (path, thing) in old.chain(self.extra.clone()).chain(self.kept.clone()) {
            let Thing::File(_, _, content) = thing else { continue };
            fs::create_dir_all(to.join(&path).parent().unwrap()).unwrap();
            fs::write(to.join(path), content).unwrap();
        }
    }

    fn directory(&mut self, below: &Path, depth: usize) {
        let name = self.name();
        let path = below.join(&name);
        self.enter(&name, &path);
        for _ in 0..self.random.usize(4..12) {
            match self.random.u8(..10) {
                0 if depth < 4 => self.directory(&path, depth + 1),
                1 => self.link(&path),
                2 if !self.groups.is_empty() => self.further_name(&path),
                number => self.file(&path, number == 3),
            }
        }
        self.walk.push(WalkStep::Event(Box::new(Event::Leave), None));
    }

    /// In the order of a walk.
    fn name(&self) -> String {
        format!("{:06}", self.entries)
    }

    fn entry(&mut self, name: &str, kind: Kind, mode: u32) -> Entry {
        let value = (0..self.random.usize(400..3000)).map(|_| self.random.u8(..)).collect();
        let metadata = Metadata {
            mode,
            modified: Time { seconds: 1_000_000 + self.entries as i64, nanos: 0 },
            xattrs: vec![Xattr { name: b"user.padding".to_vec(), value }],
            ..Metadata::default()
        };
        self.entries += 1;
        Entry { name: name.as_bytes().to_vec(), kind, metadata, hard_link: None }
    }

    fn enter(&mut self, name: &str, path: &Path) {
        let mut entry = self.entry(name, Kind::Directory, 0o755);
        if self.entries == 1 {
            entry.metadata = Metadata::default();
        }
        if self.entries > 2 {
            let thing = Thing::Directory(entry.metadata.mode, entry.metadata.modified.seconds);
            self.source.insert(path.to_owned(), thing);
        }
        self.walk.push(WalkStep::Event(Box::new(Event::Enter(entry)), None));
    }

    fn link(&mut self, below: &Path) {
        let (name, target) = (self.name(), b"../anywhere".to_vec());
        let entry = self.entry(&name, Kind::Symlink { target: target.clone() }, 0o777);
        self.source.insert(below.join(name), Thing::Link(target));
        self.walk.push(WalkStep::Event(Box::new(Event::Leaf(entry)), None));
    }

    fn file(&mut self, below: &Path, has_names: bool) {
        let (name, number) = (self.name(), self.entries);
        let content: Vec<u8> = (0..self.random.usize(..3000)).map(|_| self.random.u8(..)).collect();
        let kind = Kind::File { size: content.len() as u64, oid: None, extents: None };
        let mut entry = self.entry(&name, kind, 0o640);
        if has_names {
            entry.hard_link = Some(self.groups.len() as u64);
            self.groups.push((entry.clone(), below.join(&name)));
        }
        let (mode, seconds) = (entry.metadata.mode, entry.metadata.modified.seconds);
        self.source.insert(below.join(name), Thing::File(mode, seconds, content.clone()));
        self.contents.insert(number, content);
        self.walk.push(WalkStep::Event(Box::new(Event::Leaf(entry)), Some(number)));
    }

    /// Another name of a file.
    fn further_name(&mut self, below: &Path) {
        let (name, number) = (self.name(), self.entries);
        let (first, path) = self.groups[self.random.usize(..self.groups.len())].clone();
        let entry = Entry { name: name.clone().into_bytes(), ..first };
        self.entries += 1;
        self.source.insert(below.join(name), self.source[&path].clone());
        self.walk.push(WalkStep::Event(Box::new(Event::Leaf(entry)), Some(number)));
    }
}

/// All that is below a directory, but for temporaries.
pub fn things(root: &Path) -> Things {
    let mut all = Things::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        for found in fs::read_dir(root.join(&below)).unwrap() {
            let path = below.join(found.unwrap().file_name());
            if path.file_name().unwrap().as_encoded_bytes().starts_with(b".tow-") {
                continue;
            }
            let whole = root.join(&path);
            let metadata = whole.symlink_metadata().unwrap();
            let (mode, seconds) = (metadata.permissions().mode() & 0o7777, metadata.mtime());
            let thing = if metadata.is_dir() {
                open.push(path.clone());
                Thing::Directory(mode, seconds)
            } else if metadata.is_symlink() {
                Thing::Link(fs::read_link(whole).unwrap().into_os_string().into_encoded_bytes())
            } else {
                Thing::File(mode, seconds, fs::read(whole).unwrap())
            };
            all.insert(path, thing);
        }
    }
    all
}
