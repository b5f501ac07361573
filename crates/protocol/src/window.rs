//! Windows of messages: so many bytes of them may be under way in a direction, and each side keeps its half of the count.
//! The control stream has one, and so have contents of entries.
//!
//! What is taken is given back in steps, so neither a slow reader nor a hostile writer costs more memory than a window. Messages go
//! out before all data, by the writer task's first queue.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use thiserror::Error;
use tokio::sync::Semaphore;
use towpath_content::lock::lock;

use super::delivery::{ControlDelivery, Delivered, GIVE_BACK};
use super::pace::Pace;
use super::urgent::Urgent;
use super::wire::{Body, OVERHEAD, WINDOW};

/// Shorter messages are copied: a frame shares its memory with those around it, of up to 304 KiB, and a message that waits
/// would keep all of that.
pub(super) const SHORT: usize = 128 << 10;
/// Shorter messages do not wait for the limit of the rate, but count: others wait for what they say.
pub(super) const BRIEF: usize = 4 << 10;

/// Nothing more can be sent: the connection is gone, or the peer does not take such messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the other side takes no more messages")]
pub struct ControlClosed;

/// Bytes that a message of so many counts for.
pub(super) const fn cost(len: usize) -> usize {
    len + OVERHEAD
}

/// The sending half.
pub(super) struct SendWindow {
    /// Bytes that may still be sent.
    credit: Semaphore,
    /// Limits what is sent.
    pace: Arc<Pace>,
    /// Sent, and given back by the peer.
    delivery: Mutex<ControlDelivery>,
    urgent: Urgent,
}

impl SendWindow {
    /// Nothing may be sent before it is opened.
    pub(super) fn new(urgent: Urgent, pace: Arc<Pace>) -> Self {
        Self { credit: Semaphore::new(0), pace, delivery: Mutex::default(), urgent }
    }

    /// From now on the peer takes messages.
    pub(super) fn open(&self) {
        self.credit.add_permits(WINDOW);
    }

    /// Nothing more goes.
    pub(super) fn close(&self) {
        self.credit.close();
    }

    /// Sends what waits for nothing, behind what was sent.
    pub(super) fn push(&self, body: Body) {
        self.urgent.send(body);
    }

    /// Sends a message of `len` bytes; waits until the peer has room for it, and the limit of the rate lets it pass.
    /// Cancel-safe: a message is sent as a whole or not at all.
    pub(super) async fn send(&self, len: usize, body: Body) -> Result<(), ControlClosed> {
        let cost = cost(len);
        match len < BRIEF {
            true => drop(self.pace.wait(cost as u64, Instant::now())),
            false => self.pace.pass(cost as u64).await,
        }
        let room = self.credit.acquire_many(cost as u32).await.map_err(|_| ControlClosed)?;
        room.forget();
        lock(&self.delivery).sent(cost, Instant::now());
        self.push(body);
        Ok(())
    }

    /// The peer gives back credit; false if that is more than it was sent.
    pub(super) fn give_back(&self, bytes: u64) -> bool {
        let mut delivery = lock(&self.delivery);
        let Some(bytes) = usize::try_from(bytes).ok().filter(|&bytes| bytes <= delivery.under_way()) else {
            return false;
        };
        delivery.taken(bytes, Instant::now());
        self.credit.add_permits(bytes);
        true
    }

    /// The rate at which the peer takes messages, and its delay.
    pub(super) fn delivered(&self) -> Delivered {
        lock(&self.delivery).delivered(Instant::now())
    }
}

/// The receiving half. Pure.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    /// Received, and not given back to the peer.
    received: usize,
    /// Taken of that.
    taken: usize,
}

impl ReceiveWindow {
    /// A message came that counts for so much; false if that is more than the window allows.
    pub(super) const fn recv(&mut self, cost: usize) -> bool {
        let is_within = self.received + cost <= WINDOW;
        if is_within {
            self.received += cost;
        }
        is_within
    }

    /// A message that came was taken, or nobody wants it. Returns the credit that is to be given back now: in crumbs, so that
    /// a peer that sends little messages and reads nothing does not fill the queue with credit.
    pub(super) fn took(&mut self, cost: usize) -> Option<u64> {
        self.taken += cost;
        if self.taken < GIVE_BACK {
            return None;
        }
        let bytes = std::mem::take(&mut self.taken);
        self.received -= bytes;
        Some(bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::urgent::urgent_queue;
    use crate::wire::Ping;

    #[test]
    fn what_came_and_was_not_taken_is_bounded_and_all_of_it_is_given_back() {
        let mut window = ReceiveWindow::default();
        let step = GIVE_BACK / 4;
        for _ in 0..WINDOW / step {
            assert!(window.recv(step));
        }
        assert!(!window.recv(1), "it is full");
        let given_back: Vec<_> = (0..WINDOW / step).map(|_| window.took(step)).collect();
        assert_eq!(given_back[..4], [None, None, None, Some(GIVE_BACK as u64)]);
        assert_eq!(given_back.iter().flatten().sum::<u64>(), WINDOW as u64);
        assert!(window.recv(WINDOW));
    }

    #[tokio::test]
    async fn what_is_sent_waits_for_room_and_no_credit_is_made_up() {
        let (urgent, mut queue) = urgent_queue();
        let window = SendWindow::new(urgent, Arc::new(Pace::new(0)));
        window.open();
        let half = WINDOW / 2 - OVERHEAD;
        let ping = || Body::Ping(Ping::default());
        for _ in 0..2 {
            window.send(half, ping()).await.unwrap();
        }
        assert!(!window.give_back(WINDOW as u64 + 1));
        let third = window.send(half, ping());
        tokio::pin!(third);
        tokio::select! {
            biased;
            _ = &mut third => panic!("it does not wait"),
            () = std::future::ready(()) => {}
        }
        assert!(window.give_back(WINDOW as u64 / 2));
        third.await.unwrap();
        assert_eq!(std::iter::from_fn(|| queue.try_recv()).count(), 3);
        window.close();
        assert_eq!(window.send(1, ping()).await, Err(ControlClosed));
    }
}
