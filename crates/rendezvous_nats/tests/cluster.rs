//! Three rendezvous servers share their entries by three servers of NATS, of which some are killed.

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

mod support;

use std::time::Instant;

use async_nats::ConnectOptions;
use bytes::Bytes;
use futures_util::StreamExt;
use support::{Cluster, SharingServer, servers, until, until_status};
use towpath_content::ticket::Secret;
use towpath_content::{NodeId, Oid};
use towpath_link::Identity;
use towpath_rendezvous::client::{FoundNodes, Meeting};
use towpath_rendezvous::page::{self, EntryPage};
use towpath_rendezvous::sharing::SharingStatus;
use towpath_rendezvous::{HolderEntry, Rendezvous, SignedEntry, TopicKeys};
use towpath_rendezvous_nats::message::{self, PublishedEntry, ServerHello, ServerName};

fn keys(secret: u8) -> TopicKeys {
    TopicKeys::new(&Oid::of(b"root"), &Secret([secret; 16]).into())
}

fn entry(part: u16) -> HolderEntry {
    HolderEntry { has: part, ..HolderEntry::default() }
}

fn parts(found: &FoundNodes) -> Vec<u16> {
    found.iter().map(|(_, entry)| entry.has).collect()
}

/// A node that speaks to one server, and says how much it has if that is not 0.
fn node(server: &SharingServer, secret: u8, part: u16) -> (Rendezvous, Meeting) {
    let rendezvous = Rendezvous::new(Identity::generate().unwrap());
    let meeting = rendezvous.meet(std::slice::from_ref(&server.place), &keys(secret));
    meeting.say((part > 0).then(|| entry(part)));
    (rendezvous, meeting)
}

async fn until_parts(meeting: &Meeting, expected: &[u16]) {
    let sorted = |found: &FoundNodes| {
        let mut parts = parts(found);
        parts.sort_unstable();
        parts
    };
    until(meeting, |found| sorted(found) == expected).await;
}

/// Of three servers of each kind one is killed: what was found stays found, and what comes is found.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_found_at_another_server_whichever_dies() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let mut servers = servers(&cluster, 3).await;
    let (_one, holder) = node(&servers[0], 1, 1);
    let (_two, seeker) = node(&servers[1], 1, 0);
    until_parts(&seeker, &[1]).await;
    for killed in 0..3 {
        cluster.kill(killed);
        let begun = Instant::now();
        let part = 100 + killed as u16;
        holder.say(Some(entry(part)));
        until_parts(&seeker, &[part]).await;
        println!("NATS server {killed} of 3 killed: a change is told after {:?}", begun.elapsed());
        let (_late, late) = node(&servers[2], 1, 0);
        until_parts(&late, &[part]).await;
        println!(
            "NATS server {killed} of 3 killed: a newcomer at a third server finds after {:?}",
            begun.elapsed()
        );
        let mut fresh = SharingServer::start(cluster.settings(killed)).await;
        fresh.until_shared().await;
        let (_at_fresh, at_fresh) = node(&fresh, 1, 0);
        until_parts(&at_fresh, &[part]).await;
        println!(
            "NATS server {killed} of 3 killed: a server that begins anew has all after {:?}",
            begun.elapsed()
        );
        cluster.run(killed);
        cluster.until_whole(killed).await;
    }
    // The holder's own server dies; it had named another one, too.
    let (_both, moving) = {
        let rendezvous = Rendezvous::new(Identity::generate().unwrap());
        let places = [servers[0].place.clone(), servers[2].place.clone()];
        let meeting = rendezvous.meet(&places, &keys(1));
        meeting.say(Some(entry(500)));
        (rendezvous, meeting)
    };
    until_parts(&seeker, &[102, 500]).await;
    drop(servers.remove(0));
    let begun = Instant::now();
    moving.say(Some(entry(600)));
    until_parts(&seeker, &[102, 600]).await;
    println!("a rendezvous server of 3 gone: a change is told after {:?}", begun.elapsed());
}

/// While NATS is away each server goes on with what it has; when it is back, empty, all is shared again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_while_the_engine_was_away_is_shared_when_it_is_back() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let mut servers = servers(&cluster, 2).await;
    let (_one, holder) = node(&servers[0], 1, 1);
    let (_two, seeker) = node(&servers[1], 1, 0);
    until_parts(&seeker, &[1]).await;
    cluster.kill(0);
    for server in &mut servers {
        until_status(&mut server.status, |status| matches!(status, SharingStatus::Away(_))).await;
    }
    holder.say(Some(entry(2)));
    let (_three, near) = node(&servers[0], 1, 0);
    until_parts(&near, &[2]).await;
    assert_eq!(parts(&seeker.found().borrow()), [1], "what it has stays");
    cluster.run(0);
    until_parts(&seeker, &[2]).await;
    for server in &mut servers {
        server.until_shared().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_reaches_no_engine_says_why_and_serves() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let mut wrong = cluster.settings(0);
    wrong.login = None;
    let mut stranger = SharingServer::start(wrong).await;
    let refused =
        |status: &SharingStatus| matches!(status, SharingStatus::Away(why) if why.contains("authorization"));
    until_status(&mut stranger.status, refused).await;
    cluster.kill(0);
    let mut alone = SharingServer::start(cluster.settings(0)).await;
    let away = |status: &SharingStatus| matches!(status, SharingStatus::Away(why) if why.contains("refused"));
    until_status(&mut alone.status, away).await;
    let (_one, _holder) = node(&alone, 1, 1);
    let (_two, seeker) = node(&alone, 1, 0);
    until_parts(&seeker, &[1]).await;
    cluster.run(0);
    alone.until_shared().await;
}

/// Who writes to the engine may lie.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_liar_writes_to_the_engine_is_passed_over() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 2).await;
    let (_one, _holder) = node(&servers[0], 1, 7);
    let (_two, seeker) = node(&servers[1], 1, 0);
    until_parts(&seeker, &[7]).await;
    let replayed = servers[0].server.said_here(None, 60_000).remove(0);
    let liar = ConnectOptions::with_user_and_password("tow".into(), "secret".into());
    let liar = liar.connect(cluster.addresses[0].to_string()).await.unwrap();
    let identity = Identity::generate().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let (millis, now) = (now.as_millis() as u64, now.as_secs());
    let signed = |expires, secret| {
        SignedEntry::new(&identity, &keys(secret), (millis, expires), Some(&entry(666)), [0; 12]).to_bytes()
    };
    let published = |entry: Vec<u8>| {
        let name = ServerName([9; 16]);
        Bytes::from(PublishedEntry { name, published: 1, entry: entry.into() }.to_bytes())
    };
    let mut forged = replayed.bytes.to_vec();
    *forged.last_mut().unwrap() ^= 1;
    for lie in [
        forged,
        vec![7; 60_000],
        Vec::new(),
        signed(now - 1, 1),
        signed(now + 90_000, 1),
        replayed.bytes.to_vec(),
    ] {
        liar.publish(message::ENTRY, published(lie)).await.unwrap();
    }
    // Behind all of them, an entry that is as it should be, of another ticket.
    liar.publish(message::ENTRY, vec![7; 60_000].into()).await.unwrap();
    liar.publish(message::ENTRY, published(signed(now + 60, 2))).await.unwrap();
    liar.flush().await.unwrap();
    for server in &servers {
        let (_other, other) = node(server, 2, 0);
        until_parts(&other, &[666]).await;
        assert_eq!(server.server.counts().1, 2);
    }
    assert_eq!(parts(&seeker.found().borrow()), [7]);
}

/// Between servers of NATS, too, something may be lost: here they know each other later than their clients do.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_lost_on_the_way_is_noticed_and_read() {
    let Some(mut cluster) = Cluster::start(2) else { return };
    cluster.kill(1);
    let mut one = SharingServer::start(cluster.settings(0)).await;
    one.until_shared().await;
    let (_one, _holder) = node(&one, 1, 7);
    cluster.run(1);
    let mut only = cluster.settings(1);
    only.place = format!("nats://{}", cluster.addresses[1]).parse().unwrap();
    let other = SharingServer::start(only).await;
    let (_two, seeker) = node(&other, 1, 0);
    until_parts(&seeker, &[7]).await;
}

/// A liar who says hello is asked for its entries, and answers with nonsense, in a circle, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_liar_among_the_servers_keeps_nobody_from_the_others() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 1).await;
    let (_one, _holder) = node(&servers[0], 1, 7);
    let liar = ConnectOptions::with_user_and_password("tow".into(), "secret".into());
    let liar = liar.connect(cluster.addresses[0].to_string()).await.unwrap();
    let [silent, circular, nonsense] = [1, 2, 3].map(|number| ServerName([number; 16]));
    let _silence = liar.subscribe(silent.page()).await.unwrap();
    let circle =
        EntryPage { entries: vec![vec![1; 500].into()], next: Some((keys(1).topic(), NodeId([1; 32]))) };
    for (name, answer) in [(circular, circle.to_bytes()), (nonsense, vec![0xff; 999])] {
        let (liar, mut asked) = (liar.clone(), liar.subscribe(name.page()).await.unwrap());
        tokio::spawn(async move {
            while let Some(question) = asked.next().await {
                liar.publish(question.reply.unwrap(), answer.clone().into()).await.unwrap();
            }
        });
    }
    let mut fresh = SharingServer::start(cluster.settings(0)).await;
    fresh.until_shared().await;
    for name in [silent, circular, nonsense] {
        let hello = ServerHello { name, published: 1, asks: true };
        liar.publish(message::HELLO, hello.to_bytes().into()).await.unwrap();
    }
    for nonsense in ["".to_owned(), "*".to_owned(), "x".repeat(60_000)] {
        liar.publish(message::HELLO, nonsense.into()).await.unwrap();
    }
    liar.flush().await.unwrap();
    let (_two, seeker) = node(&fresh, 1, 0);
    until_parts(&seeker, &[7]).await;
    // Another one that comes now is read behind the liars.
    let last = SharingServer::start(cluster.settings(0)).await;
    let (_three, _late) = node(&last, 1, 8);
    until_parts(&seeker, &[7, 8]).await;
}

/// More than one page.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_begins_anew_reads_all_that_others_have() {
    let Some(cluster) = Cluster::start(1) else { return };
    let servers = servers(&cluster, 2).await;
    let rendezvous = [0, 1].map(|_| Rendezvous::new(Identity::generate().unwrap()));
    let mut meetings = Vec::new();
    for secret in 0..250 {
        for (server, rendezvous) in servers.iter().zip(&rendezvous) {
            let meeting = rendezvous.meet(std::slice::from_ref(&server.place), &keys(secret));
            let addresses = vec!["192.0.2.1:7000".parse().unwrap(); 8];
            meeting.say(Some(HolderEntry { addresses, ..entry(1) }));
            meetings.push(meeting);
        }
    }
    for server in &servers {
        until_count(server, 500).await;
    }
    let bytes: usize =
        servers[0].server.said_here(None, usize::MAX).iter().map(|entry| entry.bytes.len()).sum();
    assert!(bytes > page::MAX_BYTES, "{bytes} bytes are one page");
    let fresh = SharingServer::start(cluster.settings(0)).await;
    until_count(&fresh, 500).await;
    assert!(fresh.server.said_here(None, usize::MAX).is_empty(), "nothing was said at it");
}

async fn until_count(server: &SharingServer, count: usize) {
    let counted = async {
        while server.server.counts().1 != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(support::LIMIT, counted)
        .await
        .unwrap_or_else(|_| panic!("{:?}", server.server.counts()));
}
