//! A get by two links, of an object and of small files, in simulated time: something befalls the second one after messages all over it. The table, the dealer in it, the
//! ledger and the sessions are the real ones; see [`crate::simulated`].

use std::collections::BTreeMap;

use towpath_content::pieces::Layout;
use towpath_protocol::requests::GetRequest;
use towpath_protocol::session::{Effect, Question};
use towpath_protocol::wire::{Describe, oid_field};
use towpath_simnet::{ConnectionId, Net, SimNode};
use towpath_transfer::ledger::{Ledger, LedgerConfig, WantResult};
use towpath_transfer::source::{Backlog, NETWORK_PRICE, UNREACHED_PRICE};
use towpath_transfer::{Delivery, ObjectOffset, WantId};

use super::*;
use crate::simulated::{
    BINDING, Conduct, RECEIVER, Receiver, SECRET, SimLink, WakePlan, entry_bytes, machines, service, sweep,
};

/// Bytes of the object.
const SIZE: usize = 6 << 20;
/// Small files: some seconds of one link.
const FILES: u64 = 1500;
/// Bytes that a link likes to have under way, as its sender would say at this rate.
const WINDOW: u64 = 512 << 10;
/// Wants that are handed over at a time.
const BATCH: usize = 16;
/// Time for which wants are left alone after a connection was lost, and time within which one stands, mostly: as in `direct`.
const PAUSE: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_millis(150);
/// Time that a source has to answer what the object is before the next one is asked, too: as in `describing`.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of peers that nobody watches.
const CONDUCT: Conduct = Conduct { silence: Duration::from_secs(20), is_watched: false };

/// A link, as the table knows it: what it tells of itself.
struct ToldSource {
    name: String,
    price: Mutex<u32>,
}

impl Source for ToldSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> SourceState {
        SourceState { price: *lock(&self.price), ..SourceState::of_window(WINDOW) }
    }

    fn describe<'a>(
        &'a self,
        _: Query,
        _: &'a Context,
        _: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        unreachable!("the receiver asks")
    }

    fn get<'a>(&'a self, _: Vec<Want>, _: &'a Context, _: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        unreachable!("the receiver asks")
    }
}

/// Wants that nobody brings.
#[derive(Default)]
struct EndedWants(Mutex<Vec<(Tag, Outcome)>>);

impl Sink for EndedWants {
    fn deliver(&self, _: Delivery) -> BoxFuture<'_, ()> {
        unreachable!("the receiver takes what comes")
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        lock(&self.0).push((tag, outcome));
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

/// A link, and what it was asked for.
struct AskedLink {
    link: SimLink,
    source: Arc<ToldSource>,
    /// Its number in the table.
    number: u32,
    /// Wants that it has not ended, with their bytes.
    owed: BTreeMap<Tag, u64>,
    /// Those of which nobody could be asked yet.
    unasked: Vec<Want>,
    question: Option<u32>,
}

/// Objects to get: the root, and what is known of others once it is described.
struct WantedObjects {
    oids: Vec<Oid>,
    contents: Vec<Vec<u8>>,
    /// Bytes of all.
    size: u64,
}

/// Who gets the objects.
struct GetReceiver {
    links: Vec<AskedLink>,
    table: SourceTable,
    ledger: Option<Ledger>,
    ended: Arc<EndedWants>,
    wanted: Arc<WantedObjects>,
    /// Bytes that are here.
    arrived: u64,
    asked_since: Option<Instant>,
    wake: WakePlan,
}

impl GetReceiver {
    fn new(links: usize, wanted: &Arc<WantedObjects>) -> Self {
        let mut table = SourceTable::new(1);
        let links = (0..links).map(|number| {
            let source = Arc::new(ToldSource { name: number.to_string(), price: Mutex::new(NETWORK_PRICE) });
            let number = table.add(Duration::ZERO, Arc::clone(&source) as Arc<dyn Source>, None);
            let link = SimLink::new(number as usize - 1, CONDUCT);
            AskedLink { link, source, number, owed: BTreeMap::new(), unasked: Vec::new(), question: None }
        });
        Self {
            links: links.collect(),
            table,
            ledger: None,
            ended: Arc::default(),
            wanted: Arc::clone(wanted),
            arrived: 0,
            asked_since: None,
            wake: WakePlan::default(),
        }
    }

    /// Does what is to be done, until nothing is.
    fn settle(&mut self, net: &mut Net) {
        loop {
            self.open(net);
            self.ask_what_it_is(net);
            self.hand_out(net);
            let is_quiet = !self.perform(net);
            let came: Vec<(usize, Vec<Effect>)> =
                self.links.iter_mut().enumerate().map(|(at, asked)| (at, asked.link.effects(net))).collect();
            if is_quiet && came.iter().all(|(_, effects)| effects.is_empty()) {
                break;
            }
            came.into_iter()
                .for_each(|(at, effects)| effects.into_iter().for_each(|it| self.take(net, at, it)));
        }
        let next = net.instant() + TICK;
        self.wake.plan(net, next);
    }

    /// Dials, and notes what each link tells of itself.
    fn open(&mut self, net: &mut Net) {
        for asked in &mut self.links {
            asked.link.go_on(net);
            let is_late = asked.link.lost_for(net.instant()) > LATE;
            *lock(&asked.source.price) = if is_late { UNREACHED_PRICE } else { NETWORK_PRICE };
        }
    }

    /// Asks the first link that stands, and after a moment the other one.
    fn ask_what_it_is(&mut self, net: &Net) {
        let now = net.instant();
        for asked in &mut self.links {
            let is_time = self.asked_since.is_none_or(|since| now >= since + PATIENCE);
            if self.ledger.is_some() || asked.question.is_some() || !is_time {
                continue;
            }
            let Some(session) = asked.link.session() else { continue };
            let root = oid_field(&self.wanted.oids[0]);
            let question = Describe { root: root.clone(), oid: root, ..Describe::default() };
            asked.question = Some(session.ask(Question::Describe(question)));
            self.asked_since = Some(now);
        }
    }

    /// Hands wants to the table, as the session does: as many as all links like to have under way, and some that wait.
    fn hand_out(&mut self, net: &Net) {
        let Some(ledger) = &mut self.ledger else { return };
        let window = with_spare(self.table.window().unwrap_or(FIRST_WINDOW));
        loop {
            let room = window.saturating_sub(ledger.requested().all);
            let wants = if room > 0 { ledger.next_batch(room, BATCH, net.instant()) } else { Vec::new() };
            if wants.is_empty() {
                return;
            }
            self.table.want(net.now(), &self.wanted.oids[0], wants, Arc::clone(&self.ended) as Arc<dyn Sink>);
        }
    }

    /// Does what the table wants done, and asks; false if there was nothing.
    fn perform(&mut self, net: &Net) -> bool {
        let (orders, now) = (self.table.take_orders(), net.instant());
        let is_any = !orders.is_empty();
        for order in orders {
            match order {
                SourceOrder::Ask { number, wants, .. } => {
                    let asked = &mut self.links[number as usize - 1];
                    asked.owed.extend(wants.iter().map(|want| (want.tag, want.missing_len())));
                    asked.unasked.extend(wants);
                }
                SourceOrder::Cancel { source, tags } => self.cancel(net, source.name(), &tags),
                SourceOrder::End { awaited, tag, outcome } => awaited.end(tag, outcome),
                SourceOrder::Open { .. } | SourceOrder::Close { .. } => {
                    panic!("no link comes or goes for good")
                }
            }
        }
        for at in 0..self.links.len() {
            let asked = &mut self.links[at];
            let waits = asked.link.waits(now);
            match (asked.link.session(), waits) {
                (Some(session), _) if !asked.unasked.is_empty() => {
                    let wants = std::mem::take(&mut asked.unasked);
                    session.get(now, GetRequest::new(&self.wanted.oids[0], wants, false));
                }
                (None, Some(wait)) => {
                    let wants = std::mem::take(&mut asked.unasked);
                    wants
                        .iter()
                        .for_each(|want| self.not_brought(net, at, want.tag, Outcome::RetryLater(wait)));
                }
                _ => {}
            }
        }
        let ended = std::mem::take(&mut *lock(&self.ended.0));
        for (tag, outcome) in ended {
            let result = self.ledger.as_mut().map(|ledger| ledger.ended(tag, &outcome, now));
            assert!(!matches!(result, Some(WantResult::Failed(_))), "{outcome:?}");
        }
        is_any
    }

    fn cancel(&mut self, net: &Net, name: &str, tags: &[Tag]) {
        let Some(at) = self.links.iter().position(|asked| asked.source.name == name) else { return };
        let asked = &mut self.links[at];
        let unasked = std::mem::take(&mut asked.unasked).into_iter();
        let (cancelled, left): (Vec<Want>, Vec<Want>) = unasked.partition(|want| tags.contains(&want.tag));
        asked.unasked = left;
        asked.link.session().into_iter().for_each(|session| session.cancel(0, tags));
        cancelled.iter().for_each(|want| self.not_brought(net, at, want.tag, Outcome::Cancelled));
    }

    fn not_brought(&mut self, net: &Net, at: usize, tag: Tag, outcome: Outcome) {
        let asked = &mut self.links[at];
        let Some(len) = asked.owed.remove(&tag) else { return };
        let outcome = match outcome {
            Outcome::RetryLater(delay) => Outcome::RetryLater(delay.max(PAUSE)),
            other => other,
        };
        self.table.not_brought(net.now(), asked.number, tag, len, outcome);
    }

    fn take(&mut self, net: &Net, at: usize, effect: Effect) {
        match effect {
            Effect::Delivery { delivery, .. } => self.delivered(net, at, delivery),
            Effect::Outcome { tag, outcome, .. } => self.not_brought(net, at, tag, outcome),
            Effect::Answer { answer: Description::Object { .. }, .. } => self.described(net.instant()),
            Effect::Ended { request, .. } if self.links[at].question == Some(request) => {
                self.links[at].question = None;
                // Whoever said nothing has had its turn.
                self.asked_since = None;
            }
            _ => {}
        }
    }

    /// The root is there, so its parts and its files can be asked for.
    fn described(&mut self, now: Instant) {
        let WantedObjects { oids, contents, .. } = &*self.wanted;
        self.ledger.get_or_insert_with(|| {
            let (mut ledger, group) = (Ledger::new(LedgerConfig::default(), now), Arc::default());
            for (object, (&oid, content)) in (0..).zip(oids.iter().zip(contents)) {
                let layout = Layout::of(content.len() as u64).unwrap();
                for index in 0..layout.count() {
                    let place = ObjectOffset { object, offset: layout.range(index).start };
                    ledger.add(WantId::Piece { oid, layout, index }, place, &group, now);
                }
            }
            ledger
        });
    }

    fn delivered(&mut self, net: &Net, at: usize, delivery: Delivery) {
        let asked = &mut self.links[at];
        let Some(len) = asked.owed.remove(&delivery.tag) else { return };
        asked.link.useful();
        let Some((awaited, delivery)) = self.table.arrived(net.now(), asked.number, delivery, len) else {
            return;
        };
        let ledger = self.ledger.as_mut().unwrap();
        if let Some(want) = ledger.delivered(delivery.tag).cloned() {
            let ObjectOffset { object, offset } = want.positions[0];
            let content = &self.wanted.contents[object as usize][offset as usize..];
            let bytes = delivery.payload.to_bytes(want.id.len());
            assert!(bytes[..] == content[..bytes.len()], "wrong bytes at {offset} of {object}");
            self.arrived += ledger.done(want.tag, &want.positions, net.instant()).fresh;
        }
        awaited.call.one_ended();
    }
}

impl SimNode for GetReceiver {
    fn start(&mut self, net: &mut Net) {
        self.settle(net);
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, _: usize) {
        for asked in &mut self.links {
            if asked.link.opened(net, connection)
                && let Some(session) = asked.link.session()
            {
                let root = &self.wanted.oids[0];
                session.prove(root, &SECRET.prove(&BINDING, &RECEIVER, root));
            }
        }
        self.settle(net);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        self.links.iter_mut().for_each(|asked| asked.link.receive(net, connection, &message));
        self.settle(net);
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        self.links.iter_mut().for_each(|asked| asked.link.closed(connection));
        self.settle(net);
    }

    fn wake(&mut self, net: &mut Net) {
        let now = net.instant();
        self.wake.woken(now);
        self.links.iter_mut().for_each(|asked| asked.link.tick(now));
        self.table.tick(net.now());
        self.settle(net);
    }
}

impl Receiver for GetReceiver {
    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn size(&self) -> u64 {
        self.wanted.size
    }

    fn heard(&self) -> u64 {
        self.links.iter().map(|asked| asked.link.heard()).sum()
    }
}

fn get_swept(name: &str, contents: Vec<Vec<u8>>, later: Duration, bytes: [u64; 5]) {
    let (service, oids) = service(&contents);
    let size = contents.iter().map(|content| content.len() as u64).sum();
    let wanted = Arc::new(WantedObjects { oids, contents, size });
    let nodes = |links| machines(CONDUCT, &service, GetReceiver::new(links, &wanted));
    sweep(name, nodes, later, bytes);
}

#[test]
fn a_get_bears_what_befalls_one_of_two_links_behind_any_message() {
    let content = towpath_store::doubles::noise(7, SIZE);
    get_swept("a get", vec![content], Duration::from_millis(300), [102, 106, 110, 110, 102]);
}

#[test]
fn small_files_of_a_get_bear_what_befalls_one_of_two_links_behind_any_message() {
    let file = |entry| entry_bytes(entry).to_vec();
    let files = (0..FILES).map(file).collect();
    get_swept("small files of a get", files, Duration::from_millis(50), [104; 5]);
}
