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
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{io, process};

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe as fifo;
use tokio::process::{Child, Command};
use towpath_content::NodeId;
use towpath_link::pipe::{self, PipeError, Role};
use towpath_protocol::{Peer, PeerConfig, Service};

use crate::address::Remote;
use crate::ciphers::{self, AesHosts};
use crate::error::{CommandFault, CommandOrigin, RSH_VARIABLE, SshError, SshWay};

/// Command that starts one on another machine, unless `-e` or [`RSH_VARIABLE`] says otherwise.
const RSH: &str = "ssh";
/// The command's only argument.
const ARGUMENT: &str = "remote";
/// From starting ssh to the other side's hello: people type passwords and confirm host keys.
const OPEN_LIMIT: Duration = Duration::from_secs(600);
/// From start to hello at the remote side, whose ssh is through already.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// Time that ssh has to end after the pipe did.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The command that starts a command on another machine, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rsh {
    program: OsString,
    arguments: Vec<OsString>,
    /// Nobody chose it: it is plain ssh.
    is_default: bool,
}

impl Rsh {
    /// Command that `-e` names, else `TOW_RSH`, else ssh.
    pub fn choose(option: Option<&OsStr>) -> Result<Self, SshError> {
        let variable = variable();
        let (command, from) = match (option, &variable) {
            (Some(option), _) => (option, CommandOrigin::Option),
            (None, Some(variable)) => (&**variable, CommandOrigin::Variable),
            (None, None) => (OsStr::new(RSH), CommandOrigin::Default),
        };
        let rsh = Self::parse(command).map_err(|fault| SshError::Command { from, fault })?;
        Ok(Self { is_default: from == CommandOrigin::Default, ..rsh })
    }

    /// The same with a cipher that is quicker between here and `remote`, if nobody chose otherwise.
    pub async fn with_quick_cipher(mut self, remote: &Remote, hosts: &AesHosts) -> Self {
        if self.is_default
            && let Some(option) = ciphers::option(&self.program, remote, hosts).await
        {
            self.arguments.extend(["-o".into(), option]);
        }
        self
    }

    /// The command where `-e` names none.
    pub fn usual() -> OsString {
        variable().unwrap_or(RSH.into())
    }

    /// Splits a command into words as rsync does: at spaces, but for those in quotes, single or
    /// double; a quote in quotes is written twice. No shell sees it.
    fn parse(command: &OsStr) -> Result<Self, CommandFault> {
        let mut words = words(command.as_bytes())?.into_iter().map(OsString::from_vec);
        let program = words.next().filter(|program| !program.is_empty());
        let program = program.ok_or(CommandFault::Empty)?;
        Ok(Self { program, arguments: words.collect(), is_default: false })
    }

    /// The whole command line. `tow_path` is given to the other side's shell as it is, as rsync
    /// does with `--rsync-path`: it comes from this user's own command line.
    fn command(&self, remote: &Remote, tow_path: &OsStr) -> Command {
        let way = self.way(remote);
        let mut command = Command::new(&way[0]);
        command.args(&way[1..]).arg(tow_path).arg(ARGUMENT);
        command
    }

    /// The way to the other machine, for errors.
    fn whole_way(&self, remote: &Remote, tow_path: &OsStr) -> SshWay {
        SshWay { host: remote.host().to_owned(), tow: tow_path.to_owned(), command: self.way(remote) }
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

fn variable() -> Option<OsString> {
    std::env::var_os(RSH_VARIABLE).filter(|value| !value.is_empty())
}

fn words(command: &[u8]) -> Result<Vec<Vec<u8>>, CommandFault> {
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
        Some(open) => Err(CommandFault::OpenQuote(char::from(open))),
        None => Ok(words.into_iter().chain(word).collect()),
    }
}

/// The command that reaches the other machine, started by this process. Dropping it kills it.
pub struct RshProcess {
    child: Child,
    way: SshWay,
}

impl RshProcess {
    fn spawn(remote: &Remote, rsh: &Rsh, tow_path: &OsStr, ends: [Stdio; 2]) -> Result<Self, SshError> {
        let mut command = rsh.command(remote, tow_path);
        let [input, output] = ends;
        command.stdin(input).stdout(output).kill_on_drop(true);
        let child = command.spawn().map_err(|error| not_started(&rsh.program, error))?;
        Ok(Self { child, way: rsh.whole_way(remote, tow_path) })
    }

    /// Starts it for another process, which speaks through the returned socket.
    pub fn start(remote: &Remote, rsh: &Rsh, tow_path: &OsStr) -> Result<(Self, OwnedFd), SshError> {
        let failed = |source| SshError::NotStarted { program: rsh.program.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let again = theirs.try_clone().map_err(failed)?;
        let ends = [OwnedFd::from(theirs), again.into()].map(Stdio::from);
        Ok((Self::spawn(remote, rsh, tow_path, ends)?, ours.into()))
    }

    /// Error that its end tells of a connection that is lost, if it does.
    pub async fn failure(&mut self, was_there: bool) -> Option<SshError> {
        let status = self.ended().await.filter(|status| !status.success())?;
        Some(SshError::Ended { way: self.way.clone(), status, was_there })
    }

    /// Status with which it ended; `None` if it does not.
    async fn ended(&mut self) -> Option<ExitStatus> {
        tokio::time::timeout(END_LIMIT, self.child.wait()).await.ok()?.ok()
    }
}

/// The pipe to a `tow remote` on another machine. Dropping it kills what this process started for it.
pub struct Channel {
    peer: Arc<Peer>,
    /// Absent if another process started it.
    process: Option<RshProcess>,
    way: SshWay,
}

impl Channel {
    /// Starts the other side and waits for its hello. `node` is this side; `service` answers what
    /// the other one asks. `reached` is the way to a side that another process started by the same command.
    pub async fn open(
        remote: &Remote,
        (rsh, tow_path): (&Rsh, &OsStr),
        reached: Option<OwnedFd>,
        node: NodeId,
        service: Arc<Service>,
        config: PeerConfig,
    ) -> Result<Self, SshError> {
        let way = rsh.whole_way(remote, tow_path);
        let (mut process, read, write) = match reached {
            Some(socket) => {
                let (read, write) = both_ends(socket).map_err(|_| SshError::NoPipe)?;
                (None, read, write)
            }
            None => {
                let process = RshProcess::spawn(remote, rsh, tow_path, [Stdio::piped(), Stdio::piped()]);
                let mut process = process?;
                let (input, output) = (process.child.stdin.take(), process.child.stdout.take());
                let (input, output) = input.zip(output).ok_or(SshError::NoPipe)?;
                (Some(process), Box::pin(output) as StdioInput, Box::pin(input) as StdioOutput)
            }
        };
        let connection = match pipe::open(read, write, node, Role::Initiator, OPEN_LIMIT).await {
            Ok(connection) => connection,
            Err(error) => return Err(not_opened(way, process.as_mut(), error).await),
        };
        let peer = Peer::start(connection, PeerConfig { control: true, ..config }, Some(service));
        let mut channel = Self { peer, process, way };
        match tokio::time::timeout(HELLO_LIMIT, channel.peer.greeted()).await {
            Ok(true) => Ok(channel),
            _ => Err(channel.failure().await),
        }
    }

    /// The other side. Its node id is claimed, not proved: as good as ssh.
    pub const fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Error by which the connection ended before the copy did. Closes it.
    pub async fn failure(&mut self) -> SshError {
        let why = self.peer.ended().unwrap_or_else(|| "no answer".into());
        self.peer.close(&why);
        let host = self.way.host.clone();
        match failure(self.process.as_mut(), true).await {
            Some(error) => error,
            None if self.peer.was_silent() => SshError::Silent { host, why },
            None => SshError::Lost { host, why },
        }
    }

    /// Ends the other side, and waits for it a little.
    pub async fn close(mut self) {
        self.peer.close("the copy has ended");
        if let Some(process) = &mut self.process
            && process.ended().await.is_none()
        {
            tracing::debug!(host = ?self.way.host, "ssh did not end by itself");
        }
    }
}

async fn failure(process: Option<&mut RshProcess>, was_there: bool) -> Option<SshError> {
    process?.failure(was_there).await
}

fn not_started(program: &OsStr, source: io::Error) -> SshError {
    let program = program.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => SshError::NoSuchCommand { program },
        _ => SshError::NotStarted { program, source },
    }
}

/// The first bytes of the other side explain most, then how the command ended.
async fn not_opened(way: SshWay, process: Option<&mut RshProcess>, source: PipeError) -> SshError {
    use PipeError::{NotTowpath, SameRole, Version};
    if matches!(source, NotTowpath { .. } | Version { .. } | SameRole) {
        return SshError::NotOpened { way, source };
    }
    failure(process, false).await.unwrap_or(SshError::NotOpened { way, source })
}

/// The remote side: the same over this process's standard input and output, which are taken:
/// what is printed from now on goes to standard error.
///
/// The peer ends with the pipe, and whatever runs for it must too: see [`exit_after`].
pub async fn serve_stdio(
    node: NodeId,
    service: Arc<Service>,
    config: PeerConfig,
) -> Result<Arc<Peer>, SshError> {
    let (read, write) = take_stdio().map_err(|source| SshError::NoStdio { source })?;
    let connection = pipe::open(read, write, node, Role::Responder, HELLO_LIMIT).await;
    let connection = connection.map_err(|source| SshError::NoHello { source })?;
    Ok(Peer::start(connection, PeerConfig { control: true, ..config }, Some(service)))
}

/// Ends this process `grace` after `peer` is gone, whatever still runs: nothing may be left behind
/// when the channel ends, and what is under way is safe to be killed at any point.
pub fn exit_after(peer: &Peer, grace: Duration) {
    let closed = peer.closed();
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

/// A socket, for both directions.
fn both_ends(fd: OwnedFd) -> io::Result<(StdioInput, StdioOutput)> {
    let (read, write) = socket(fd)?.into_split();
    Ok((Box::pin(read), Box::pin(write)))
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
    use crate::address::Address;

    fn split(command: &str) -> Result<Vec<String>, CommandFault> {
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
        for (command, quote) in [("ssh 'x", '\''), ("\"", '"')] {
            assert_eq!(split(command), Err(CommandFault::OpenQuote(quote)));
        }
    }

    #[test]
    fn commands_without_a_program_are_refused() {
        for command in ["", "   ", "''", "'' ssh"] {
            assert_eq!(Rsh::parse(OsStr::new(command)), Err(CommandFault::Empty), "{command:?}");
        }
        let error = Rsh::choose(Some(OsStr::new("'x"))).unwrap_err();
        assert_eq!(error.to_string(), "-e: a quote ' is not closed");
    }

    #[test]
    fn the_command_line_has_nothing_of_the_copy() {
        let Ok(Address::Remote(remote)) = Address::parse(OsStr::new("me@[::1]:a path")) else { panic!() };
        let rsh = Rsh::parse(OsStr::new("ssh -p 22")).unwrap();
        let command = rsh.command(&remote, OsStr::new("sudo tow"));
        let words: Vec<_> = command.as_std().get_args().collect();
        assert_eq!(command.as_std().get_program(), "ssh");
        assert_eq!(words, ["-p", "22", "-l", "me", "::1", "sudo tow", "remote"]);
    }
}
