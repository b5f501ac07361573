//! Errors on the way to another machine: a variant for each different next step.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use towpath_files::display_name;
use towpath_link::pipe::PipeError;
use towpath_link::tcp::BindError;

/// The variable that names the command which reaches other machines.
pub const RSH_VARIABLE: &str = "TOW_RSH";

/// Error about the other machine, or what was named there, that can't be had.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// A source or destination that can't be read. Name another.
    #[error("{}: {fault}", shown(named))]
    Address {
        /// As the person wrote it.
        named: OsString,
        /// Fault of the name.
        fault: AddressFault,
    },
    /// The command that is to reach other machines is none. Correct it.
    #[error("{from}: {fault}")]
    Command {
        /// Origin of the command.
        from: CommandOrigin,
        /// Fault of the command.
        fault: CommandFault,
    },
    /// A path that ends in no name, among several or with `cp`. Ask for what is in it.
    #[error("{}: no name", display_name(path))]
    Nameless {
        /// The path; empty for the home directory.
        path: Vec<u8>,
    },
    /// A pattern that stands for more paths than are looked at. Name the directory instead.
    #[error("{}: too many paths", display_name(pattern))]
    TooManyPaths {
        /// The pattern.
        pattern: Vec<u8>,
    },
    /// A pattern that stands for nothing.
    #[error("{}: nothing matches", display_name(pattern))]
    NothingMatches {
        /// The pattern.
        pattern: Vec<u8>,
    },
    /// There is no such program here as the command names. Install it, or name another.
    #[error("{}: no such command", shown(program))]
    NoSuchCommand {
        /// The program.
        program: OsString,
    },
    /// The command could not be started otherwise.
    #[error("start {}", shown(program))]
    NotStarted {
        /// The program.
        program: OsString,
        /// Error of the system.
        source: io::Error,
    },
    /// The command was started without a pipe.
    #[error("no pipe to a command")]
    NoPipe,
    /// The other side did not say hello as it should: [`PipeError`] says how, and so what to do.
    #[error("no connection to {}", shown(&way.host))]
    NotOpened {
        /// The way to it.
        way: SshWay,
        /// Error about what came instead.
        source: PipeError,
    },
    /// The command ended, whose status shows why: ssh's own, or that of what it started there.
    #[error("{} to {} ended: {status}", shown(way.program()), shown(&way.host))]
    Ended {
        /// The way to the other side.
        way: SshWay,
        /// Exit status.
        status: ExitStatus,
        /// The other side had said hello.
        was_there: bool,
    },
    /// The other side sent nothing for too long. Look after that machine, then go on.
    #[error("{}: {why}", shown(host))]
    Silent {
        /// The other machine.
        host: OsString,
        /// Error that ended the connection.
        why: String,
    },
    /// The connection was lost otherwise. Go on.
    #[error("{}: {why}", shown(host))]
    Lost {
        /// The other machine.
        host: OsString,
        /// Error that ended the connection.
        why: String,
    },
    /// This process was to be the other side, and has no pipe to the first one.
    #[error("standard input and output")]
    NoStdio {
        /// Error of the system.
        source: io::Error,
    },
    /// This process is the other side, and the first one did not say hello.
    #[error("no hello")]
    NoHello {
        /// Error about what came instead.
        source: PipeError,
    },
    /// No connections can come from elsewhere.
    #[error("no listener")]
    NotListening {
        /// Error of the listener.
        #[from]
        source: BindError,
    },
    /// A listener does not know its own address.
    #[error("a listener without an address")]
    NoAddress {
        /// Error of the system.
        source: io::Error,
    },
    /// No connection beside ssh's stands, where no other may be used. Let them through, or go over ssh.
    #[error("no TLS connection within {limit:?}")]
    NoConnection {
        /// Time for which it was tried.
        limit: Duration,
        /// Addresses that were dialled.
        tried: Vec<SocketAddr>,
        /// Error of the last dial that failed, if one did.
        last: Option<Arc<dyn Error + Send + Sync>>,
    },
}

/// Fault of the name of a source or a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFault {
    /// It is a URL.
    Url,
    /// It is written as rsync's daemons are.
    Daemon,
    /// The user or host is nothing.
    Empty(AddressPart),
    /// It would be an option of ssh.
    Option(AddressPart),
    /// It has a space or a control character in it.
    Space(AddressPart),
}

/// A part of `[user@]host:path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPart {
    /// Before the at sign.
    User,
    /// Behind it.
    Host,
}

/// Origin of the command that reaches other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOrigin {
    /// The option `-e`.
    Option,
    /// The variable [`RSH_VARIABLE`].
    Variable,
    /// This program.
    Default,
}

/// Fault of that command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// There is none.
    Empty,
    /// This quote is not closed.
    OpenQuote(char),
}

/// Way by which the other machine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshWay {
    /// The other machine.
    pub host: OsString,
    /// The program that is started there.
    pub tow: OsString,
    /// The command that starts it, and its arguments up to the host.
    pub command: Vec<OsString>,
}

impl SshWay {
    /// The program that reaches the other machine.
    pub fn program(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), |program| program)
    }
}

impl Display for AddressFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => f.write_str("a URL"),
            Self::Daemon => f.write_str("an rsync daemon"),
            Self::Empty(part) => write!(f, "the {part} is empty"),
            Self::Option(part) => write!(f, "the {part} begins with '-'"),
            Self::Space(part) => write!(f, "the {part} has a space or a control character in it"),
        }
    }
}

impl Display for AddressPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Host => "host",
        })
    }
}

impl Display for CommandOrigin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Option => "-e",
            Self::Variable => RSH_VARIABLE,
            Self::Default => "",
        })
    }
}

impl Display for CommandFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no command in it"),
            Self::OpenQuote(quote) => write!(f, "a quote {quote} is not closed"),
        }
    }
}

fn shown(text: &OsStr) -> String {
    display_name(text.as_bytes())
}
