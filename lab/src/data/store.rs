//! The directory that holds all data between runs: fetched packages, and what was made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::copy::{Times, copy};
use super::generate::{self, Random};
use super::line::{Files, Line, OlderTree, Spec};
use super::manifest::{Manifest, Package};
use super::{Data, DataError, at, digest};

/// Part of the name of everything made: another generator makes other data.
const GENERATION: &str = "v1";

/// See above.
pub struct DataStore {
    /// For what is made.
    dir: PathBuf,
    /// For packages.
    packages: PathBuf,
    manifest: Manifest,
}

impl DataStore {
    /// In this directory, which is made.
    pub fn open(dir: &Path) -> Result<Self, DataError> {
        fs::create_dir_all(dir).map_err(at(dir))?;
        let dir = fs::canonicalize(dir).map_err(at(dir))?;
        Ok(Self { packages: dir.clone(), dir, manifest: Manifest::read()? })
    }

    /// One that has this one's packages, and makes everything else in this directory.
    pub fn within(&self, dir: &Path) -> Self {
        Self { dir: dir.into(), packages: self.packages.clone(), manifest: self.manifest.clone() }
    }

    /// The packages that can be had.
    pub fn packages(&self) -> &[Package] {
        self.manifest.packages()
    }

    /// Data of a line: fetched or made unless they are here, and read once, so that they are in memory.
    pub fn get(&self, name: &str) -> Result<Data, DataError> {
        let Line { spec, place, useless } = Line::parse(name)?;
        let (source, older) = match &spec {
            Spec::Random(bytes) => (self.random(*bytes)?, None),
            Spec::Text(bytes) => (self.text(*bytes)?, None),
            Spec::Similar { bytes, share } => self.similar(*bytes, *share)?,
            Spec::OddTree => (self.tree("odd-tree", generate::odd_tree)?, None),
            Spec::Files { kind, count, older } => self.trees(*kind, *count, *older)?,
            Spec::Package { name, version, older, is_unpacked } => {
                let get = |version: &String| self.package(self.manifest.find(name, version)?, *is_unpacked);
                (get(version)?, older.as_ref().map(get).transpose()?)
            }
        };
        let useless = (useless > 0).then(|| self.useless(useless)).transpose()?;
        let content = digest(&source).map_err(at(&source))?;
        let keeps_times = matches!(spec, Spec::Files { .. });
        let is_tree = source.is_dir();
        Ok(Data { name: name.to_owned(), source, older, keeps_times, place, useless, is_tree, content })
    }

    /// A tree of files, and what the receiver has of it.
    fn trees(
        &self,
        kind: Files,
        count: u64,
        older: OlderTree,
    ) -> Result<(PathBuf, Option<PathBuf>), DataError> {
        let name = format!("{}-{count}", kind.name());
        let first = self.tree(&name, |path, random| generate::files(path, kind, count, random))?;
        match older {
            OlderTree::Nothing => Ok((first, None)),
            OlderTree::Same => Ok((first.clone(), Some(first))),
            OlderTree::Changed(changed) => {
                let make = |path: &Path, random: &mut Random| {
                    copy(&first, path, Times::Kept)?;
                    generate::change(path, kind, count, changed, random)
                };
                let newer = self.made(&format!("{name}-changed-{changed}"), make)?;
                Ok((newer, Some(first)))
            }
        }
    }

    /// A tree that has nothing to do with anything else.
    fn useless(&self, count: u64) -> Result<PathBuf, DataError> {
        let make = |path: &Path, random: &mut Random| generate::files(path, Files::Tiny, count, random);
        self.tree(&format!("useless-{count}"), make)
    }

    fn random(&self, bytes: u64) -> Result<PathBuf, DataError> {
        self.made(&format!("random-{bytes}"), |path, random| generate::file(path, bytes, random))
    }

    fn text(&self, bytes: u64) -> Result<PathBuf, DataError> {
        self.made(&format!("text-{bytes}"), |path, random| generate::text(path, bytes, random))
    }

    /// The newer and the older one.
    fn similar(&self, bytes: u64, share: Option<u32>) -> Result<(PathBuf, Option<PathBuf>), DataError> {
        let older = self.random(bytes)?;
        let newer = match share {
            None => {
                self.made(&format!("similar-{bytes}"), |path, random| generate::edit(&older, path, random))
            }
            Some(share) => self.made(&format!("similar-{bytes}-{share}"), |path, random| {
                generate::edit_long(&older, path, share, random)
            }),
        };
        Ok((newer?, Some(older)))
    }

    fn tree(
        &self,
        name: &str,
        make: impl FnOnce(&Path, &mut Random) -> io::Result<()>,
    ) -> Result<PathBuf, DataError> {
        self.made(name, |path, random| {
            fs::create_dir(path)?;
            make(path, random)
        })
    }

    /// Makes something under another name, so that half of it is never taken for all.
    fn made(
        &self,
        name: &str,
        make: impl FnOnce(&Path, &mut Random) -> io::Result<()>,
    ) -> Result<PathBuf, DataError> {
        let path = self.dir.join(format!("{name}-{GENERATION}"));
        if path.exists() {
            return Ok(path);
        }
        let dir = self.temporary("make-")?;
        let unfinished = dir.path().join(name);
        make(&unfinished, &mut Random::new(name)).map_err(at(&unfinished))?;
        take_place(&unfinished, &path)?;
        Ok(path)
    }

    /// A package's file, or the tree that it holds.
    pub fn package(&self, package: &Package, is_unpacked: bool) -> Result<PathBuf, DataError> {
        let file = self.packages.join(package.file_name());
        match file.exists() {
            true => package.check(&file)?,
            false => package.fetch(&file)?,
        }
        let tree = self.dir.join(format!("{}-{}", package.name, package.version));
        if !is_unpacked || tree.exists() {
            return Ok(if is_unpacked { tree } else { file });
        }
        let dir = self.temporary("unpack-")?;
        let unfinished = dir.path().join("tree");
        fs::create_dir(&unfinished).map_err(at(&unfinished))?;
        package.unpack(&file, &unfinished)?;
        take_place(&unfinished, &tree)?;
        Ok(tree)
    }

    fn temporary(&self, prefix: &str) -> Result<tempfile::TempDir, DataError> {
        tempfile::Builder::new().prefix(prefix).tempdir_in(&self.dir).map_err(at(&self.dir))
    }
}

/// Renames, unless another process was faster, with the same.
fn take_place(unfinished: &Path, path: &Path) -> Result<(), DataError> {
    match fs::rename(unfinished, path) {
        Err(_) if path.exists() => Ok(()),
        result => result.map_err(at(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = DataStore::open(dir.path()).unwrap();
        let first = store.get("similar 300k").unwrap();
        let again = store.get("similar 300k").unwrap();
        assert_eq!(first.content, again.content);
        assert!(first.older.unwrap().is_file());
        let tree = store.get("small-files 150").unwrap();
        assert!(tree.is_tree && tree.content.bytes > 0);
        assert_eq!(tree.content.files, 150);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing temporary is left");
    }
}
