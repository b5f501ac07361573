//! Parsers of `towpath-relay`, and its state machines: messages and guests of strangers.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_relay::RelayPlace;
use towpath_relay::circuit::{Circuit, MAX_WINDOW};
use towpath_relay::message::{CircuitId, RelayMessage};
use towpath_relay::table::{Quotas, RelayTable, TableAction, TableRequest};

use crate::input::Source;

/// One frame: its kind and its body.
pub fn relay_message(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    if let Ok(message) = RelayMessage::decode(kind, Bytes::copy_from_slice(body)) {
        let (again, head, rest) = message.encode();
        assert_eq!((again, [head, rest.to_vec()].concat()), (kind, body.to_vec()));
    }
}

/// Where a relay is, as text.
pub fn relay_place(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(place) = text.parse::<RelayPlace>()
    {
        assert_eq!(place.to_string().parse(), Ok(place));
    }
}

/// An end of a circuit whose other end sends anything, while the connection is lost now and then.
pub fn relay_circuit(data: &[u8]) {
    let (mut source, mut now) = (Source::new(data), Instant::now());
    let mut circuit = Circuit::new(now);
    let mut space = vec![0; 1000];
    while !source.is_empty() {
        match source.byte() {
            0 => drop(circuit.write(source.run())),
            1 => circuit.close(),
            2 => drop(circuit.read(&mut space, now)),
            3 => circuit.lost(now),
            4 => circuit.resumed(source.number(), source.byte() == 1, now),
            5 => circuit.leave(now),
            6 => now += Duration::from_millis(source.below(70_000)),
            kind => {
                let body = Bytes::copy_from_slice(source.run());
                if let Ok(message) = RelayMessage::decode(kind - 6, body) {
                    circuit.handle(message, now);
                }
            }
        }
        circuit.handle_timeout(now);
        while circuit.transmit(now).is_some() {}
        assert!(circuit.held() <= 2 * MAX_WINDOW);
    }
}

/// Guests of a relay: few nodes and names, so that they meet.
pub fn relay_table(data: &[u8]) {
    let (mut source, mut now) = (Source::new(data), Instant::now());
    let mut table = RelayTable::new(Quotas { connections: 20, connections_per_node: 4, ..Quotas::default() });
    let (mut guests, mut last) = (Vec::new(), 0);
    while !source.is_empty() {
        match source.below(4) {
            0 => {
                last += 1;
                let address: IpAddr = [10, 0, 0, source.byte()].into();
                if table.enter(last, NodeId([source.byte() % 4; 32]), address).is_ok() {
                    guests.push(last);
                }
            }
            1 if !guests.is_empty() => {
                let at = source.below(guests.len() as u64) as usize;
                table.leave(guests.swap_remove(at));
            }
            2 => now += Duration::from_millis(source.below(20_000)),
            _ => table.request(source.below(last + 1), request(&mut source), now),
        }
        table.handle_timeout(now);
        while let Some(action) = table.poll_action() {
            if let TableAction::Join(joined) = action {
                assert!(
                    joined.guests[0] != joined.guests[1]
                        && joined.guests.iter().all(|id| guests.contains(id))
                );
            }
        }
    }
    guests.into_iter().for_each(|id| table.leave(id));
    assert_eq!(table.counts(), Default::default());
}

fn request(source: &mut Source<'_>) -> TableRequest {
    let (circuit, node) = (CircuitId([source.byte() % 3; 16]), NodeId([source.byte() % 4; 32]));
    let is_allowed = source.byte().is_multiple_of(2);
    match source.below(4) {
        0 => TableRequest::Wait { is_allowed },
        1 => TableRequest::Call { node, circuit },
        2 => TableRequest::Take { circuit },
        _ => TableRequest::Resume { circuit, node, received: source.number(), is_allowed },
    }
}
