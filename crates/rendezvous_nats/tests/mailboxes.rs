//! A mailbox waits at one of several rendezvous servers, and who comes in speaks to another one. Between them is a real server of NATS.

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

mod support;

use std::collections::BTreeSet;

use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use futures_util::StreamExt;
use support::{Cluster, LIMIT, SharingServer, servers};
use tokio::time::timeout;
use towpath_content::NodeId;
use towpath_link::Identity;
use towpath_rendezvous::letters::{LetterError, LetterEvent, Letters};
use towpath_rendezvous::message::Refusal;
use towpath_rendezvous_nats::mailbox_message::{
    AskedNumber, CarriedFrame, ComingGuest, ConversationName, NUMBER, NumberQuestion,
};
use towpath_rendezvous_nats::message::ServerName;

fn letter(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn open(server: &SharingServer, identity: &Identity, wanted: u32) -> (Letters, u32) {
    timeout(LIMIT, Letters::open(&server.place, identity, wanted)).await.unwrap().unwrap()
}

async fn join(server: &SharingServer, number: u32) -> Result<(Letters, NodeId), LetterError> {
    timeout(LIMIT, Letters::join(&server.place, &Identity::generate().unwrap(), number)).await.unwrap()
}

async fn next(letters: &mut Letters) -> LetterEvent {
    timeout(LIMIT, letters.next()).await.unwrap().unwrap()
}

async fn liar(cluster: &Cluster) -> Client {
    let options = ConnectOptions::with_user_and_password("tow".into(), "secret".into());
    options.connect(cluster.addresses[0].to_string()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_go_both_ways_between_two_servers_and_one_guest_comes_in() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 3).await;
    let identity = Identity::generate().unwrap();
    let (mut host, number) = open(&servers[0], &identity, 0).await;
    host.send(letter("offer")).await.unwrap();
    let (mut guest, node) = join(&servers[1], number).await.unwrap();
    assert_eq!(node, identity.node_id());
    assert!(matches!(next(&mut host).await, LetterEvent::Joined(_)));
    assert_eq!(next(&mut guest).await, LetterEvent::Letter(letter("offer")));
    for text in (0..20).map(|number| format!("letter {number}")) {
        guest.send(letter(&text)).await.unwrap();
        assert_eq!(next(&mut host).await, LetterEvent::Letter(letter(&text)));
        host.send(letter(&text)).await.unwrap();
        assert_eq!(next(&mut guest).await, LetterEvent::Letter(letter(&text)));
    }
    for server in &servers {
        let refused = join(server, number).await.err();
        assert_eq!(refused, Some(LetterError::Refused(Refusal::NobodyWaits)), "one guest, wherever");
    }
    drop(guest);
    assert_eq!(next(&mut host).await, LetterEvent::Left);
    // The other way round.
    let (host, number) = open(&servers[0], &identity, 0).await;
    let (mut guest, _) = join(&servers[2], number).await.unwrap();
    drop(host);
    assert_eq!(next(&mut guest).await, LetterEvent::Left);
    assert!(servers.iter().all(|server| server.server.counts().2 == 0), "no mailbox is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_given_once_among_all_servers() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 3).await;
    let (mut waiting, mut numbers) = (Vec::new(), BTreeSet::new());
    for at in 0..24 {
        let (letters, number) = open(&servers[at % 3], &Identity::generate().unwrap(), 0).await;
        // The first numbers of each are of sixteen.
        assert!(numbers.insert(number), "{number} of {numbers:?}");
        waiting.push(letters);
    }
    let identity = Identity::generate().unwrap();
    let (first, number) = open(&servers[0], &identity, 0).await;
    let (_second, same) = open(&servers[1], &identity, number).await;
    assert_eq!(same, number, "one node may have it at several");
    let (_other, another) = open(&servers[2], &Identity::generate().unwrap(), number).await;
    assert_ne!(another, number);
    drop(first);
    // What one server has no more is still found at the other.
    join(&servers[2], number).await.unwrap();
}

/// Who writes to NATS may lie.
#[tokio::test(flavor = "multi_thread")]
async fn a_liar_can_hide_a_code_and_break_no_server() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 2).await;
    let liar = liar(&cluster).await;
    let (mut host, number) = open(&servers[0], &Identity::generate().unwrap(), 0).await;
    // It says yes to everything, and answers nothing more.
    let mut asked = liar.subscribe(NUMBER).await.unwrap();
    let nonsense = [NUMBER.to_owned(), "tow.rendezvous.1.all.guest".into()];
    for subject in nonsense {
        for payload in [vec![], vec![7; 60_000], vec![1; 40]] {
            liar.publish(subject.clone(), payload.into()).await.unwrap();
        }
    }
    liar.flush().await.unwrap();
    let answering = tokio::spawn(async move {
        while let Some(question) = asked.next().await {
            if let Some(to) = question.reply {
                liar.publish(to, vec![9; 16].into()).await.unwrap();
            }
        }
    });
    let refused = join(&servers[1], 40_000).await.err();
    assert_eq!(refused, Some(LetterError::Refused(Refusal::NobodyWaits)));
    // All numbers are taken, it says: one is given in the end.
    let (_late, _) = open(&servers[1], &Identity::generate().unwrap(), 0).await;
    answering.abort();
    let _ = answering.await;
    host.send(letter("offer")).await.unwrap();
    let (mut guest, _) = join(&servers[1], number).await.unwrap();
    assert_eq!(next(&mut guest).await, LetterEvent::Letter(letter("offer")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_between_two_servers_ends_the_conversation() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 1).await;
    let liar = liar(&cluster).await;
    let (mut host, number) = open(&servers[0], &Identity::generate().unwrap(), 0).await;
    let (question, node) = (NumberQuestion::Waits, NodeId([3; 32]));
    let asked = AskedNumber { question, number, node }.to_bytes();
    let name = liar.request(NUMBER, asked.into()).await.unwrap().payload;
    let home = ServerName(name.as_ref().try_into().unwrap());
    let (server, conversation) = (ServerName([9; 16]), ConversationName([8; 16]));
    let mut told = liar.subscribe(server.letter()).await.unwrap();
    let coming = ComingGuest { server, conversation, node, from: [192, 0, 2, 1].into(), number };
    liar.publish(home.guest(), coming.to_bytes().into()).await.unwrap();
    let first = CarriedFrame::from_bytes(&told.next().await.unwrap().payload).unwrap();
    assert_eq!((first.conversation, first.count, first.kind), (conversation, 1, 37));
    assert_eq!(next(&mut host).await, LetterEvent::Joined(node));
    let frame = |count| CarriedFrame { conversation, count, kind: 6, body: letter("hello") };
    for count in [1, 3] {
        liar.publish(home.letter(), frame(count).to_bytes().into()).await.unwrap();
    }
    assert_eq!(next(&mut host).await, LetterEvent::Letter(letter("hello")));
    assert_eq!(next(&mut host).await, LetterEvent::Left);
    let last = CarriedFrame::from_bytes(&told.next().await.unwrap().payload).unwrap();
    assert_eq!((last.count, last.kind), (2, 39));
}
