//! Bytes of circuits, nodes and addresses against their limits. Pure.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use towpath_content::NodeId;

use super::rules::Quotas;
use crate::message::CircuitId;

/// A circuit that is not in use is remembered for so long: it may come back after a loss.
const REMEMBERED: Duration = Duration::from_secs(120);
/// So many circuits are counted at most; beyond that the oldest are forgotten.
const CIRCUITS: usize = 16_384;
/// So many nodes and addresses are counted at most. What they still owe beyond that is forgiven: each had to shake hands for it.
const PAYERS: usize = 16_384;
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

/// Who what passes counts for: the node of a circuit that may wait at the relay, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayAccount {
    /// The node.
    pub node: NodeId,
    /// Its address, or that of its network.
    pub address: IpAddr,
}

/// One who pays with time for what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Payer {
    All,
    Node(NodeId),
    Address(IpAddr),
}

/// Bytes used so far.
#[derive(Debug, Default)]
pub(super) struct Metering {
    circuits: HashMap<CircuitId, (u64, Instant)>,
    /// When what each has used will have been paid off.
    paid: HashMap<Payer, Instant>,
}

impl Metering {
    /// A circuit of this account passes so many bytes.
    pub(super) fn charge(
        &mut self,
        quotas: &Quotas,
        circuit: CircuitId,
        account: RelayAccount,
        len: u64,
        now: Instant,
    ) -> Charge {
        if let Some(limit) = quotas.bytes_per_circuit
            && self.used(circuit, len, now) > limit
        {
            return Charge::Over;
        }
        let payers = [
            (Payer::All, quotas.bytes_per_second_in_all),
            (Payer::Node(account.node), quotas.bytes_per_second),
            (Payer::Address(account.address), quotas.bytes_per_second_of_address),
        ];
        let waits = payers.into_iter().filter_map(|(payer, rate)| Some(self.pay(payer, len, rate?, now)));
        match waits.max() {
            None | Some(Duration::ZERO) => Charge::Fine,
            Some(wait) => Charge::Wait(wait),
        }
    }

    /// Time until this one may use more.
    fn pay(&mut self, payer: Payer, len: u64, rate: u64, now: Instant) -> Duration {
        if self.paid.len() >= PAYERS && !self.paid.contains_key(&payer) {
            self.clean(now);
            if self.paid.len() >= PAYERS {
                self.paid.clear();
            }
        }
        let paid = self.paid.entry(payer).or_insert(now);
        *paid = (*paid).max(now) + Duration::from_secs_f64(len as f64 / rate.max(1) as f64);
        paid.saturating_duration_since(now).saturating_sub(BURST)
    }

    fn used(&mut self, circuit: CircuitId, len: u64, now: Instant) -> u64 {
        if self.circuits.len() >= CIRCUITS && !self.circuits.contains_key(&circuit) {
            self.clean(now);
            self.forget_oldest();
        }
        let (used, at) = self.circuits.entry(circuit).or_insert((0, now));
        (*used, *at) = (*used + len, now);
        *used
    }

    fn forget_oldest(&mut self) {
        if self.circuits.len() < CIRCUITS {
            return;
        }
        let oldest = self.circuits.iter().min_by_key(|(_, (_, at))| *at).map(|(&circuit, _)| circuit);
        if let Some(circuit) = oldest {
            self.circuits.remove(&circuit);
        }
    }

    /// Forgets what is over.
    pub(super) fn clean(&mut self, now: Instant) {
        self.circuits.retain(|_, (_, at)| now.saturating_duration_since(*at) < REMEMBERED);
        self.paid.retain(|_, paid| *paid > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(n: u8) -> RelayAccount {
        RelayAccount { node: NodeId([n; 32]), address: [192, 0, 2, 1].into() }
    }

    #[test]
    fn a_node_gets_its_rate_and_a_circuit_its_bytes() {
        let (mut metering, start) = (Metering::default(), Instant::now());
        let quotas = Quotas {
            bytes_per_second: Some(1_000_000),
            bytes_per_circuit: Some(50_000_000),
            ..Quotas::default()
        };
        let (circuit, account, mut now, mut passed) = (CircuitId([1; 16]), account(2), start, 0);
        loop {
            match metering.charge(&quotas, circuit, account, 50_000, now) {
                Charge::Fine => {}
                Charge::Wait(wait) => now += wait,
                Charge::Over => break,
            }
            passed += 50_000;
        }
        let rate = passed as f64 / (now - start).as_secs_f64();
        assert_eq!(passed, 50_000_000);
        assert!((990_000.0..1_010_000.0).contains(&rate), "{rate}");
        assert_eq!(metering.charge(&quotas, circuit, account, 1, now + REMEMBERED / 2), Charge::Over);
        metering.clean(now + REMEMBERED);
        assert!(metering.paid.is_empty());
        metering.clean(now + REMEMBERED * 2);
        assert!(metering.circuits.is_empty());
    }

    #[test]
    fn memory_for_circuits_is_bounded() {
        let (mut metering, now) = (Metering::default(), Instant::now());
        let quotas = Quotas { bytes_per_circuit: Some(5), ..Quotas::default() };
        for n in 0..CIRCUITS as u128 + 10 {
            let at = now + Duration::from_nanos(n as u64);
            metering.charge(&quotas, CircuitId(n.to_le_bytes()), account(0), 1, at);
        }
        assert_eq!(metering.circuits.len(), CIRCUITS);
    }

    #[test]
    fn all_together_get_the_rate_of_the_relay() {
        let (mut metering, start) = (Metering::default(), Instant::now());
        let quotas = Quotas { bytes_per_second_in_all: Some(1_000_000), ..Quotas::default() };
        let mut now = start;
        for n in 0..100 {
            let account = RelayAccount { address: [192, 0, 2, n].into(), ..account(n) };
            if let Charge::Wait(wait) = metering.charge(&quotas, CircuitId([n; 16]), account, 50_000, now) {
                now += wait;
            }
        }
        let seconds = (now - start).as_secs_f64();
        assert!((4.7..5.0).contains(&seconds), "{seconds}");
    }

    /// Nodes cost nothing to make, addresses do.
    #[test]
    fn many_nodes_of_one_address_get_its_rate_together() {
        let (mut metering, start) = (Metering::default(), Instant::now());
        let quotas = Quotas {
            bytes_per_second: Some(1_000_000),
            bytes_per_second_of_address: Some(2_000_000),
            ..Quotas::default()
        };
        let (mut now, mut passed) = (start, 0);
        for n in 0..1000u32 {
            let of_node = RelayAccount { node: NodeId([n as u8; 32]), ..account(0) };
            if let Charge::Wait(wait) = metering.charge(&quotas, CircuitId([1; 16]), of_node, 50_000, now) {
                now += wait;
            }
            passed += 50_000;
        }
        let rate = f64::from(passed) / (now - start).as_secs_f64();
        assert!((1_950_000.0..2_050_000.0).contains(&rate), "{rate}");
        let elsewhere = RelayAccount { address: [192, 0, 2, 9].into(), ..account(200) };
        assert_eq!(metering.charge(&quotas, CircuitId([2; 16]), elsewhere, 50_000, now), Charge::Fine);
    }

    #[test]
    fn memory_for_who_uses_a_relay_is_bounded() {
        let (mut metering, now) = (Metering::default(), Instant::now());
        let quotas = Quotas { bytes_per_second: Some(1), ..Quotas::default() };
        for n in 0..2 * PAYERS as u64 + 10 {
            let mut node = [0; 32];
            node[..8].copy_from_slice(&n.to_le_bytes());
            metering.charge(
                &quotas,
                CircuitId([1; 16]),
                RelayAccount { node: NodeId(node), ..account(0) },
                9,
                now,
            );
            assert!(metering.paid.len() <= PAYERS);
        }
    }
}
