//! Peers that come by a relay: this service waits at those of its configuration, and answers who calls there.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use towpath_api::{ApiError, ErrorKind};
use towpath_config::Config;
use towpath_content::Hint;
use towpath_content::hint::{PeerAddress, RELAY};
use towpath_link::{Identity, Protocol};
use towpath_plugins::direct::relayed::BY_RELAY;
use towpath_protocol::{Peer, PeerConfig};
use towpath_relay::{IncomingCall, RelayDial, RelayPass, RelayPlace, Waiting, WaitingPlace, WaitingState};

use crate::listen::{ListenerServing, NOTHING_SHOWN};

/// Relays that a ticket names, at most.
pub const MOST_RELAYS: usize = 4;
/// The longest pass.
const MAX_PASS: u64 = 4096;

/// Relays of the configuration, with their pass.
pub fn waiting_places(config: &Config) -> Result<Vec<WaitingPlace>, ApiError> {
    let pass = config.rendezvous.relay_pass.as_ref().map(|file| pass(&file.0)).transpose()?;
    let places = config.rendezvous.relays.iter().filter_map(place);
    Ok(places.map(|place| WaitingPlace { place, pass: pass.clone() }).collect())
}

/// The pass in a file that only its owner can read.
pub fn pass(file: &Path) -> Result<RelayPass, ApiError> {
    private_text(file, "pass").map(RelayPass::new)
}

/// The secret in a file that only its owner may read, without blanks around it; `what` it is, for people.
pub fn private_text(file: &Path, what: &str) -> Result<String, ApiError> {
    let wrong = |why: &str| ApiError::new(ErrorKind::Usage, format!("{}: {why}", file.display()));
    let unreadable = |error: std::io::Error| wrong(&error.to_string());
    let opened = fs::File::open(file).map_err(unreadable)?;
    if opened.metadata().map_err(unreadable)?.mode() & 0o077 != 0 {
        return Err(wrong(&format!("others than its owner can read the {what}; run: chmod go-rwx")));
    }
    let mut text = String::new();
    opened.take(MAX_PASS).read_to_string(&mut text).map_err(unreadable)?;
    match text.trim() {
        "" => Err(wrong(&format!("there is no {what} in it"))),
        text => Ok(text.to_owned()),
    }
}

fn place(place: &PeerAddress) -> Option<RelayPlace> {
    Some(RelayPlace { node: place.node?, addresses: vec![place.address.clone()] })
}

/// Hints that name the relays of the configuration, behind `rank` others.
pub fn hints(config: &Config, rank: usize) -> Vec<Hint> {
    let relays = config.rendezvous.relays.iter().take(MOST_RELAYS).enumerate();
    let hint = |(at, relay): (usize, &PeerAddress)| {
        let priority = u16::try_from(rank + at).unwrap_or(u16::MAX);
        Hint::new(format!("{RELAY}://{relay}"), priority, 1).ok()
    };
    relays.filter_map(hint).collect()
}

/// Waits at `places` as `identity`, and answers who calls, for as long as it is polled.
pub(crate) async fn attend(places: Vec<WaitingPlace>, identity: Identity, serving: Arc<ListenerServing>) {
    let names: Vec<String> = places.iter().map(|place| place.place.addresses.join(",")).collect();
    let mut waiting = Waiting::start(places, &identity, &RelayDial::default());
    let telling = tell_refusals(&names, waiting.states());
    let answering = async {
        while let Some(call) = waiting.next().await {
            tokio::spawn(answer(call, Arc::clone(&serving)));
        }
    };
    tokio::join!(answering, telling);
}

/// Says of each relay once that it refuses: whoever configured it has the wrong pass, say, and would wonder why nobody comes.
async fn tell_refusals(names: &[String], mut states: watch::Receiver<Vec<WaitingState>>) {
    let mut told = vec![false; names.len()];
    loop {
        for ((name, state), told) in names.iter().zip(&*states.borrow_and_update()).zip(&mut told) {
            if let WaitingState::Refused(why) = state
                && !std::mem::replace(told, true)
            {
                tracing::error!("nobody comes by the relay {name}: {why}. 'tow doctor' tells more");
            }
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

async fn answer(call: IncomingCall, serving: Arc<ListenerServing>) {
    let node = call.caller();
    let Some(_place) = serving.connection_limits.dialled(node) else {
        tracing::info!(peer = %node.short(), "a call was one too many");
        return;
    };
    match call.accept(&[Protocol::PEER]).await {
        Ok(connection) => {
            let address = connection.address;
            let config = PeerConfig { way: Some(BY_RELAY.into()), ..(serving.config)() };
            let peer = Peer::start(connection, config, Some(Arc::clone(&serving.service)));
            tokio::select! {
                () = serving.fetches.attend(&peer, address) => {}
                () = overstayed(&peer, &serving) => peer.close(NOTHING_SHOWN),
            }
            drop(peer);
            serving.pool.tidy();
        }
        Err(error) => tracing::debug!(peer = %node.short(), %error, "a call by a relay came to nothing"),
    }
}

/// Completes if the peer has shown no right to anything for too long. One that has may be asked from then on.
async fn overstayed(peer: &Arc<Peer>, serving: &ListenerServing) {
    if tokio::time::timeout(serving.wait_limit, peer.until_known()).await.is_ok() {
        serving.pool.add_relayed(peer);
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pass_is_of_a_file_that_nobody_else_reads() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pass");
        assert!(pass(&file).is_err(), "it is not there");
        fs::write(&file, "secret\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(pass(&file).unwrap_err().message.contains("chmod"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(pass(&file).unwrap(), RelayPass::new("secret"));
        fs::write(&file, " \n").unwrap();
        assert!(pass(&file).unwrap_err().message.contains("no pass"));
    }
}
