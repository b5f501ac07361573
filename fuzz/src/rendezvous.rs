//! Parsers of `towpath-rendezvous`, and the board of a server: what strangers, servers and holders of a ticket say.

use std::net::SocketAddr;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::ticket::Secret;
use towpath_link::Identity;
use towpath_rendezvous::board::{Board, BoardLimits};
use towpath_rendezvous::entry::{MAX_ENTRY, body_again};
use towpath_rendezvous::entry_table::TableLimits;
use towpath_rendezvous::mailboxes::MailboxLimits;
use towpath_rendezvous::message::{MAX_LETTER, ToClient, ToServer};
use towpath_rendezvous::page::{EntryPage, PageCursor, cursor_from_bytes, cursor_to_bytes};
use towpath_rendezvous::{HolderEntry, ServerPlace, SignedEntry, TopicKeys};
use towpath_rendezvous_nats::mailbox_message::{
    AskedNumber, CarriedFrame, ComingGuest, ConversationName, NumberQuestion,
};
use towpath_rendezvous_nats::message::{PublishedEntry, ServerHello, ServerName};

use crate::input::{Source, Written};

/// The key of RFC 8032's first test, as a file has it.
const KEY: &[u8] = b"\x30\x51\x02\x01\x01\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20\
    \x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b\xac\x03\x1c\xae\x7f\x60\
    \x81\x21\x00\
    \xd7\x5a\x98\x01\x82\xb1\x0a\xb7\xd5\x4b\xfe\xd3\xc9\x64\x07\x3a\x0e\xe1\x72\xf3\xda\xa6\x23\x25\xaf\x02\x1a\x68\xf7\x07\x51\x1a";

fn identity() -> Identity {
    Identity::from_pkcs8(KEY).expect("a valid key")
}

fn keys(ticket: u8) -> TopicKeys {
    TopicKeys::new(&Oid::of(b"root"), &Secret([ticket; 16]).into())
}

fn holder() -> HolderEntry {
    let address = |text: &str| text.parse().expect("an address");
    let addresses = vec![address("192.0.2.1:7000"), address("[2001:db8::1]:7000")];
    let relays = vec![format!("{}@relay.example.org:4433", identity().node_id())];
    let outside = vec![address("198.51.100.1:7001")];
    HolderEntry { serves: true, has: 250, addresses, outside, relays, ..HolderEntry::default() }
}

/// The entry of this ticket and number, for as long as a server takes it.
fn entry(ticket: u8, number: u64) -> Bytes {
    let entry = (number % 4 != 3).then(holder);
    let signed = SignedEntry::new(&identity(), &keys(ticket), (number, 60 + number), entry.as_ref(), [3; 12]);
    signed.to_bytes().into()
}

/// A frame of either end: its kind and its body.
pub fn rendezvous_message(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    let limit = MAX_ENTRY.max(MAX_LETTER);
    if let Ok(Some(message)) = ToServer::from_frame(kind, &body) {
        assert!(body.len() <= limit);
        assert_eq!(message.to_frame(), (kind, body.clone()));
    }
    if let Ok(Some(message)) = ToClient::from_frame(kind, &body) {
        assert!(body.len() <= limit);
        let (again, written) = message.to_frame();
        // Addresses have several texts, and the text of a refusal is the writer's own.
        assert!(matches!(kind, 33 | 40) || written == body);
        assert_eq!(ToClient::from_frame(again, &written), Ok(Some(message)));
    }
}

/// An entry of anybody, which the ticket opens or not.
pub fn rendezvous_entry(data: &[u8]) {
    if let Ok(signed) = SignedEntry::verified(data) {
        assert!(data.len() <= MAX_ENTRY);
        assert_eq!(signed.to_bytes(), data);
        // Only who has both keys writes what is signed and opens.
        if signed.open(&keys(7)).is_some() {
            assert_eq!((signed.node, signed.topic), (identity().node_id(), keys(7).topic()));
        }
    }
}

/// The body of an entry, by somebody who has the ticket.
pub fn rendezvous_body(data: &[u8]) {
    if let Some((entry, again)) = body_again(data) {
        let (read, last) = body_again(&again).expect("what was written is read");
        let fits = entry.relays.starts_with(&read.relays);
        let as_read = HolderEntry { relays: read.relays.clone(), ..entry };
        assert!(fits && read == as_read && last == again);
    }
}

/// Where a server is, as text.
pub fn rendezvous_place(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(place) = text.parse::<ServerPlace>()
    {
        assert_eq!(place.to_string().parse(), Ok(place));
    }
}

/// Clients of a server: few topics and numbers, so that they meet.
pub fn rendezvous_board(data: &[u8]) {
    let (mut source, mut now) = (Source::new(data), 10);
    let limits = BoardLimits {
        entries: TableLimits { entries: 3, per_node: 2, watched: 2, ..TableLimits::default() },
        mailboxes: MailboxLimits { mailboxes: 3, per_address: 2, joins: 4, letters: 2 },
    };
    let (mut board, mut clients, mut last) = (Board::new(limits), Vec::new(), 0);
    while !source.is_empty() {
        let sendings = match source.below(8) {
            0 => {
                last += 1;
                clients.push(last);
                let address = SocketAddr::from(([192, 0, 2, source.byte() % 4], 7000));
                board.came(last, identity().node_id(), address)
            }
            1 if !clients.is_empty() => {
                let at = source.below(clients.len() as u64) as usize;
                board.gone(clients.swap_remove(at))
            }
            2 => {
                now += source.below(100);
                board.expire(now);
                Vec::new()
            }
            _ => {
                let of = source.below(last + 2);
                board.say((now, source.number()), of, message(&mut source))
            }
        };
        for (to, message) in sendings {
            assert!(clients.contains(&to));
            let (kind, body) = message.to_frame();
            assert_eq!(ToClient::from_frame(kind, &body), Ok(Some(message)));
        }
        let (entries, mailboxes) = board.kept();
        assert!(entries <= 2 && mailboxes <= 3);
    }
    clients.into_iter().for_each(|client| drop(board.gone(client)));
    board.expire(u64::MAX);
    assert_eq!(board.kept(), (0, 0));
}

fn message(source: &mut Source<'_>) -> ToServer {
    let ticket = source.byte() % 4;
    match source.below(10) {
        0 => ToServer::Announce(entry(ticket, source.below(8))),
        1 => ToServer::Announce(Bytes::copy_from_slice(source.run())),
        2 => ToServer::Watch(keys(ticket).topic()),
        3 => ToServer::Unwatch(keys(ticket).topic()),
        4 => ToServer::Open(ticket.into()),
        5 | 6 => ToServer::Join(ticket.into()),
        7 => ToServer::Letter(Bytes::copy_from_slice(source.run())),
        8 => ToServer::Leave,
        _ => ToServer::Ping,
    }
}

/// One of each kind.
pub fn messages() -> Vec<Vec<u8>> {
    let (topic, node) = (keys(7).topic(), identity().node_id());
    let to_server = [
        ToServer::Announce(entry(7, 1)),
        ToServer::Watch(topic),
        ToServer::Unwatch(topic),
        ToServer::Open(0),
        ToServer::Join(700),
        ToServer::Letter(Bytes::from_static(b"hello")),
        ToServer::Leave,
        ToServer::Ping,
    ]
    .map(|message| message.to_frame());
    let to_client = [
        ToClient::Seen(SocketAddr::from(([192, 0, 2, 1], 7000))),
        ToClient::Entry(entry(7, 3)),
        ToClient::Told(topic),
        ToClient::Opened(7),
        ToClient::Joined(node),
        ToClient::Letter(Bytes::new()),
        ToClient::Left,
        ToClient::Refused(towpath_rendezvous::message::Refusal::TooMany),
        ToClient::Pong,
    ]
    .map(|message| message.to_frame());
    to_server.into_iter().chain(to_client).map(|(kind, body)| [&[kind][..], &body].concat()).collect()
}

pub fn entries() -> Vec<Vec<u8>> {
    [(7, 1), (7, 3), (8, 1)].map(|(ticket, number)| entry(ticket, number).to_vec()).into()
}

pub fn bodies() -> Vec<Vec<u8>> {
    let bodies =
        [b"\x02\xfa\x01\x01\x0e192.0.2.1:7000\x01\x10198.51.100.1:700\x01\x05r@h:1".as_slice(), &[0; 5]];
    bodies.map(<[u8]>::to_vec).into()
}

pub fn places() -> Vec<Vec<u8>> {
    let node = identity().node_id();
    ["meet.example.org:4433", "[2001:db8::1]:4433"]
        .map(|to| format!("meet://{node}@{to}").into_bytes())
        .into()
}

/// Two come, one says an entry and opens a mailbox, the other watches and comes in; then the first leaves.
pub fn boards() -> Vec<Vec<u8>> {
    let came = Written::default().number(0).number(1).number(0).number(2);
    let say = |written: Written, of, ticket, what| {
        written.number(3).number(of).number(0).number(ticket).number(what)
    };
    let announced = say(say(came, 2, 1, 2), 1, 1, 0).number(1);
    let opened = say(say(announced, 1, 3, 4), 1, 3, 7).run(b"offer");
    let joined = say(say(opened, 2, 3, 5), 2, 3, 7).run(b"answer");
    vec![joined.number(1).number(0).number(2).number(90).done()]
}

/// What servers say to each other: the first byte says which of their messages.
pub fn rendezvous_cluster(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let again = match kind % 7 {
        0 => ServerHello::from_bytes(bytes).ok().map(ServerHello::to_bytes),
        1 => PublishedEntry::from_bytes(bytes).ok().map(|entry| entry.to_bytes()),
        2 => cursor_from_bytes(bytes).ok().map(cursor_to_bytes),
        3 => AskedNumber::from_bytes(bytes).ok().map(AskedNumber::to_bytes),
        4 => ComingGuest::from_bytes(bytes).ok().map(ComingGuest::to_bytes),
        5 => CarriedFrame::from_bytes(bytes).ok().map(|frame| frame.to_bytes()),
        _ => page(&Bytes::copy_from_slice(bytes)),
    };
    assert!(again.is_none_or(|again| again == bytes), "a message has one encoding");
}

/// A page is read as the first, and as the one behind it: so reading all of a server's entries comes to an end.
fn page(bytes: &Bytes) -> Option<Vec<u8>> {
    let page = EntryPage::from_bytes(bytes, None).ok()?;
    if let Some(next) = page.next {
        assert!(EntryPage::from_bytes(bytes, Some(next)).is_err(), "a page that leads to itself");
    }
    let (count, most) = (page.entries.len(), bytes.len());
    assert!(page.entries.iter().all(|entry| entry.len() <= MAX_ENTRY) && count <= most);
    Some(page.to_bytes())
}

/// Messages between servers, each behind the byte of its kind.
pub fn cluster_messages() -> Vec<Vec<u8>> {
    let name = ServerName([9; 16]);
    let cursor: PageCursor = (keys(7).topic(), identity().node_id());
    let page = EntryPage { entries: vec![entry(7, 1), entry(7, 2)], next: Some(cursor) };
    let (conversation, node) = (ConversationName([8; 16]), identity().node_id());
    let from = [192, 0, 2, 1].into();
    let messages = [
        ServerHello { name, published: 300, asks: true }.to_bytes(),
        PublishedEntry { name, published: 301, entry: entry(7, 1) }.to_bytes(),
        cursor_to_bytes(Some(cursor)),
        AskedNumber { question: NumberQuestion::Waits, number: 300, node }.to_bytes(),
        ComingGuest { server: name, conversation, node, from, number: 300 }.to_bytes(),
        CarriedFrame { conversation, count: 300, kind: 6, body: Bytes::from_static(b"letter") }.to_bytes(),
        page.to_bytes(),
    ];
    (0u8..).zip(messages).map(|(kind, bytes)| [&[kind], &bytes[..]].concat()).collect()
}
