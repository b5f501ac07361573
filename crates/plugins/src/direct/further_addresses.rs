//! Further addresses of a service that has several: its machine may have several lines. Each becomes a source of its own while a
//! transfer runs, one after the other, and stays if all sources together become faster by it.
//!
//! Most machines have several addresses that lead to one line. So nothing is tried before the rate is steady, addresses of other
//! networks than those in use come first, and only those of the kind by which the service was reached first: IPv4 and IPv6 mostly
//! share a line. What shares a line all the same shows: the sum stays as it was.
//!
//! The choice and the judgement are pure.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_link::Identity;
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context, Source};

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

/// See the head of this module.
pub(crate) struct FurtherAddresses {
    /// The source that is there from the start, and how others are like it.
    pub(crate) first: Arc<Direct>,
    pub(crate) config: DirectConfig,
    pub(crate) identity: Identity,
    pub(crate) host: Option<Arc<dyn PeerHost>>,
    /// Addresses that are in use at once, the first one included.
    pub(crate) most: usize,
}

/// A source by a further address.
struct AddressSource {
    address: SocketAddr,
    source: Arc<Direct>,
}

impl FurtherAddresses {
    /// The address by which the service was reached first.
    async fn first_address(&self) -> SocketAddr {
        loop {
            if let Some(address) = self.first.led() {
                return address;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn source(&self, address: SocketAddr) -> AddressSource {
        let config = config_of(address, self.config.clone(), self.most);
        let source = Arc::new(Direct::new(self.identity.clone(), config, self.host.clone()));
        AddressSource { address, source }
    }

    /// Bytes a second of the first source and these, in a period that begins now.
    async fn rate(&self, others: &[AddressSource]) -> f64 {
        let all = || others.iter().map(|other| &other.source).chain([&self.first]);
        let arrived = || all().map(|source| source.state().path.arrived).sum::<u64>();
        let (begin, before) = (Instant::now(), arrived());
        tokio::time::sleep(PERIOD).await;
        arrived().saturating_sub(before) as f64 / begin.elapsed().as_secs_f64()
    }

    /// The rate, once it is steady; `None` if it does not become so, or nothing comes.
    async fn steady_rate(&self, others: &[AddressSource]) -> Option<f64> {
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
        (key, address, before): (u64, SocketAddr, f64),
        kept: &mut Vec<AddressSource>,
        changes: &mpsc::Sender<SourceChange>,
    ) {
        let tried = self.source(address);
        let source = Arc::clone(&tried.source) as Arc<dyn Source>;
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
            tracing::debug!(%address, before, with, own, "a further address was measured");
            if is_worth_it(before, with, own) {
                return;
            }
        }
        kept.pop();
        let _ = changes.send(SourceChange::Removed(key)).await;
    }
}

impl Finder for FurtherAddresses {
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let _ = changes.send(SourceChange::Looked).await;
            let first = self.first_address().await;
            tokio::time::sleep(ALONE).await;
            let (mut kept, mut key) = (Vec::new(), 0);
            let (mut tried, mut hints) = (TriedAddresses::default(), context.hints.clone());
            while kept.len() + 1 < self.most && !changes.is_closed() {
                let named = dialled_addresses(context).await;
                let used = kept.iter().map(|kept: &AddressSource| kept.address).chain([first]);
                if let Some(address) = next_address(&named, &used.collect::<Vec<_>>(), &tried.addresses) {
                    let Some(before) = tried.take(address, self.steady_rate(&kept).await) else { continue };
                    key += 1;
                    self.try_one((key, address, before), &mut kept, &changes).await;
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

/// Addresses that were tried, until they have rested: pure.
struct TriedAddresses {
    addresses: Vec<SocketAddr>,
    /// Time after which all are tried again.
    rest: Duration,
}

impl Default for TriedAddresses {
    fn default() -> Self {
        Self { addresses: Vec::new(), rest: FIRST_REST }
    }
}

impl TriedAddresses {
    /// This one is tried, if there is a steady rate to compare with, which is returned. Else it remains to be tried.
    fn take(&mut self, address: SocketAddr, steady: Option<f64>) -> Option<f64> {
        self.addresses.extend(steady.map(|_| address));
        steady
    }

    /// The time is over. The next one is longer.
    fn rested(&mut self) {
        self.addresses.clear();
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }
}

/// A source by a further address, one of at most so many, is configured as the first one. All together stay below what a sender allows
/// one node.
fn config_of(address: SocketAddr, first: DirectConfig, most: usize) -> DirectConfig {
    let mut config = DirectConfig { only: Some(address), connections: 1, ..first };
    config.most_connections = (config.most_connections / most.max(1)).max(1);
    config.peer.way = Some(address.ip().to_string());
    config
}

/// The next address to try: of the kind of the first one in use, and neither in use nor tried yet. Those in other networks than any
/// in use come first.
fn next_address(named: &[SocketAddr], used: &[SocketAddr], tried: &[SocketAddr]) -> Option<SocketAddr> {
    let first = used.last()?;
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
        assert_eq!(next(&["198.51.100.1:7", "192.0.2.1:7"], &[]), one("203.0.113.1:7"));
        let near = next(&["198.51.100.1:7", "192.0.2.1:7"], &["203.0.113.1:7"]);
        assert_eq!(near, one("192.0.2.9:7"));
        assert_eq!(next(&["198.51.100.1:7", "192.0.2.1:7"], &["203.0.113.1:7", "192.0.2.9:7"]), None);
        assert_eq!(next(&["203.0.113.1:7"], &[]), one("192.0.2.1:7"));
        assert_eq!(next(&["[2001:db8::1]:7"], &[]), None, "IPv4 shares its line");
    }

    /// An address for which no rate became steady counted as tried, and was left alone for half a minute.
    #[test]
    fn an_address_is_used_up_by_a_trial_alone() {
        let named = at(&["192.0.2.1:7", "198.51.100.1:7", "203.0.113.1:7"]);
        let mut tried = TriedAddresses::default();
        let mut trial = |steady| {
            let address = next_address(&named, &named[..1], &tried.addresses)?;
            Some((address.to_string(), tried.take(address, steady)))
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
        assert_eq!((tried.addresses.len(), rests), (0, vec![60, 120, 240, 300, 300]));
    }

    /// `connections_per_node` is 32 unless a sender says otherwise. Four addresses had 64.
    #[test]
    fn all_addresses_together_have_no_more_connections_than_a_sender_allows() {
        let (first, address) = (DirectConfig::default(), "192.0.2.1:7".parse().unwrap());
        for most in 0..=8 {
            let further = config_of(address, first.clone(), most);
            let all = first.most_connections + most.saturating_sub(1) * further.most_connections;
            assert!(all <= 32 && further.most_connections >= 1, "{all} of {most}");
            assert_eq!((further.connections, further.only), (1, Some(address)));
            assert_eq!(further.peer.way.as_deref(), Some("192.0.2.1"));
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
