//! Bytes of circuits and of nodes against their limits. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use towpath_content::NodeId;

use super::rules::Quotas;
use crate::message::CircuitId;

/// A circuit that is not in use is remembered for so long: it may come back after a loss.
const REMEMBERED: Duration = Duration::from_secs(120);
/// So many circuits are counted at most; beyond that the oldest are forgotten.
const CIRCUITS: usize = 16_384;
/// A node may use in one go what it may use in this time.
const BURST: Duration = Duration::from_millis(250);

/// Answer to whether bytes may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// They may, and the next ones at once.
    Fine,
    /// They may, and the next ones after this time.
    Wait(Duration),
    /// The circuit has used what it may.
    Over,
}

/// Bytes used so far.
#[derive(Debug, Default)]
pub(super) struct Metering {
    circuits: HashMap<CircuitId, (u64, Instant)>,
    /// When what a node has used will have been paid off.
    nodes: HashMap<NodeId, Instant>,
}

impl Metering {
    /// A circuit of this node passes so many bytes.
    pub(super) fn charge(
        &mut self,
        quotas: &Quotas,
        circuit: CircuitId,
        node: NodeId,
        len: u64,
        now: Instant,
    ) -> Charge {
        if let Some(limit) = quotas.bytes_per_circuit
            && self.used(circuit, len, now) > limit
        {
            return Charge::Over;
        }
        let Some(rate) = quotas.bytes_per_second else { return Charge::Fine };
        let paid = self.nodes.entry(node).or_insert(now);
        *paid = (*paid).max(now) + Duration::from_secs_f64(len as f64 / rate.max(1) as f64);
        match paid.saturating_duration_since(now).checked_sub(BURST) {
            None | Some(Duration::ZERO) => Charge::Fine,
            Some(wait) => Charge::Wait(wait),
        }
    }

    fn used(&mut self, circuit: CircuitId, len: u64, now: Instant) -> u64 {
        if self.circuits.len() >= CIRCUITS && !self.circuits.contains_key(&circuit) {
            self.forget_oldest();
        }
        let (used, at) = self.circuits.entry(circuit).or_insert((0, now));
        (*used, *at) = (*used + len, now);
        *used
    }

    fn forget_oldest(&mut self) {
        let oldest = self.circuits.iter().min_by_key(|(_, (_, at))| *at).map(|(&circuit, _)| circuit);
        if let Some(circuit) = oldest {
            self.circuits.remove(&circuit);
        }
    }

    /// Forgets what is over.
    pub(super) fn clean(&mut self, now: Instant) {
        self.circuits.retain(|_, (_, at)| now.saturating_duration_since(*at) < REMEMBERED);
        self.nodes.retain(|_, paid| *paid > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_its_rate_and_a_circuit_its_bytes() {
        let (mut metering, start) = (Metering::default(), Instant::now());
        let quotas = Quotas {
            bytes_per_second: Some(1_000_000),
            bytes_per_circuit: Some(50_000_000),
            ..Quotas::default()
        };
        let (circuit, node, mut now, mut passed) = (CircuitId([1; 16]), NodeId([2; 32]), start, 0);
        loop {
            match metering.charge(&quotas, circuit, node, 50_000, now) {
                Charge::Fine => {}
                Charge::Wait(wait) => now += wait,
                Charge::Over => break,
            }
            passed += 50_000;
        }
        let rate = passed as f64 / (now - start).as_secs_f64();
        assert_eq!(passed, 50_000_000);
        assert!((990_000.0..1_010_000.0).contains(&rate), "{rate}");
        assert_eq!(metering.charge(&quotas, circuit, node, 1, now + REMEMBERED / 2), Charge::Over);
        metering.clean(now + REMEMBERED);
        assert!(metering.nodes.is_empty());
        metering.clean(now + REMEMBERED * 2);
        assert!(metering.circuits.is_empty());
    }

    #[test]
    fn memory_for_circuits_is_bounded() {
        let (mut metering, now) = (Metering::default(), Instant::now());
        let quotas = Quotas { bytes_per_circuit: Some(5), ..Quotas::default() };
        for n in 0..CIRCUITS as u128 + 10 {
            let at = now + Duration::from_nanos(n as u64);
            metering.charge(&quotas, CircuitId(n.to_le_bytes()), NodeId([0; 32]), 1, at);
        }
        assert_eq!(metering.circuits.len(), CIRCUITS);
    }
}
