//! The board of a server: a message of one connection in, messages to some connections out. Pure.

use std::collections::HashMap;
use std::net::SocketAddr;

use bytes::Bytes;
use towpath_content::NodeId;

use crate::address_group::AddressGroup;
use crate::entry::SharedEntry;
use crate::entry_table::{ConnectionNumber, EntryTable, TableLimits};
use crate::mailboxes::{MailboxLimits, Mailboxes};
use crate::message::{Refusal, ToClient, ToServer};
use crate::topic::Topic;

/// How much a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BoardLimits {
    /// Of entries.
    pub entries: TableLimits,
    /// Of mailboxes.
    pub mailboxes: MailboxLimits,
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Board {
    entries: EntryTable,
    mailboxes: Mailboxes,
    clients: HashMap<ConnectionNumber, BoardClient>,
    news: Option<SharedEntry>,
}

#[derive(Debug, Clone, Copy)]
struct BoardClient {
    node: NodeId,
    from: AddressGroup,
}

/// Messages to connections, in their order.
pub type Sendings = Vec<(ConnectionNumber, ToClient)>;

impl Board {
    /// With nothing on it.
    pub fn new(limits: BoardLimits) -> Self {
        let (entries, mailboxes) = (EntryTable::new(limits.entries), Mailboxes::new(limits.mailboxes));
        Self { entries, mailboxes, clients: HashMap::new(), news: None }
    }

    /// Entries and mailboxes that are kept.
    pub fn kept(&self) -> (usize, usize) {
        (self.entries.len(), self.mailboxes.len())
    }

    /// A client came, from this address as it is seen here.
    pub fn came(&mut self, connection: ConnectionNumber, node: NodeId, address: SocketAddr) -> Sendings {
        self.clients.insert(connection, BoardClient { node, from: AddressGroup::of(address.ip()) });
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        vec![(connection, ToClient::Seen(address))]
    }

    /// A client is gone.
    pub fn gone(&mut self, connection: ConnectionNumber) -> Sendings {
        self.clients.remove(&connection);
        self.entries.gone(connection);
        self.leave(connection)
    }

    /// A client says something. `now` is in seconds since 1970, and `chance` is drawn evenly.
    pub fn say(
        &mut self,
        (now, chance): (u64, u64),
        connection: ConnectionNumber,
        message: ToServer,
    ) -> Sendings {
        let Some(client) = self.clients.get(&connection).copied() else { return Vec::new() };
        let done = match message {
            ToServer::Announce(entry) => self.announce(now, client, entry),
            ToServer::Watch(topic) => self.entries.watch(now, connection, topic).map(|there| {
                let there = there.into_iter().map(|entry| (connection, ToClient::Entry(entry)));
                there.chain([(connection, ToClient::Told(topic))]).collect()
            }),
            ToServer::Unwatch(topic) => {
                self.entries.unwatch(connection, &topic);
                Ok(Vec::new())
            }
            ToServer::Open(wanted) => {
                let opened = self.mailboxes.open((connection, client.from), wanted, chance);
                opened.map(|number| vec![(connection, ToClient::Opened(number))])
            }
            ToServer::Join(number) => self.join(now, connection, client, number),
            ToServer::Letter(letter) => self
                .mailboxes
                .letter(connection, &letter)
                .map(|to| to.map(|to| (to, ToClient::Letter(letter))).into_iter().collect()),
            ToServer::Leave => Ok(self.leave(connection)),
            ToServer::Ping => Ok(vec![(connection, ToClient::Pong)]),
        };
        done.unwrap_or_else(|why| vec![(connection, ToClient::Refused(why))])
    }

    fn announce(&mut self, now: u64, client: BoardClient, entry: Bytes) -> Result<Sendings, Refusal> {
        let told = self.entries.announce(now, (client.node, client.from), entry.clone())?;
        if told.is_some() {
            self.news = SharedEntry::of(&entry);
        }
        Ok(to_watchers(told, &entry))
    }

    /// An entry was said at another server. It is checked as if its node had said it here.
    pub fn take(&mut self, now: u64, entry: Bytes) -> Result<Sendings, Refusal> {
        let told = self.entries.take(now, entry.clone())?;
        Ok(to_watchers(told, &entry))
    }

    /// The entry that the last message of a client brought, if it was news: other servers don't know it yet.
    pub fn news(&mut self) -> Option<SharedEntry> {
        self.news.take()
    }

    /// What clients said here and what holds, in the order of topic and node, behind `after`: as many as have together this many
    /// bytes at most.
    pub fn said_here(&self, after: Option<(Topic, NodeId)>, most: usize) -> Vec<SharedEntry> {
        let mut room = most;
        let all = self.entries.said_here(after).take_while(|(.., bytes)| {
            let fits = bytes.len() <= room;
            room = room.saturating_sub(bytes.len());
            fits
        });
        all.map(|(topic, node, bytes)| SharedEntry { topic, node, bytes: bytes.clone() }).collect()
    }

    fn join(
        &mut self,
        now: u64,
        guest: ConnectionNumber,
        client: BoardClient,
        number: u32,
    ) -> Result<Sendings, Refusal> {
        let (host, letters) = self.mailboxes.join(now, (guest, client.from), number)?;
        let node = self.clients.get(&host).ok_or(Refusal::NobodyWaits)?.node;
        let letters = letters.into_iter().map(|letter| (guest, ToClient::Letter(letter)));
        let joined = [(guest, ToClient::Joined(node)), (host, ToClient::Joined(client.node))];
        Ok(joined.into_iter().chain(letters).collect())
    }

    /// Node and address of a client.
    pub fn client(&self, connection: ConnectionNumber) -> Option<(NodeId, AddressGroup)> {
        self.clients.get(&connection).map(|client| (client.node, client.from))
    }

    /// The node that has a mailbox under `number`, and whether nobody has come in yet.
    pub fn host(&self, number: u32) -> Option<(NodeId, bool)> {
        let (host, is_alone) = self.mailboxes.host(number)?;
        Some((self.clients.get(&host)?.node, is_alone))
    }

    /// Another number for a client's mailbox: see [`Mailboxes::renumber`].
    pub fn renumber(&mut self, host: ConnectionNumber, chance: u64, tries: u32) -> Option<u32> {
        self.mailboxes.renumber(host, chance, tries)
    }

    fn leave(&mut self, connection: ConnectionNumber) -> Sendings {
        let other = self.mailboxes.leave(connection);
        other.map(|other| (other, ToClient::Left)).into_iter().collect()
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now: u64) {
        self.entries.expire(now);
    }
}

fn to_watchers(told: Option<Vec<ConnectionNumber>>, entry: &Bytes) -> Sendings {
    let told = told.into_iter().flatten();
    told.map(|watcher| (watcher, ToClient::Entry(entry.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HolderEntry, SignedEntry, TopicKeys};
    use towpath_content::Oid;
    use towpath_content::ticket::Secret;
    use towpath_link::Identity;

    const NOW: (u64, u64) = (100, 3);

    fn board(nodes: &[NodeId]) -> Board {
        let mut board = Board::default();
        for (number, node) in nodes.iter().enumerate() {
            let address = SocketAddr::from(([192, 0, 2, number as u8], 7000));
            assert_eq!(board.came(number as u64, *node, address), [(number as u64, ToClient::Seen(address))]);
        }
        board
    }

    #[test]
    fn a_holder_is_told_to_who_watches_now_or_later() {
        let identity = Identity::generate().unwrap();
        let keys = TopicKeys::new(&Oid::of(b"root"), &Secret([7; 16]).into());
        let mut board = board(&[identity.node_id(), NodeId([1; 32]), NodeId([2; 32])]);
        let entry = SignedEntry::new(&identity, &keys, (1, 200), Some(&HolderEntry::default()), [0; 12]);
        let (entry, topic) = (Bytes::from(entry.to_bytes()), keys.topic());
        let told = ToClient::Told(topic);
        assert_eq!(board.say(NOW, 1, ToServer::Watch(topic)), [(1, told.clone())]);
        let announced = board.say(NOW, 0, ToServer::Announce(entry.clone()));
        assert_eq!(announced, [(1, ToClient::Entry(entry.clone()))]);
        let there = ToClient::Entry(entry.clone());
        assert_eq!(board.say(NOW, 2, ToServer::Watch(topic)), [(2, there), (2, told)]);
        let stolen = board.say(NOW, 1, ToServer::Announce(entry));
        assert_eq!(stolen, [(1, ToClient::Refused(Refusal::Entry))], "another node's");
        assert_eq!(board.kept(), (1, 0));
        board.expire(200);
        assert_eq!(board.kept(), (0, 0));
    }

    #[test]
    fn two_ends_find_each_other_by_a_number_and_hear_when_one_goes() {
        let mut board = board(&[NodeId([0; 32]), NodeId([1; 32])]);
        let letter = |text: &'static [u8]| Bytes::from_static(text);
        assert_eq!(board.say(NOW, 0, ToServer::Open(7)), [(0, ToClient::Opened(7))]);
        assert_eq!(board.say(NOW, 0, ToServer::Letter(letter(b"a"))), []);
        let joined = board.say(NOW, 1, ToServer::Join(7));
        let [host, guest] = [0, 1].map(|node| ToClient::Joined(NodeId([node; 32])));
        assert_eq!(joined, [(1, host), (0, guest), (1, ToClient::Letter(letter(b"a")))]);
        let answer = board.say(NOW, 1, ToServer::Letter(letter(b"b")));
        assert_eq!(answer, [(0, ToClient::Letter(letter(b"b")))]);
        assert_eq!(board.gone(1), [(0, ToClient::Left)]);
        let late = board.say(NOW, 0, ToServer::Letter(letter(b"c")));
        assert_eq!(late, [(0, ToClient::Refused(Refusal::Malformed))]);
        assert_eq!(board.say(NOW, 1, ToServer::Ping), [], "it is gone");
    }
}
