//! A host that draws one object from several others: the dealer says who brings what, as the program's driver asks it, and a real
//! session speaks with each. What the object is it knows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_dealer::{
    Dealer, DealerAction, DealerEvent, DealtPart, SourceFacts, SourceHolding, SourceNumber, WantedRange,
};
use towpath_protocol::incoming::Decoder;
use towpath_protocol::outgoing::Outgoing;
use towpath_protocol::requests::GetRequest;
use towpath_protocol::session::{Effect, Question, Session};
use towpath_protocol::wire::Describe;
use towpath_simnet::{ConnectionId, Net, SimNode};
use towpath_transfer::intervals::Intervals;
use towpath_transfer::{Delivery, Tag, Want, WantId};

use crate::host::{BINDING, SECRET, bytes_of, frame_of, node_of, session};

/// Bytes that are asked of a source at a time.
const WINDOW: u64 = 256 << 10;

/// A connection to a source.
struct Drawn {
    session: Session,
    decoder: Decoder,
    /// It has everything, and need not be asked what it has.
    has_all: bool,
    /// The dealer knows it.
    is_dealt: bool,
}

/// See the head of this module.
pub struct Drawing {
    oid: Oid,
    layout: Layout,
    dealer: Dealer,
    /// Hosts to dial, and whether each has everything.
    sources: Vec<(usize, bool)>,
    dialled: BTreeMap<ConnectionId, usize>,
    ends: BTreeMap<usize, Drawn>,
    /// Parts that are asked for, by the tags that they have on the wire.
    asked: BTreeMap<Tag, (usize, DealtPart)>,
    next_tag: Tag,
    wake_at: Option<Instant>,
    bytes: Vec<u8>,
    there: Intervals,
    /// Bytes that each host brought, those that came twice included.
    pub by: BTreeMap<usize, u64>,
}

impl Drawing {
    /// One that gets `oid` from hosts, of which each has everything or tells what it has.
    pub fn new(oid: Oid, layout: Layout, sources: Vec<(usize, bool)>, seed: u64) -> Self {
        Self {
            oid,
            layout,
            dealer: Dealer::new(seed),
            sources,
            dialled: BTreeMap::new(),
            ends: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_tag: 0,
            wake_at: None,
            bytes: vec![0; layout.size() as usize],
            there: Intervals::default(),
            by: BTreeMap::new(),
        }
    }

    pub fn is_complete(&self) -> bool {
        self.there.covers(&(0..self.layout.size()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Tells the dealer, and does what it says.
    fn tell(&mut self, net: &Net, event: DealerEvent) {
        for action in self.dealer.handle(net.now(), event) {
            match action {
                DealerAction::Ask { source, wants } => self.ask(net, source as usize, wants),
                DealerAction::Cancel { source, wants } => self.cancel(source as usize, &wants),
                DealerAction::Drop(_) | DealerAction::Open(_) => panic!("nobody lies here"),
            }
        }
    }

    fn ask(&mut self, net: &Net, source: usize, parts: Vec<DealtPart>) {
        let mut wants = Vec::new();
        for part in parts {
            let id = WantId::Piece { oid: self.oid, layout: self.layout, index: part.tag };
            let is_all = part.part == (0..id.len());
            self.next_tag += 1;
            wants.push(Want { part: (!is_all).then(|| part.part.clone()), ..Want::new(self.next_tag, id) });
            self.asked.insert(self.next_tag, (source, part));
        }
        let end = self.ends.get_mut(&source).expect("it was dialled");
        assert!(end.session.greeting().has_recipes, "parts are asked for as runs of bytes");
        end.session.get(net.instant(), GetRequest::new(&self.oid, wants, true));
    }

    fn cancel(&mut self, source: usize, parts: &[DealtPart]) {
        let is_meant = |(by, part): &(usize, DealtPart)| *by == source && parts.contains(part);
        let tags: Vec<Tag> =
            self.asked.iter().filter(|(_, asked)| is_meant(asked)).map(|(tag, _)| *tag).collect();
        self.ends.get_mut(&source).expect("it was dialled").session.cancel(0, &tags);
    }

    /// Bytes came; whether they are right shows at the end.
    fn came(&mut self, net: &Net, delivery: &Delivery) {
        let Some((source, part)) = self.asked.remove(&delivery.tag) else { return };
        let len = part.part.end - part.part.start;
        let bytes = delivery.payload.to_bytes(len);
        assert_eq!(bytes.len() as u64, len, "as much as was asked for");
        let start = self.layout.range(part.tag).start + part.part.start;
        self.bytes[start as usize..(start + len) as usize].copy_from_slice(&bytes);
        self.there.insert(start..start + len);
        *self.by.entry(source).or_default() += len;
        self.tell(net, DealerEvent::Arrived { source: source as SourceNumber, part });
    }

    /// A source said what it has, or what it has now, too.
    fn has(&mut self, net: &Net, source: usize, holding: SourceHolding) {
        let is_new =
            self.ends.get_mut(&source).is_some_and(|end| !std::mem::replace(&mut end.is_dealt, true));
        let number = source as SourceNumber;
        let event = match (is_new, holding) {
            (true, holding) => {
                let round_trip = Duration::from_millis(20);
                let facts = SourceFacts { window: WINDOW, round_trip, priority: 0, price: 0, proves: true };
                DealerEvent::SourceAdded { source: number, facts, holding }
            }
            (false, SourceHolding::Parts(added)) => DealerEvent::Have { source: number, added },
            (false, SourceHolding::Everything) => return,
        };
        self.tell(net, event);
    }

    fn perform(&mut self, net: &mut Net, (connection, source): (ConnectionId, usize), effect: Effect) {
        let Some(end) = self.ends.get_mut(&source) else { return };
        match effect {
            Effect::Send(body) | Effect::SendFirst(body) | Effect::Control(body) => {
                end.session.liveness_mut().spoke(net.instant());
                net.send(connection, bytes_of(&Outgoing::control(body)));
            }
            Effect::Greeted { .. } if end.has_all => self.has(net, source, SourceHolding::Everything),
            Effect::Greeted { .. } => {
                let root = Bytes::from(self.oid.to_bytes().to_vec());
                let question =
                    Describe { root: root.clone(), oid: root, follow: true, ..Describe::default() };
                end.session.ask(Question::Watch(question));
            }
            Effect::Ranges { ranges, .. } => self.has(net, source, SourceHolding::Parts(ranges)),
            Effect::Delivery { delivery, .. } => self.came(net, &delivery),
            Effect::Outcome { tag, outcome, .. } => {
                if let Some((source, part)) = self.asked.remove(&tag) {
                    let source = source as SourceNumber;
                    self.tell(net, DealerEvent::NotBrought { source, part, outcome });
                }
            }
            Effect::Closed => panic!("host {source}: {:?}", end.session.ended()),
            _ => {}
        }
    }

    /// Performs what is to be done, until nothing is.
    fn settle(&mut self, net: &mut Net) {
        let dialled: Vec<_> =
            self.dialled.iter().map(|(connection, source)| (*connection, *source)).collect();
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for &(connection, source) in &dialled {
                while let Some(effect) = self.ends.get_mut(&source).and_then(|end| end.session.poll()) {
                    is_quiet = false;
                    self.perform(net, (connection, source), effect);
                }
            }
        }
        self.plan_wake(net);
    }

    fn plan_wake(&mut self, net: &mut Net) {
        let now = net.instant();
        let dealt = self.dealer.wake(net.now()).map(|at| now + at.saturating_sub(net.now()));
        let sessions = self.ends.values().filter_map(|end| end.session.next_wake());
        let Some(next) = sessions.chain(dealt).min() else { return };
        let next = next.max(now + Duration::from_millis(1));
        if self.wake_at.is_none_or(|at| next < at) {
            self.wake_at = Some(next);
            net.wake_at_instant(next);
        }
    }
}

impl SimNode for Drawing {
    fn start(&mut self, net: &mut Net) {
        let range = |tag| self.layout.range(tag);
        let wants = (0..self.layout.count()).map(|tag| WantedRange { tag, range: range(tag) }).collect();
        self.tell(net, DealerEvent::Wanted { wants, to_come: 0 });
        for (source, _) in &self.sources {
            self.dialled.insert(net.connect(*source), *source);
        }
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        let mut session = session(peer, false, net.instant());
        session.prove(&self.oid, &SECRET.prove(&BINDING, &node_of(net.host()), &self.oid));
        assert_eq!(self.dialled[&connection], peer);
        let has_all = self.sources.contains(&(peer, true));
        self.ends.insert(peer, Drawn { session, decoder: Decoder::default(), has_all, is_dealt: false });
        self.settle(net);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        let Some(end) = self.ends.get_mut(&self.dialled[&connection]) else { return };
        let incoming = end.decoder.decode(frame_of(&message), |header| end.session.expected(header));
        end.session.receive(net.instant(), incoming.expect("hosts keep to the protocol"));
        self.settle(net);
    }

    fn wake(&mut self, net: &mut Net) {
        let now = net.instant();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
        }
        for end in self.ends.values_mut() {
            if end.session.next_wake().is_some_and(|at| at <= now) {
                end.session.tick(now);
            }
        }
        self.tell(net, DealerEvent::Tick);
        self.settle(net);
    }
}
