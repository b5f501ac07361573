//! Hints of a ticket in few bytes: nodes and addresses in binary, and nothing twice that an earlier hint says. A method that has no
//! such form stays text. Each has one form: the reader of a ticket compares (`docs/formats/ticket.md`).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::NodeId;
use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::hint::{Hint, MAX_HINTS, MAX_METHOD, PeerAddress, RELAY, RENDEZVOUS};

/// Schemes with a short form, with whether a node stands before the address and behind it. Number 0 is text.
const FORMS: [(&str, bool, bool); 5] = [
    ("tow", false, false),
    ("tow", true, false),
    (RENDEZVOUS, true, false),
    (RELAY, true, false),
    (RELAY, true, true),
];
/// Bits of the first byte: the form, the kind of host, and more.
const FORM: u8 = 7;
const HOST: u8 = 24;
const NAME: u8 = 0;
const V4: u8 = 8;
const V6: u8 = 16;
const SAME_HOST: u8 = 24;
const SAME_PORT: u8 = 32;
/// Without it priority is one more than before, and weight is 1.
const RANKED: u8 = 64;

/// What earlier hints of a ticket said.
#[derive(Default)]
pub(super) struct ShortHints {
    nodes: Vec<NodeId>,
    host: String,
    port: u16,
    priority: u16,
}

impl ShortHints {
    /// Appends a hint.
    pub(super) fn encode(&mut self, hint: &Hint, writer: &mut Writer) {
        let ranked = if (hint.priority, hint.weight) == (self.priority, 1) { 0 } else { RANKED };
        self.priority = hint.priority.wrapping_add(1);
        let rank = |writer: &mut Writer| {
            (ranked != 0).then(|| writer.varint(hint.priority.into()).varint(hint.weight.into()));
        };
        let Some((form, nodes, host, port)) = parts(&hint.method) else {
            writer.u8(ranked);
            rank(writer);
            writer.bytes(hint.method.as_bytes());
            return;
        };
        let (v4, inner) = (host.parse::<Ipv4Addr>().ok(), host.trim_matches(['[', ']']));
        let v6 = inner.parse::<Ipv6Addr>().ok().filter(|ip| format!("[{ip}]") == host);
        let is_same = self.host == host;
        let kind = if is_same { SAME_HOST } else { v4.map_or(v6.map_or(NAME, |_| V6), |_| V4) };
        let same_port = if self.port == port { SAME_PORT } else { 0 };
        writer.u8(form | kind | same_port | ranked);
        rank(writer);
        for node in nodes.into_iter().flatten() {
            let known = self.nodes.iter().position(|known| *known == node);
            writer.varint(known.map_or(0, |at| at as u64 + 1));
            known.is_none().then(|| writer.raw(&node.0));
            known.is_none().then(|| self.nodes.push(node));
        }
        match (kind, v4, v6) {
            (V4, Some(ip), _) => drop(writer.raw(&ip.octets())),
            (V6, _, Some(ip)) => drop(writer.raw(&ip.octets())),
            (NAME, ..) => drop(writer.bytes(host.as_bytes())),
            _ => {}
        }
        (same_port == 0).then(|| writer.raw(&port.to_be_bytes()));
        (self.host, self.port) = (host, port);
    }

    /// Reads one.
    pub(super) fn decode(&mut self, reader: &mut Reader<'_>) -> Result<Hint, DecodeError> {
        let first = reader.u8("hint")?;
        let rank = |reader: &mut Reader<'_>, usual| match first & RANKED {
            0 => Ok(usual),
            _ => reader.bounded("hint rank", u16::MAX.into()).map(|rank| rank as u16),
        };
        let (priority, weight) = (rank(reader, self.priority)?, rank(reader, 1)?);
        self.priority = priority.wrapping_add(1);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| invalid("hint", "not UTF-8"));
        let Some(form) = (first & FORM).checked_sub(1) else {
            return Hint::new(text(reader.bytes("hint method", MAX_METHOD)?)?, priority, weight);
        };
        let form = FORMS.get(usize::from(form)).ok_or(invalid("hint", "has a form that no hint has"))?;
        let before = form.1.then(|| self.node(reader)).transpose()?;
        let behind = form.2.then(|| self.node(reader)).transpose()?;
        match first & HOST {
            NAME => self.host = text(reader.bytes("hint host", MAX_METHOD)?)?,
            V4 => self.host = Ipv4Addr::from(reader.array::<4>("hint host")?).to_string(),
            V6 => self.host = format!("[{}]", Ipv6Addr::from(reader.array::<16>("hint host")?)),
            _ => {}
        }
        if first & SAME_PORT == 0 {
            self.port = u16::from_be_bytes(reader.array("hint port")?);
        }
        Hint::new(method(form.0, &[before, behind], &self.host, self.port), priority, weight)
    }

    fn node(&mut self, reader: &mut Reader<'_>) -> Result<NodeId, DecodeError> {
        match reader.bounded("hint node", 2 * MAX_HINTS as u64)?.checked_sub(1) {
            Some(at) => {
                self.nodes.get(at as usize).copied().ok_or(invalid("hint node", "was not named before"))
            }
            None => {
                self.nodes.push(NodeId(reader.array("hint node")?));
                self.nodes.last().copied().ok_or(invalid("hint node", "is missing"))
            }
        }
    }
}

fn method(scheme: &str, nodes: &[Option<NodeId>; 2], host: &str, port: u16) -> String {
    let before = nodes[0].map(|node| format!("{node}@")).unwrap_or_default();
    let behind = nodes[1].map(|node| format!("/{node}")).unwrap_or_default();
    format!("{scheme}://{before}{host}:{port}{behind}")
}

/// The form, the nodes, host and port of a method that has a short form.
fn parts(text: &str) -> Option<(u8, [Option<NodeId>; 2], String, u16)> {
    let (scheme, rest) = text.split_once("://")?;
    let (rest, behind) = rest.split_once('/').map_or((rest, None), |(rest, node)| (rest, Some(node)));
    let PeerAddress { node, address } = rest.parse().ok()?;
    let nodes = [node, behind.map(str::parse).transpose().ok()?];
    let found = FORMS.iter().position(|form| *form == (scheme, node.is_some(), behind.is_some()))?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    (method(scheme, &nodes, host, port) == text).then(|| (found as u8 + 1, nodes, host.to_owned(), port))
}
