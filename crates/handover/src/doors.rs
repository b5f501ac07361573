//! Where a host waits: a mailbox at each rendezvous server, and a port of its own that multicast tells of. Who comes in is a
//! conversation.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towpath_content::NodeId;
use towpath_lan::LanAnnouncement;
use towpath_link::Identity;
use towpath_link::tcp::{Listener, Pending, Timeouts};
use towpath_rendezvous::letters::{LetterError, LetterEvent, Letters};
use towpath_rendezvous::place::KnownServer;

use crate::conversation::CodeConversation;
use crate::{HandoverPlaces, PROTOCOL, trouble_at, trouble_near};

/// Conversations on one network at once.
const AT_ONCE: usize = 16;
/// Conversations that wait to be attended to.
const WAITING: usize = 4;
/// Times that a number is asked for.
const TRIES: u32 = 5;
/// After a failed accept, and until a number is asked for again.
const PAUSE: Duration = Duration::from_millis(100);
/// Time until a mailbox that is lost is opened again.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for others on this network to say which numbers they have. What was announced a moment ago is told again after a second.
const HEARING: Duration = Duration::from_millis(1500);
/// Numbers of codes where no server gives one.
const NUMBERS: u32 = 99;

/// Places that a host waits at, all under one number; dropping them closes them.
pub(crate) struct HostDoors {
    /// The number.
    pub(crate) number: u32,
    mailboxes: Vec<HostMailbox>,
    near: Option<NearDoor>,
    /// Why some place is none.
    pub(crate) troubles: Vec<String>,
}

impl HostDoors {
    /// Opens all that can be had. `wanted` is the number if it is free everywhere; 0: any that is not `taken` on this network.
    pub(crate) async fn open(
        places: &HandoverPlaces,
        identity: &Identity,
        wanted: u32,
        taken: &BTreeSet<u32>,
        chance: u32,
    ) -> Self {
        let mut doors = Self { number: wanted, mailboxes: Vec::new(), near: None, troubles: Vec::new() };
        for server in &places.servers {
            match open(server, identity, doors.number, taken).await {
                Ok((letters, number)) if doors.number == 0 || doors.number == number => {
                    doors.number = number;
                    let (server, identity) = (server.clone(), identity.clone());
                    doors.mailboxes.push(HostMailbox { letters, number, server, identity });
                }
                // One number is all that is said.
                Ok(_) => doors.troubles.push(trouble_at(server, "the number is taken there")),
                Err(error) => doors.troubles.push(trouble_at(server, error)),
            }
        }
        if doors.number == 0 {
            doors.number = free_number(chance, taken);
        }
        if places.lan {
            match NearDoor::open(identity, doors.number).await {
                Ok(near) => doors.near = Some(near),
                Err(why) => doors.troubles.push(trouble_near(why)),
            }
        }
        doors
    }

    /// True if nobody could come.
    pub(crate) const fn is_closed(&self) -> bool {
        self.mailboxes.is_empty() && self.near.is_none()
    }

    /// Lets guests in; `offer` waits for them in the mailboxes. What is returned ends with its receiver.
    pub(crate) fn attend(self, offer: &Bytes) -> (mpsc::Receiver<CodeConversation>, AttendedDoors) {
        let (came, guests) = mpsc::channel(WAITING);
        let (mut tasks, mut announcement) = (JoinSet::new(), None);
        for mailbox in self.mailboxes {
            tasks.spawn(mailbox.attend(offer.clone(), came.clone()));
        }
        if let Some(near) = self.near {
            announcement = Some(near.announcement);
            tasks.spawn(accept(near.listener, came));
        }
        (guests, AttendedDoors { _tasks: tasks, _announcement: announcement })
    }
}

/// A port of this machine that this network is told of.
struct NearDoor {
    listener: Listener,
    announcement: LanAnnouncement,
}

impl NearDoor {
    /// Opens it for the code of this number. Where nobody can be told of it, nobody can come.
    async fn open(identity: &Identity, number: u32) -> Result<Self, String> {
        let listener = listen(identity).await.map_err(|error| error.to_string())?;
        let port = listener.address().map_err(|error| error.to_string())?.port();
        let announcement = LanAnnouncement::start(number, port).map_err(|error| error.to_string())?;
        Ok(Self { listener, announcement })
    }
}

/// Doors that are attended to, until this is dropped.
pub(crate) struct AttendedDoors {
    _tasks: JoinSet<()>,
    _announcement: Option<LanAnnouncement>,
}

/// Numbers of codes that others on this network wait with: a guest would find both, and spend the wrong one.
pub(crate) async fn numbers_near(places: &HandoverPlaces) -> BTreeSet<u32> {
    if !places.lan {
        return BTreeSet::new();
    }
    let heard = tokio::task::spawn_blocking(|| towpath_lan::numbers_in_use(HEARING)).await;
    // Whoever can't hear any can't announce one either.
    heard.ok().and_then(Result::ok).unwrap_or_default()
}

/// A number by chance, or the next one that is free.
fn free_number(chance: u32, taken: &BTreeSet<u32>) -> u32 {
    let from = |at: u32| 1 + (chance % NUMBERS + at) % NUMBERS;
    let usual = (0..NUMBERS).map(from).find(|number| !taken.contains(number));
    usual.unwrap_or_else(|| NUMBERS + 1 + chance % 900)
}

/// A mailbox under the wanted number, or any that is not `taken`. The one before, which was left a moment ago, may still have it.
async fn open(
    server: &KnownServer,
    identity: &Identity,
    wanted: u32,
    taken: &BTreeSet<u32>,
) -> Result<(Letters, u32), LetterError> {
    let mut held = Vec::new();
    for _ in 1..TRIES {
        let (letters, number) = Letters::open(server, identity, wanted).await?;
        match wanted {
            0 if !taken.contains(&number) => return Ok((letters, number)),
            // While it is held the server gives another one.
            0 => held.push(letters),
            wanted if number == wanted => return Ok((letters, number)),
            _ => {
                drop(letters);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Letters::open(server, identity, wanted).await
}

/// A mailbox of a host, at one server.
struct HostMailbox {
    letters: Letters,
    number: u32,
    server: KnownServer,
    identity: Identity,
}

impl HostMailbox {
    /// A mailbox is for one guest, who finds the offer there. One that is lost with its server is opened again, for as long as the code
    /// waits.
    async fn attend(mut self, offer: Bytes, came: mpsc::Sender<CodeConversation>) {
        loop {
            match self.guest(&offer).await {
                Ok(guest) => {
                    let _ = came.send(CodeConversation::Letters(self.letters, guest)).await;
                    return;
                }
                Err(error) => tracing::debug!(%error, "a mailbox is lost"),
            }
            self.open_again().await;
        }
    }

    async fn guest(&mut self, offer: &Bytes) -> Result<NodeId, LetterError> {
        self.letters.send(offer.clone()).await?;
        loop {
            if let LetterEvent::Joined(guest) = self.letters.next().await? {
                return Ok(guest);
            }
        }
    }

    async fn open_again(&mut self) {
        loop {
            tokio::time::sleep(AGAIN).await;
            match open(&self.server, &self.identity, self.number, &BTreeSet::new()).await {
                Ok((letters, number)) if number == self.number => {
                    self.letters = letters;
                    tracing::debug!(number, "a mailbox is open again");
                    return;
                }
                Ok(_) => tracing::debug!("the code's number is another's now"),
                Err(error) => tracing::debug!(%error, "a mailbox can't be opened again"),
            }
        }
    }
}

async fn listen(identity: &Identity) -> Result<Listener, towpath_link::tcp::BindError> {
    let everywhere = |ip: IpAddr| SocketAddr::new(ip, 0);
    match Listener::bind_for(everywhere(Ipv6Addr::UNSPECIFIED.into()), identity, &[PROTOCOL]).await {
        Ok(listener) => Ok(listener),
        Err(_) => Listener::bind_for(everywhere(Ipv4Addr::UNSPECIFIED.into()), identity, &[PROTOCOL]).await,
    }
}

async fn accept(listener: Listener, came: mpsc::Sender<CodeConversation>) {
    let mut shaking = JoinSet::new();
    loop {
        tokio::select! {
            pending = listener.accept(), if shaking.len() < AT_ONCE => match pending {
                Ok(pending) => drop(shaking.spawn(shake(pending, came.clone()))),
                Err(error) => {
                    tracing::debug!(%error, "could not accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = shaking.join_next() => {}
        }
    }
}

async fn shake(pending: Pending, came: mpsc::Sender<CodeConversation>) {
    match pending.handshake(Timeouts::default().handshake).await {
        Ok(connection) => drop(came.send(CodeConversation::direct(connection)).await),
        Err(error) => tracing::debug!(%error, "a handshake failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_somebody_near_has_is_left_to_him() {
        let all_but =
            |free: &[u32]| (1..=NUMBERS).filter(|number| !free.contains(number)).collect::<BTreeSet<_>>();
        for chance in 0..300 {
            assert_eq!(free_number(chance, &all_but(&[42])), 42);
            assert!([1, 99].contains(&free_number(chance, &all_but(&[1, 99]))));
            assert_eq!(free_number(chance, &BTreeSet::new()), 1 + chance % NUMBERS);
            assert!((100..1000).contains(&free_number(chance, &all_but(&[]))));
        }
    }

    #[tokio::test]
    async fn numbers_on_this_network_are_heard_unless_it_is_turned_off() {
        let off = HandoverPlaces { servers: Vec::new(), lan: false };
        // Where there is no network nobody can be heard.
        let Ok(_waiting) = LanAnnouncement::start(777_777, 9) else { return };
        let on = HandoverPlaces { lan: true, ..off.clone() };
        // What was told a moment ago is told again after a second.
        let first = numbers_near(&on).await;
        assert!(first.contains(&777_777) || numbers_near(&on).await.contains(&777_777));
        assert!(numbers_near(&off).await.is_empty());
    }
}
