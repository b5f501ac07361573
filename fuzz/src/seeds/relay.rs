//! Messages of relays, places, and what befalls circuits and tables.

use towpath_content::NodeId;
use towpath_relay::message::{CircuitId, FailReason, RelayMessage};
use towpath_relay::pass::PassProof;

use crate::input::Written;

fn all() -> Vec<RelayMessage> {
    let (circuit, node, pass) = (CircuitId([1; 16]), NodeId([2; 32]), Some(PassProof([3; 32])));
    vec![
        RelayMessage::Wait { pass },
        RelayMessage::Call { node, circuit },
        RelayMessage::Take { circuit },
        RelayMessage::Resume { circuit, node, received: 5, pass },
        RelayMessage::Ok { received: 0 },
        RelayMessage::Fail { why: FailReason::NoAnswer },
        RelayMessage::Incoming { circuit, caller: node },
        RelayMessage::Block { number: 1, bytes: b"hello".to_vec().into() },
        RelayMessage::Ack { through: 1 },
        RelayMessage::Close { number: 2 },
        RelayMessage::Abort,
        RelayMessage::Ping,
    ]
}

pub fn messages() -> Vec<Vec<u8>> {
    let encoded = all().into_iter().map(|message| message.encode());
    encoded.map(|(kind, head, rest)| [&[kind][..], &head, &rest].concat()).collect()
}

pub fn places() -> Vec<Vec<u8>> {
    let node = NodeId([0xab; 32]);
    ["relay.example:7447", "192.0.2.1:1,[2001:db8::1]:2"].map(|to| format!("{node}@{to}").into_bytes()).into()
}

/// Writes, two messages of the other end, a loss, and going on.
pub fn circuits() -> Vec<Vec<u8>> {
    let written = Written::default().number(0).run(b"hello");
    let block = written.number(8 + 6).run(&[&1u64.to_le_bytes()[..], b"hello"].concat()).number(2);
    let lost = block.number(9 + 6).run(&0u64.to_le_bytes()).number(3).number(4).number(1).number(0);
    vec![lost.number(6).number(30_000).number(1).done(), Written::default().number(5).done()]
}

/// A node waits, another calls, the first takes.
pub fn tables() -> Vec<Vec<u8>> {
    let enter = |written: Written, node| written.number(0).number(1).number(node);
    let request = |written: Written, id, node, what| {
        written.number(3).number(id).number(0).number(node).number(0).number(what)
    };
    let entered = enter(enter(enter(Written::default(), 1), 2), 1);
    let taken = request(request(request(entered, 1, 0, 0), 2, 1, 1), 3, 0, 2);
    vec![taken.number(2).number(15_000).number(1).number(0).done()]
}
