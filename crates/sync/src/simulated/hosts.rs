//! A sender and a receiver as nodes of the simulation: they do what `sender` and `tree_link` do on a real connection, and
//! look at each moment that neither machine holds more than it may.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use towpath_content::lock::lock;
use towpath_simnet::{ConnectionId, Net, SimNode};
use towpath_sync_sender::tree_sending::{MOST_WANTED, TreeSending, WINDOW, WINDOW_BYTES};

use super::sample::WalkStep;
use crate::error::CopyError;
use crate::merge::Merge;
use crate::message::{EndReport, Message, hung_up, violation};
use crate::receiving::Receiving;
use crate::tree_receiving::{MAX_WAITING, MOST_NEWS, News, TreeReceiving};

pub const SENDER: usize = 0;
pub const RECEIVER: usize = 1;

/// Steps that a host makes at a time, and how long those take it.
const STEPS: usize = 20;
const TIME: Duration = Duration::from_millis(1);
/// Bytes of a message, and of a step: what a bound may be exceeded by.
const ONE_MORE: usize = 320 << 10;
/// Files that may be under way.
const UNDER_WAY: usize = 8192;

/// A side of the copy.
pub enum Host {
    Sender(Box<SendingHost>),
    Receiver(Box<ReceivingHost>),
}

/// The sender.
pub struct SendingHost {
    tree: TreeSending<u64, u64>,
    walk: VecDeque<WalkStep>,
    is_told: bool,
    end: Option<Result<(), CopyError>>,
}

/// The receiver.
pub struct ReceivingHost {
    tree: Arc<Mutex<TreeReceiving>>,
    receiving: Arc<Receiving>,
    merge: Option<Merge>,
    end: Option<Result<(), CopyError>>,
    is_over: bool,
}

impl SendingHost {
    pub fn new(walk: Vec<WalkStep>) -> Self {
        Self { tree: TreeSending::default(), walk: walk.into(), is_told: false, end: None }
    }

    fn walk(&mut self, net: &mut Net, connection: ConnectionId) -> Result<(), CopyError> {
        for _ in 0..STEPS {
            if !self.tree.has_room() {
                break;
            }
            match self.walk.pop_front() {
                Some(WalkStep::Event(event, located)) => self.tree.step(&event, located)?,
                Some(WalkStep::Closed) => self.tree.closed(),
                None if !self.is_told => {
                    self.is_told = true;
                    self.tree.finish()?;
                }
                None => break,
            }
            while let Some(part) = self.tree.poll() {
                net.send(connection, part.pack(1).into_bytes().into());
            }
        }
        if !self.is_told {
            net.wake_at(net.now() + TIME);
        }
        Ok(())
    }

    fn receive(&mut self, message: Message) -> Result<(), CopyError> {
        match message {
            Message::Finished(_) => self.end = Some(Ok(())),
            message => drop(self.tree.recv(message)?),
        }
        Ok(())
    }

    fn assert_bounds(&self) {
        let (entries, bytes) = self.tree.ahead();
        assert!(entries <= WINDOW && bytes <= WINDOW_BYTES + ONE_MORE as u64, "{entries} {bytes}");
        assert!(self.tree.wanted() <= MOST_WANTED);
    }
}

impl ReceivingHost {
    pub fn new(tree: Arc<Mutex<TreeReceiving>>, receiving: Arc<Receiving>, merge: Merge) -> Self {
        Self { tree, receiving, merge: Some(merge), end: None, is_over: false }
    }

    fn merge(&mut self, net: &mut Net, connection: ConnectionId) -> Result<(), CopyError> {
        for _ in 0..STEPS {
            let Some(merge) = &mut self.merge else { break };
            let next = lock(&self.tree).next_step()?;
            let Some(step) = next else {
                merge.push()?;
                break;
            };
            if !merge.take(step)? {
                self.merge.take().map_or(Ok(()), Merge::finish)?;
                self.end = Some(self.receiving.check());
                lock(&self.tree).end();
            }
        }
        self.tell(net, connection);
        if lock(&self.tree).held().0 > 0 {
            net.wake_at(net.now() + TIME);
        }
        Ok(())
    }

    fn tell(&mut self, net: &mut Net, connection: ConnectionId) {
        loop {
            let next = lock(&self.tree).poll(net.instant());
            match next {
                News::Send(message) => net.send(connection, message.into_bytes().into()),
                News::Wait(until) => return net.wake_at_instant(until),
                News::Over if !self.is_over => {
                    self.is_over = true;
                    net.send(connection, Message::Finished(EndReport::default()).into_bytes().into());
                }
                News::Over | News::Nothing => return,
            }
        }
    }

    fn assert_bounds(&self) {
        let (waiting, news) = lock(&self.tree).held();
        assert!(waiting <= MAX_WAITING + ONE_MORE && news <= MOST_NEWS + UNDER_WAY, "{waiting} {news}");
    }
}

impl Host {
    pub const fn end(&self) -> Option<&Result<(), CopyError>> {
        match self {
            Self::Sender(host) => host.end.as_ref(),
            Self::Receiver(host) => host.end.as_ref(),
        }
    }

    /// Files that the sender still keeps for the receiver; those that failed at that.
    pub fn left(&self) -> u64 {
        match self {
            Self::Sender(host) => host.tree.wanted() as u64,
            Self::Receiver(host) => host.receiving.account.summary().failed,
        }
    }

    /// Does `work`; an error ends this side and its connection.
    fn work(
        &mut self,
        net: &mut Net,
        connection: ConnectionId,
        work: impl FnOnce(&mut Self, &mut Net) -> Result<(), CopyError>,
    ) {
        if matches!(self.end(), Some(Err(_))) {
            return;
        }
        if let Err(error) = work(self, net) {
            self.fail(error);
            net.close(connection);
        }
        match self {
            Self::Sender(host) => host.assert_bounds(),
            Self::Receiver(host) => host.assert_bounds(),
        }
    }

    fn fail(&mut self, error: CopyError) {
        match self {
            Self::Sender(host) => {
                host.end.get_or_insert(Err(error));
                host.tree.end();
            }
            Self::Receiver(host) => {
                if host.end.is_none() {
                    host.receiving.stop(error.clone());
                }
                host.end.get_or_insert(Err(error));
                host.merge = None;
                lock(&host.tree).end();
            }
        }
    }

    fn go_on(&mut self, net: &mut Net, connection: ConnectionId) {
        self.work(net, connection, |host, net| match host {
            Self::Sender(host) => host.walk(net, connection),
            Self::Receiver(host) => host.merge(net, connection),
        });
    }
}

/// A host with the one connection of the copy, which the sender makes.
pub struct Node {
    pub host: Host,
    connection: Option<ConnectionId>,
}

impl Node {
    pub const fn new(host: Host) -> Self {
        Self { host, connection: None }
    }
}

impl SimNode for Node {
    fn start(&mut self, net: &mut Net) {
        if net.host() == SENDER {
            net.connect(RECEIVER);
        }
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, _: usize) {
        self.connection = Some(connection);
        self.host.go_on(net, connection);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        self.host.work(net, connection, |host, _| match (host, Message::from_bytes(Bytes::from(message))?) {
            (_, Message::Event(_)) => Err(violation("an event")),
            (Host::Sender(host), message) => host.receive(message),
            (Host::Receiver(host), message) => lock(&host.tree).take(message),
        });
        self.host.go_on(net, connection);
    }

    fn closed(&mut self, _: &mut Net, _: ConnectionId) {
        if self.host.end().is_none() {
            self.host.fail(hung_up());
        }
    }

    fn wake(&mut self, net: &mut Net) {
        if let Some(connection) = self.connection {
            self.host.go_on(net, connection);
        }
    }
}
