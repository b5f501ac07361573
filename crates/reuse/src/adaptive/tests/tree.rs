//! A large home directory that exists nowhere: drawn from a seed.

use std::collections::HashMap;
use std::path::Path;

use towpath_content::tree::Time;

use crate::adaptive::heuristics::File;
use crate::adaptive::paths::SplitDirectory;

const WORDS: &[&str] = &[
    "src", "test", "lib", "doc", "include", "build", "old", "data", "papers", "n", "c", "y", "s", "mail",
    "photos", "work", "util", "core", "net", "driver", "kernel", "arch", "tools", "scripts", "figures",
    "results", "music", "backup", "projects", "class", "notes", "html", "cache", "share", "bin", "config",
    "2007", "2006", "tmp", "misc",
];
const EXTENSIONS: &[&str] =
    &[".c", ".h", ".o", ".txt", ".tex", ".pdf", ".jpg", ".html", "", ".py", ".gz", ".eps"];

struct Node {
    directory: SplitDirectory,
    children: Vec<Box<[u8]>>,
    files: u32,
    placed: Vec<File>,
}

/// Directories with their entries; files are drawn when their directory is listed.
pub struct Tree {
    nodes: Vec<Node>,
    at: HashMap<SplitDirectory, usize>,
    seed: u64,
}

impl Tree {
    /// So many directories and files, with `fixed` among the directories.
    pub fn new(seed: u64, directories: usize, files: u32, fixed: &[&str]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut tree = Self { nodes: Vec::new(), at: HashMap::new(), seed };
        tree.ensure(&SplitDirectory::new(Path::new("/")));
        for path in fixed {
            tree.ensure(&SplitDirectory::new(Path::new(path)));
        }
        while tree.nodes.len() < directories {
            // The better of two parents by depth: broad at the top, some deep corners.
            let (one, other) = (random.usize(..tree.nodes.len()), random.usize(..tree.nodes.len()));
            let parent = if random.u8(..3) == 0 { one.min(other) } else { one };
            let mut name = WORDS[random.usize(..WORDS.len())].to_owned();
            if random.bool() {
                name.push_str(&random.u16(..999).to_string());
            }
            let directory = tree.nodes[parent].directory.child(name.as_bytes());
            if directory.names().len() < 14 {
                tree.ensure(&directory);
            }
        }
        for _ in 0..files {
            let to = random.usize(..tree.nodes.len()).min(random.usize(..tree.nodes.len()) * 2);
            tree.nodes[to.min(directories - 1)].files += 1;
        }
        tree
    }

    fn ensure(&mut self, directory: &SplitDirectory) {
        if self.at.contains_key(directory) {
            return;
        }
        if let Some(parent) = directory.parent() {
            self.ensure(&parent);
            let name = directory.names().last().unwrap();
            self.nodes[self.at[&parent]].children.push(name.bytes().into());
        }
        self.at.insert(directory.clone(), self.nodes.len());
        let directory = directory.clone();
        self.nodes.push(Node { directory, children: Vec::new(), files: 0, placed: Vec::new() });
    }

    /// Puts a file of that size where `path` says.
    pub fn place(&mut self, path: &str, size: u64) {
        let path = Path::new(path);
        let directory = SplitDirectory::new(path.parent().unwrap());
        self.ensure(&directory);
        let name = path.file_name().unwrap().as_encoded_bytes().into();
        let modified = Some(Time { seconds: 77, nanos: 5 });
        let file = File { directory: directory.clone(), name, size, modified };
        self.nodes[self.at[&directory]].placed.push(file);
    }

    /// Puts a file somewhere.
    pub fn place_somewhere(&mut self, random: &mut fastrand::Rng, name: &str, size: u64) {
        let directory = self.nodes[random.usize(..self.nodes.len())].directory.path();
        self.place(directory.join(name).to_str().unwrap(), size);
    }

    /// Contents of a directory.
    pub fn list(&self, directory: &SplitDirectory) -> (Vec<File>, Vec<Box<[u8]>>) {
        let Some(at) = self.at.get(directory) else { return (Vec::new(), Vec::new()) };
        let node = &self.nodes[*at];
        let mut random = fastrand::Rng::with_seed(self.seed ^ (*at as u64) << 20);
        let mut files: Vec<_> = (0..node.files).map(|number| drawn(directory, number, &mut random)).collect();
        files.extend(node.placed.iter().cloned());
        (files, node.children.clone())
    }
}

/// Sizes over seven orders of magnitude, most of them small: about 170 kB on average.
fn drawn(directory: &SplitDirectory, number: u32, random: &mut fastrand::Rng) -> File {
    let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    let word = WORDS[random.usize(..WORDS.len())];
    let extension = EXTENSIONS[random.usize(..EXTENSIONS.len())];
    File {
        directory: directory.clone(),
        name: format!("{word}{number}{extension}").into_bytes().into(),
        size: (8.6 + 2.6 * normal).exp() as u64,
        modified: Some(Time {
            seconds: random.i64(1_000_000_000..1_200_000_000),
            nanos: random.u32(..1_000_000_000),
        }),
    }
}
