//! Further ways to a service: other addresses that it has, and other lines of this machine. Each becomes a source of its own while a
//! transfer runs, one after the other, and stays if all sources together become faster by it.
//!
//! Most machines have several addresses that lead to one line. So nothing is tried before the rate is steady, addresses of other
//! networks than those in use come first, and only those of the kind by which the service was reached first: IPv4 and IPv6 mostly
//! share a line. Other lines of this machine ([`other_ends`]) come after them: most addresses are cheap to try, and a line may be
//! one that its owner would rather keep. What shares a line all the same shows: the sum stays as it was.
//!
//! The choice and the judgement are pure.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_link::Identity;
use towpath_link::tcp::{LocalEnd, other_ends};
use towpath_store::About;
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Metadata, Outcome, Source, Want};

use super::client::{Direct, DirectConfig, dialled_addresses};
use super::pool::PeerHost;

/// Time for which the first address is alone: a short transfer tries nothing.
const ALONE: Duration = Duration::from_millis(1500);
/// A rate is measured over so long.
const PERIOD: Duration = Duration::from_millis(700);
/// Time for connecting, and until a new connection is as fast as it becomes.
const SETTLING: Duration = Duration::from_millis(1000);
/// A rate that differs by no more than this from the one before is steady.
const STEADY: f64 = 1.15;
/// Periods after which it is given up that the rate becomes steady.
const LOOKS: usize = 8;
/// Periods in which an address may show that it adds something.
const CHANCES: usize = 3;
/// An address adds something if all together bring so much of its own rate more, ...
const ADDS: f64 = 0.3;
/// ... and it has so much of the whole at least.
const LEAST_SHARE: f64 = 0.03;
/// Those that were in vain are tried again after so long, and then after twice that, ...
const FIRST_REST: Duration = Duration::from_secs(30);
/// ... but no later than after this.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// Interval at which it is looked whether the first connection stands.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells the address by which a service is reached: none before it is, or while nothing should be tried beside that way.
pub type LedTo = Arc<dyn Fn() -> Option<SocketAddr> + Send + Sync>;

/// See the head of this module.
pub(crate) struct FurtherWays {
    /// The source that is there from the start, and where it led.
    pub(crate) first: Arc<dyn Source>,
    pub(crate) led: LedTo,
    /// How others are like it.
    pub(crate) config: DirectConfig,
    pub(crate) identity: Identity,
    pub(crate) host: Option<Arc<dyn PeerHost>>,
    pub(crate) most: MostWays,
    /// What is fetched has a root that sources can be asked about. A copy has none.
    pub(crate) has_root: bool,
}

/// Ways that are in use at once, the first one included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MostWays {
    /// Addresses of the service.
    pub(crate) addresses: usize,
    /// Lines of this machine.
    pub(crate) links: usize,
}

impl MostWays {
    /// Together.
    pub(crate) const fn all(self) -> usize {
        (self.addresses + self.links).saturating_sub(1)
    }
}

/// A way to a service: to this address, by this line of the machine or the one that the system chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FurtherWay {
    to: SocketAddr,
    from: Option<LocalEnd>,
}

/// A source by such a way.
struct WaySource {
    way: FurtherWay,
    source: Arc<Direct>,
}

impl FurtherWays {
    /// The address by which the service was reached first, a while after that.
    async fn first_address(&self) -> SocketAddr {
        loop {
            match (self.led)() {
                None => tokio::time::sleep(LOOK_EVERY).await,
                Some(_) => {
                    tokio::time::sleep(ALONE).await;
                    if let Some(address) = (self.led)() {
                        return address;
                    }
                }
            }
        }
    }

    fn source(&self, way: FurtherWay) -> WaySource {
        let config = config_of(&way, self.config.clone(), self.most);
        let source = Arc::new(Direct::new(self.identity.clone(), config, self.host.clone()));
        WaySource { way, source }
    }

    /// Bytes a second of the first source and these, in a period that begins now.
    async fn rate(&self, others: &[WaySource]) -> f64 {
        let others = || others.iter().map(|other| other.source.state());
        let arrived = || others().chain([self.first.state()]).map(|state| state.path.arrived).sum::<u64>();
        let (begin, before) = (Instant::now(), arrived());
        tokio::time::sleep(PERIOD).await;
        arrived().saturating_sub(before) as f64 / begin.elapsed().as_secs_f64()
    }

    /// The rate, once it is steady; `None` if it does not become so, or nothing comes.
    async fn steady_rate(&self, others: &[WaySource]) -> Option<f64> {
        let mut before = self.rate(others).await;
        for _ in 0..LOOKS {
            let now = self.rate(others).await;
            if is_steady(before, now) {
                return Some(before.max(now));
            }
            before = now;
        }
        None
    }

    /// Tries one more source where so much came before, which stays among `kept` if it is worth it.
    async fn try_one(
        &self,
        (key, way, before): (u64, FurtherWay, f64),
        kept: &mut Vec<WaySource>,
        changes: &mpsc::Sender<SourceChange>,
    ) {
        let tried = self.source(way.clone());
        let direct = Arc::clone(&tried.source);
        let source: Arc<dyn Source> = if self.has_root { direct } else { Arc::new(RootlessWay(direct)) };
        if changes.send(SourceChange::Added { key, source, priority: 0, weight: 0 }).await.is_err() {
            return;
        }
        kept.push(tried);
        tokio::time::sleep(SETTLING).await;
        for _ in 0..CHANCES {
            let own = || kept.last().map_or(0, |last| last.source.state().path.arrived);
            let (begin, own_before) = (Instant::now(), own());
            let with = self.rate(kept).await;
            let own = own().saturating_sub(own_before) as f64 / begin.elapsed().as_secs_f64();
            tracing::debug!(?way, before, with, own, "a further way was measured");
            if is_worth_it(before, with, own) {
                return;
            }
        }
        kept.pop();
        let _ = changes.send(SourceChange::Removed(key)).await;
    }
}

impl Finder for FurtherWays {
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let _ = changes.send(SourceChange::Looked).await;
            let first = self.first_address().await;
            let (mut kept, mut key): (Vec<WaySource>, u64) = (Vec::new(), 0);
            let (mut tried, mut hints) = (TriedWays::default(), context.hints.clone());
            while kept.len() + 1 < self.most.all() && !changes.is_closed() {
                let named = dialled_addresses(context).await;
                let used = used_ways(first, &kept);
                if let Some(way) = next_way(&named, &used, &tried.ways, self.most, other_ends) {
                    let Some(before) = tried.take(&way, self.steady_rate(&kept).await) else { continue };
                    key += 1;
                    self.try_one((key, way, before), &mut kept, &changes).await;
                    continue;
                }
                tokio::select! {
                    () = tokio::time::sleep(tried.rest) => tried.rested(),
                    Ok(()) = hints.changed() => {}
                }
            }
        })
    }
}

/// A way to the other side of a copy. Once that is reached there is no root that it could be asked about.
struct RootlessWay(Arc<Direct>);

impl Source for RootlessWay {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.0)
    }

    fn state(&self) -> SourceState {
        self.0.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            if query.oid != context.root {
                return self.0.describe(query, context, answers).await;
            }
            self.0.reach(context).await?;
            let (about, metadata) = (About::default(), Metadata::default());
            let _ = answers.send(Description::Object { about, layout: None, metadata }).await;
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.0.get(wants, context, sink)
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        match oid == context.root {
            true => Box::pin(std::future::ready(())),
            false => self.0.have(oid, context, ranges),
        }
    }
}

/// The ways in use, the first one first.
fn used_ways(first: SocketAddr, kept: &[WaySource]) -> Vec<FurtherWay> {
    let first = FurtherWay { to: first, from: None };
    std::iter::once(first).chain(kept.iter().map(|kept| kept.way.clone())).collect()
}

/// Ways that were tried, until they have rested: pure.
struct TriedWays {
    ways: Vec<FurtherWay>,
    /// Time after which all are tried again.
    rest: Duration,
}

impl Default for TriedWays {
    fn default() -> Self {
        Self { ways: Vec::new(), rest: FIRST_REST }
    }
}

impl TriedWays {
    /// This one is tried, if there is a steady rate to compare with, which is returned. Else it remains to be tried.
    fn take(&mut self, way: &FurtherWay, steady: Option<f64>) -> Option<f64> {
        self.ways.extend(steady.map(|_| way.clone()));
        steady
    }

    /// The time is over. The next one is longer.
    fn rested(&mut self) {
        self.ways.clear();
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }
}

/// A source by a further way, one of at most so many, is configured as the first one. All together stay below what a sender allows
/// one node.
fn config_of(way: &FurtherWay, first: DirectConfig, most: MostWays) -> DirectConfig {
    let mut config = DirectConfig { only: Some(way.to), connections: 1, ..first };
    config.most_connections = (config.most_connections / most.all().max(1)).max(1);
    config.peer.way = Some(way.from.as_ref().map_or_else(|| way.to.ip().to_string(), LocalEnd::to_string));
    config.dial.from = way.from.clone();
    config
}

/// The next way to try, as there may be so many: an address of the service, else a line of this machine. `ends` tells by which other ones
/// an address may be reached, beside those by which the system reaches some, and some that are named.
fn next_way(
    named: &[SocketAddr],
    used: &[FurtherWay],
    tried: &[FurtherWay],
    most: MostWays,
    ends: impl Fn(SocketAddr, &[SocketAddr], &[LocalEnd]) -> Vec<LocalEnd>,
) -> Option<FurtherWay> {
    let by_system = |way: &&FurtherWay| way.from.is_none();
    let addresses = |ways: &[FurtherWay]| ways.iter().filter(by_system).map(|way| way.to).collect::<Vec<_>>();
    let (reached, given_up) = (addresses(used), addresses(tried));
    if reached.len() < most.addresses
        && let Some(to) = next_address(named, &reached, &given_up)
    {
        return Some(FurtherWay { to, from: None });
    }
    let own: Vec<LocalEnd> = used.iter().filter_map(|way| way.from.clone()).collect();
    if own.len() + 1 >= most.links {
        return None;
    }
    // The first address is one at which it was reached.
    let to = reached.first().into_iter().chain(named.iter().filter(|to| !reached.contains(to)));
    let ways = to.flat_map(|to| {
        let from = ends(*to, &reached, &own).into_iter();
        from.map(|from| FurtherWay { to: *to, from: Some(from) })
    });
    let is_new = |way: &FurtherWay| !tried.iter().any(|tried| tried.from == way.from);
    { ways }.find(is_new)
}

/// The next address to try: of the kind of the first one in use, and neither in use nor tried yet. Those in other networks than any
/// in use come first.
fn next_address(named: &[SocketAddr], used: &[SocketAddr], tried: &[SocketAddr]) -> Option<SocketAddr> {
    let first = used.first()?;
    let fits = |address: &&SocketAddr| {
        let (ip, first) = (address.ip(), first.ip());
        let is_alike = ip.is_ipv4() == first.is_ipv4() && ip.is_loopback() == first.is_loopback();
        is_alike && !used.contains(address) && !tried.contains(address)
    };
    let is_near = |address: &&SocketAddr| used.iter().any(|used| network(used.ip()) == network(address.ip()));
    named.iter().filter(fits).min_by_key(is_near).copied()
}

/// The network of an address, as small ones are: two addresses of one are mostly on one line.
const fn network(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => (ip.to_bits() >> 8) as u128,
        IpAddr::V6(ip) => ip.to_bits() >> 64,
    }
}

/// True if a rate is what it was.
fn is_steady(before: f64, now: f64) -> bool {
    now > 0.0 && now <= before * STEADY && before <= now * STEADY
}

/// True if an address that brings `own` of what comes `with` it is worth it, where so much came `before`.
fn is_worth_it(before: f64, with: f64, own: f64) -> bool {
    own >= with * LEAST_SHARE && with - before >= own * ADDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_of_the_same_kind_are_tried_one_by_one_and_other_networks_first() {
        let named = at(&[
            "192.0.2.1:7",
            "192.0.2.9:7",
            "[2001:db8::1]:7",
            "127.0.0.1:7",
            "198.51.100.1:7",
            "203.0.113.1:7",
        ]);
        let next = |used: &[&str], tried: &[&str]| next_address(&named, &at(used), &at(tried));
        let one = |text: &str| Some(text.parse().unwrap());
        assert_eq!(next(&["192.0.2.1:7"], &[]), one("198.51.100.1:7"));
        assert_eq!(next(&["192.0.2.1:7"], &["198.51.100.1:7"]), one("203.0.113.1:7"));
        assert_eq!(next(&["192.0.2.1:7", "198.51.100.1:7"], &[]), one("203.0.113.1:7"));
        let near = next(&["192.0.2.1:7", "198.51.100.1:7"], &["203.0.113.1:7"]);
        assert_eq!(near, one("192.0.2.9:7"));
        assert_eq!(next(&["192.0.2.1:7", "198.51.100.1:7"], &["203.0.113.1:7", "192.0.2.9:7"]), None);
        assert_eq!(next(&["203.0.113.1:7"], &[]), one("192.0.2.1:7"));
        assert_eq!(next(&["[2001:db8::1]:7"], &[]), None, "IPv4 shares its line");
    }

    /// An address for which no rate became steady counted as tried, and was left alone for half a minute.
    #[test]
    fn an_address_is_used_up_by_a_trial_alone() {
        let named = at(&["192.0.2.1:7", "198.51.100.1:7", "203.0.113.1:7"]);
        let (used, most) = (used_ways(named[0], &[]), MostWays { addresses: 4, links: 1 });
        let mut tried = TriedWays::default();
        let mut trial = |steady| {
            let way = next_way(&named, &used, &tried.ways, most, |_, _, _| Vec::new())?;
            Some((way.to.to_string(), tried.take(&way, steady)))
        };
        assert_eq!(trial(None), Some(("198.51.100.1:7".into(), None)));
        assert_eq!(trial(Some(2.0)), Some(("198.51.100.1:7".into(), Some(2.0))));
        assert_eq!(trial(None), Some(("203.0.113.1:7".into(), None)));
        assert_eq!(trial(Some(3.0)), Some(("203.0.113.1:7".into(), Some(3.0))));
        assert_eq!(trial(Some(3.0)), None);
        let rests: Vec<u64> = (0..5)
            .map(|_| {
                tried.rested();
                tried.rest.as_secs()
            })
            .collect();
        assert_eq!((tried.ways.len(), rests), (0, vec![60, 120, 240, 300, 300]));
    }

    /// `connections_per_node` is 32 unless a sender says otherwise. Four addresses had 64.
    #[test]
    fn all_ways_together_have_no_more_connections_than_a_sender_allows() {
        let (first, to) = (DirectConfig::default(), "192.0.2.1:7".parse().unwrap());
        for (addresses, links) in (0..=8).flat_map(|addresses| (1..=4).map(move |links| (addresses, links))) {
            let most = MostWays { addresses, links };
            let further = config_of(&FurtherWay { to, from: None }, first.clone(), most);
            let all = first.most_connections + most.all().saturating_sub(1) * further.most_connections;
            assert!(all <= 32 && further.most_connections >= 1, "{all} of {most:?}");
            assert_eq!((further.connections, further.only), (1, Some(to)));
            assert_eq!((further.peer.way.as_deref(), further.dial.from), (Some("192.0.2.1"), None));
        }
        let from = Some(LocalEnd::Device("wlan0".into()));
        let most = MostWays { addresses: 4, links: 2 };
        let further = config_of(&FurtherWay { to, from: from.clone() }, first, most);
        assert_eq!((further.peer.way.as_deref(), further.dial.from), (Some("wlan0"), from));
    }

    #[test]
    fn lines_of_this_machine_are_tried_once_no_address_is_left() {
        let named = at(&["192.0.2.1:7", "192.0.2.9:7", "198.51.100.1:7"]);
        let link = |name: &str| LocalEnd::Device(name.into());
        // The cable leads to the first address, and wireless to all; each unless it is in use.
        let ends = |to: SocketAddr, reached: &[SocketAddr], own: &[LocalEnd]| {
            assert_eq!(reached.first(), Some(&named[0]), "it was reached there");
            let cable = (to == named[2]).then(|| link("eth1"));
            let all = cable.into_iter().chain([link("wlan0")]);
            all.filter(|end| !own.contains(end)).collect()
        };
        let way = |to: usize, from: Option<&str>| FurtherWay { to: named[to], from: from.map(link) };
        let [first, second] = [way(0, None), way(1, None)];
        let (near, other) = (second.clone(), way(2, None));
        let [wireless, cable] = [way(0, Some("wlan0")), way(2, Some("eth1"))];
        let most = |addresses, links| MostWays { addresses, links };
        for (what, used, tried, most, expected) in [
            ("addresses first", &[&first][..], &[][..], most(4, 2), Some(&other)),
            ("all of them", &[&first], &[&other], most(4, 2), Some(&near)),
            ("then a line", &[&first], &[&other, &near], most(4, 2), Some(&wireless)),
            ("one that is in use", &[&first, &wireless], &[&other, &near], most(4, 2), None),
            ("of three", &[&first, &wireless], &[&other, &near], most(4, 3), Some(&cable)),
            ("tried in vain", &[&first], &[&other, &near, &wireless], most(4, 2), Some(&cable)),
            ("no further address", &[&first], &[], most(1, 2), Some(&wireless)),
            ("no further line", &[&first], &[&other, &near], most(4, 1), None),
        ] {
            let all = |ways: &[&FurtherWay]| ways.iter().map(|way| (*way).clone()).collect::<Vec<_>>();
            let next = next_way(&named, &all(used), &all(tried), most, ends);
            assert_eq!(next.as_ref(), expected, "{what}");
        }
    }

    #[test]
    fn what_shares_a_line_shows() {
        for (what, before, with, own, is_worth) in [
            ("a line of its own", 100.0, 200.0, 100.0, true),
            ("a slower line of its own", 300.0, 395.0, 98.0, true),
            ("the same line", 100.0, 99.0, 50.0, false),
            ("the same, and the first one grew a little", 100.0, 110.0, 55.0, false),
            ("partly the same", 100.0, 120.0, 60.0, true),
            ("next to nothing", 100.0, 102.0, 2.0, false),
            ("nothing", 100.0, 150.0, 0.0, false),
        ] {
            assert_eq!(is_worth_it(before, with, own), is_worth, "{what}");
        }
        assert!(is_steady(100.0, 110.0) && is_steady(110.0, 100.0));
        assert!(!is_steady(100.0, 200.0) && !is_steady(200.0, 100.0) && !is_steady(0.0, 0.0));
    }
}
