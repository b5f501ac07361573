//! Holders that a ticket's issuer tells of while a get runs, and further addresses of its own: they become hints of that get.

use std::net::SocketAddr;
use std::sync::Mutex;

use tokio::sync::watch;
use towpath_content::hint::{MAX_HINTS, PeerAddress};
use towpath_content::lock::lock;
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_protocol::HolderSink;
use towpath_protocol::wire::WireHolder;

/// Holders that become hints, at most.
const MOST_HOLDERS: usize = 16;
/// The same of further addresses of the issuer.
const MOST_OWN: usize = 16;

/// Holders that a ticket's issuer tells of become hints of the get.
#[derive(Debug)]
pub struct ToldHolders {
    root: Oid,
    /// Nobody else's word counts: it could have this machine dial anything.
    issuer: NodeId,
    own: NodeId,
    hints: watch::Sender<Vec<Hint>>,
    told: Mutex<ToldCounts>,
}

/// Hints by now.
#[derive(Debug, Default)]
struct ToldCounts {
    holders: usize,
    of_issuer: usize,
}

impl ToldHolders {
    /// Of a get by `ticket` on the node `own`, whose hints these are.
    pub fn new(ticket: &Ticket, own: NodeId, hints: watch::Sender<Vec<Hint>>) -> Self {
        Self { root: ticket.oid, issuer: ticket.node, own, hints, told: Mutex::default() }
    }

    /// The hint of what `peer` says, if that counts.
    fn hint(&self, peer: &NodeId, told: &WireHolder) -> Option<Hint> {
        let is_right = *peer == self.issuer && Oid::from_bytes(&told.root) == Ok(self.root);
        let node = NodeId(told.node[..].try_into().ok().filter(|_| is_right)?);
        let address: SocketAddr = told.address.parse().ok()?;
        let ip = address.ip();
        let is_one = address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast();
        if node == self.own || !is_one {
            return None;
        }
        let place = PeerAddress { node: Some(node), address: address.to_string() };
        Hint::new(format!("tow://{place}"), 0, 1).ok()
    }
}

impl HolderSink for ToldHolders {
    fn holder(&self, peer: &NodeId, told: &WireHolder) {
        let Some(hint) = self.hint(peer, told) else {
            tracing::debug!(peer = %peer.short(), "a holder was told that does not count");
            return;
        };
        let mut told_by_now = lock(&self.told);
        let (count, most) = match told.node[..] == self.issuer.0 {
            true => (&mut told_by_now.of_issuer, MOST_OWN),
            false => (&mut told_by_now.holders, MOST_HOLDERS),
        };
        self.hints.send_if_modified(|hints| {
            let is_new = *count < most && hints.len() < MAX_HINTS && !hints.contains(&hint);
            if is_new {
                *count += 1;
                hints.push(hint);
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};

    use super::*;

    const ISSUER: NodeId = NodeId([1; 32]);
    const OWN: NodeId = NodeId([2; 32]);
    const OTHER: NodeId = NodeId([3; 32]);

    fn ticket() -> Ticket {
        let (secret, terms) = (Secret([7; 16]), Terms::default());
        Ticket { oid: Oid::of(b"root"), node: ISSUER, secret, hints: Vec::new(), terms, enclosed: None }
    }

    fn told(root: &[u8], node: NodeId, address: &str) -> WireHolder {
        let root = Oid::of(root).to_bytes().to_vec().into();
        WireHolder { root, node: node.0.to_vec().into(), address: address.into() }
    }

    #[test]
    fn only_the_issuers_word_about_this_root_makes_a_hint() {
        let (hints, _kept) = watch::channel(Vec::new());
        let holders = ToldHolders::new(&ticket(), OWN, hints);
        let good = told(b"root", OTHER, "192.0.2.1:7000");
        let expected = format!("tow://{OTHER}@192.0.2.1:7000");
        assert_eq!(holders.hint(&ISSUER, &good).unwrap().method, expected);
        let v6 = holders.hint(&ISSUER, &told(b"root", OTHER, "[2001:db8::1]:7000")).unwrap();
        assert_eq!(v6.rest().parse::<PeerAddress>().unwrap().address, "[2001:db8::1]:7000");
        let moved = holders.hint(&ISSUER, &told(b"root", ISSUER, "192.0.2.9:7000")).unwrap();
        assert_eq!(moved.method, format!("tow://{ISSUER}@192.0.2.9:7000"), "the issuer is there, too");
        for (peer, told, why) in [
            (OTHER, good.clone(), "somebody else says so"),
            (ISSUER, told(b"other", OTHER, "192.0.2.1:7000"), "another root"),
            (ISSUER, told(b"root", OWN, "192.0.2.1:7000"), "this node"),
            (ISSUER, told(b"root", OTHER, "192.0.2.1:0"), "no port"),
            (ISSUER, told(b"root", OTHER, "0.0.0.0:7000"), "no address"),
            (ISSUER, told(b"root", OTHER, "224.0.0.1:7000"), "many addresses"),
            (ISSUER, told(b"root", OTHER, "example.org:7000"), "a name, which would be looked up"),
            (ISSUER, WireHolder { node: vec![3; 31].into(), ..good.clone() }, "no node"),
        ] {
            assert_eq!(holders.hint(&peer, &told), None, "{why}");
        }
    }

    #[test]
    fn so_many_holders_become_hints_and_each_once() {
        let (hints, kept) = watch::channel(Vec::new());
        let holders = ToldHolders::new(&ticket(), OWN, hints);
        for port in [1..=100_u16, 1..=100].into_iter().flatten() {
            holders.holder(&ISSUER, &told(b"root", OTHER, &format!("192.0.2.1:{port}")));
        }
        assert_eq!(kept.borrow().len(), MOST_HOLDERS);
        for port in 1..=100_u16 {
            holders.holder(&ISSUER, &told(b"root", ISSUER, &format!("192.0.2.1:{port}")));
        }
        assert_eq!(kept.borrow().len(), MOST_HOLDERS + MOST_OWN);
    }
}
