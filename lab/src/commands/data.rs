//! `towpath-lab data`: fetches or makes data before they are needed.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;

use crate::data::{DataError, DataStore};

/// Fetch or make data, and check what is here
///
/// Without words: all packages of lab/data.toml, each by its tool (npm, pip, apt-get) as it is set up on
/// this machine, and checked against the SHA-256 recorded there. A run fetches what it needs by itself.
#[derive(Debug, Parser)]
pub struct DataArgs {
    /// As in a scenario: 'typescript 6.0.3', 'random 40m', 'odd-tree'
    #[arg(value_name = "LINE")]
    lines: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Folder of the data.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// Folder of data that are kept between runs
    #[arg(long, value_name = "DIR", default_value = "target/lab-data")]
    cache: PathBuf,
}

impl StoreArgs {
    /// Opens it.
    pub fn open(&self) -> Result<DataStore, DataError> {
        DataStore::open(&self.cache)
    }
}

/// Gets them.
pub fn run(args: &DataArgs) -> Result<(), DataError> {
    let store = args.store.open()?;
    let all = || store.packages().iter().map(|package| format!("{} {}", package.name, package.version));
    let lines = if args.lines.is_empty() { all().collect() } else { args.lines.clone() };
    for line in lines {
        let data = store.get(&line)?;
        // A reader that wants no more is no failure.
        let _ = writeln!(io::stdout(), "{line}: {} bytes, {}", data.content.bytes, data.source.display());
    }
    Ok(())
}
