//! The guest: has a code, looks for who waits with it on its own network and at rendezvous servers, and gets the ticket.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
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
/// Time for who waits to say its offer, which costs it nothing.
const OFFER_WAIT: Duration = Duration::from_secs(5);
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
        && let Some(waiting) = found.recv().await
    {
        // At another of its addresses, or in its mailbox, that would be a second guess.
        let host = waiting.host.peer();
        if host.is_some_and(|host| refused_by.contains(&host)) {
            continue;
        }
        // What a server says of the other end must keep nobody else out.
        let host = host.filter(|_| waiting.host.is_direct());
        asked += 1;
        match talk(waiting, code, &identity, fingerprints).await? {
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

/// A host that has said its offer: only such a one is asked, so that who says nothing holds up nobody.
struct WaitingHost {
    host: CodeConversation,
    offer: Bytes,
}

/// Waits for the host's offer, and hands both on.
async fn listen(mut host: CodeConversation, came: mpsc::Sender<WaitingHost>) {
    match tokio::time::timeout(OFFER_WAIT, host.next()).await {
        Ok(Some(offer)) => drop(came.send(WaitingHost { host, offer }).await),
        _ => tracing::debug!("who waits with this number offers nothing"),
    }
}

/// Looks everywhere at once.
fn look(
    places: &HandoverPlaces,
    number: u32,
    identity: &Identity,
) -> (mpsc::Receiver<WaitingHost>, mpsc::UnboundedReceiver<String>) {
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
    came: mpsc::Sender<WaitingHost>,
    trouble: mpsc::UnboundedSender<String>,
) {
    match Letters::join(&server, &identity, number).await {
        Ok((letters, host)) => listen(CodeConversation::Letters(letters, host), came).await,
        Err(LetterError::Refused(Refusal::NobodyWaits)) => {}
        Err(error) => drop(trouble.send(trouble_at(&server, error))),
    }
}

async fn look_near(
    number: u32,
    identity: Identity,
    came: mpsc::Sender<WaitingHost>,
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

async fn dial(address: SocketAddr, identity: Identity, came: mpsc::Sender<WaitingHost>) {
    let timeouts = Timeouts { connect: CONNECT, handshake: CONNECT };
    let how = DialConfig { timeouts, protocol: PROTOCOL, ..DialConfig::default() };
    // Who it is does not matter: whether it has the code does.
    match tcp::dial_whoever(address, &identity, &how).await {
        Ok(connection) => listen(CodeConversation::direct(connection), came).await,
        Err(error) => tracing::debug!(%error, "who waits near here can't be reached"),
    }
}

async fn talk(
    waiting: WaitingHost,
    code: &Code,
    identity: &Identity,
    fingerprints: &mpsc::Sender<Fingerprint>,
) -> Result<Result<String, GuestFailure>, GuestError> {
    let entropy = Entropy::of_system().map_err(|error| GuestError::Impossible(error.to_string()))?;
    let mut guest = CodeGuest::new(code, identity.node_id(), entropy);
    let (mut host, mut message) = (waiting.host, waiting.offer);
    let mut patience = PATIENCE;
    loop {
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
        match tokio::time::timeout(patience, host.next()).await {
            Ok(Some(next)) => message = next,
            _ => {
                host.send(vec![guest.leave()]).await;
                return Ok(Err(GuestFailure::Left));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use towpath_link::tcp::{Listener, Pending};

    use super::*;

    async fn host(identity: &Identity) -> (Listener, SocketAddr) {
        let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener = Listener::bind_for(anywhere, identity, &[PROTOCOL]).await.unwrap();
        let address = listener.address().unwrap();
        (listener, address)
    }

    async fn comes_in(pending: Pending) -> CodeConversation {
        CodeConversation::direct(pending.handshake(CONNECT).await.unwrap())
    }

    #[tokio::test]
    async fn who_waits_and_says_nothing_holds_up_nobody() {
        let identity = Identity::generate().unwrap();
        let (came, mut found) = mpsc::channel(1);
        let mut mute = Vec::new();
        for _ in 0..MOST_HOSTS {
            let (listener, address) = host(&identity).await;
            tokio::spawn(dial(address, identity.clone(), came.clone()));
            mute.push(comes_in(listener.accept().await.unwrap()).await);
        }
        let (listener, address) = host(&identity).await;
        tokio::spawn(dial(address, identity.clone(), came));
        let mut right = comes_in(listener.accept().await.unwrap()).await;
        assert!(right.send(vec![b"offer".to_vec()]).await);
        assert_eq!(found.recv().await.map(|waiting| waiting.offer), Some(Bytes::from_static(b"offer")));
    }
}
