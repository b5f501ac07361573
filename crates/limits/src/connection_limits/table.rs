//! Connections: which there are, which may come in, and which have to go for them. Pure: handed the limits and the time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use towpath_content::NodeId;

use super::Excess;
use towpath_config::Limits;

/// Of the handshakes under way, at most one in so many may be of a peer that is turned away.
const TURNED_AWAY_SHARE: usize = 4;
/// A network of IPv6 (/48), whose holder has 65536 of the networks that count as one address (/64), may have
/// so many times what one address may.
const WIDE_SHARE: usize = 4;
/// Time by which whoever means to shake hands has long sent something.
const SILENT: Duration = Duration::from_secs(2);

/// Origin of a connection, as far as it matters who has it: one host has all of an IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerOrigin {
    near: IpAddr,
    wide: Option<IpAddr>,
}

impl From<IpAddr> for CallerOrigin {
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self { near: ip.into(), wide: None },
            IpAddr::V6(ip) => {
                let front = |bits: u32| Ipv6Addr::from(u128::from(ip) >> (128 - bits) << (128 - bits)).into();
                Self { near: front(64), wide: Some(front(48)) }
            }
        }
    }
}

/// Stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallerStage {
    /// It shakes hands. Whoever is turned away gets the reason afterwards, and counts for nothing else.
    Shaking { has_spoken: bool, is_turned_away: bool },
    /// It has a place, and had a right to nothing yet.
    Stranger(NodeId),
    /// It has a place for good.
    Known(NodeId),
}

#[derive(Debug, Clone, Copy)]
struct CallerEntry {
    from: CallerOrigin,
    since: Instant,
    stage: CallerStage,
}

/// See the head of this module. Numbers go up in the order of arrival.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    callers: BTreeMap<u64, CallerEntry>,
    /// Peers of connections that this side dialled, which may ask there.
    dialled: BTreeMap<u64, NodeId>,
    next: u64,
}

/// Outcome for a connection that was just accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Its number.
    pub id: u64,
    /// Reason why it is to be turned away after its handshake, if it is.
    pub excess: Option<Excess>,
    /// The connection that has to go for it.
    pub loses: Option<u64>,
}

impl CallerEntry {
    const fn is_stranger(&self) -> bool {
        matches!(self.stage, CallerStage::Stranger(_))
    }

    const fn is_shaking(&self) -> bool {
        matches!(self.stage, CallerStage::Shaking { .. })
    }

    const fn is_silent(&self) -> bool {
        matches!(self.stage, CallerStage::Shaking { has_spoken: false, .. })
    }

    const fn is_turned_away(&self) -> bool {
        matches!(self.stage, CallerStage::Shaking { is_turned_away: true, .. })
    }

    fn is_of(&self, whose: NodeId) -> bool {
        matches!(self.stage, CallerStage::Stranger(node) | CallerStage::Known(node) if node == whose)
    }

    fn is_near(&self, from: &CallerOrigin) -> bool {
        self.from.near == from.near
    }

    fn is_in_reach(&self, from: &CallerOrigin) -> bool {
        self.from.wide.is_some() && self.from.wide == from.wide
    }
}

impl ConnectionTable {
    /// Connections: those that shake hands, but for those that are turned away, and those with a place.
    pub fn connections(&self) -> usize {
        self.count(|caller| !caller.is_turned_away())
    }

    /// Connections that shake hands.
    #[cfg(test)]
    pub fn handshakes(&self) -> usize {
        self.count(CallerEntry::is_shaking)
    }

    fn count(&self, is_it: impl Fn(&CallerEntry) -> bool) -> usize {
        self.callers.values().filter(|caller| is_it(caller)).count()
    }

    fn first(&self, is_it: impl Fn(&CallerEntry) -> bool) -> Option<u64> {
        self.callers.iter().find(|(_, caller)| is_it(caller)).map(|(id, _)| *id)
    }

    /// Somebody comes. An error: it is to be hung up on.
    pub fn admit(&mut self, limits: &Limits, from: CallerOrigin, now: Instant) -> Result<Handshake, Excess> {
        let handshakes = at_most(limits.handshakes.0);
        let excess = self.excess(limits, &from);
        let turned_away = self.count(CallerEntry::is_turned_away);
        let loses = match (excess, self.count(CallerEntry::is_shaking) >= handshakes) {
            (Some(excess), _) if turned_away >= handshakes.div_ceil(TURNED_AWAY_SHARE) => {
                return Err(excess);
            }
            (Some(_), true) => return Err(Excess::Handshakes),
            (Some(_), false) | (None, false) => None,
            (None, true) => Some(self.slowest(&from, now).ok_or(Excess::Handshakes)?),
        };
        self.leave(loses);
        let id = self.number();
        let stage = CallerStage::Shaking { has_spoken: false, is_turned_away: excess.is_some() };
        self.callers.insert(id, CallerEntry { from, since: now, stage });
        Ok(Handshake { id, excess, loses })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// This side dialled a connection: its number, if there is a place left, so that its peer may ask there. It keeps no caller out.
    pub fn dialled(&mut self, limits: &Limits, node: NodeId) -> Option<u64> {
        let dialled = self.dialled.values().filter(|dialled| **dialled == node).count();
        let of_node = self.count(|caller| caller.is_of(node)) + dialled;
        let has_room = of_node < at_most(limits.connections_per_node.0)
            && self.connections() + self.dialled.len() < at_most(limits.connections.0);
        has_room.then(|| {
            let id = self.number();
            self.dialled.insert(id, node);
            id
        })
    }

    /// The limit that leaves no place for whoever comes now, also if strangers go.
    fn excess(&self, limits: &Limits, from: &CallerOrigin) -> Option<Excess> {
        let address = at_most(limits.connections_per_address.0);
        let is_full = |most: usize, is_it: &dyn Fn(&CallerEntry) -> bool| {
            let counts = |caller: &CallerEntry| is_it(caller) && !caller.is_turned_away();
            self.count(counts) >= most && self.first(|caller| is_it(caller) && caller.is_stranger()).is_none()
        };
        if is_full(at_most(limits.connections.0), &|_| true) {
            return Some(Excess::All);
        }
        let is_crowded = is_full(address, &|caller| caller.is_near(from))
            || is_full(address.saturating_mul(WIDE_SHARE), &|caller| caller.is_in_reach(from));
        is_crowded.then_some(Excess::Address)
    }

    /// The handshake that is to go for somebody from there: one that has been silent for long, else one of those from
    /// the address that has the most; there the silent ones first, and of equals the oldest. Nobody who
    /// speaks goes for an address that has as many.
    fn slowest(&self, from: &CallerOrigin, now: Instant) -> Option<u64> {
        let shaking = || self.callers.iter().filter(|(_, caller)| caller.is_shaking());
        let mut crowds = HashMap::<IpAddr, usize>::new();
        shaking().for_each(|(_, caller)| *crowds.entry(caller.from.near).or_default() += 1);
        let crowd = |from: &CallerOrigin| crowds.get(&from.near).copied().unwrap_or(0);
        let is_late = |caller: &CallerEntry| {
            caller.is_silent() && now.saturating_duration_since(caller.since) >= SILENT
        };
        let (id, caller) = shaking().max_by_key(|(id, caller)| {
            (is_late(caller), crowd(&caller.from), caller.is_silent(), Reverse(**id))
        })?;
        (caller.is_silent() || crowd(&caller.from) > crowd(from) + 1).then_some(*id)
    }

    /// The first byte of one came.
    pub fn spoke(&mut self, id: u64) {
        if let Some(CallerEntry { stage: CallerStage::Shaking { has_spoken, .. }, .. }) =
            self.callers.get_mut(&id)
        {
            *has_spoken = true;
        }
    }

    /// The handshake of one that is not turned away is done, and this is the peer. Returns who has to go for it.
    pub fn enter(
        &mut self,
        limits: &Limits,
        id: u64,
        node: NodeId,
        is_known: bool,
    ) -> Result<Option<u64>, Excess> {
        let from = self.callers.get(&id).ok_or(Excess::Handshakes)?.from;
        if self.count(|caller| caller.is_of(node)) >= at_most(limits.connections_per_node.0) {
            return Err(Excess::Node);
        }
        let loses = self.to_evict(limits, &from, is_known)?;
        self.leave(loses);
        let stage = if is_known { CallerStage::Known(node) } else { CallerStage::Stranger(node) };
        self.callers.entry(id).and_modify(|caller| caller.stage = stage);
        Ok(loses)
    }

    /// The stranger that has to go for one more connection from there, if any has.
    fn to_evict(&self, limits: &Limits, from: &CallerOrigin, is_known: bool) -> Result<Option<u64>, Excess> {
        let address = at_most(limits.connections_per_address.0);
        let placed = |is_it: &dyn Fn(&CallerEntry) -> bool| self.count(|it| is_it(it) && !it.is_shaking());
        let oldest = |is_it: &dyn Fn(&CallerEntry) -> bool| {
            self.first(|caller| is_it(caller) && caller.is_stranger()).ok_or(Excess::Address).map(Some)
        };
        if placed(&|caller| caller.is_near(from)) >= address {
            return oldest(&|caller| caller.is_near(from));
        }
        if placed(&|caller| caller.is_in_reach(from)) >= address.saturating_mul(WIDE_SHARE) {
            return oldest(&|caller| caller.is_in_reach(from));
        }
        if placed(&|_| true) >= at_most(limits.connections.0) {
            return self.strangest().ok_or(Excess::All).map(Some);
        }
        let has_room = is_known || self.count(CallerEntry::is_stranger) < at_most(limits.strangers.0);
        Ok(if has_room { None } else { self.strangest() })
    }

    /// Of the strangers from the address that has the most the oldest.
    fn strangest(&self) -> Option<u64> {
        let strangers = || self.callers.iter().filter(|(_, caller)| caller.is_stranger());
        let mut crowds = HashMap::<IpAddr, usize>::new();
        strangers().for_each(|(_, caller)| *crowds.entry(caller.from.near).or_default() += 1);
        let crowd = |caller: &CallerEntry| crowds.get(&caller.from.near).copied();
        strangers().max_by_key(|(id, caller)| (crowd(caller), Reverse(**id))).map(|(id, _)| *id)
    }

    /// One with a place had a right to something. False if it has lost its place.
    pub fn know(&mut self, id: u64) -> bool {
        let Some(caller) = self.callers.get_mut(&id) else { return false };
        if let CallerStage::Stranger(node) = caller.stage {
            caller.stage = CallerStage::Known(node);
        }
        true
    }

    /// One has gone, or has to.
    pub fn leave(&mut self, id: impl Into<Option<u64>>) {
        if let Some(id) = id.into() {
            self.callers.remove(&id);
            self.dialled.remove(&id);
        }
    }
}

fn at_most(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
