//! Keys of an account, from the environment or from a file that nobody else may read.
//!
//! They are in no command line and in no log: [`Credentials`] has no way to be shown.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is larger is something else.
const MAX_FILE: u64 = 64 << 10;
/// Mode bits by which others may read a file.
const OTHERS_READ: u32 = 0o077;

/// Keys of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// A token beside keys that end by themselves.
    pub(crate) token: Option<String>,
}

/// Reason why there are no credentials. It holds none of a file's text.
#[derive(Debug)]
pub enum CredentialsError {
    /// The environment has none.
    NotInEnvironment,
    /// The file can't be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Others may read the file.
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file has no keys.
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        lacks: &'static str,
    },
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInEnvironment => {
                f.write_str("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not in the environment")
            }
            Self::Unreadable { path, source } => write!(f, "{} can't be read: {source}", path.display()),
            Self::Exposed { path } => write!(f, "others may read {}", path.display()),
            Self::Incomplete { path, lacks } => write!(f, "{} has no {lacks}", path.display()),
        }
    }
}

impl std::error::Error for CredentialsError {}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Those of the usual variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`.
    pub fn from_environment() -> Result<Self, CredentialsError> {
        let get = |name| env::var(name).ok().filter(|value: &String| !value.is_empty());
        let keys = get("AWS_ACCESS_KEY_ID").zip(get("AWS_SECRET_ACCESS_KEY"));
        let (access_key, secret_key) = keys.ok_or(CredentialsError::NotInEnvironment)?;
        Ok(Self { access_key, secret_key, token: get("AWS_SESSION_TOKEN") })
    }

    /// Those of a file as other programs have it: lines `aws_access_key_id = …`, `aws_secret_access_key = …`
    /// and perhaps `aws_session_token = …`. With sections, that of `[default]`. Only its owner may be
    /// able to read it.
    pub fn from_file(path: &Path) -> Result<Self, CredentialsError> {
        let unreadable = |source| CredentialsError::Unreadable { path: path.into(), source };
        let file = File::open(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        let own = rustix::process::geteuid().as_raw();
        if found.mode() & OTHERS_READ != 0 || (found.uid() != own && found.uid() != 0) {
            return Err(CredentialsError::Exposed { path: path.into() });
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text).map_err(|lacks| CredentialsError::Incomplete { path: path.into(), lacks })
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let (mut access_key, mut secret_key, mut token) = (None, None, None);
        let mut is_ours = true;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                is_ours = line == "[default]";
            }
            let Some((name, value)) = line.split_once('=').filter(|_| is_ours) else { continue };
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim() {
                "aws_access_key_id" => access_key = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        Ok(Self {
            access_key: access_key.ok_or("aws_access_key_id")?,
            secret_key: secret_key.ok_or("aws_secret_access_key")?,
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn keys_are_read_from_the_default_section() {
        let text = "[other]\naws_access_key_id = no\n[default]\naws_access_key_id = key\n\
                    aws_secret_access_key=a=b\n# a line\n[more]\naws_session_token = no\n";
        let found = Credentials::from_file(file(text, 0o600).path()).unwrap();
        let expected = Credentials { access_key: "key".into(), secret_key: "a=b".into(), token: None };
        assert!(found == expected);
    }

    #[test]
    fn what_lacks_is_told_and_no_key_is_shown() {
        let found = file("aws_access_key_id = KEY\naws_secret_access_key =\n", 0o600);
        let error = Credentials::from_file(found.path()).unwrap_err();
        assert!(error.to_string().ends_with("has no aws_secret_access_key"), "{error}");
        assert!(!format!("{error:?}").contains("KEY"));
        let keys = Credentials { access_key: "KEY".into(), secret_key: "SECRET".into(), token: None };
        assert_eq!(format!("{keys:?}"), "Credentials");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let found = file("aws_access_key_id = a\naws_secret_access_key = b\n", 0o640);
        let error = Credentials::from_file(found.path()).unwrap_err();
        assert!(matches!(error, CredentialsError::Exposed { .. }), "{error}");
    }
}
