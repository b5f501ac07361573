//! The guest: has a code, looks for who waits with it on its own network and at rendezvous servers, and gets the ticket.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towpath_codes::exchange::{CodeGuest, Fingerprint, GuestFailure, GuestStep};
use towpath_codes::{Code, Entropy};
use towpath_link::Identity;
use towpath_link::tcp::{self, DialConfig, Timeouts};
use towpath_rendezvous::letters::{LetterError, Letters};
use towpath_rendezvous::message::Refusal;
use towpath_rendezvous::place::KnownServer;

use crate::conversation::CodeConversation;
use crate::{HandoverPlaces, PROTOCOL, trouble_at, trouble_near};

/// Time for being found on one network: what was announced long ago is there in a moment.
const LAN_WAIT: Duration = Duration::from_secs(4);
/// Time for a connection on one network.
const CONNECT: Duration = Duration::from_secs(2);
/// Time for the host to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for the host's person to compare fingerprints.
const COMPARING: Duration = Duration::from_secs(600);
/// Hosts with the same number that are asked: each learns whether it has the same words.
const MOST_HOSTS: usize = 3;

/// Reason why there is no ticket.
#[derive(Debug, Error)]
pub enum GuestError {
    /// Nobody waits under the number, as far as could be seen.
    #[error("nobody waits with a code of this number{0}")]
    Nobody(String),
    /// Somebody does, and it came to nothing.
    #[error(transparent)]
    Failed(#[from] GuestFailure),
    /// The system gave no random bytes.
    #[error("{0}")]
    Impossible(String),
}

/// Gets the ticket for `code`; returns its text. Where people compare fingerprints it goes to `fingerprints`.
pub async fn ask(
    places: &HandoverPlaces,
    code: &Code,
    fingerprints: &mpsc::Sender<Fingerprint>,
) -> Result<String, GuestError> {
    let identity = Identity::generate().map_err(|error| GuestError::Impossible(error.to_string()))?;
    let (mut found, mut troubles) = look(places, code.number(), &identity);
    let (mut failure, mut asked, mut refused_by) = (None, 0, Vec::new());
    while asked < MOST_HOSTS
        && let Some(conversation) = found.recv().await
    {
        // At another of its addresses, or in its mailbox, that would be a second guess.
        let host = conversation.peer();
        if host.is_some_and(|host| refused_by.contains(&host)) {
            continue;
        }
        // What a server says of the other end must keep nobody else out.
        let host = host.filter(|_| conversation.is_direct());
        asked += 1;
        match talk(conversation, code, &identity, fingerprints).await? {
            Ok(ticket) => return Ok(ticket),
            // Another one may have the same number. What says most is told.
            Err(GuestFailure::Nobody | GuestFailure::Left) if failure.is_some() => {}
            Err(why) => {
                if !matches!(why, GuestFailure::Left) {
                    refused_by.extend(host);
                }
                failure = Some(why);
            }
        }
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let mut told = Vec::new();
    while let Ok(trouble) = troubles.try_recv() {
        told.push(trouble);
    }
    Err(GuestError::Nobody(if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) }))
}

/// Looks everywhere at once.
fn look(
    places: &HandoverPlaces,
    number: u32,
    identity: &Identity,
) -> (mpsc::Receiver<CodeConversation>, mpsc::UnboundedReceiver<String>) {
    let (came, found) = mpsc::channel(1);
    let (trouble, troubles) = mpsc::unbounded_channel();
    for server in places.servers.clone() {
        let (came, trouble, identity) = (came.clone(), trouble.clone(), identity.clone());
        tokio::spawn(async move { join(server, number, identity, came, trouble).await });
    }
    if places.lan {
        let identity = identity.clone();
        tokio::spawn(async move { look_near(number, identity, came, trouble).await });
    }
    (found, troubles)
}

async fn join(
    server: KnownServer,
    number: u32,
    identity: Identity,
    came: mpsc::Sender<CodeConversation>,
    trouble: mpsc::UnboundedSender<String>,
) {
    match Letters::join(&server, &identity, number).await {
        Ok((letters, host)) => drop(came.send(CodeConversation::Letters(letters, host)).await),
        Err(LetterError::Refused(Refusal::NobodyWaits)) => {}
        Err(error) => drop(trouble.send(trouble_at(&server, error))),
    }
}

async fn look_near(
    number: u32,
    identity: Identity,
    came: mpsc::Sender<CodeConversation>,
    trouble: mpsc::UnboundedSender<String>,
) {
    let (told, mut addresses) = mpsc::channel(1);
    let looking = tokio::task::spawn_blocking(move || {
        let found = towpath_lan::find(number, LAN_WAIT)?;
        // Nobody listens any more once there is a ticket.
        found.into_iter().try_for_each(|address| told.blocking_send(address).map_err(drop)).ok();
        Ok::<_, towpath_lan::LanError>(())
    });
    let mut dialling = JoinSet::new();
    while let Some(address) = addresses.recv().await {
        dialling.spawn(dial(address, identity.clone(), came.clone()));
    }
    while dialling.join_next().await.is_some() {}
    if let Ok(Err(error)) = looking.await {
        let _ = trouble.send(trouble_near(error));
    }
}

async fn dial(address: SocketAddr, identity: Identity, came: mpsc::Sender<CodeConversation>) {
    let timeouts = Timeouts { connect: CONNECT, handshake: CONNECT };
    let how = DialConfig { timeouts, protocol: PROTOCOL, ..DialConfig::default() };
    // Who it is does not matter: whether it has the code does.
    match tcp::dial_whoever(address, &identity, &how).await {
        Ok(connection) => drop(came.send(CodeConversation::direct(connection)).await),
        Err(error) => tracing::debug!(%error, "who waits near here can't be reached"),
    }
}

async fn talk(
    mut host: CodeConversation,
    code: &Code,
    identity: &Identity,
    fingerprints: &mpsc::Sender<Fingerprint>,
) -> Result<Result<String, GuestFailure>, GuestError> {
    let entropy = Entropy::of_system().map_err(|error| GuestError::Impossible(error.to_string()))?;
    let mut guest = CodeGuest::new(code, identity.node_id(), entropy);
    let mut patience = PATIENCE;
    loop {
        let Ok(Some(message)) = tokio::time::timeout(patience, host.next()).await else {
            host.send(vec![guest.leave()]).await;
            return Ok(Err(GuestFailure::Left));
        };
        match guest.receive(&message, &host.way()) {
            GuestStep::Answer(answer) => drop(host.send(vec![answer]).await),
            GuestStep::Confirmed | GuestStep::Ignored => {}
            GuestStep::Compare(fingerprint) => {
                patience = COMPARING;
                let _ = fingerprints.send(fingerprint).await;
            }
            GuestStep::Ticket { text, .. } => return Ok(Ok(text)),
            GuestStep::Failed(why) => return Ok(Err(why)),
        }
    }
}
