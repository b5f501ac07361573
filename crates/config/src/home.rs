//! Folders of state, keys, index and socket.
//!
//! Under `$TOW_HOME` if it is set, else where the XDG Base Directory Specification says. Pure:
//! the environment is handed in, so that a test is not the machine's.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Reason why there is no place for a service.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoHome {
    /// Neither `TOW_HOME` nor `HOME` is set.
    #[error("there is no home folder")]
    Unset,
    /// `TOW_HOME` says nothing without the directory that a command happens to be in.
    #[error("TOW_HOME is '{}', which is no absolute path", .0.display())]
    Relative(PathBuf),
}

/// The folders of one user's service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    config_file: PathBuf,
    state: PathBuf,
    data: PathBuf,
    runtime: PathBuf,
}

impl Home {
    /// Everything under one folder.
    pub fn under(root: &Path) -> Self {
        let at = |name: &str| root.join(name);
        Self {
            config: at("config"),
            config_file: at("config.toml"),
            state: at("state"),
            data: at("data"),
            runtime: at("run"),
        }
    }

    /// Finds the folders. XDG demands that its variables are ignored if they are no absolute paths; a
    /// `TOW_HOME` that is none is an error, as two that were meant to be apart would be one.
    pub fn find(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, NoHome> {
        match variable("TOW_HOME").filter(|root| !root.as_os_str().is_empty()) {
            Some(root) if root.is_absolute() => Ok(Self::under(&root)),
            Some(root) => Err(NoHome::Relative(root)),
            None => Self::of_xdg(variable).ok_or(NoHome::Unset),
        }
    }

    fn of_xdg(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let base = |name: &str, below: &str| {
            let base = absolute(name).or_else(|| home.as_ref().map(|home| home.join(below)));
            base.map(|base| base.join("towpath"))
        };
        let state = base("XDG_STATE_HOME", ".local/state")?;
        let runtime = absolute("XDG_RUNTIME_DIR").map(|base| base.join("towpath"));
        let config = base("XDG_CONFIG_HOME", ".config")?;
        Some(Self {
            config_file: config.join("config.toml"),
            config,
            data: base("XDG_DATA_HOME", ".local/share")?,
            runtime: runtime.unwrap_or_else(|| state.join("run")),
            state,
        })
    }

    /// The node's private key.
    pub fn key(&self) -> PathBuf {
        self.config.join("node.key")
    }

    /// Configuration by the owner, if there is any.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// The index and what else must survive a restart.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Objects that the store owns.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Records and temporaries of interrupted transfers.
    pub fn resume(&self) -> PathBuf {
        self.state.join("resume")
    }

    /// Folder of what was shared before.
    pub fn shares(&self) -> PathBuf {
        self.state.join("shares")
    }

    /// Hosts that were reached over ssh and have instructions for AES.
    pub fn aes_hosts(&self) -> PathBuf {
        self.state.join("aes-hosts")
    }

    /// The folder of the daemon's socket.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("tow.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<Home, NoHome> {
        Home::find(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn tow_home_comes_before_xdg_and_xdg_before_home() {
        let home = find(&[("TOW_HOME", "/t"), ("HOME", "/h")]).unwrap();
        assert_eq!((home.key(), home.socket()), ("/t/config/node.key".into(), "/t/run/tow.sock".into()));
        let home = find(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "/r")]).unwrap();
        assert_eq!(home.key(), Path::new("/h/.config/towpath/node.key"));
        assert_eq!(home.config_file(), Path::new("/h/.config/towpath/config.toml"));
        assert_eq!(home.state(), Path::new("/s/towpath"));
        assert_eq!(home.socket(), Path::new("/r/towpath/tow.sock"));
    }

    #[test]
    fn relative_paths_are_ignored_as_xdg_demands() {
        let home = find(&[("HOME", "/h"), ("XDG_STATE_HOME", "s"), ("TOW_HOME", "")]).unwrap();
        assert_eq!(home.state(), Path::new("/h/.local/state/towpath"));
        assert_eq!(find(&[("XDG_STATE_HOME", "/s")]), Err(NoHome::Unset));
    }

    #[test]
    fn two_homes_that_were_meant_to_be_apart_are_not_one() {
        assert_eq!(find(&[("HOME", "/h"), ("TOW_HOME", "t")]), Err(NoHome::Relative("t".into())));
    }
}
