//! Entries of other servers, read page by page: each is asked for as the one before was taken in, so nobody is flooded.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use tokio::sync::Notify;
use towpath_content::lock::lock;
use towpath_rendezvous::RendezvousServer;
use towpath_rendezvous::page::{EntryPage, cursor_to_bytes};

use crate::message::ServerName;
use crate::peers::Peers;

/// Longest time for a page to come.
const PAGE_LIMIT: Duration = Duration::from_secs(1);
/// The most pages of one server: more than those of 100,000 of the longest entries.
const MOST_PAGES: usize = 4096;
/// Servers that wait to be read.
const MOST_SERVERS: usize = 64;

/// Servers whose entries are to be read.
#[derive(Debug, Default)]
pub(crate) struct UnreadServers {
    names: Mutex<VecDeque<ServerName>>,
    came: Notify,
}

impl UnreadServers {
    /// One more, unless it waits already or too many do.
    pub(crate) fn add(&self, name: ServerName) {
        let mut names = lock(&self.names);
        if !names.contains(&name) && names.len() < MOST_SERVERS {
            names.push_back(name);
            self.came.notify_one();
        }
    }

    async fn next(&self) -> ServerName {
        loop {
            let name = lock(&self.names).pop_front();
            match name {
                Some(name) => return name,
                None => self.came.notified().await,
            }
        }
    }
}

/// Reads one server after the other, for ever. Those that could not be read to the end are forgotten.
pub(crate) async fn read_all(
    client: &Client,
    unread: &UnreadServers,
    peers: &Mutex<Peers>,
    server: &RendezvousServer,
) {
    loop {
        let name = unread.next().await;
        if let Err(why) = read(client, name, server).await {
            tracing::debug!(%name, why, "a server's entries were not read to the end");
            lock(peers).forget(name);
        }
    }
}

async fn read(client: &Client, name: ServerName, server: &RendezvousServer) -> Result<(), String> {
    let mut after = None;
    for _ in 0..MOST_PAGES {
        let asked = client.request(name.page(), cursor_to_bytes(after).into());
        let answer = tokio::time::timeout(PAGE_LIMIT, asked).await.map_err(|_| "no answer")?;
        let answer = answer.map_err(|error| error.to_string())?;
        let page = EntryPage::from_bytes(&answer.payload, after).map_err(|error| error.to_string())?;
        page.entries.into_iter().for_each(|entry| take(server, entry));
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
    Err("it has too many".into())
}

/// Takes an entry in, if it is as it should be: whoever writes to NATS may lie.
pub(crate) fn take(server: &RendezvousServer, entry: Bytes) {
    if let Err(why) = server.take(entry) {
        tracing::debug!(why = why.reason(), "an entry of NATS is passed over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_waits_once_and_not_too_many_do() {
        let unread = UnreadServers::default();
        for number in [1, 1, 2] {
            unread.add(ServerName([number; 16]));
        }
        assert_eq!(lock(&unread.names).len(), 2);
        (0..200).for_each(|number| unread.add(ServerName([number; 16])));
        assert_eq!(lock(&unread.names).len(), MOST_SERVERS);
    }
}
