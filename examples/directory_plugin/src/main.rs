//! Fetches one object from a directory into a file: `directory_plugin DIR OID OUT`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_directory_plugin::DirectoryPlugin;
use towpath_store::About;
use towpath_transfer::{Context, ObjectRequest, Session, SessionConfig, Single, Target};

/// A file that gets its name when it is complete.
struct Output {
    path: PathBuf,
    file: OnceLock<File>,
}

impl Output {
    fn part(&self) -> PathBuf {
        self.path.with_added_extension("part")
    }

    fn file(&self) -> io::Result<&File> {
        self.file.get().ok_or_else(|| io::Error::other("the file was not begun"))
    }
}

impl Target for Output {
    fn begin(&self, _size: Option<u64>, _about: &About) -> io::Result<()> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(self.part())?;
        self.file.set(file).map_err(|_| io::Error::other("begun twice"))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file()?.read_exact_at(buf, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all_at(bytes, offset)
    }

    /// A new file has zeros where nothing was written.
    fn write_zeros(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn complete(&self, _oid: &Oid, size: u64, _values: Vec<Value>) -> io::Result<()> {
        let file = self.file()?;
        file.set_len(size)?;
        file.sync_all()?;
        std::fs::rename(self.part(), &self.path)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, oid, out] = &arguments[..] else {
        eprintln!("usage: directory_plugin DIR OID OUT");
        return ExitCode::from(2);
    };
    match fetch(directory, oid, out).await {
        Ok(size) => {
            eprintln!("{out}: {size} bytes, checked");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{oid}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn fetch(directory: &str, oid: &str, out: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let root: Oid = oid.parse()?;
    // No ticket: a directory asks for no rights and needs no hints.
    let context = Context { root, node: None, secret: None, hints: watch::channel(Vec::new()).1 };
    let session = Session::start(
        Single::root(Arc::new(DirectoryPlugin::new(directory))),
        context,
        SessionConfig::default(),
    );
    let target = Arc::new(Output { path: out.into(), file: OnceLock::new() });
    let request = ObjectRequest { oid: root, size: None, group: Arc::default(), target, recipe: None };
    Ok(session.fetch(request).await?.size)
}
