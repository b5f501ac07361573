//! Rendezvous servers that share their entries: what is between them (NATS), and how it stands.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use towpath_api::{ApiError, ErrorKind};
#[cfg(feature = "nats")]
use towpath_peer_server::relayed::private_text;
use towpath_rendezvous::RendezvousServer;
pub use towpath_rendezvous::sharing::SharingStatus;
#[cfg(feature = "nats")]
use towpath_rendezvous_nats::{NatsLogin, NatsSettings, share};

/// What carries entries between servers.
#[derive(Debug, Clone)]
pub struct Cluster {
    #[cfg(feature = "nats")]
    nats: NatsSettings,
    #[cfg(not(feature = "nats"))]
    never: std::convert::Infallible,
}

impl fmt::Display for Cluster {
    #[cfg(feature = "nats")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nats.place.fmt(f)
    }

    #[cfg(not(feature = "nats"))]
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl Cluster {
    /// At these addresses of NATS, with commas between them, with the login in this file, if it wants one.
    #[cfg(feature = "nats")]
    pub fn new(addresses: &str, login: Option<&Path>) -> Result<Self, ApiError> {
        let place = addresses.parse().map_err(|error| {
            let error = ApiError::new(ErrorKind::Usage, format!("{error}"));
            error.hint("a login is given in a file, by --cluster-login")
        })?;
        let login = login.map(|file| private_text(file, "login")).transpose()?;
        let login = login.and_then(|line| NatsLogin::from_line(&line));
        Ok(Self { nats: NatsSettings { place, login } })
    }

    /// This program can't: it was built without.
    #[cfg(not(feature = "nats"))]
    pub fn new(addresses: &str, _login: Option<&Path>) -> Result<Self, ApiError> {
        let message = format!("{addresses}: this tow was built without NATS");
        Err(ApiError::new(ErrorKind::Usage, message).hint("build it with the feature 'nats'"))
    }

    /// Shares the entries of `server` from now on, in the background; how it stands is told by what is returned.
    #[cfg(feature = "nats")]
    pub(crate) fn join(self, server: Arc<RendezvousServer>) -> watch::Receiver<SharingStatus> {
        let status = Arc::new(watch::Sender::new(SharingStatus::Away("NATS was not reached yet".into())));
        let told = status.subscribe();
        tokio::spawn(share(server, self.nats, status));
        told
    }

    #[cfg(not(feature = "nats"))]
    pub(crate) fn join(self, _: Arc<RendezvousServer>) -> watch::Receiver<SharingStatus> {
        match self.never {}
    }
}
