//! The way by one link: its connection is dialled, lost, and dialled again, as the plugins do.

use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_link::Frame;
use towpath_link::backoff::BackoffConfig;
use towpath_link::dialling::{Decision, Dialling};
use towpath_protocol::incoming::Decoder;
use towpath_protocol::outgoing::Outgoing;
use towpath_protocol::session::{Effect, Session};
use towpath_protocol::wire::Body;
use towpath_simnet::{ConnectionId, Net};

use super::{Conduct, host_of};

/// The longest wait between attempts to reach a peer, as in the plugin.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// See the head of this module.
pub(crate) struct SimLink {
    number: usize,
    conduct: Conduct,
    dialling: Dialling,
    connection: Option<ConnectionId>,
    end: Option<(Session, Decoder)>,
    redial_at: Option<Instant>,
    /// Time since which it does not stand.
    lost_since: Option<Instant>,
    heard: u64,
}

impl SimLink {
    pub(crate) fn new(number: usize, conduct: Conduct) -> Self {
        let dialling = Dialling::new(BackoffConfig { longest: LONGEST_WAIT, ..BackoffConfig::default() });
        let (connection, end, redial_at, lost_since, heard) = (None, None, None, None, 0);
        Self { number, conduct, dialling, connection, end, redial_at, lost_since, heard }
    }

    /// The session, if the link stands.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.end.as_mut().map(|(session, _)| session)
    }

    pub(crate) const fn stands(&self) -> bool {
        self.end.is_some()
    }

    /// Bytes that came by it.
    pub(crate) const fn heard(&self) -> u64 {
        self.heard
    }

    /// Time for which it has not stood.
    pub(crate) fn lost_for(&self, now: Instant) -> Duration {
        let since = self.lost_since.filter(|_| !self.stands());
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Time until it is dialled again, if it neither stands nor is being dialled.
    pub(crate) fn waits(&self, now: Instant) -> Option<Duration> {
        self.redial_at.map(|at| at.saturating_duration_since(now))
    }

    /// It brought something: should it be lost, it is dialled again at once.
    pub(crate) const fn useful(&mut self) {
        self.dialling.useful();
    }

    /// Dials, if that is due. To be called at every event.
    pub(crate) fn go_on(&mut self, net: &mut Net) {
        let now = net.instant();
        self.lost_since.get_or_insert(now);
        if self.connection.is_some() {
            return;
        }
        self.redial_at = None;
        match self.dialling.decide(now, false) {
            Decision::Use => {}
            Decision::Wait(wait) => self.redial_at = Some(now + wait),
            Decision::Dial => {
                let random = net.random().u64(..);
                self.dialling.dialled(now, random);
                self.connection = Some(net.connect(host_of(self.number)));
            }
        }
    }

    /// Takes a connection that stands; false if it is another link's.
    pub(crate) fn opened(&mut self, net: &Net, connection: ConnectionId) -> bool {
        let is_own = self.connection == Some(connection);
        if is_own {
            let names = ["net", "net2"];
            let config = self.conduct.config(false, names.get(self.number).copied());
            self.end = Some((Session::new(config, net.instant()), Decoder::default()));
            self.lost_since = None;
        }
        is_own
    }

    /// Takes a message of its connection.
    pub(crate) fn receive(&mut self, net: &Net, connection: ConnectionId, message: &[u8]) {
        let Some((session, decoder)) = self.end.as_mut().filter(|_| self.connection == Some(connection))
        else {
            return;
        };
        self.heard += message.len() as u64;
        match decoder.decode(frame(message), |header| session.expected(header)) {
            Ok(incoming) => session.receive(net.instant(), incoming),
            Err(why) => session.close(Some(why)),
        }
    }

    /// Its connection ended, or could not be made.
    pub(crate) fn closed(&mut self, connection: ConnectionId) {
        if self.connection != Some(connection) {
            return;
        }
        match &mut self.end {
            Some((session, _)) => session.close(None),
            None => self.connection = None,
        }
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some((session, _)) = &mut self.end
            && session.next_wake().is_some_and(|at| at <= now)
        {
            session.tick(now);
        }
    }

    /// Sends what is to be sent; returns what else there is to do.
    pub(crate) fn effects(&mut self, net: &mut Net) -> Vec<Effect> {
        let mut others = Vec::new();
        while let Some(effect) = self.session().and_then(Session::poll) {
            match effect {
                Effect::Send(body) | Effect::SendFirst(body) => self.send(net, body),
                Effect::Closed => self.hang_up(net),
                other => others.push(other),
            }
        }
        others
    }

    fn send(&mut self, net: &mut Net, body: Body) {
        if let Some(((session, _), connection)) = self.end.as_mut().zip(self.connection) {
            session.liveness_mut().spoke(net.instant());
            net.send(connection, bytes_of(&Outgoing::control(body)));
        }
    }

    fn hang_up(&mut self, net: &mut Net) {
        self.end = None;
        self.lost_since = Some(net.instant());
        if let Some(connection) = self.connection.take() {
            net.close(connection);
        }
    }
}

/// A message as a frame: its kind, then its body.
pub(super) fn frame(message: &[u8]) -> Frame {
    match message.split_first() {
        Some((&kind, body)) => Frame { kind, body: Bytes::copy_from_slice(body) },
        None => Frame { kind: 0, body: Bytes::new() },
    }
}

/// The other way round.
pub(super) fn bytes_of(frame: &Outgoing) -> Vec<u8> {
    let Frame { kind, body } = frame.to_frame();
    [&[kind][..], &body].concat()
}
