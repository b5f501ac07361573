//! ssh as control channel: the pipe to a `tow remote` on another machine, and that one's end of it.
//!
//! ```text
//!   Channel::open ── ssh [-l user] host tow remote ──► serve_stdio
//!        Peer ◄──────── frames over its pipe ─────────► Peer
//! ```
//!
//! Nothing of a copy stands in the remote command line: paths and options go over the control
//! stream. When the pipe ends, for whatever reason, both ends do.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{io, process};

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe as fifo;
use tokio::process::{Child, Command};
use towpath_api::{ApiError, ErrorKind};
use towpath_content::NodeId;
use towpath_files::display_name;
use towpath_link::pipe::{self, PipeError, Role};
use towpath_protocol::{Peer, PeerConfig, Service};

use super::place::Remote;
use towpath_targets::errors;

/// What starts a command on another machine, unless `-e` or this variable says otherwise.
const RSH: &str = "ssh";
const RSH_VARIABLE: &str = "TOW_RSH";
/// The command's only argument.
const ARGUMENT: &str = "remote";
/// From starting ssh to the other side's hello: people type passwords and confirm host keys.
const OPEN_LIMIT: Duration = Duration::from_secs(600);
/// From start to hello at the remote side, whose ssh is through already.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// How long ssh has to end after the pipe did.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The command that starts a command on another machine, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rsh {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Rsh {
    /// What `-e` names, else what `TOW_RSH` does, else ssh.
    pub fn choose(option: Option<&OsStr>) -> Result<Self, ApiError> {
        let variable = std::env::var_os(RSH_VARIABLE).filter(|value| !value.is_empty());
        let (command, from) = match (option, &variable) {
            (Some(option), _) => (option, "-e"),
            (None, Some(variable)) => (&**variable, RSH_VARIABLE),
            (None, None) => (OsStr::new(RSH), ""),
        };
        Self::parse(command).map_err(|why| ApiError::new(ErrorKind::Usage, format!("{from}: {why}")))
    }

    /// Splits a command into words as rsync does: at spaces, but for those in quotes, single or
    /// double; a quote in quotes is written twice. No shell sees it.
    fn parse(command: &OsStr) -> Result<Self, String> {
        let mut words = words(command.as_bytes())?.into_iter().map(OsString::from_vec);
        let program = words.next().filter(|program| !program.is_empty());
        let program = program.ok_or("there is no command in it")?;
        Ok(Self { program, arguments: words.collect() })
    }

    /// The whole command line. `tow_path` is given to the other side's shell as it is, as rsync
    /// does with `--rsync-path`: it comes from this user's own command line.
    fn command(&self, remote: &Remote, tow_path: &OsStr) -> Command {
        let way = self.way(remote);
        let mut command = Command::new(&way[0]);
        command.args(&way[1..]).arg(tow_path).arg(ARGUMENT);
        command
    }

    /// The words that reach the other machine.
    fn way(&self, remote: &Remote) -> Vec<OsString> {
        let mut words = vec![self.program.clone()];
        words.extend_from_slice(&self.arguments);
        if let Some(login) = remote.login() {
            words.extend(["-l".into(), login.to_owned()]);
        }
        words.push(remote.host().to_owned());
        words
    }
}

fn words(command: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    let mut bytes = command.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match quote {
            Some(open) if byte == open && bytes.next_if_eq(&open).is_none() => quote = None,
            None if matches!(byte, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            None if byte == b' ' => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    match quote {
        Some(open) => Err(format!("a quote {} is not closed", char::from(open))),
        None => Ok(words.into_iter().chain(word).collect()),
    }
}

/// The pipe to a `tow remote` on another machine. Dropping it kills ssh.
pub struct Channel {
    peer: Arc<Peer>,
    child: Child,
    names: ShownNames,
}

/// What errors speak of.
struct ShownNames {
    host: String,
    tow: String,
    rsh: String,
    /// The command that reaches the host, as it is run.
    way: String,
}

impl Channel {
    /// Starts the other side and waits for its hello. `node` is this side; `service` answers what
    /// the other one asks.
    pub async fn open(
        remote: &Remote,
        rsh: &Rsh,
        tow_path: &OsStr,
        node: NodeId,
        service: Arc<Service>,
        config: PeerConfig,
    ) -> Result<Self, ApiError> {
        let shown = |text: &OsStr| display_name(text.as_bytes());
        let way = rsh.way(remote).iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
        let names =
            ShownNames { host: remote.display(), tow: shown(tow_path), rsh: shown(&rsh.program), way };
        let mut command = rsh.command(remote, tow_path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| not_started(&names, &error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ApiError::new(ErrorKind::Failed, "the pipe to ssh is not there"));
        };
        let connection = match pipe::open(output, input, node, Role::Initiator, OPEN_LIMIT).await {
            Ok(connection) => connection,
            Err(error) => return Err(not_opened(&names, &mut child, &error).await),
        };
        let peer = Peer::start(connection, PeerConfig { control: true, ..config }, Some(service));
        let mut channel = Self { peer, child, names };
        match tokio::time::timeout(HELLO_LIMIT, channel.peer.greeted()).await {
            Ok(true) => Ok(channel),
            _ => Err(channel.failure().await),
        }
    }

    /// The other side. Its node id is told, not proved: as good as ssh.
    pub const fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// What to tell when the connection ended before the copy did. Closes it.
    pub async fn failure(&mut self) -> ApiError {
        let why = self.peer.ended().unwrap_or_else(|| "no answer".into());
        self.peer.close(&why);
        let status = ended(&mut self.child).await;
        match status.map(|status| explain_status(&self.names, status, true)) {
            Some(Some(error)) => error,
            _ if self.peer.was_silent() => ApiError::new(
                ErrorKind::TimedOut,
                format!("{}: {why}", self.names.host),
            )
            .hint(
                "see that the other machine runs, then run the same command again: it goes on where it was",
            ),
            _ => ApiError::new(ErrorKind::Unreachable, format!("{}: {why}", self.names.host))
                .hint("run the same command again: it goes on where it was"),
        }
    }

    /// Ends the other side, and waits for it a little.
    pub async fn close(mut self) {
        self.peer.close("the copy has ended");
        if ended(&mut self.child).await.is_none() {
            tracing::debug!(host = self.names.host, "ssh did not end by itself");
        }
    }
}

/// How a child ended; `None` if it does not.
async fn ended(child: &mut Child) -> Option<ExitStatus> {
    tokio::time::timeout(END_LIMIT, child.wait()).await.ok()?.ok()
}

fn not_started(names: &ShownNames, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            ApiError::new(ErrorKind::Unreachable, format!("{}: no such command on this machine", names.rsh))
                .hint("install an ssh client, or name another command with -e")
        }
        _ => ApiError::new(ErrorKind::Failed, format!("start {}: {error}", names.rsh)),
    }
}

async fn not_opened(names: &ShownNames, child: &mut Child, error: &PipeError) -> ApiError {
    if let Some(error) = explain_pipe(names, error) {
        return error;
    }
    match ended(child).await.and_then(|status| explain_status(names, status, false)) {
        Some(error) => error,
        None => ApiError::new(ErrorKind::Unreachable, format!("{}: {}", names.host, errors::chain(error)))
            .hint(format!("is '{}' there the program tow? --tow-path names another", names.tow)),
    }
}

/// What the other side's first bytes tell.
fn explain_pipe(names: &ShownNames, error: &PipeError) -> Option<ApiError> {
    let ShownNames { host, tow, way, .. } = names;
    match error {
        PipeError::NotTowpath { .. } => {
            Some(ApiError::new(ErrorKind::Failed, format!("{host}: {error}")).hint(format!(
                "a login script there prints something, or '{tow}' is another program: \
                 '{way} true' must print nothing"
            )))
        }
        PipeError::Version { .. } => Some(
            ApiError::new(ErrorKind::Failed, format!("{host}: {error}"))
                .hint("install the same version of tow on both sides"),
        ),
        PipeError::SameRole => Some(
            ApiError::new(ErrorKind::Failed, format!("{host}: {error}"))
                .hint(format!("'{tow}' there only repeats what it is told; name tow with --tow-path")),
        ),
        _ => None,
    }
}

/// What the exit status of ssh tells, before the other side answered or after; `None` if nothing is wrong with it.
fn explain_status(names: &ShownNames, status: ExitStatus, was_there: bool) -> Option<ApiError> {
    let ShownNames { host, tow, rsh, way } = names;
    let (kind, message, hint) = match (status.code(), status.signal()) {
        (Some(0), _) => return None,
        (Some(127), _) => (
            ErrorKind::Unreachable,
            format!("tow is not installed on {host} or not in its PATH (as '{tow}')"),
            "install it there or name it with --tow-path".into(),
        ),
        (Some(126), _) => (
            ErrorKind::Refused,
            format!("'{tow}' on {host} can't be run"),
            "see that it is an executable for that machine, or name another with --tow-path".into(),
        ),
        (Some(255), _) if was_there => (
            ErrorKind::Unreachable,
            format!("{rsh} lost the connection to {host}"),
            "run the same command again: it goes on where it was".into(),
        ),
        (Some(255), _) => (
            ErrorKind::Unreachable,
            format!("{rsh} could not connect to {host}"),
            format!("its own message tells why; see that '{way} true' works"),
        ),
        (Some(code), _) => (
            ErrorKind::Failed,
            format!("'{tow}' on {host} ended with status {code}"),
            "its own message tells why; see that both sides have the same version of tow".into(),
        ),
        (None, signal) => (
            ErrorKind::Unreachable,
            format!("{rsh} to {host} was killed by signal {}", signal.unwrap_or_default()),
            "run the same command again: it goes on where it was".into(),
        ),
    };
    Some(ApiError::new(kind, message).hint(hint))
}

/// The remote side: the same over this process's standard input and output, which are taken:
/// what is printed from now on goes to standard error.
///
/// The peer ends with the pipe, and whatever runs for it must too: see [`exit_after`].
pub async fn serve_stdio(
    node: NodeId,
    service: Arc<Service>,
    config: PeerConfig,
) -> Result<Arc<Peer>, ApiError> {
    let (read, write) = take_stdio().map_err(|error| {
        ApiError::new(ErrorKind::Usage, format!("standard input and output: {error}"))
            .hint("this command is started by tow on another machine, over ssh")
    })?;
    let connection = pipe::open(read, write, node, Role::Responder, HELLO_LIMIT).await;
    let connection = connection.map_err(|error| ApiError::new(ErrorKind::Failed, errors::chain(&error)))?;
    Ok(Peer::start(connection, PeerConfig { control: true, ..config }, Some(service)))
}

/// Ends this process `grace` after `peer` is gone, whatever still runs: nothing may be left behind
/// when the channel ends, and what is under way is safe to be killed at any point.
pub fn exit_after(peer: &Peer, grace: Duration) {
    let closed = peer.until_closed();
    tokio::spawn(async move {
        closed.await;
        tokio::time::sleep(grace).await;
        tracing::debug!("still busy after the other side was gone");
        process::exit(1);
    });
}

type StdioInput = Pin<Box<dyn AsyncRead + Send>>;
type StdioOutput = Pin<Box<dyn AsyncWrite + Send>>;

/// The pipe is nowhere else in this process afterwards, so that closing it closes it, and nothing
/// that is printed by mistake gets into it.
fn take_stdio() -> io::Result<(StdioInput, StdioOutput)> {
    let (input, output) =
        (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    let (input, output) = (read_end(input)?, write_end(output)?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((input, output))
}

fn read_end(fd: OwnedFd) -> io::Result<StdioInput> {
    match kind(&fd)? {
        FileType::Fifo => Ok(Box::pin(fifo::Receiver::from_owned_fd(fd)?)),
        FileType::Socket => Ok(Box::pin(socket(fd)?)),
        _ => Err(not_a_pipe()),
    }
}

fn write_end(fd: OwnedFd) -> io::Result<StdioOutput> {
    match kind(&fd)? {
        FileType::Fifo => Ok(Box::pin(fifo::Sender::from_owned_fd(fd)?)),
        FileType::Socket => Ok(Box::pin(socket(fd)?)),
        _ => Err(not_a_pipe()),
    }
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

/// sshd gives a command one socket for both directions.
fn socket(fd: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

fn not_a_pipe() -> io::Error {
    io::Error::other("not a pipe")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    fn split(command: &str) -> Result<Vec<String>, String> {
        Ok(words(command.as_bytes())?.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    #[test]
    fn rsh_commands_are_split_as_rsync_does() {
        assert_eq!(split("ssh -p 2222").unwrap(), ["ssh", "-p", "2222"]);
        assert_eq!(split("  ssh   -v ").unwrap(), ["ssh", "-v"]);
        assert_eq!(split("ssh -o 'ProxyCommand=nc %h 1'").unwrap(), ["ssh", "-o", "ProxyCommand=nc %h 1"]);
        assert_eq!(split(r#"a"b c"'d e'f"#).unwrap(), ["ab cd ef"]);
        assert_eq!(split(r#""say ""hi""" x"#).unwrap(), [r#"say "hi""#, "x"]);
        assert_eq!(split("'it''s'").unwrap(), ["it's"]);
        assert_eq!(split(r"a\ b $(id) ;x").unwrap(), [r"a\", "b", "$(id)", ";x"]);
        assert_eq!(split("ssh ''").unwrap(), ["ssh", ""]);
        assert!(split("ssh 'x").is_err() && split("\"").is_err());
    }

    #[test]
    fn commands_without_a_program_are_refused() {
        for command in ["", "   ", "''", "'' ssh"] {
            assert!(Rsh::parse(OsStr::new(command)).is_err(), "{command:?}");
        }
        assert_eq!(Rsh::choose(Some(OsStr::new("'x"))).unwrap_err().kind, ErrorKind::Usage);
    }

    #[test]
    fn the_command_line_has_nothing_of_the_copy() {
        let Ok(Place::Remote(remote)) = Place::parse(OsStr::new("me@[::1]:a path")) else { panic!() };
        let rsh = Rsh::parse(OsStr::new("ssh -p 22")).unwrap();
        let command = rsh.command(&remote, OsStr::new("sudo tow"));
        let words: Vec<_> = command.as_std().get_args().collect();
        assert_eq!(command.as_std().get_program(), "ssh");
        assert_eq!(words, ["-p", "22", "-l", "me", "::1", "sudo tow", "remote"]);
    }

    #[test]
    fn each_status_says_what_to_do() {
        let (host, tow, rsh, way) = ("box".into(), "tow".into(), "ssh".into(), "ssh -p 2 -l me box".into());
        let names = ShownNames { host, tow, rsh, way };
        let explain = |raw| explain_status(&names, ExitStatus::from_raw(raw), false);
        assert!(explain(0).is_none());
        for (code, words) in [
            (127, "not installed on box"),
            (126, "can't be run"),
            (255, "could not connect"),
            (3, "status 3"),
        ] {
            let error = explain(code << 8).unwrap();
            assert!(error.message.contains(words) && error.hint.is_some(), "{}", error.message);
        }
        assert!(explain(255 << 8).unwrap().hint.unwrap().contains("'ssh -p 2 -l me box true'"));
        let lost = explain_status(&names, ExitStatus::from_raw(255 << 8), true).unwrap();
        assert_eq!(lost.message, "ssh lost the connection to box");
        assert!(lost.hint.unwrap().contains("goes on"));
        assert!(explain(9).unwrap().message.contains("signal 9"));
    }
}
