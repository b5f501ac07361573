//! Effects of a session, in order, and its requests that wait for the peer's limit. Pure.

use std::collections::{BTreeSet, VecDeque};

use super::effect::Effect;
use crate::requests::Violation;
use crate::wire::{Body, MAX_REQUESTS, WireCancel, WireWant};

/// Effects that were not polled, and requests by their numbers.
pub(super) struct SessionOutbox {
    effects: VecDeque<Effect>,
    next_request: u32,
    /// Requests that were sent and of which the peer has not said that they are done, given up or
    /// not: it counts them against its limit.
    sent: BTreeSet<u32>,
    /// Requests for which there is no room yet, each with the messages that follow it.
    waiting: VecDeque<(u32, Vec<Body>)>,
}

impl SessionOutbox {
    /// The first message goes out before all else.
    pub(super) fn new(first: Body) -> Self {
        let effects = [Effect::Send(first)].into();
        Self { effects, next_request: 1, sent: BTreeSet::new(), waiting: VecDeque::new() }
    }

    /// The next thing to be done.
    pub(super) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Something to be done.
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// A message that is no request, and waits for nothing.
    pub(super) fn send(&mut self, body: Body) {
        self.push(Effect::Send(body));
    }

    /// The number of the next request; the last one is `u32::MAX`.
    pub(super) fn number(&mut self) -> u32 {
        let number = self.next_request;
        self.next_request = number.saturating_add(1);
        number
    }

    /// Sends a request, now or once there is room.
    pub(super) fn put(&mut self, request: u32, body: Body) {
        self.waiting.push_back((request, vec![body]));
        self.fill();
    }

    /// Sends what there is room for.
    pub(super) fn fill(&mut self) {
        while self.sent.len() < MAX_REQUESTS
            && let Some((request, bodies)) = self.waiting.pop_front()
        {
            self.sent.insert(request);
            bodies.into_iter().for_each(|body| self.send(body));
        }
    }

    /// Sends a message behind its request, and behind no other one that waits.
    pub(super) fn follow(&mut self, request: u32, body: Body) {
        match self.waiting.iter_mut().find(|(waiting, _)| *waiting == request) {
            Some((_, bodies)) => bodies.push(body),
            None => self.send(body),
        }
    }

    /// True if a request was not sent yet.
    pub(super) fn is_waiting(&self, request: u32) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == request)
    }

    /// Has a `Get` that was not sent yet ask for these wants. If there are none it is taken back, and returned.
    pub(super) fn ask_for(&mut self, request: u32, wants: Vec<WireWant>) -> Option<u32> {
        if wants.is_empty() {
            return self.withdraw(request).then_some(request);
        }
        let (_, bodies) = self.waiting.iter_mut().find(|(waiting, _)| *waiting == request)?;
        if let Some(Body::Get(get)) = bodies.first_mut() {
            get.wants = wants;
        }
        None
    }

    /// Takes back a request that was not sent yet; false if it was.
    pub(super) fn withdraw(&mut self, request: u32) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != request);
        self.waiting.len() < before
    }

    /// Takes a request back; the peer is told if it has it. True if it has not.
    pub(super) fn cancel(&mut self, request: u32) -> bool {
        let is_withdrawn = self.withdraw(request);
        if !is_withdrawn {
            self.send(Body::Cancel(WireCancel { request, pieces: Vec::new() }));
        }
        is_withdrawn
    }

    /// Takes all requests back that were not sent.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// A request that was put and is not under way was given up meanwhile.
    pub(super) fn was_put(&self, request: u32) -> Result<(), Violation> {
        let was_numbered = (1..self.next_request).contains(&request);
        match self.sent.contains(&request) || was_numbered && !self.is_waiting(request) {
            true => Ok(()),
            false => Err(Violation::Unasked),
        }
    }

    /// The peer is done with a request: once [`Self::fill`] is called there is room for another one.
    pub(super) fn done(&mut self, request: u32) {
        self.sent.remove(&request);
    }
}
