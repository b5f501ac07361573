//! The gate: figures of the source and of the design pages, each with a limit that may only fall.
//!
//! | file | holds |
//! |---|---|
//! | `source` | the crates' files, parsed, with the module that each one is |
//! | `modules` | which module uses which, the circles among them, and their picture |
//! | `measures` | sizes of functions and traits, names of types, sleeps in tests |
//! | `methods` | methods per type |
//! | `prose` | words per sentence |
//! | `limits` | the limits in `limits.toml`, and what breaks them |

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

mod limits;
mod measures;
mod methods;
mod modules;
mod prose;
mod source;

use limits::{Figure, Limits};

const HELP: &str = "The figures of the house beside their limits (gate/limits.toml).

usage: towpath-gate [--where FIGURE | --dot CRATE]

  --where FIGURE  what a figure counts, one line each
  --dot CRATE     the dependencies of a crate's modules, for Graphviz; modules in circles are red

Exit status: 0 if each figure is at its limit, 1 if not, 2 for a wrong command line.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let done = match words[..] {
        [] => check(root),
        ["--where", name] => show(root, name),
        ["--dot", name] => draw(root, name),
        ["--help" | "-h"] => print(HELP).map(|()| true),
        _ => return complain(HELP, 2),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => complain(&format!("gate: {error}\n"), 1),
    }
}

/// Prints each figure beside its limit. `false` if one is not at its limit.
fn check(root: &Path) -> Result<bool, String> {
    let limits = Limits::read(&root.join("gate/limits.toml"))?;
    let (table, complaints) = limits.compare(&figures(root)?);
    print(&table)?;
    for complaint in &complaints {
        complain(&format!("gate: {complaint}\n"), 1);
    }
    Ok(complaints.is_empty())
}

fn show(root: &Path, name: &str) -> Result<bool, String> {
    let figures = figures(root)?;
    let Some(figure) = figures.iter().find(|figure| figure.name == name) else {
        let names: Vec<_> = figures.iter().map(|figure| figure.name).collect();
        return Err(format!("no figure is called '{name}'; there are {}", names.join(", ")));
    };
    print(&figure.places.iter().map(|place| format!("{place}\n")).collect::<String>())?;
    Ok(true)
}

fn draw(root: &Path, name: &str) -> Result<bool, String> {
    let sources = source::read(root)?;
    match sources.iter().find(|source| source.name == name) {
        Some(source) => print(&modules::Uses::of(source).dot()).map(|()| true),
        None => Err(format!("no crate is called '{name}'")),
    }
}

fn figures(root: &Path) -> Result<Vec<Figure>, String> {
    let sources = source::read(root)?;
    let mut figures = modules::figures(&sources);
    figures.extend(measures::figures(&sources));
    figures.push(methods::figure(&sources));
    figures.extend(prose::figures(&root.join("docs/design"))?);
    Ok(figures)
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader may have seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

fn complain(text: &str, status: u8) -> ExitCode {
    // Nobody is left to be told if this fails.
    drop(std::io::stderr().write_all(text.as_bytes()));
    ExitCode::from(status)
}
