//! What the two sides say to each other about the connections that race beside ssh's pipe, over that.

use std::net::SocketAddr;

use tokio_util::task::AbortOnDropHandle;
use towpath_protocol::ControlSender;
use towpath_ssh::race::Race;

use crate::message::{LinkConnections, Message, RemoteAddresses};

/// The receiver tells how many connections it wants, where the sender is the one that dials them. Ends when it is dropped.
pub fn tell_wishes(control: &ControlSender, race: &Race) -> AbortOnDropHandle<()> {
    let (control, mut asks, mut by_links) = (control.clone(), race.asks(), race.asks_by_links());
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                Ok(()) = asks.changed() => Message::Connections(number(*asks.borrow_and_update())),
                Some((link, count)) = by_links.next() => {
                    Message::LinkConnections(LinkConnections { link, count: number(count) })
                }
                else => return,
            };
            if control.send(message.into_bytes()).await.is_err() {
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
            if control.send(Message::Moved(RemoteAddresses { addresses }).into_bytes()).await.is_err() {
                return;
            }
        }
    }))
}

/// Does what such a message wants. Others are left.
pub fn heed(race: Option<&Race>, message: &Message) {
    let Some(race) = race else { return };
    match message {
        Message::Connections(count) => race.reach(*count as usize),
        Message::LinkConnections(wish) => race.reach_by(&wish.link, wish.count as usize),
        Message::Moved(moved) => {
            let addresses = moved.addresses.iter().filter_map(|address| address.parse().ok());
            race.lead_to(&addresses.collect::<Vec<SocketAddr>>());
        }
        _ => {}
    }
}
