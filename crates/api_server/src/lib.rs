//! The local API over a Unix socket of the user's own: HTTP/1.1 with JSON, events one a line.
//!
//! The socket lies in a folder that only its owner can enter, has mode 0600, and a peer of another
//! user is refused whatever the file system allows.
//!
//! ```text
//!   accept ── connection (a descriptor may come along) ── routes ──► calls, puts, content, chunks,
//!                                                                    sessions ──► InProcess (Api)
//! ```
//!
//! | module | story |
//! |---|---|
//! | `accept` | connections within limits |
//! | `connection` | bytes, and one file descriptor, from an application |
//! | `routes` | the table of all calls |
//! | `problem` | errors as problem details; bodies of JSON |
//! | `calls` | calls that are answered at once |
//! | `puts` | puts: by name, as a stream, in parts, by descriptor |
//! | `descriptor` | what may be put by descriptor |
//! | `events` | gets into files, copies, indexing |
//! | `content` | objects as plain bodies, with ranges |
//! | `chunks` | objects as they come, out of order |
//! | `recipe` | how objects are cut into chunks |
//! | `lines` | events as lines; sessions |
//! | `body` | a request's body as a reader |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |

mod accept;
mod body;
mod calls;
mod chunks;
mod connection;
mod content;
mod descriptor;
mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lines;
mod problem;
mod puts;
mod recipe;
mod routes;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use towpath_api::{ApiError, ErrorKind};

pub use routes::table;

use towpath_service::{InProcess, Service};
use towpath_words as words;

/// Connections that wait to be accepted: a thousand programs may start at once.
const BACKLOG: i32 = 4096;

/// The socket of a running server; dropping it removes the file.
pub struct Socket {
    listener: UnixListener,
    /// Removed in the end; `None` if the file is somebody else's.
    path: Option<PathBuf>,
}

impl Socket {
    /// Binds the socket; a stale one is replaced, a daemon that answers is an error.
    pub async fn bind(path: &Path) -> Result<Self, ApiError> {
        let folder = path.parent().unwrap_or(path);
        private_folder(folder).map_err(|error| words::io("create", folder, &error))?;
        if UnixStream::connect(path).await.is_ok() {
            let message = format!("a daemon is already running at {}", path.display());
            return Err(ApiError::new(ErrorKind::Exists, message)
                .hint("stop it first, or set TOW_HOME to another folder"));
        }
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(|error| words::io("listen on", path, &error))?;
        rustix::net::listen(&listener, BACKLOG)
            .map_err(|error| words::io("listen on", path, &error.into()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| words::io("protect", path, &error))?;
        Ok(Self { listener, path: Some(path.into()) })
    }

    /// Takes over a socket that another program, such as systemd, listens on already and protects.
    pub fn inherit(listener: std::os::unix::net::UnixListener) -> Result<Self, ApiError> {
        let taken = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
        let failed = |error: std::io::Error| {
            ApiError::new(ErrorKind::Failed, format!("taking a socket over: {error}"))
        };
        Ok(Self { listener: taken.map_err(failed)?, path: None })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Answers on `socket` until `end` completes.
pub async fn serve(
    socket: Socket,
    service: Arc<Service>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ApiError> {
    accept::run(&socket, InProcess(service), end).await;
    Ok(())
}
