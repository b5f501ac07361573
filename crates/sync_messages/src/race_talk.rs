//! What the two sides say to each other about the connections that race beside ssh's pipe, over that.

use std::net::SocketAddr;

use tokio_util::task::AbortOnDropHandle;
use towpath_protocol::ControlSender;
use towpath_ssh::race::Race;

use crate::message::{Message, Ready, WantedConnections};

/// The receiver tells how many connections it wants, where the sender is the one that dials them. Ends when it is dropped.
pub fn tell_wishes(control: &ControlSender, race: &Race) -> AbortOnDropHandle<()> {
    let (control, mut asks, mut by_links) = (control.clone(), race.asks(), race.asks_by_links());
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (link, count) = tokio::select! {
                Ok(()) = asks.changed() => (None, *asks.borrow_and_update()),
                Some((link, count)) = by_links.next() => (Some(link), count),
                else => return,
            };
            let wish = WantedConnections { count: u32::try_from(count).unwrap_or(u32::MAX), link };
            if control.send(Message::Connections(wish).into_bytes()).await.is_err() {
                return;
            }
        }
    }))
}

/// The remote end tells each change of its addresses. Ends when it is dropped.
pub fn tell_moves(control: &ControlSender, race: Option<&Race>) -> AbortOnDropHandle<()> {
    let (control, own) = (control.clone(), race.map(Race::own_addresses));
    AbortOnDropHandle::new(tokio::spawn(async move {
        let Some(mut own) = own else { return };
        loop {
            let addresses = own.changed().await.iter().map(ToString::to_string).collect();
            let ready = Ready { addresses, ..Ready::default() };
            if control.send(Message::Ready(ready).into_bytes()).await.is_err() {
                return;
            }
        }
    }))
}

/// Dials the connections that the receiver wants.
pub fn heed_wish(race: Option<&Race>, wish: &WantedConnections) {
    let (Some(race), count) = (race, wish.count as usize) else { return };
    match &wish.link {
        None => race.reach(count),
        Some(link) => race.reach_by(link, count),
    }
}

/// Dials the remote end where it can be dialled now.
pub fn heed_move(race: Option<&Race>, moved: &Ready) {
    let Some(race) = race else { return };
    let addresses = moved.addresses.iter().filter_map(|address| address.parse().ok());
    race.lead_to(&addresses.collect::<Vec<SocketAddr>>());
}
