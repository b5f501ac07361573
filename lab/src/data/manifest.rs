//! `lab/data.toml`: packages, where to get them, and what must come.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ring::digest::{Context, SHA256};
use serde::Deserialize;

use super::{DataError, at};

/// The manifest of this repository.
const MANIFEST: &str = include_str!("../../data.toml");

/// Program that fetches a package.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tool {
    Npm,
    Pip,
    Apt,
}

/// A version of a package.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Name in scenarios.
    pub name: String,
    /// Version.
    pub version: String,
    tool: Tool,
    package: String,
    #[serde(default)]
    options: Vec<String>,
    sha256: String,
}

/// All of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    package: Vec<Package>,
}

impl Manifest {
    /// Reads it.
    pub fn read() -> Result<Self, DataError> {
        toml::from_str(MANIFEST).map_err(|error| DataError::Manifest(error.to_string()))
    }

    /// In its order.
    pub fn packages(&self) -> &[Package] {
        &self.package
    }

    /// One of them.
    pub fn find(&self, name: &str, version: &str) -> Result<&Package, DataError> {
        self.package.iter().find(|package| package.name == name && package.version == version).ok_or_else(
            || {
                let known: Vec<_> = self
                    .package
                    .iter()
                    .map(|package| format!("{} {}", package.name, package.version))
                    .collect();
                DataError::Unknown { name: name.into(), version: version.into(), known: known.join(", ") }
            },
        )
    }
}

impl Package {
    /// The file's name in the lab's store.
    pub fn file_name(&self) -> String {
        let ending = match self.tool {
            Tool::Npm => "tgz",
            Tool::Pip => "whl",
            Tool::Apt => "deb",
        };
        format!("{}-{}.{ending}", self.name, self.version)
    }

    /// Fetches it into `path` by its tool.
    pub fn fetch(&self, path: &Path) -> Result<(), DataError> {
        let parent = path.parent().unwrap_or(Path::new("."));
        let dir = tempfile::Builder::new().prefix("fetch-").tempdir_in(parent).map_err(at(parent))?;
        run(self.command().current_dir(dir.path()))?;
        let fetched = only_file(dir.path()).map_err(at(dir.path()))?;
        self.check(&fetched)?;
        fs::rename(&fetched, path).map_err(at(path))
    }

    /// Checks that a file is this package.
    pub fn check(&self, path: &Path) -> Result<(), DataError> {
        let found = sha256(path).map_err(at(path))?;
        match found == self.sha256 {
            true => Ok(()),
            false => Err(DataError::Hash {
                package: format!("{} {}", self.name, self.version),
                found,
                expected: self.sha256.clone(),
            }),
        }
    }

    fn command(&self) -> Command {
        let words: &[&str] = match self.tool {
            Tool::Npm => &["npm", "pack", "--silent"],
            Tool::Pip => &["python3", "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"],
            Tool::Apt => &["apt-get", "download", "-q"],
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&self.options).arg(&self.package);
        command
    }

    /// Unpacks `file` into the directory `into`, which is there and empty.
    pub fn unpack(&self, file: &Path, into: &Path) -> Result<(), DataError> {
        let mut command = match self.tool {
            Tool::Npm => {
                let mut command = Command::new("tar");
                command.arg("-xzf").arg(file).arg("-C").arg(into);
                command
            }
            Tool::Pip => {
                let mut command = Command::new("python3");
                command.args(["-m", "zipfile", "-e"]).arg(file).arg(into);
                command
            }
            Tool::Apt => {
                let mut command = Command::new("dpkg-deb");
                command.arg("-x").arg(file).arg(into);
                command
            }
        };
        run(&mut command)
    }
}

/// Runs a tool; what it said is told when it fails.
fn run(command: &mut Command) -> Result<(), DataError> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let failed = |what: String| DataError::Tool { command: words.join(" "), what };
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

fn only_file(dir: &Path) -> io::Result<PathBuf> {
    let mut entries = fs::read_dir(dir)?;
    entries.next().transpose()?.map(|entry| entry.path()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut context) = (File::open(path)?, Context::new(&SHA256));
    let mut buffer = [0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            len => context.update(&buffer[..len]),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_has_pairs_and_hashes() {
        let manifest = Manifest::read().unwrap();
        for package in manifest.packages() {
            assert!(package.sha256.len() == 64, "{}", package.name);
            assert!(manifest.packages().iter().filter(|other| other.name == package.name).count() >= 2);
        }
        let error = manifest.find("typescript", "0").unwrap_err().to_string();
        assert!(error.contains("typescript 6.0.3"), "{error}");
    }

    #[test]
    fn sha256_is_sha256() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&path).unwrap(), expected);
    }

    #[test]
    fn what_is_not_the_package_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "something else").unwrap();
        let manifest = Manifest::read().unwrap();
        let error = manifest.packages()[0].check(&path).unwrap_err().to_string();
        assert!(error.contains("SHA-256"), "{error}");
    }

    #[test]
    fn a_tool_that_fails_is_told_with_its_words() {
        let mut command = Command::new("sh");
        let error = run(command.args(["-c", "echo no >&2; exit 1"])).unwrap_err().to_string();
        assert!(error.contains("exit 1: no"), "{error}");
    }
}
