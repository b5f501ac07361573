//! `tow man`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use towpath_api::{ApiError, ErrorKind};

use super::{Arguments, man_page};

/// Print the manual page, of `tow` or of one command
#[derive(Debug, Args)]
pub struct Man {
    /// Which command
    #[arg(conflicts_with = "write_to")]
    command: Option<String>,
    /// Write the pages of all commands into this directory: tow.1, tow-cp.1 and so on
    #[arg(long, value_name = "DIR")]
    write_to: Option<PathBuf>,
}

impl Man {
    pub fn run(self) -> Result<ExitCode, ApiError> {
        let mut root = Arguments::command().disable_help_subcommand(true);
        root.build();
        match (&self.write_to, &self.command) {
            (Some(folder), _) => write_all(root, folder)?,
            (None, None) => print(root)?,
            (None, Some(name)) => print(root.find_subcommand(name).cloned().ok_or_else(|| {
                ApiError::new(ErrorKind::Usage, format!("there is no command '{name}'"))
                    .hint("'tow help' lists them")
            })?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn failed(error: &std::io::Error) -> ApiError {
    ApiError::new(ErrorKind::Failed, format!("writing the page: {error}"))
}

fn print(command: Command) -> Result<(), ApiError> {
    let page = man_page::page(&command).map_err(|error| failed(&error))?;
    let mut out = std::io::stdout().lock();
    match out.write_all(&page).and_then(|()| out.flush()) {
        // A reader that went away (`| head`) has what it wanted.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| failed(&error)),
    }
}

fn write_all(root: Command, folder: &Path) -> Result<(), ApiError> {
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let pages: Vec<_> = root.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    for command in pages.into_iter().chain([root]) {
        let name = format!("{}.1", man_page::name(&command));
        let page = man_page::page(&command);
        page.and_then(|page| std::fs::write(folder.join(name), page)).map_err(|error| failed(&error))?;
    }
    Ok(())
}
