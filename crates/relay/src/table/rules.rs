//! Who may wait at a relay, and how much each may use.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use towpath_content::NodeId;

use crate::pass::{PassProof, RelayPass};

/// Limits of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotas {
    /// Connections in all, waiting ones included: two for each circuit and one for each waiting node. Default: 4096.
    pub connections: usize,
    /// Connections of one node. Default: 64.
    pub connections_per_node: usize,
    /// Connections from one address; of IPv6 all of a /64 are one. Default: 256.
    pub connections_per_address: usize,
    /// Bytes a second of all circuits of one node that may wait, in both directions together. Default: no limit.
    pub bytes_per_second: Option<u64>,
    /// The same of all circuits. Default: no limit.
    pub bytes_per_second_in_all: Option<u64>,
    /// The same of all nodes that come from one address: of IPv6, from one /64. Default: no limit.
    pub bytes_per_second_of_address: Option<u64>,
    /// Bytes of one circuit, in both directions together. Default: no limit.
    pub bytes_per_circuit: Option<u64>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            connections: 4096,
            connections_per_node: 64,
            connections_per_address: 256,
            bytes_per_second: None,
            bytes_per_second_in_all: None,
            bytes_per_second_of_address: None,
            bytes_per_circuit: None,
        }
    }
}

impl Quotas {
    /// True if bytes have to be counted.
    pub(crate) fn limit_bytes(&self) -> bool {
        let limits = [
            self.bytes_per_second,
            self.bytes_per_second_in_all,
            self.bytes_per_second_of_address,
            self.bytes_per_circuit,
        ];
        limits.iter().any(Option::is_some)
    }
}

/// Who may wait at a relay. The default lets nobody.
#[derive(Debug, Clone, Default)]
pub struct RelayRules {
    /// These nodes may wait.
    pub nodes: HashSet<NodeId>,
    /// So may who has this.
    pub pass: Option<RelayPass>,
    /// So may everybody.
    pub public: bool,
    /// How much each may use.
    pub quotas: Quotas,
}

impl RelayRules {
    /// True if this node may wait, with what it has shown on a connection with this channel binding.
    pub fn may_wait(&self, node: &NodeId, binding: &[u8; 32], shown: Option<&PassProof>) -> bool {
        let has_pass = || Some(self.pass.as_ref()?.is_shown(binding, node, shown?));
        self.public || self.nodes.contains(node) || has_pass().unwrap_or(false)
    }
}

/// Addresses that count as one.
pub(crate) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_may_wait_by_default() {
        let (node, binding) = (NodeId([1; 32]), [2; 32]);
        let pass = RelayPass::new(*b"secret");
        let shown = pass.proof(&binding, &node);
        let rules = RelayRules::default();
        assert!(!rules.may_wait(&node, &binding, None) && !rules.may_wait(&node, &binding, Some(&shown)));
        let rules = RelayRules { pass: Some(pass), ..RelayRules::default() };
        assert!(!rules.may_wait(&node, &binding, None), "a pass that is not shown");
        assert!(rules.may_wait(&node, &binding, Some(&shown)));
        assert!(!rules.may_wait(&node, &[3; 32], Some(&shown)), "shown elsewhere");
        let rules = RelayRules { nodes: [node].into(), ..RelayRules::default() };
        assert!(rules.may_wait(&node, &binding, None) && !rules.may_wait(&NodeId([9; 32]), &binding, None));
        let rules = RelayRules { public: true, ..RelayRules::default() };
        assert!(rules.may_wait(&NodeId([9; 32]), &binding, None));
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let same = |a: &str, b: &str| neighbourhood(a.parse().unwrap()) == neighbourhood(b.parse().unwrap());
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
