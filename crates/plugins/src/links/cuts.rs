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
use super::answers::AwaitedAnswers;
use super::shares::{AskNumber, EntryShares, LateEntries, LinkKey};
use super::silence::LinkSilence;
use crate::simulated::{Conduct, ENTRY, Receiver, SimLink, WakePlan, entry_bytes, machines, service, sweep};

/// Files of the copy: some seconds of one link.
const FILES: u64 = 1500;
/// Of the links of a copy, which a person watches.
const CONDUCT: Conduct = Conduct { silence: Duration::from_secs(3), is_watched: true };

/// A link, and what it was asked for.
struct AskedLink {
    link: SimLink,
    /// Its key since it stands, and what is heard by it.
    joined: Option<(LinkKey, LinkSilence)>,
    /// Entries that it has not answered, by request, with the numbers of the questions.
    owed: BTreeMap<u32, BTreeMap<Tag, AskNumber>>,
}

impl AskedLink {
    fn new(number: usize) -> Self {
        Self { link: SimLink::new(number, CONDUCT), joined: None, owed: BTreeMap::new() }
    }

    fn key(&self) -> Option<LinkKey> {
        self.joined.as_ref().map(|(key, _)| *key)
    }

    /// Takes an entry out of what it owes, if it still owes that.
    fn answers(&mut self, request: u32, tag: Tag) -> Option<AskNumber> {
        self.owed.get_mut(&request)?.remove(&tag)
    }

    /// Asks for entries by questions with these numbers.
    fn ask(&mut self, tags: &[Tag], numbers: impl Iterator<Item = AskNumber>, query: &EntryQuery) {
        let Some(session) = self.link.session() else { return };
        let asked: Vec<(Tag, AskNumber)> = tags.iter().copied().zip(numbers).collect();
        for asked in asked.chunks(MAX_ENTRIES) {
            let query = |entry| Arc::new(EntryQuery { entry, ..query.clone() });
            let wants: Vec<EntryWant> =
                asked.iter().map(|&(tag, _)| EntryWant { tag, query: query(tag) }).collect();
            let request = session.get_entries(&wants);
            self.owed.insert(request, asked.iter().copied().collect());
        }
    }
}

/// Who copies.
struct CopyReceiver {
    links: Vec<AskedLink>,
    next_key: LinkKey,
    shares: EntryShares,
    /// Entries that nobody is asked for.
    wanted: VecDeque<Tag>,
    awaited: AwaitedAnswers,
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
            awaited: AwaitedAnswers::default(),
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
            self.lend(net.instant());
            self.let_go();
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
            let owed = std::mem::take(&mut asked.owed);
            if let Some(session) = asked.link.session() {
                owed.keys().for_each(|request| session.give_up(*request));
            }
            let owed: Vec<(Tag, AskNumber)> = owed.into_values().flatten().collect();
            let numbers: Vec<AskNumber> = owed.iter().map(|(_, number)| *number).collect();
            if let Some(key) = asked.key().filter(|_| !numbers.is_empty()) {
                self.shares.given_up(key, &numbers, now);
            }
            let ended = owed.into_iter().filter(|(tag, _)| self.awaited.not_answered(*tag));
            self.wanted.extend(ended.map(|(tag, _)| tag));
        }
    }

    fn is_outdone(&self, at: usize, now: Instant) -> bool {
        let Some((_, own)) = &self.links[at].joined else { return false };
        let mut others = self.links.iter().filter_map(|asked| asked.joined.as_ref());
        others.any(|(_, other)| own.is_outdone_by(other, now))
    }

    /// The links that may be asked, with their places.
    fn best(&self, now: Instant) -> Vec<(LinkKey, usize)> {
        let places = (0..self.links.len()).filter(|&at| !self.is_outdone(at, now));
        places.filter_map(|at| Some((self.links[at].key()?, at))).collect()
    }

    /// Asks for as many as the links have room for.
    fn deal(&mut self, now: Instant) {
        let best = self.best(now);
        let keys: Vec<LinkKey> = best.iter().map(|(key, _)| *key).collect();
        for (key, numbers) in self.shares.deal(&keys, self.wanted.len(), now) {
            let tags: Vec<Tag> = self.wanted.drain(..numbers.clone().count()).collect();
            let Some((_, at)) = best.iter().find(|(link, _)| *link == key) else { continue };
            tags.iter().for_each(|tag| self.awaited.asked(*tag));
            self.links[*at].ask(&tags, numbers, &self.query);
        }
    }

    /// What a link owes and the other one would answer sooner is asked of that one, too, once nothing else is to be asked for.
    fn lend(&mut self, now: Instant) {
        let best = self.best(now);
        let keys: Vec<LinkKey> = best.iter().map(|(key, _)| *key).collect();
        for at in 0..self.links.len() {
            let Some(key) = self.links[at].key().filter(|_| self.wanted.is_empty()) else { continue };
            let Some(LateEntries { from, sooner }) = self.shares.late(key, &keys, now) else { continue };
            let owed = self.links[at].owed.values().flatten();
            let late = owed.filter(|(tag, number)| **number >= from && self.awaited.is_lone(**tag));
            let (tags, numbers): (Vec<Tag>, Vec<AskNumber>) =
                late.map(|(tag, number)| (*tag, *number)).unzip();
            let numbers = self.shares.lend(&numbers, (key, sooner), now);
            tags.iter().for_each(|tag| self.awaited.asked(*tag));
            let to = best.iter().find(|(link, _)| *link == sooner).map(|(_, at)| *at);
            to.into_iter().for_each(|to| self.links[to].ask(&tags, numbers.clone(), &self.query));
        }
    }

    /// Requests whose entries others have answered are given up.
    fn let_go(&mut self) {
        for asked in &mut self.links {
            let key = asked.key();
            let is_needless = |owed: &BTreeMap<Tag, AskNumber>| {
                !owed.is_empty() && !owed.keys().any(|tag| self.awaited.awaits(*tag))
            };
            let needless: Vec<(u32, BTreeMap<Tag, AskNumber>)> =
                asked.owed.extract_if(.., |_, owed| is_needless(owed)).collect();
            for (request, owed) in needless {
                asked.link.session().into_iter().for_each(|session| session.give_up(request));
                let numbers: Vec<AskNumber> = owed.into_values().collect();
                key.into_iter().for_each(|key| self.shares.not_answered(key, &numbers));
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
                let mut numbers = Vec::new();
                for (tag, content) in contents {
                    numbers.extend(self.links[at].answers(request, tag));
                    self.content(tag, &content);
                }
                let asked = &mut self.links[at];
                asked.link.useful();
                asked.link.session().into_iter().for_each(|session| session.took(cost));
                asked.key().into_iter().for_each(|key| self.shares.answered(key, &numbers, now));
            }
            Effect::Outcome { request, tag, .. } => {
                let Some(number) = self.links[at].answers(request, tag) else { return };
                self.links[at].key().into_iter().for_each(|key| self.shares.answered(key, &[number], now));
                self.wanted.extend(self.awaited.not_answered(tag).then_some(tag));
            }
            Effect::Ended { request, .. } => drop(self.links[at].owed.remove(&request)),
            _ => {}
        }
    }

    /// Takes a content; one that nobody waits for any more is nobody's.
    fn content(&mut self, tag: Tag, content: &EntryContent) {
        assert_eq!(content.body, EntryBody::Whole(entry_bytes(tag)), "entry {tag}");
        if self.awaited.answered(tag) {
            assert!(self.came.insert(tag), "entry {tag} was taken twice");
        }
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
        (self.came.len() * ENTRY) as u64
    }

    fn size(&self) -> u64 {
        FILES * ENTRY as u64
    }

    fn heard(&self) -> u64 {
        self.links.iter().map(|asked| asked.link.heard()).sum()
    }
}

/// The first link is asked for what the second one owes. What was under way by one that comes back, or that is late, comes as well: it is
/// asked for a second.
#[test]
fn small_files_of_a_copy_bear_what_befalls_one_of_two_links_behind_any_message() {
    let (service, _) = service(&[b"nothing is fetched by its name"]);
    let nodes = |links| machines(CONDUCT, &service, CopyReceiver::new(links));
    sweep("small files of a copy", nodes, Duration::from_millis(20), [105, 138, 105, 138, 105]);
}
