//! Mailboxes and other servers. A code that waits at one of several servers is found at each of them, and a number that one gave the
//! others give to nobody else. The seam to whoever carries this between them:
//!
//! | | |
//! |---|---|
//! | [`RendezvousServer::mailbox_questions`] | what others are asked for a client of this server |
//! | [`RendezvousServer::who_waits`], [`RendezvousServer::is_anothers`] | what this server answers when others ask |
//! | [`RendezvousServer::let_in`] | a guest who is a client of another server |
//!
//! A mailbox stays at the server where it was opened, which lets one guest in, wherever that one comes from. That a code is good
//! for one guess is kept by its host, whatever servers do (`docs/formats/code.md`).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::NodeId;

use crate::board::Board;
use crate::elsewhere::{EndsElsewhere, GivenNumber, MailboxQuestion, QUESTIONS, SeekingGuest};
use crate::entry_table::ConnectionNumber;
use crate::message::{ToClient, ToServer};
use crate::server::{RendezvousServer, chance, now};

/// A guest in a mailbox of this server who is a client of another one. Leaves when it is dropped.
#[derive(Debug)]
pub struct GuestFromElsewhere {
    server: Arc<RendezvousServer>,
    connection: ConnectionNumber,
    outbox: mpsc::Receiver<ToClient>,
}

impl RendezvousServer {
    /// What others are to be asked from now on. A client waits for the answer.
    pub fn mailbox_questions(&self) -> mpsc::Receiver<MailboxQuestion> {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        self.with_elsewhere(|elsewhere, _| (elsewhere.questions = Some(questions), Vec::new()));
        asked
    }

    /// The node that waits here under `number`, if nobody has come in yet.
    pub fn who_waits(&self, number: u32) -> Option<NodeId> {
        let host = self.with_board(|_, board| (board.host(number), Vec::new()));
        host.filter(|(_, is_alone)| *is_alone).map(|(node, _)| node)
    }

    /// True if another node than this one has a mailbox here under `number`.
    pub fn is_anothers(&self, number: u32, node: &NodeId) -> bool {
        let host = self.with_board(|_, board| (board.host(number), Vec::new()));
        host.is_some_and(|(host, _)| host != *node)
    }

    /// Tells a guest what its other end's server says; false if it has left.
    pub fn tell_guest(&self, guest: &SeekingGuest, message: ToClient) -> bool {
        let of = guest.connection;
        let is_last = matches!(message, ToClient::Left | ToClient::Refused(_));
        self.with_elsewhere(|elsewhere, _| {
            let is_there = elsewhere.guests.contains_key(&of);
            if is_last {
                elsewhere.guests.remove(&of);
            }
            (is_there, is_there.then_some((of, message)).into_iter().collect())
        })
    }

    /// Nobody else has the number: its client hears it.
    pub fn confirm(&self, given: &GivenNumber) {
        let GivenNumber { number, node, connection, .. } = *given;
        self.with_board(|_, board| {
            // It may have left.
            let is_its = board.host(number).is_some_and(|(host, _)| host == node);
            ((), is_its.then_some((connection, ToClient::Opened(number))).into_iter().collect())
        });
    }

    /// Somebody else has the number: another one, from four times as many. `None` if its client has left.
    pub fn draw_again(&self, given: &GivenNumber) -> Option<GivenNumber> {
        let GivenNumber { node, connection, tries, .. } = *given;
        let tries = tries + 1;
        let number = self.with_board(|_, board| (board.renumber(connection, chance(), tries), Vec::new()))?;
        Some(GivenNumber { number, node, connection, tries })
    }

    /// Lets a client of another server in at `number`; `None` if there are too many. Whether somebody waits there it is told like others.
    pub fn let_in(
        self: &Arc<Self>,
        node: NodeId,
        from: SocketAddr,
        number: u32,
    ) -> Option<GuestFromElsewhere> {
        let (connection, outbox) = self.enter(node, from)?;
        let guest = GuestFromElsewhere { server: Arc::clone(self), connection, outbox };
        guest.say(ToServer::Join(number));
        Some(guest)
    }
}

impl GuestFromElsewhere {
    /// The guest says something. Nobody else is asked for what is not here.
    pub fn say(&self, message: ToServer) {
        let now = now();
        let say = |_: &mut EndsElsewhere, board: &mut Board| {
            ((), board.say((now, chance()), self.connection, message))
        };
        self.server.with_elsewhere(say);
    }

    /// What it is told next; `None` when it has left. Cancel-safe.
    pub async fn next(&mut self) -> Option<ToClient> {
        loop {
            match self.outbox.recv().await? {
                // Where it is its own server says.
                ToClient::Seen(_) => {}
                message => return Some(message),
            }
        }
    }
}

impl Drop for GuestFromElsewhere {
    fn drop(&mut self) {
        self.server.leave(self.connection);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::elsewhere::LETTERS;
    use crate::message::Refusal;
    use crate::server::ServerLimits;

    const HOST: NodeId = NodeId([1; 32]);
    const GUEST: NodeId = NodeId([2; 32]);

    fn from(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 7000))
    }

    /// A client: what it says goes through the whole server.
    struct Client {
        connection: ConnectionNumber,
        outbox: mpsc::Receiver<ToClient>,
    }

    impl Client {
        fn enter(server: &RendezvousServer, node: NodeId, last: u8) -> Self {
            let (connection, mut outbox) = server.enter(node, from(last)).unwrap();
            assert!(matches!(outbox.try_recv(), Ok(ToClient::Seen(_))));
            Self { connection, outbox }
        }

        fn told(&mut self) -> Vec<ToClient> {
            std::iter::from_fn(|| self.outbox.try_recv().ok()).collect()
        }
    }

    fn server() -> Arc<RendezvousServer> {
        RendezvousServer::new(ServerLimits::default())
    }

    fn letter(text: &'static [u8]) -> Bytes {
        Bytes::from_static(text)
    }

    #[tokio::test]
    async fn a_guest_of_one_server_talks_with_the_host_of_another() {
        let (here, there) = (server(), server());
        let mut asked = here.mailbox_questions();
        let mut host = Client::enter(&there, HOST, 1);
        there.say(host.connection, ToServer::Open(7));
        there.say(host.connection, ToServer::Letter(letter(b"offer")));
        assert_eq!(host.told(), [ToClient::Opened(7)], "nobody else is asked");
        let mut guest = Client::enter(&here, GUEST, 2);
        here.say(guest.connection, ToServer::Join(7));
        assert_eq!(guest.told(), [], "others are asked");
        let Ok(MailboxQuestion::Seek(mut seeking)) = asked.try_recv() else { panic!() };
        assert_eq!((there.who_waits(7), here.who_waits(7)), (Some(HOST), None));
        let from = SocketAddr::new(seeking.from.ip(), 0);
        let mut carried = there.let_in(seeking.node, from, seeking.number).unwrap();
        for expected in [ToClient::Joined(HOST), ToClient::Letter(letter(b"offer"))] {
            let message = carried.next().await.unwrap();
            assert!(message == expected && here.tell_guest(&seeking, message));
            assert_eq!(guest.told(), [expected]);
        }
        here.say(guest.connection, ToServer::Letter(letter(b"answer")));
        carried.say(seeking.said.recv().await.unwrap());
        assert_eq!(host.told(), [ToClient::Joined(GUEST), ToClient::Letter(letter(b"answer"))]);
        assert_eq!(there.who_waits(7), None, "one guest");
        here.say(guest.connection, ToServer::Join(8));
        assert_eq!(guest.told(), [ToClient::Refused(Refusal::Malformed)]);
        here.say(guest.connection, ToServer::Leave);
        assert_eq!(seeking.said.recv().await, None);
        assert!(!here.tell_guest(&seeking, ToClient::Left) && guest.told().is_empty());
        drop(carried);
        assert_eq!(host.told(), [ToClient::Left]);
        assert_eq!(there.counts(), (1, 0, 0));
    }

    #[tokio::test]
    async fn a_guest_is_refused_where_nobody_waits_and_others_are_not_asked_for_it() {
        let (here, there) = (server(), server());
        let (mut asked, mut asked_there) = (here.mailbox_questions(), there.mailbox_questions());
        let mut guest = Client::enter(&here, GUEST, 2);
        here.say(guest.connection, ToServer::Join(7));
        let Ok(MailboxQuestion::Seek(seeking)) = asked.try_recv() else { panic!() };
        let refused = ToClient::Refused(Refusal::NobodyWaits);
        let mut carried = there.let_in(GUEST, from(2), 7).unwrap();
        assert_eq!(carried.next().await, Some(refused.clone()));
        assert!(asked_there.try_recv().is_err(), "no server asks for another's client");
        assert!(here.tell_guest(&seeking, refused.clone()));
        assert_eq!(guest.told(), std::slice::from_ref(&refused));
        // Where nobody can be asked the answer is known at once.
        drop(asked);
        here.say(guest.connection, ToServer::Join(7));
        assert_eq!(guest.told(), [refused]);
        // Letters that nobody carries are not kept.
        let mut asked = here.mailbox_questions();
        here.say(guest.connection, ToServer::Join(7));
        let Ok(MailboxQuestion::Seek(_unread)) = asked.try_recv() else { panic!() };
        (0..=LETTERS).for_each(|_| here.say(guest.connection, ToServer::Letter(letter(b"more"))));
        assert_eq!(guest.told(), [ToClient::Left]);
    }

    #[test]
    fn tries_are_counted_at_either_server() {
        let there = server();
        let tried = (0..30).map(|_| there.let_in(GUEST, from(2), 7).unwrap());
        let refusals =
            tried.filter_map(|mut guest| std::iter::from_fn(|| guest.outbox.try_recv().ok()).last());
        let too_often = ToClient::Refused(Refusal::TooOften);
        assert_eq!(refusals.filter(|refusal| *refusal == too_often).count(), 10);
    }

    #[test]
    fn a_number_is_told_once_nobody_else_has_it() {
        let server = server();
        let mut asked = server.mailbox_questions();
        let mut host = Client::enter(&server, HOST, 1);
        server.say(host.connection, ToServer::Open(7));
        let Ok(MailboxQuestion::Given(given)) = asked.try_recv() else { panic!() };
        assert_eq!((given.number, given.tries(), host.told()), (7, 0, Vec::new()));
        assert!(server.is_anothers(7, &GUEST) && !server.is_anothers(7, &HOST));
        let again = server.draw_again(&given).unwrap();
        server.confirm(&given);
        assert_eq!(host.told(), [], "it is another's");
        server.confirm(&again);
        assert_eq!(host.told(), [ToClient::Opened(again.number)]);
        server.leave(host.connection);
        assert!(server.draw_again(&again).is_none());
    }
}
