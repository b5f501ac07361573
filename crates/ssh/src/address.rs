//! Names on the command line: a path here, or `[user@]host:path` as scp and rsync
//! read it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use towpath_files::display_name;

use crate::error::{AddressFault, AddressPart, SshError};

/// A source or destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// On this machine.
    Local(PathBuf),
    /// On another one, reached by ssh.
    Remote(Remote),
}

/// A path on another machine. User and host are not empty and no options of ssh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    login: Option<OsString>,
    host: OsString,
    path: Vec<u8>,
}

impl Address {
    /// Reads what a person named.
    ///
    /// A colon before any slash makes it remote: `./a:b` and `/a:b` are local, and so is what
    /// begins with a colon. An IPv6 address stands in brackets.
    pub fn parse(named: &OsStr) -> Result<Self, SshError> {
        refuse_urls(named)?;
        let bytes = named.as_bytes();
        let Some(colon) = colon(bytes) else { return Ok(Self::Local(named.into())) };
        let (who, path) = (&bytes[..colon], &bytes[colon + 1..]);
        if path.first() == Some(&b':') {
            return Err(fault(named, AddressFault::Daemon));
        }
        Ok(Self::Remote(Remote::new(who, path, named)?))
    }
}

impl Remote {
    fn new(who: &[u8], path: &[u8], named: &OsStr) -> Result<Self, SshError> {
        let at = who.iter().rposition(|&byte| byte == b'@');
        let (login, host) = match at {
            Some(at) => (Some(&who[..at]), &who[at + 1..]),
            None => (None, who),
        };
        let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
        for (part, what) in [(Some(host), AddressPart::Host), (login, AddressPart::User)] {
            check(part, what).map_err(|wrong| fault(named, wrong))?;
        }
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Ok(Self { login: login.map(owned), host: owned(host), path: path.to_vec() })
    }

    /// The user there, if one was named.
    pub fn login(&self) -> Option<&OsStr> {
        self.login.as_deref()
    }

    /// The host as ssh gets it: a name, an alias, or an address without brackets.
    pub fn host(&self) -> &OsStr {
        &self.host
    }

    /// The path there; empty for the home directory.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The host, safe to show.
    pub fn display(&self) -> String {
        display_name(self.host.as_bytes())
    }
}

/// End of the host, if `bytes` name one.
fn colon(bytes: &[u8]) -> Option<usize> {
    let slash = bytes.iter().position(|&byte| byte == b'/').unwrap_or(bytes.len());
    let before = &bytes[..slash];
    let begin = before.iter().position(|&byte| byte == b'[').filter(|&at| at == 0 || before[at - 1] == b'@');
    let Some(begin) = begin else {
        return before.iter().position(|&byte| byte == b':').filter(|&at| at > 0);
    };
    let end = begin + before[begin..].iter().position(|&byte| byte == b']')?;
    (before.get(end + 1) == Some(&b':')).then_some(end + 1)
}

/// An empty name would be the option's or the command's place; one with a dash an option of ssh.
fn check(part: Option<&[u8]>, what: AddressPart) -> Result<(), AddressFault> {
    match part {
        Some([]) => Err(AddressFault::Empty(what)),
        Some([b'-', ..]) => Err(AddressFault::Option(what)),
        Some(part) if part.iter().any(|byte| byte.is_ascii_control() || *byte == b' ') => {
            Err(AddressFault::Space(what))
        }
        _ => Ok(()),
    }
}

fn refuse_urls(named: &OsStr) -> Result<(), SshError> {
    let is = |scheme: &str| named.as_bytes().to_ascii_lowercase().starts_with(scheme.as_bytes());
    if is("rsync://") {
        return Err(fault(named, AddressFault::Daemon));
    }
    if is("http://") || is("https://") || is("ftp://") || is("scp://") || is("ssh://") || is("sftp://") {
        return Err(fault(named, AddressFault::Url));
    }
    Ok(())
}

fn fault(named: &OsStr, fault: AddressFault) -> SshError {
    SshError::Address { named: named.to_owned(), fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(named: &str) -> Result<Address, SshError> {
        Address::parse(OsStr::new(named))
    }

    fn remote(named: &str) -> (Option<String>, String, String) {
        let Ok(Address::Remote(remote)) = parse(named) else { panic!("{named} is not remote") };
        let text = |part: &OsStr| part.to_str().unwrap().to_owned();
        let path = String::from_utf8(remote.path.clone()).unwrap();
        (remote.login().map(text), text(remote.host()), path)
    }

    #[test]
    fn a_colon_before_any_slash_is_remote() {
        let plain = |host: &str, path: &str| (None, host.to_owned(), path.to_owned());
        let with = |user: &str, host: &str, path: &str| (Some(user.to_owned()), host.into(), path.into());
        assert_eq!(remote("host:path/to"), plain("host", "path/to"));
        assert_eq!(remote("host:/abs"), plain("host", "/abs"));
        assert_eq!(remote("host:"), plain("host", ""));
        assert_eq!(remote("host:a:b"), plain("host", "a:b"));
        assert_eq!(remote("me@host:~/x y"), with("me", "host", "~/x y"));
        assert_eq!(remote("me@work@host:x"), with("me@work", "host", "x"));
        assert_eq!(remote("[::1]:x"), plain("::1", "x"));
        assert_eq!(remote("me@[fe80::1%eth0]:"), with("me", "fe80::1%eth0", ""));
        assert_eq!(remote("host:-n"), plain("host", "-n"));
    }

    #[test]
    fn everything_else_is_local() {
        for named in ["a", "./a:b", "/a:b", "a/b:c", ":a", "[::1]", "-", "a@b", "~", "./[::1]:x", "..", ""] {
            assert_eq!(parse(named).unwrap(), Address::Local(named.into()), "{named}");
        }
    }

    #[test]
    fn options_in_disguise_and_other_tools_names_are_refused() {
        use AddressFault::{Daemon, Empty, Option, Space, Url};
        use AddressPart::{Host, User};
        for (named, wrong) in [
            ("-oProxyCommand=id:x", Option(Host)),
            ("-l@host:x", Option(User)),
            ("me@-oProxyCommand=id:x", Option(Host)),
            ("[-oProxyCommand=id]:x", Option(Host)),
            ("@host:x", Empty(User)),
            ("me@:x", Empty(Host)),
            ("a b:x", Space(Host)),
            ("a\nb:x", Space(Host)),
            ("host::module/x", Daemon),
            ("rsync://host/x", Daemon),
            ("RSYNC://host/x", Daemon),
            ("scp://host/x", Url),
            ("http://host/x", Url),
            ("ssh://me@host:22/x", Url),
        ] {
            let Err(SshError::Address { fault, .. }) = parse(named) else { panic!("{named} is taken") };
            assert_eq!(fault, wrong, "{named}");
        }
        assert_eq!(parse("::1:x").unwrap(), Address::Local("::1:x".into()));
    }

    #[test]
    fn bytes_that_are_not_text_are_kept() {
        let Ok(Address::Remote(remote)) = Address::parse(OsStr::from_bytes(b"host:\xff\xfe")) else {
            panic!()
        };
        assert_eq!(remote.path(), b"\xff\xfe");
    }
}
