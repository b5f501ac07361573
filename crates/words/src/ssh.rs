//! Texts of errors on the way to another machine, for people: what happened, and what to do next.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use towpath_api::{ApiError, ErrorKind};
use towpath_files::display_name;
use towpath_link::pipe::PipeError;
use towpath_link::tcp::BindError;
use towpath_ssh::error::{AddressFault, SshError, SshWay};
use towpath_sync_messages::error::chain;

use super::AGAIN;

/// Reason why the other machine, or what was named there, can't be had.
pub fn ssh(error: &SshError) -> ApiError {
    let said = |kind, message: String| ApiError::new(kind, message);
    match error {
        SshError::Address { named, fault } => address(&display_name(named.as_bytes()), *fault),
        SshError::Command { .. } => said(ErrorKind::Usage, error.to_string()),
        SshError::Nameless { path } => {
            let shown = if path.is_empty() { "the home directory".into() } else { display_name(path) };
            said(ErrorKind::Usage, format!("{shown} has no name of its own that its copy could have")).hint(
                "for what is in it, copy it alone, with '/.' at its end; else name it from the directory it lies in",
            )
        }
        SshError::TooManyPaths { pattern } => {
            said(ErrorKind::Usage, format!("{}: it stands for too many paths", display_name(pattern)))
                .hint("name the directory, and use filters")
        }
        SshError::NothingMatches { .. } => said(ErrorKind::NotFound, error.to_string()),
        SshError::NoSuchCommand { program } => {
            let shown = display_name(program.as_bytes());
            said(ErrorKind::Unreachable, format!("{shown}: no such command on this machine"))
                .hint("install an ssh client, or name another command with -e")
        }
        SshError::NotStarted { source, .. } => said(ErrorKind::Failed, format!("{error}: {source}")),
        SshError::NoPipe => said(ErrorKind::Failed, "the pipe to ssh is not there".into()),
        SshError::NotOpened { way, source } => not_opened(&ShownWay::of(way), source),
        SshError::Ended { way, status, was_there } => ended(&ShownWay::of(way), *status, *was_there),
        SshError::Silent { .. } => said(ErrorKind::TimedOut, error.to_string()).hint(
            "see that the other machine runs, then run the same command again: it goes on where it was",
        ),
        SshError::Lost { .. } => said(ErrorKind::Unreachable, error.to_string()).hint(AGAIN),
        SshError::NoStdio { source } => said(ErrorKind::Usage, format!("{error}: {source}"))
            .hint("this command is started by tow on another machine, over ssh"),
        SshError::NoHello { source } => said(ErrorKind::Failed, chain(source)),
        SshError::NotListening { source } => bind(source),
        SshError::NoAddress { source } => said(ErrorKind::Failed, source.to_string()),
        SshError::NoConnection { tried, last, .. } => {
            let last = last.as_ref().map(|last| format!("; {}", chain(&**last))).unwrap_or_default();
            let message = format!("{error} in either direction: {}{last}", dialled(tried));
            said(ErrorKind::Unreachable, message)
                .hint("drop --via tls to go over ssh, or let TCP through between the two machines")
        }
    }
}

/// Reason why there is no listener.
pub fn bind(error: &BindError) -> ApiError {
    let detail = match error {
        BindError::Io { source, .. } => format!("{error}: {source}"),
        BindError::Tls { .. } => error.to_string(),
    };
    ApiError::new(ErrorKind::Failed, detail).hint("choose another address with --listen")
}

/// Error about a name that is no place; `shown` is the name.
fn address(shown: &str, fault: AddressFault) -> ApiError {
    let wrong = match fault {
        AddressFault::Daemon => "tow does not speak to rsync daemons".into(),
        AddressFault::Url => "URLs are not read here".into(),
        AddressFault::Option(_) => format!("{fault}, which ssh would take for an option"),
        AddressFault::Empty(_) | AddressFault::Space(_) => fault.to_string(),
    };
    ApiError::new(ErrorKind::Usage, format!("{shown}: {wrong}")).hint(match fault {
        AddressFault::Daemon => {
            "write [user@]host:path to go over ssh, with an IPv6 address in brackets; or use rsync for this one"
        }
        AddressFault::Url => "ssh reaches [user@]host:path; a port goes into ~/.ssh/config or -e 'ssh -p PORT'",
        _ => "a file of this name on this machine is written ./NAME",
    })
}

fn dialled(tried: &[SocketAddr]) -> String {
    let tried: Vec<String> = tried.iter().map(SocketAddr::to_string).collect();
    if tried.is_empty() { "no address to dial".into() } else { format!("tried {}", tried.join(", ")) }
}

/// Subject of the errors.
struct ShownWay {
    host: String,
    tow: String,
    rsh: String,
    /// The command that reaches the host, as it is run.
    command: String,
}

impl ShownWay {
    fn of(way: &SshWay) -> Self {
        let words = way.command.iter().map(|word| display_name(word.as_bytes())).collect::<Vec<_>>();
        let [host, tow, rsh] = [&way.host, &way.tow, way.program()].map(|name| display_name(name.as_bytes()));
        Self { host, tow, rsh, command: words.join(" ") }
    }
}

/// Error about the other side's first bytes.
fn not_opened(way: &ShownWay, error: &PipeError) -> ApiError {
    let ShownWay { host, tow, command, .. } = way;
    let failed = ApiError::new(ErrorKind::Failed, format!("{host}: {error}"));
    match error {
        PipeError::NotTowpath { .. } => failed.hint(format!(
            "a login script there prints something, or '{tow}' is another program: \
             '{command} true' must print nothing"
        )),
        PipeError::Version { .. } => failed.hint("install the same version of tow on both sides"),
        PipeError::SameRole => {
            failed.hint(format!("'{tow}' there only repeats what it is told; name tow with --tow-path"))
        }
        _ => ApiError::new(ErrorKind::Unreachable, format!("{host}: {}", chain(error)))
            .hint(format!("is '{tow}' there the program tow? --tow-path names another")),
    }
}

/// Error by the exit status of ssh, before the other side answered or after.
fn ended(way: &ShownWay, status: ExitStatus, was_there: bool) -> ApiError {
    let ShownWay { host, tow, rsh, command } = way;
    let (kind, message, hint) = match status.code() {
        Some(127) => (
            ErrorKind::Unreachable,
            format!("tow is not installed on {host} or not in its PATH (as '{tow}')"),
            "install it there or name it with --tow-path".into(),
        ),
        Some(126) => (
            ErrorKind::Refused,
            format!("'{tow}' on {host} can't be run"),
            "see that it is an executable for that machine, or name another with --tow-path".into(),
        ),
        Some(255) if was_there => {
            (ErrorKind::Unreachable, format!("{rsh} lost the connection to {host}"), AGAIN.into())
        }
        Some(255) => (
            ErrorKind::Unreachable,
            format!("{rsh} could not connect to {host}"),
            format!("its own message tells why; see that '{command} true' works"),
        ),
        Some(code) => (
            ErrorKind::Failed,
            format!("'{tow}' on {host} ended with status {code}"),
            "its own message tells why; see that both sides have the same version of tow".into(),
        ),
        None => (
            ErrorKind::Unreachable,
            format!("{rsh} to {host} was killed by signal {}", status.signal().unwrap_or_default()),
            AGAIN.into(),
        ),
    };
    ApiError::new(kind, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io;
    use std::time::Duration;

    use towpath_ssh::address::Address;
    use towpath_ssh::channel::Rsh;
    use towpath_ssh::patterns::Requested;

    use super::*;

    fn way() -> SshWay {
        let command = ["ssh", "-p", "2", "-l", "me", "box"].map(Into::into).to_vec();
        SshWay { host: "box".into(), tow: "tow".into(), command }
    }

    fn of_status(raw: i32, was_there: bool) -> ApiError {
        ssh(&SshError::Ended { way: way(), status: ExitStatus::from_raw(raw), was_there })
    }

    #[test]
    fn each_status_says_what_to_do() {
        for (code, words) in [
            (127, "not installed on box"),
            (126, "can't be run"),
            (255, "could not connect"),
            (3, "status 3"),
        ] {
            let error = of_status(code << 8, false);
            assert!(error.message.contains(words) && error.hint.is_some(), "{}", error.message);
        }
        assert!(of_status(255 << 8, false).hint.unwrap().contains("'ssh -p 2 -l me box true'"));
        let lost = of_status(255 << 8, true);
        assert_eq!(lost.message, "ssh lost the connection to box");
        assert!(lost.hint.unwrap().contains("goes on"));
        assert!(of_status(9, false).message.contains("signal 9"));
    }

    #[test]
    fn what_the_other_side_began_with_says_what_to_do() {
        for (source, words, hint) in [
            (PipeError::NotTowpath { begin: *b"Welcome " }, "it began with \"Welcome \"", "login script"),
            (PipeError::SameRole, "same role", "--tow-path"),
            (PipeError::Version { found: 2 }, "speaks version 2", "same version"),
            (PipeError::Closed, "box: the other end hung up", "is 'tow' there the program tow?"),
        ] {
            let error = ssh(&SshError::NotOpened { way: way(), source });
            assert!(error.message.contains(words), "{}: not {words}", error.message);
            assert!(error.hint.unwrap().contains(hint), "{hint}");
        }
        let error = ssh(&SshError::NoSuchCommand { program: "rsh".into() });
        assert_eq!(error.message, "rsh: no such command on this machine");
        let source = io::Error::from_raw_os_error(13);
        let error = ssh(&SshError::NotStarted { program: "rsh".into(), source });
        assert_eq!(error.message, "start rsh: Permission denied (os error 13)");
    }

    #[test]
    fn what_is_no_place_says_how_one_is_written() {
        let of = |named: &str| ssh(&Address::parse(OsStr::new(named)).unwrap_err());
        for (named, words) in [
            ("-oProxyCommand=id:x", "the host begins with '-', which ssh would take for an option"),
            ("@host:x", "@host:x: the user is empty"),
            ("a b:x", "the host has a space or a control character in it"),
            ("host::module/x", "host::module/x: tow does not speak to rsync daemons"),
            ("http://host/x", "http://host/x: URLs are not read here"),
        ] {
            let error = of(named);
            assert!(error.message.contains(words), "{named}: {}", error.message);
            assert!(error.hint.is_some() && error.kind == ErrorKind::Usage, "{named}");
        }
        let error = ssh(&Requested::of(&[b""], false).unwrap_err());
        assert_eq!(error.message, "the home directory has no name of its own that its copy could have");
        let error = ssh(&Rsh::choose(Some(OsStr::new("ssh 'x"))).unwrap_err());
        assert_eq!((error.message.as_str(), error.kind), ("-e: a quote ' is not closed", ErrorKind::Usage));
    }

    #[test]
    fn a_search_for_a_connection_tells_what_was_tried() {
        let limit = Duration::from_secs(30);
        let of = |tried| ssh(&SshError::NoConnection { limit, tried, last: None });
        let error = of(vec!["192.0.2.1:7".parse().unwrap()]);
        assert_eq!(error.message, "no TLS connection within 30s in either direction: tried 192.0.2.1:7");
        assert!(error.hint.unwrap().contains("--via tls"));
        assert!(of(Vec::new()).message.ends_with("no address to dial"));
    }
}
