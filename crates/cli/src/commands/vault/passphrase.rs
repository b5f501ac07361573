//! What opens a vault's keys: a key file, a passphrase in the environment, or one that is typed and not shown.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use towpath_api::ApiError;
use towpath_vault::Zeroizing;
use towpath_vault::keys::Unlock;

use super::errors::{of_file, usage};

/// The variable that a passphrase may stand in.
const VARIABLE: &str = "TOW_VAULT_PASSPHRASE";
const MAX_KEY_FILE: u64 = 1 << 20;
const TERMINAL: &str = "/dev/tty";

/// What opens keys. `is_new`: it is typed twice.
pub fn unlock(key_file: Option<&Path>, is_new: bool) -> Result<Unlock, ApiError> {
    if let Some(path) = key_file {
        let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
        let read = std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_FILE).read_to_end(&mut bytes));
        return read.map(|_| Unlock::KeyFile(bytes)).map_err(|error| of_file(path, &error));
    }
    if let Some(passphrase) = std::env::var_os(VARIABLE) {
        return Ok(Unlock::Passphrase(Zeroizing::new(passphrase.into_encoded_bytes())));
    }
    let passphrase = typed("Passphrase of the vault: ")?;
    if is_new && *typed("The same again: ")? != *passphrase {
        return Err(usage("the two passphrases differ"));
    }
    Ok(Unlock::Passphrase(passphrase))
}

/// A line that is typed at the terminal and not shown.
fn typed(prompt: &str) -> Result<Zeroizing<Vec<u8>>, ApiError> {
    let none = |_| {
        usage(format!("there is no terminal to ask for the passphrase: set {VARIABLE}, or give --key-file"))
    };
    let mut terminal = OpenOptions::new().read(true).write(true).open(TERMINAL).map_err(none)?;
    let shown = tcgetattr(&terminal).map_err(|errno| none(errno.into()))?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    let mut line = Zeroizing::new(Vec::with_capacity(1024));
    let mut read = || {
        write!(terminal, "{prompt}")?;
        tcsetattr(&terminal, OptionalActions::Flush, &hidden)?;
        let read = BufReader::with_capacity(1, &terminal).read_until(b'\n', &mut line);
        tcsetattr(&terminal, OptionalActions::Flush, &shown)?;
        writeln!(terminal)?;
        read
    };
    read().map_err(|error| of_file(Path::new(TERMINAL), &error))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}
