//! Small files of a copy by two links, in simulated time: something befalls the second one after messages all over it. How many entries
//! each is asked for, when one is quiet, and the sessions are the real ones; see [`crate::simulated`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_protocol::session::Effect;
use towpath_protocol::wire::MAX_ENTRIES;
use towpath_simnet::{ConnectionId, Net, SimNode};
use towpath_transfer::Tag;
use towpath_transfer::offer::{EntryBody, EntryContent, EntryQuery, EntryWant};

use super::TICK;
use super::shares::{EntryShares, LinkKey};
use super::silence::LinkSilence;
use crate::simulated::{Blow, Conduct, Receiver, SimLink, WakePlan, entry_bytes, machines, service, sweep};

/// Files of the copy: some seconds of one link.
const FILES: u64 = 1500;
/// Of the links of a copy, which a person watches.
const CONDUCT: Conduct = Conduct { silence: Duration::from_secs(3), is_watched: true };

/// A link, and what it was asked for.
struct AskedLink {
    link: SimLink,
    /// Its key since it stands, and what is heard by it.
    joined: Option<(LinkKey, LinkSilence)>,
    /// Entries that it has not answered, by request.
    owed: BTreeMap<u32, BTreeSet<Tag>>,
}

impl AskedLink {
    fn new(number: usize) -> Self {
        Self { link: SimLink::new(number, CONDUCT), joined: None, owed: BTreeMap::new() }
    }

    fn key(&self) -> Option<LinkKey> {
        self.joined.as_ref().map(|(key, _)| *key)
    }

    /// Takes an entry out of what it owes; false if it does not owe that, or not any more.
    fn answers(&mut self, request: u32, tag: Tag) -> bool {
        self.owed.get_mut(&request).is_some_and(|owed| owed.remove(&tag))
    }
}

/// Who copies.
struct CopyReceiver {
    links: Vec<AskedLink>,
    next_key: LinkKey,
    shares: EntryShares,
    /// Entries that nobody is asked for.
    wanted: VecDeque<Tag>,
    came: BTreeSet<Tag>,
    query: Arc<EntryQuery>,
    wake: WakePlan,
}

impl CopyReceiver {
    fn new(links: usize) -> Self {
        Self {
            links: (0..links).map(AskedLink::new).collect(),
            next_key: 0,
            shares: EntryShares::default(),
            wanted: (0..FILES).collect(),
            came: BTreeSet::new(),
            query: Arc::new(EntryQuery { entry: 0, compare: false, inline: 4096, pack: 0, base: None }),
            wake: WakePlan::default(),
        }
    }

    /// Does what is to be done, until nothing is.
    fn settle(&mut self, net: &mut Net) {
        loop {
            self.links.iter_mut().for_each(|asked| asked.link.go_on(net));
            self.look(net.instant());
            self.deal(net.instant());
            let came: Vec<(usize, Vec<Effect>)> =
                self.links.iter_mut().enumerate().map(|(at, asked)| (at, asked.link.effects(net))).collect();
            self.leave();
            if came.iter().all(|(_, effects)| effects.is_empty()) {
                break;
            }
            for (at, effects) in came {
                effects.into_iter().for_each(|effect| self.take(net.instant(), at, effect));
            }
        }
        let next = net.instant() + TICK;
        self.wake.plan(net, next);
    }

    /// Links that are quiet while another one speaks owe nothing any more: others are asked.
    fn look(&mut self, now: Instant) {
        for asked in &mut self.links {
            let heard = asked.link.heard();
            asked.joined.iter_mut().for_each(|(_, silence)| silence.look(now, heard, true));
        }
        for at in 0..self.links.len() {
            if !self.is_outdone(at, now) {
                continue;
            }
            let asked = &mut self.links[at];
            let owed: Vec<(u32, BTreeSet<Tag>)> = std::mem::take(&mut asked.owed).into_iter().collect();
            let tags: Vec<Tag> = owed.iter().flat_map(|(_, tags)| tags.iter().copied()).collect();
            if let Some(session) = asked.link.session() {
                owed.iter().for_each(|(request, _)| session.give_up(*request));
            }
            if let Some(key) = asked.key().filter(|_| !tags.is_empty()) {
                self.shares.given_up(key, tags.len(), now);
            }
            self.wanted.extend(tags);
        }
    }

    fn is_outdone(&self, at: usize, now: Instant) -> bool {
        let Some((_, own)) = &self.links[at].joined else { return false };
        let mut others = self.links.iter().filter_map(|asked| asked.joined.as_ref());
        others.any(|(_, other)| own.is_outdone_by(other, now))
    }

    /// Asks for as many as the links have room for.
    fn deal(&mut self, now: Instant) {
        let best: Vec<(LinkKey, usize)> = (0..self.links.len())
            .filter(|&at| !self.is_outdone(at, now))
            .filter_map(|at| Some((self.links[at].key()?, at)))
            .collect();
        let keys: Vec<LinkKey> = best.iter().map(|(key, _)| *key).collect();
        for (key, share) in self.shares.deal(&keys, self.wanted.len(), now) {
            let tags: Vec<Tag> = self.wanted.drain(..share.min(self.wanted.len())).collect();
            let Some((_, at)) = best.iter().find(|(link, _)| *link == key) else { continue };
            let asked = &mut self.links[*at];
            let Some(session) = asked.link.session() else { continue };
            for tags in tags.chunks(MAX_ENTRIES) {
                let query = |entry| Arc::new(EntryQuery { entry, ..(*self.query).clone() });
                let wants: Vec<EntryWant> =
                    tags.iter().map(|&tag| EntryWant { tag, query: query(tag) }).collect();
                let request = session.get_entries(&wants);
                asked.owed.insert(request, tags.iter().copied().collect());
            }
        }
    }

    /// Links that were lost are gone. What they owed has ended as that of a lost connection.
    fn leave(&mut self) {
        for asked in self.links.iter_mut().filter(|asked| !asked.link.stands()) {
            asked.joined.take().into_iter().for_each(|(key, _)| self.shares.gone(key));
        }
    }

    fn take(&mut self, now: Instant, at: usize, effect: Effect) {
        match effect {
            Effect::Contents { request, contents, cost, .. } => {
                let mut count = 0;
                for (tag, content) in contents {
                    count += usize::from(self.content((at, request), tag, &content));
                }
                let asked = &mut self.links[at];
                asked.link.useful();
                asked.link.session().into_iter().for_each(|session| session.took(cost));
                asked.key().into_iter().for_each(|key| self.shares.answered(key, count, now));
            }
            Effect::Outcome { request, tag, .. } if self.links[at].answers(request, tag) => {
                self.links[at].key().into_iter().for_each(|key| self.shares.answered(key, 1, now));
                self.wanted.push_back(tag);
            }
            Effect::Ended { request, .. } => drop(self.links[at].owed.remove(&request)),
            _ => {}
        }
    }

    /// Takes a content; false if nobody waits for it any more.
    fn content(&mut self, (at, request): (usize, u32), tag: Tag, content: &EntryContent) -> bool {
        let is_awaited = self.links[at].answers(request, tag);
        if is_awaited {
            assert_eq!(content.body, EntryBody::Whole(entry_bytes(tag)), "entry {tag}");
            assert!(self.came.insert(tag), "entry {tag} came twice");
        }
        is_awaited
    }
}

impl SimNode for CopyReceiver {
    fn start(&mut self, net: &mut Net) {
        self.settle(net);
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, _: usize) {
        for asked in &mut self.links {
            if asked.link.opened(net, connection) {
                asked.joined = Some((self.next_key, LinkSilence::default()));
                self.next_key += 1;
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
        self.settle(net);
    }
}

impl Receiver for CopyReceiver {
    fn arrived(&self) -> u64 {
        self.came.len() as u64
    }

    fn size(&self) -> u64 {
        FILES
    }

    /// Each was looked at when it came.
    fn assert_right(&self, what: &str) {
        assert!(self.came.iter().all(|tag| *tag < FILES), "{what}: entries that nobody offered");
    }
}

/// Checks that it takes no more than so many milliseconds longer. Nothing is asked of two links: what one owes that became slow or late is
/// waited for, at the end, too.
fn copy_swept(blow: Blow, most: u64) {
    let (service, _) = service(b"nothing is fetched by its name");
    let longer = sweep(|links| machines(CONDUCT, &service, CopyReceiver::new(links)), blow);
    assert!(longer <= Duration::from_millis(most), "{blow:?}: {longer:?}");
}

#[test]
fn a_copy_outlives_a_cut_of_one_of_two_links_behind_any_message() {
    copy_swept(Blow::Cut, 1200);
}

#[test]
fn a_copy_outlives_a_link_that_is_cut_behind_any_message_and_comes_back_soon() {
    copy_swept(Blow::CutFor(Duration::from_millis(700)), 1200);
}

#[test]
fn a_copy_outlives_a_link_that_is_cut_behind_any_message_and_comes_back_late() {
    copy_swept(Blow::CutFor(Duration::from_secs(4)), 1200);
}

#[test]
fn a_link_that_only_delays_holds_no_copy_up() {
    copy_swept(Blow::Delays(Duration::from_secs(2)), 3000);
}

#[test]
fn a_link_that_falls_to_a_tenth_holds_no_copy_up() {
    copy_swept(Blow::Slows(800_000), 8000);
}
