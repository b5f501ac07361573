//! Source files: each crate's, parsed, with the module that each file is.

use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::{Attribute, File, Item, Meta};

/// A crate of the workspace, `fuzz` and examples left out.
pub struct Source {
    /// The folder's name: `content`, `lab`.
    pub name: String,
    /// The files below `src`, then those of `tests` and `benches`.
    pub files: Vec<SourceFile>,
}

/// A file and what it says.
pub struct SourceFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Names from the crate's root: `["copy", "merge"]`, none for the root itself.
    pub module: Vec<String>,
    /// True if all of it is for tests, benches included.
    pub is_test: bool,
    /// The number of its lines.
    pub lines: usize,
    /// Its items.
    pub parsed: File,
}

impl SourceFile {
    /// The number of lines without those of the modules for tests inside the file.
    pub fn plain_lines(&self) -> usize {
        let tests = self.parsed.items.iter().filter_map(|item| match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => Some(module.span()),
            _ => None,
        });
        self.lines - tests.map(|span| span.end().line + 1 - span.start().line).sum::<usize>()
    }
}

/// Reads all crates below `root`, in the order of their names.
pub fn read(root: &Path) -> Result<Vec<Source>, String> {
    let mut folders = children(&root.join("crates"))?;
    folders.push(root.join("lab"));
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.iter().map(|folder| read_crate(root, folder)).collect()
}

fn read_crate(root: &Path, folder: &Path) -> Result<Source, String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    for part in ["src", "tests", "benches"] {
        let top = folder.join(part);
        for path in rust_files(&top)? {
            files.push(read_file(root, &top, &path, part != "src")?);
        }
    }
    mark_tests(&mut files);
    Ok(Source { name, files })
}

fn read_file(root: &Path, top: &Path, path: &Path, is_test: bool) -> Result<SourceFile, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let parsed = syn::parse_file(&text).map_err(|error| failed(&error))?;
    let shown = path.strip_prefix(root).unwrap_or(path).display().to_string();
    let module = module_of(path.strip_prefix(top).unwrap_or(path));
    Ok(SourceFile { path: shown, module, is_test, lines: text.lines().count(), parsed })
}

/// `copy/merge/mod.rs` is the module `copy::merge`; `lib.rs` and `main.rs` are the root.
fn module_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut names: Vec<String> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

/// Files of modules that are declared `#[cfg(test)]`, and all below them, are for tests.
fn mark_tests(files: &mut [SourceFile]) {
    let mut tests: Vec<Vec<String>> = Vec::new();
    for file in files.iter() {
        for item in &file.parsed.items {
            if let Item::Mod(module) = item
                && module.content.is_none()
                && is_for_tests(&module.attrs)
            {
                tests.push(file.module.iter().cloned().chain([module.ident.to_string()]).collect());
            }
        }
    }
    for file in files.iter_mut() {
        file.is_test |= tests.iter().any(|test| file.module.starts_with(test));
    }
}

/// True if an item is only there in tests: `#[cfg(test)]`, `#[test]`, `#[tokio::test]`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string() == "test" || is_test(&list.path)
        }
        Meta::Path(path) => is_test(path),
        Meta::NameValue(_) => false,
    })
}

fn is_test(path: &syn::Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == "test")
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    if folder.is_dir() {
        for path in children(folder)? {
            if path.is_dir() {
                found.extend(rust_files(&path)?);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Entries of a folder, in the order of the names.
pub fn children(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    Ok(paths)
}
