//! The host: shows a code, waits, and hands out the ticket once. After a wrong guess the code is void, and there is a new one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use towpath_codes::attempts::{Renewal, Renewals};
use towpath_codes::exchange::message::CodeMessage;
use towpath_codes::exchange::{CodeHost, Fingerprint, HostStep};
use towpath_codes::{Code, Entropy};
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::Identity;

use crate::HandoverPlaces;
use crate::conversation::CodeConversation;
use crate::doors::{HostDoors, numbers_near};

/// Time for a guest to say something.
const PATIENCE: Duration = Duration::from_secs(20);
/// Conversations at once.
const AT_ONCE: usize = 16;
/// Time until it is tried again to wait where nobody could come in.
const AGAIN: Duration = Duration::from_secs(3);

/// What a host is to hand out, and how.
#[derive(Debug, Clone)]
pub struct HostWish {
    /// Text of the ticket.
    pub ticket: String,
    /// Words of the code.
    pub words: usize,
    /// People compare a fingerprint before the ticket goes.
    pub is_verified: bool,
}

/// Why a code is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoidCause {
    /// Somebody gave a wrong one.
    Guess,
    /// The person said that the other end shows other words, or nothing.
    Differs,
}

/// What a host tells its person.
#[derive(Debug)]
pub enum HostEvent {
    /// This is the code now.
    Code {
        /// Its text.
        code: String,
        /// Why the one before is void.
        after: Option<VoidCause>,
        /// People compare a fingerprint.
        is_verified: bool,
    },
    /// Somebody gave a wrong code, and this one stays: so many did since it is shown.
    Guess(u32),
    /// One of the places to wait at is none.
    Trouble(String),
    /// Somebody has the words: is this what the other end shows?
    Compare {
        /// What both ends show.
        fingerprint: Fingerprint,
        /// True if it is the same there. Nobody listens any more if the other end has left.
        answer: oneshot::Sender<bool>,
    },
}

/// Reason why a ticket was not handed out.
#[derive(Debug, Error)]
pub enum HostError {
    /// There is no place to wait at.
    #[error("there is nowhere to wait: {0}")]
    Nowhere(String),
    /// Somebody guesses, again and again.
    #[error("somebody guesses codes: the ticket was handed to nobody")]
    Guessed,
    /// The ticket is too long for a code, or the system gave no random bytes.
    #[error("{0}")]
    Impossible(String),
}

/// What came of one code.
enum RoundEnd {
    /// This node has the ticket.
    Sold(NodeId),
    /// The code is good for nothing any more.
    Void(VoidCause),
    /// The guest left without a guess, or people found fingerprints different.
    Parted,
}

/// Waits until somebody with the code has the ticket; returns its node.
pub async fn hand_out(
    places: &HandoverPlaces,
    wish: &HostWish,
    events: &mpsc::Sender<HostEvent>,
) -> Result<NodeId, HostError> {
    // For the code alone: what this node is, is told by the ticket.
    let identity = Identity::generate().map_err(|error| HostError::Impossible(error.to_string()))?;
    let (renewals, talking) = (Renewals::new(wish.words, wish.is_verified), JoinSet::new());
    let (ticket, words, is_verified) = (wish.ticket.clone(), wish.words, wish.is_verified);
    let mut host = Hosting {
        identity,
        ticket,
        words,
        is_verified,
        is_standing: false,
        guesses: 0,
        after: None,
        code: None,
        renewals,
        talking,
        events: events.clone(),
    };
    loop {
        let doors = host.open(places).await?;
        if let Some(guest) = host.run(doors).await? {
            return Ok(guest);
        }
    }
}

fn entropy() -> Result<Entropy, HostError> {
    Entropy::of_system().map_err(|error| HostError::Impossible(error.to_string()))
}

/// A host and its codes, one after the other.
struct Hosting {
    identity: Identity,
    ticket: String,
    words: usize,
    is_verified: bool,
    /// The code stays after wrong guesses, so each guest has an exchange of its own.
    is_standing: bool,
    /// Wrong ones since it stays.
    guesses: u32,
    /// Why the code before is void.
    after: Option<VoidCause>,
    /// The code that was shown.
    code: Option<Code>,
    renewals: Renewals,
    talking: JoinSet<(bool, Option<RoundEnd>)>,
    events: mpsc::Sender<HostEvent>,
}

impl Hosting {
    /// Opens doors for the code that was shown, or for a new one, which is shown then.
    async fn open(&mut self, places: &HandoverPlaces) -> Result<HostDoors, HostError> {
        loop {
            let mut entropy = entropy()?;
            let [chance, ..] = entropy.array::<4>().map(u32::from);
            let number = self.code.as_ref().map_or(0, Code::number);
            let taken = if number == 0 { numbers_near(places).await } else { BTreeSet::new() };
            let doors = HostDoors::open(places, &self.identity, number, &taken, chance).await;
            if doors.is_closed() && self.code.is_some() {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            if doors.is_closed() {
                let is_told = !places.lan && places.servers.is_empty();
                let off = is_told.then(|| "no server is configured, and multicast is turned off".to_owned());
                let why = doors.troubles.into_iter().chain(off).collect::<Vec<_>>();
                return Err(HostError::Nowhere(why.join("; ")));
            }
            if self.code.as_ref().is_none_or(|code| code.number() != doors.number) {
                let code = Code::random(doors.number, self.words, &mut entropy);
                self.show(doors.troubles.clone(), code).await;
            }
            return Ok(doors);
        }
    }

    async fn show(&mut self, troubles: Vec<String>, code: Code) {
        for trouble in troubles {
            let _ = self.events.send(HostEvent::Trouble(trouble)).await;
        }
        let (after, is_verified) = (self.after, self.is_verified);
        let shown = HostEvent::Code { code: code.to_string(), after, is_verified };
        let _ = self.events.send(shown).await;
        self.code = Some(code);
    }

    fn exchange(&self) -> Result<(Arc<Mutex<CodeHost>>, Bytes), HostError> {
        let impossible = |why: &dyn std::fmt::Display| HostError::Impossible(why.to_string());
        let code = self.code.as_ref().ok_or_else(|| impossible(&"no code was shown"))?;
        let (node, ticket) = (self.identity.node_id(), self.ticket.clone());
        let host = CodeHost::new(code, node, ticket, self.is_verified, entropy()?);
        let host = host.map_err(|error| impossible(&error))?;
        let offer = Bytes::copy_from_slice(host.offer());
        Ok((Arc::new(Mutex::new(host)), offer))
    }

    /// Attends to the doors until somebody has the ticket, or they have to be opened anew.
    async fn run(&mut self, doors: HostDoors) -> Result<Option<NodeId>, HostError> {
        let shared = self.exchange()?;
        let (mut guests, _doors) = doors.attend(&shared.1);
        let mut is_open = true;
        while is_open || !self.talking.is_empty() {
            tokio::select! {
                guest = guests.recv(), if is_open && self.talking.len() < AT_ONCE => match guest {
                    Some(guest) => {
                        let is_apart = self.is_standing && guest.is_direct();
                        let (host, offer) = if is_apart { self.exchange()? } else { shared.clone() };
                        let (events, talking) = (self.events.clone(), &mut self.talking);
                        talking.spawn(async move { (is_apart, talk(guest, host, offer, events).await) });
                    }
                    None => is_open = false,
                },
                Some(ended) = self.talking.join_next() => match ended {
                    Ok((_, Some(RoundEnd::Sold(node)))) => return Ok(Some(node)),
                    Ok((is_apart, Some(RoundEnd::Void(cause)))) => {
                        self.void(cause).await?;
                        if !is_apart {
                            return Ok(None);
                        }
                    }
                    Ok((false, Some(RoundEnd::Parted))) => return Ok(None),
                    _ => {}
                },
            }
        }
        Ok(None)
    }

    /// A guess was wrong, or as good as that.
    async fn void(&mut self, cause: VoidCause) -> Result<(), HostError> {
        match self.renewals.void() {
            Renewal::NewCode { words, is_verified } => {
                (self.words, self.is_verified, self.after, self.code) =
                    (words, is_verified, Some(cause), None);
                self.talking = JoinSet::new();
            }
            Renewal::SameCode => {
                (self.is_standing, self.guesses) = (true, self.guesses + 1);
                let _ = self.events.send(HostEvent::Guess(self.guesses)).await;
            }
            Renewal::End => return Err(HostError::Guessed),
        }
        Ok(())
    }
}

/// Talks with one guest; `None` if it left and nothing has changed.
async fn talk(
    mut guest: CodeConversation,
    host: Arc<Mutex<CodeHost>>,
    offer: Bytes,
    events: mpsc::Sender<HostEvent>,
) -> Option<RoundEnd> {
    // In a mailbox it found that already.
    if guest.is_direct() && !guest.send(vec![offer.to_vec()]).await {
        return None;
    }
    let was_letters = !guest.is_direct();
    loop {
        let Ok(Some(message)) = tokio::time::timeout(PATIENCE, guest.next()).await else {
            return was_letters.then_some(RoundEnd::Parted);
        };
        let mut step = lock(&host).receive(&message, &guest.way());
        if let HostStep::Compare { send, fingerprint, .. } = step {
            if !guest.send(send).await {
                return Some(RoundEnd::Parted);
            }
            match compare(&mut guest, fingerprint, &events).await {
                Some(true) => step = lock(&host).accept().unwrap_or(HostStep::Ignored(None)),
                Some(false) => {
                    let refusal = lock(&host).refuse();
                    guest.send(vec![refusal]).await;
                    guest.end().await;
                    return Some(RoundEnd::Void(VoidCause::Differs));
                }
                None => {
                    tracing::debug!("the guest left while words were compared");
                    return Some(RoundEnd::Parted);
                }
            }
        }
        match step {
            HostStep::Sold { guest: node, send } => {
                guest.send(send).await;
                guest.end().await;
                return Some(RoundEnd::Sold(node));
            }
            HostStep::Void { send } => {
                guest.send(send).await;
                guest.end().await;
                return Some(RoundEnd::Void(VoidCause::Guess));
            }
            HostStep::Told { send } => {
                if !guest.send(send).await {
                    return was_letters.then_some(RoundEnd::Parted);
                }
            }
            HostStep::Parted(_) => return Some(RoundEnd::Parted),
            HostStep::Ignored(_) | HostStep::Compare { .. } => {}
        }
    }
}

/// Asks the person whether the other end shows the same. Whoever says nothing says no. `None` if the guest leaves before.
async fn compare(
    guest: &mut CodeConversation,
    fingerprint: Fingerprint,
    events: &mpsc::Sender<HostEvent>,
) -> Option<bool> {
    let (answer, said) = oneshot::channel();
    let asking = async {
        let asked = events.send(HostEvent::Compare { fingerprint, answer }).await;
        asked.is_ok() && said.await.unwrap_or_default()
    };
    // It has said all that it has to say: whatever else comes is its end, or the same again.
    let leaving = async {
        while let Some(message) = guest.next().await {
            if matches!(CodeMessage::from_bytes(&message), Ok(CodeMessage::End(_))) {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        () = leaving => None,
        is_same = asking => Some(is_same),
    }
}
