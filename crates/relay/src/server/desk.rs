//! The table, and the way from its actions to the guests' tasks.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::FrameWriter;

use crate::message::{CircuitId, FailReason, RelayMessage};
use crate::table::{
    Charge, GuestId, Joined, Pairing, RelayAccount, RelayRules, RelayTable, Side, TableAction, TableCounts,
    TableRequest,
};

/// What all guests of a relay share.
pub(super) struct RelayShared {
    pub(super) rules: RelayRules,
    pub(super) desk: Mutex<Desk>,
}

/// Guests' tasks, and the table.
pub(super) struct Desk {
    table: RelayTable,
    /// The way to each guest until it is joined. What waits there is bounded by the calls that others may have open.
    orders: HashMap<GuestId, UnboundedSender<DeskOrder>>,
    last: GuestId,
}

/// Something that a guest's task is to do.
pub(super) enum DeskOrder {
    /// Send this.
    Tell(RelayMessage),
    /// Send this reason and end.
    Dismiss(FailReason),
    /// Pass on what the guest sends to the other.
    Join(Box<Seat>),
}

/// One of the two places at a circuit.
pub(super) struct Seat {
    pub(super) side: Side,
    pub(super) joint: Arc<Joint>,
    /// What the other guest has taken in.
    pub(super) received: u64,
    /// For this guest's sending half.
    pub(super) give: oneshot::Sender<FrameWriter>,
    /// For the other one's.
    pub(super) take: oneshot::Receiver<FrameWriter>,
}

/// What the two guests of a circuit share.
pub(super) struct Joint {
    pub(super) pairing: Mutex<Pairing>,
    pub(super) circuit: CircuitId,
    pub(super) account: RelayAccount,
    /// Cancelled once one of the two has ended.
    pub(super) over: CancellationToken,
    /// What both are told then, if it is anything but a loss.
    pub(super) why: OnceLock<FailReason>,
}

impl RelayShared {
    pub(super) fn new(rules: RelayRules) -> Self {
        let table = RelayTable::new(rules.quotas.clone());
        Self { rules, desk: Mutex::new(Desk { table, orders: HashMap::new(), last: 0 }) }
    }

    /// A guest comes in, if there is room.
    pub(super) fn enter(self: &Arc<Self>, node: NodeId, address: IpAddr) -> Result<Presence, FailReason> {
        let mut desk = lock(&self.desk);
        desk.last += 1;
        let id = desk.last;
        desk.table.enter(id, node, address)?;
        let (sender, orders) = unbounded_channel();
        desk.orders.insert(id, sender);
        Ok(Presence { id, orders: Some(orders), shared: Arc::clone(self) })
    }

    /// Whether so many bytes of a circuit may pass.
    pub(super) fn charge(&self, joint: &Joint, len: u64) -> Charge {
        let quotas = &self.rules.quotas;
        if len == 0 || !quotas.limit_bytes() {
            return Charge::Fine;
        }
        lock(&self.desk).table.charge(joint.circuit, joint.account, len, Instant::now())
    }
}

impl Desk {
    pub(super) fn counts(&self) -> TableCounts {
        self.table.counts()
    }

    /// Hands out what the table wants done.
    fn act(&mut self) {
        while let Some(action) = self.table.poll_action() {
            match action {
                TableAction::Tell(id, message) => self.order(id, DeskOrder::Tell(message)),
                TableAction::Dismiss(id, why) => self.order(id, DeskOrder::Dismiss(why)),
                TableAction::Join(joined) => self.join(joined),
            }
        }
    }

    fn order(&mut self, id: GuestId, order: DeskOrder) {
        if let Some(orders) = self.orders.get(&id) {
            // Else it is leaving.
            let _ = orders.send(order);
        }
    }

    fn join(&mut self, joined: Joined) {
        let joint = Arc::new(Joint {
            pairing: Mutex::new(Pairing::new(joined.received)),
            circuit: joined.circuit,
            account: joined.account,
            over: CancellationToken::new(),
            why: OnceLock::new(),
        });
        let ((give_near, take_far), (give_far, take_near)) = (oneshot::channel(), oneshot::channel());
        let ([near, far], [near_received, far_received]) = (joined.guests, joined.received);
        let seat = |side, received, give, take| {
            DeskOrder::Join(Box::new(Seat { side, joint: Arc::clone(&joint), received, give, take }))
        };
        self.order(near, seat(Side::Near, far_received, give_near, take_near));
        self.order(far, seat(Side::Far, near_received, give_far, take_far));
        self.orders.remove(&near);
        self.orders.remove(&far);
    }
}

/// A guest's presence: dropping it takes it off the table.
pub(super) struct Presence {
    id: GuestId,
    orders: Option<UnboundedReceiver<DeskOrder>>,
    shared: Arc<RelayShared>,
}

impl Presence {
    /// Asks the table for something.
    pub(super) fn request(&self, request: TableRequest) {
        let mut desk = lock(&self.shared.desk);
        desk.table.request(self.id, request, Instant::now());
        desk.act();
    }

    /// Looks for what has taken too long, this guest's affairs among it.
    pub(super) fn look_for_late(&self) {
        let mut desk = lock(&self.shared.desk);
        desk.table.handle_timeout(Instant::now());
        desk.act();
    }

    /// The next thing to do. Cancel-safe.
    pub(super) async fn order(&mut self) -> DeskOrder {
        let order = match &mut self.orders {
            Some(orders) => orders.recv().await,
            None => None,
        };
        order.unwrap_or(DeskOrder::Dismiss(FailReason::ShuttingDown))
    }

    /// No more orders are expected: gives their memory back.
    pub(super) fn is_joined(&mut self) {
        self.orders = None;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut desk = lock(&self.shared.desk);
        desk.orders.remove(&self.id);
        desk.table.leave(self.id);
        desk.act();
    }
}
