//! `towpath-lab deps`: what the programs need, and what of it is missing.

use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::Parser;

use crate::programs::{self, Program};

/// Show which programs can run here, and which packages the others need
#[derive(Debug, Parser)]
pub struct DepsArgs {
    /// Print the names of the missing Debian packages alone, for apt-get
    #[arg(long)]
    missing: bool,
}

/// Shows them.
pub fn run(args: &DepsArgs) {
    let text = if args.missing { missing() } else { programs::ALL.iter().map(|it| line(*it)).collect() };
    // A reader that wants no more is no failure.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn line(program: &dyn Program) -> String {
    let missing: Vec<String> = programs::missing(program)
        .iter()
        .map(|need| format!("{} is missing (package {})", need.name(), need.package()))
        .collect();
    let state = if missing.is_empty() { "ready".to_owned() } else { missing.join(", ") };
    format!("{:<12} {:<50} {state}\n", program.name(), program.about())
}

fn missing() -> String {
    let needs = programs::ALL.iter().flat_map(|program| programs::missing(*program));
    let packages: BTreeSet<_> = needs.map(|need| need.package()).collect();
    packages.into_iter().map(|package| format!("{package}\n")).collect()
}
