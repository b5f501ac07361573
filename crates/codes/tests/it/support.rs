//! Two ends of an exchange, whose numbers are the same in each run.

use towpath_codes::exchange::{CodeWay, HostStep};
use towpath_codes::{Code, CodeGuest, CodeHost, Entropy};
use towpath_content::NodeId;

pub const HOST: NodeId = NodeId([1; 32]);
pub const GUEST: NodeId = NodeId([2; 32]);
pub const TICKET: &str = "tow:aeatvz6yax3hrgteakwlocwubfviljll62ae5lzfybetvruxksgtbnidued3746";

pub fn code(text: &str) -> Code {
    text.parse().unwrap()
}

/// Entropy of this number.
pub fn entropy(seed: u64) -> Entropy {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Entropy::from_seed(&bytes)
}

pub fn host(code: &Code, is_verified: bool, seed: u64) -> CodeHost {
    CodeHost::new(code, HOST, TICKET.into(), is_verified, entropy(2 * seed)).unwrap()
}

pub fn guest(code: &Code, seed: u64) -> CodeGuest {
    CodeGuest::new(code, GUEST, entropy(2 * seed + 1))
}

/// The ways over one connection, as host and guest see it.
pub fn direct() -> [CodeWay; 2] {
    [GUEST, HOST].map(|peer| CodeWay::Direct { peer, binding: [7; 32] })
}

/// Messages that a step wants sent.
pub fn sent(step: &HostStep) -> Vec<Vec<u8>> {
    match step {
        HostStep::Sold { send, .. }
        | HostStep::Compare { send, .. }
        | HostStep::Void { send }
        | HostStep::Told { send } => send.clone(),
        HostStep::Parted(_) | HostStep::Ignored(_) => Vec::new(),
    }
}
