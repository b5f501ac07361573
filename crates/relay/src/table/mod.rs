//! All that a relay knows of its guests: who waits, who calls, who comes to take a call or to go on with a circuit, and
//! what each may use. Pure: it is handed requests and the time, and says whom to tell what and whom to join.
//!
//! A *guest* is a connection of a node. It asks for one thing: to wait, to call, to take, to resume. Two guests that
//! belong together are joined, and the table forgets them but for their count.

mod metering;
mod pairing;
mod rules;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use towpath_content::NodeId;

use crate::message::{CircuitId, FailReason, RelayMessage};
use metering::Metering;
pub use metering::{Charge, RelayAccount};
pub use pairing::{Pairing, Side};
pub(crate) use rules::neighbourhood;
pub use rules::{Quotas, RelayRules};

/// So long a caller waits for the one it calls, and one end of a circuit for the other.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Number of a guest, as the caller of the table counts them.
pub type GuestId = u64;

/// What a guest asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableRequest {
    /// To be called here.
    Wait {
        /// It has shown that it may.
        is_allowed: bool,
    },
    /// To be joined with this node.
    Call {
        /// The node.
        node: NodeId,
        /// The circuit.
        circuit: CircuitId,
    },
    /// To be joined with who called by this name.
    Take {
        /// The circuit.
        circuit: CircuitId,
    },
    /// To go on with a circuit.
    Resume {
        /// The circuit.
        circuit: CircuitId,
        /// The node at its other end.
        node: NodeId,
        /// The last block it has taken in.
        received: u64,
        /// It has shown that it may wait here.
        is_allowed: bool,
    },
}

/// Two guests that are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// The guests.
    pub guests: [GuestId; 2],
    /// What each has taken in.
    pub received: [u64; 2],
    /// The circuit.
    pub circuit: CircuitId,
    /// That of the two which may wait here: what passes counts as its.
    pub account: RelayAccount,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableAction {
    /// Send this to a waiting guest.
    Tell(GuestId, RelayMessage),
    /// Send this reason to a guest, and end its connection.
    Dismiss(GuestId, FailReason),
    /// Both get `Ok`; from now on what comes from the one goes to the other.
    Join(Joined),
}

/// What a guest is here for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CircuitRole {
    Undecided,
    Waiting,
    Calling(CircuitId),
    Resuming(ResumeKey),
    Joined,
}

#[derive(Debug, Clone, Copy)]
struct Guest {
    node: NodeId,
    address: IpAddr,
    role: CircuitRole,
}

impl Guest {
    const fn account(&self) -> RelayAccount {
        RelayAccount { node: self.node, address: self.address }
    }
}

#[derive(Debug, Clone, Copy)]
struct PendingCall {
    caller: GuestId,
    callee: NodeId,
    /// The callee was told.
    is_told: bool,
    until: Instant,
}

/// A circuit and its two nodes, the smaller first: who knows its name alone finds nothing.
type ResumeKey = (CircuitId, NodeId, NodeId);

#[derive(Debug, Clone, Copy)]
struct PendingResume {
    guest: GuestId,
    node: NodeId,
    received: u64,
    is_allowed: bool,
    until: Instant,
}

/// See the head of this module.
pub struct RelayTable {
    quotas: Quotas,
    guests: HashMap<GuestId, Guest>,
    per_node: HashMap<NodeId, usize>,
    per_address: HashMap<IpAddr, usize>,
    waiting: HashMap<NodeId, GuestId>,
    /// Nodes that took a call on the connection on which they waited, and until when calls wait for them to come again.
    away: HashMap<NodeId, Instant>,
    calls: HashMap<CircuitId, PendingCall>,
    resumes: HashMap<ResumeKey, PendingResume>,
    metering: Metering,
    actions: VecDeque<TableAction>,
}

impl RelayTable {
    /// A table without guests.
    pub fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            guests: HashMap::new(),
            per_node: HashMap::new(),
            per_address: HashMap::new(),
            waiting: HashMap::new(),
            away: HashMap::new(),
            calls: HashMap::new(),
            resumes: HashMap::new(),
            metering: Metering::default(),
            actions: VecDeque::new(),
        }
    }

    /// A node has connected.
    pub fn enter(&mut self, id: GuestId, node: NodeId, address: IpAddr) -> Result<(), FailReason> {
        let address = neighbourhood(address);
        let is_full = self.guests.len() >= self.quotas.connections
            || count(&self.per_node, &node) >= self.quotas.connections_per_node
            || count(&self.per_address, &address) >= self.quotas.connections_per_address;
        if is_full {
            return Err(FailReason::OverQuota);
        }
        *self.per_node.entry(node).or_default() += 1;
        *self.per_address.entry(address).or_default() += 1;
        self.guests.insert(id, Guest { node, address, role: CircuitRole::Undecided });
        Ok(())
    }

    /// A guest's connection has ended.
    pub fn leave(&mut self, id: GuestId) {
        let Some(guest) = self.guests.remove(&id) else { return };
        less(&mut self.per_node, guest.node);
        less(&mut self.per_address, guest.address);
        self.forget_role(id, guest);
    }

    fn forget_role(&mut self, id: GuestId, guest: Guest) {
        match guest.role {
            CircuitRole::Waiting if self.waiting.get(&guest.node) == Some(&id) => {
                self.waiting.remove(&guest.node);
            }
            CircuitRole::Calling(circuit) => {
                self.calls.remove(&circuit);
            }
            CircuitRole::Resuming(key)
                if self.resumes.get(&key).is_some_and(|pending| pending.guest == id) =>
            {
                self.resumes.remove(&key);
            }
            _ => {}
        }
    }

    /// A guest asks for something. It asks once; but who waits may take a call then.
    pub fn request(&mut self, id: GuestId, request: TableRequest, now: Instant) {
        let Some(guest) = self.guests.get(&id).copied() else { return };
        let may_ask = match guest.role {
            CircuitRole::Undecided => true,
            CircuitRole::Waiting => matches!(request, TableRequest::Take { .. }),
            _ => false,
        };
        if !may_ask {
            return self.dismiss(id, FailReason::Violation);
        }
        let outcome = match request {
            TableRequest::Wait { is_allowed } => self.wait(id, guest, is_allowed),
            TableRequest::Call { node, circuit } => self.call(id, guest, node, circuit, now),
            TableRequest::Take { circuit } => self.take(id, guest, circuit, now),
            TableRequest::Resume { circuit, node, received, is_allowed } => {
                let until = now + ANSWER_LIMIT;
                let pending = PendingResume { guest: id, node: guest.node, received, is_allowed, until };
                self.resume(pending, node, circuit);
                Ok(())
            }
        };
        if let Err(why) = outcome {
            self.dismiss(id, why);
        }
    }

    fn wait(&mut self, id: GuestId, guest: Guest, is_allowed: bool) -> Result<(), FailReason> {
        if !is_allowed {
            return Err(FailReason::NotAllowed);
        }
        if let Some(older) = self.waiting.insert(guest.node, id) {
            let may_take = self.calls.values().any(|call| call.callee == guest.node && call.is_told);
            match may_take {
                // It may take on the older connection a call that it was told there.
                true => self.set_role(older, CircuitRole::Undecided),
                // Whoever comes again has lost the connection it had.
                false => self.dismiss(older, FailReason::NoAnswer),
            }
        }
        self.set_role(id, CircuitRole::Waiting);
        self.actions.push_back(TableAction::Tell(id, RelayMessage::Ok { received: 0 }));
        if self.away.remove(&guest.node).is_some() {
            self.tell_calls(id, guest.node);
        }
        Ok(())
    }

    /// Tells a node that has come again who called meanwhile.
    fn tell_calls(&mut self, id: GuestId, node: NodeId) {
        let untold = self.calls.iter_mut().filter(|(_, call)| call.callee == node && !call.is_told);
        for (&circuit, call) in untold {
            let Some(caller) = self.guests.get(&call.caller) else { continue };
            call.is_told = true;
            let incoming = RelayMessage::Incoming { circuit, caller: caller.node };
            self.actions.push_back(TableAction::Tell(id, incoming));
        }
    }

    fn call(
        &mut self,
        id: GuestId,
        guest: Guest,
        node: NodeId,
        circuit: CircuitId,
        now: Instant,
    ) -> Result<(), FailReason> {
        let waiting = self.waiting.get(&node).copied();
        if waiting.is_none() && self.away.get(&node).is_none_or(|until| *until <= now) {
            return Err(FailReason::NotWaiting);
        }
        if self.calls.contains_key(&circuit) {
            return Err(FailReason::Violation);
        }
        let is_told = waiting.is_some();
        let call = PendingCall { caller: id, callee: node, is_told, until: now + ANSWER_LIMIT };
        self.calls.insert(circuit, call);
        self.set_role(id, CircuitRole::Calling(circuit));
        let incoming = RelayMessage::Incoming { circuit, caller: guest.node };
        self.actions.extend(waiting.map(|waiting| TableAction::Tell(waiting, incoming)));
        Ok(())
    }

    fn take(
        &mut self,
        id: GuestId,
        guest: Guest,
        circuit: CircuitId,
        now: Instant,
    ) -> Result<(), FailReason> {
        let call = self.calls.get(&circuit).filter(|call| call.callee == guest.node);
        let call = *call.ok_or(FailReason::NoCircuit)?;
        self.calls.remove(&circuit);
        if guest.role == CircuitRole::Waiting {
            self.forget_role(id, guest);
            self.away.retain(|_, until| *until > now);
            self.away.insert(guest.node, now + ANSWER_LIMIT);
        }
        let guests = [call.caller, id];
        self.join(Joined { guests, received: [0, 0], circuit, account: guest.account() });
        Ok(())
    }

    fn resume(&mut self, pending: PendingResume, other: NodeId, circuit: CircuitId) {
        let key = (circuit, pending.node.min(other), pending.node.max(other));
        match self.resumes.remove(&key) {
            Some(first) if first.node == other => return self.resume_both(first, pending, circuit),
            // It has come again, and lost the connection it had.
            Some(older) => self.dismiss(older.guest, FailReason::NoAnswer),
            None => {}
        }
        self.resumes.insert(key, pending);
        self.set_role(pending.guest, CircuitRole::Resuming(key));
    }

    fn resume_both(&mut self, first: PendingResume, second: PendingResume, circuit: CircuitId) {
        let allowed = [first, second].into_iter().find(|end| end.is_allowed);
        let account = allowed.and_then(|end| self.guests.get(&end.guest)).map(Guest::account);
        let (guests, received) = ([first.guest, second.guest], [first.received, second.received]);
        match account {
            Some(account) => self.join(Joined { guests, received, circuit, account }),
            None => guests.into_iter().for_each(|guest| self.dismiss(guest, FailReason::NotAllowed)),
        }
    }

    fn join(&mut self, joined: Joined) {
        joined.guests.into_iter().for_each(|guest| self.set_role(guest, CircuitRole::Joined));
        self.actions.push_back(TableAction::Join(joined));
    }

    fn set_role(&mut self, id: GuestId, role: CircuitRole) {
        if let Some(guest) = self.guests.get_mut(&id) {
            guest.role = role;
        }
    }

    /// Forgets what a guest asked for; its connection ends.
    fn dismiss(&mut self, id: GuestId, why: FailReason) {
        if let Some(&guest) = self.guests.get(&id) {
            self.forget_role(id, guest);
            self.set_role(id, CircuitRole::Joined);
            self.actions.push_back(TableAction::Dismiss(id, why));
        }
    }

    /// Something to do, as long as there is.
    pub fn poll_action(&mut self) -> Option<TableAction> {
        self.actions.pop_front()
    }

    /// The time has come that [`Self::next_timeout`] told.
    pub fn handle_timeout(&mut self, now: Instant) {
        let calls = self.calls.values().filter(|call| call.until <= now).map(|call| call.caller);
        let resumes =
            self.resumes.values().filter(|pending| pending.until <= now).map(|pending| pending.guest);
        let late: Vec<GuestId> = calls.chain(resumes).collect();
        late.into_iter().for_each(|id| self.dismiss(id, FailReason::NoAnswer));
        self.metering.clean(now);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let calls = self.calls.values().map(|call| call.until);
        calls.chain(self.resumes.values().map(|pending| pending.until)).min()
    }

    /// A circuit of this account passes so many bytes.
    pub fn charge(&mut self, circuit: CircuitId, account: RelayAccount, len: u64, now: Instant) -> Charge {
        self.metering.charge(&self.quotas, circuit, account, len, now)
    }

    /// Guests, and what is held for them: nodes that wait, calls, and ends of circuits that wait for the other.
    pub fn counts(&self) -> TableCounts {
        TableCounts {
            guests: self.guests.len(),
            waiting: self.waiting.len(),
            calls: self.calls.len(),
            resumes: self.resumes.len(),
        }
    }
}

/// Counts of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableCounts {
    /// Connections.
    pub guests: usize,
    /// Nodes that can be called.
    pub waiting: usize,
    /// Calls not taken yet.
    pub calls: usize,
    /// Ends of circuits that wait for the other after a loss.
    pub resumes: usize,
}

fn count<Key: Hash + Eq>(counts: &HashMap<Key, usize>, key: &Key) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

fn less<Key: Hash + Eq>(counts: &mut HashMap<Key, usize>, key: Key) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
