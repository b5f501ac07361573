//! Turns of the `Get`s of one node, on whichever of its connections: those that it said
//! are more urgent go first, and the others still get a little. Between nodes nothing is urgent: what
//! one of them says holds up none but its own.
//!
//! [`Order`] decides and is pure: handed the time and what went out. [`NodeTurns`] shares it between
//! connections.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use towpath_content::NodeId;
use towpath_content::lock::lock;

/// Of so many bytes one is left to what is less urgent.
const SHARE: u64 = 16;
/// Time without anything to send after which more urgent requests hold up nobody.
const STALLED: Duration = Duration::from_secs(2);
/// Interval at which whoever waits for a turn looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(20);

/// Requests of one node under way, by priority. Pure.
#[derive(Debug, Default)]
pub struct Order {
    /// Kept while anything is under way, so that a debt outlives its request.
    classes: BTreeMap<i8, Class>,
}

#[derive(Debug)]
struct Class {
    under_way: usize,
    /// Time at which a request came or something went out.
    active: Instant,
    /// Bytes that what is more urgent sends before this has its next turn.
    owed: u64,
}

impl Order {
    /// A request begins.
    pub fn enter(&mut self, priority: i8, now: Instant) {
        let class = self.classes.entry(priority).or_insert(Class { under_way: 0, active: now, owed: 0 });
        class.under_way += 1;
        class.active = now;
    }

    /// A request has ended.
    pub fn leave(&mut self, priority: i8) {
        if let Some(class) = self.classes.get_mut(&priority) {
            class.under_way = class.under_way.saturating_sub(1);
        }
        if self.classes.values().all(|class| class.under_way == 0) {
            self.classes.clear();
        }
    }

    /// True if the next frame of this priority may go out.
    pub fn may_go(&self, priority: i8, now: Instant) -> bool {
        let is_active = |class: &Class| now.saturating_duration_since(class.active) < STALLED;
        !self.above(priority).any(is_active) || self.owes_nothing(priority)
    }

    /// True if the next frame of this priority may go out before what is more urgent and could go, too.
    pub fn owes_nothing(&self, priority: i8) -> bool {
        self.classes.get(&priority).is_none_or(|class| class.owed == 0)
    }

    /// So many bytes of this priority went out.
    pub fn went(&mut self, priority: i8, bytes: u64, now: Instant) {
        let owed = if self.above(priority).next().is_some() { (SHARE - 1) * bytes } else { 0 };
        for (_, class) in self.classes.range_mut(..priority) {
            class.owed = class.owed.saturating_sub(bytes);
        }
        if let Some(class) = self.classes.get_mut(&priority) {
            class.owed = owed;
            class.active = now;
        }
    }

    /// More urgent requests under way.
    fn above(&self, priority: i8) -> impl Iterator<Item = &Class> {
        let above = (Bound::Excluded(priority), Bound::Unbounded);
        self.classes.range(above).map(|(_, class)| class).filter(|class| class.under_way > 0)
    }

    fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    fn is_contended(&self) -> bool {
        self.classes.values().filter(|class| class.under_way > 0).count() > 1
    }
}

/// Turns of all nodes.
#[derive(Debug, Default)]
pub struct NodeTurns(Mutex<HashMap<NodeId, Arc<TurnNode>>>);

#[derive(Debug, Default)]
struct TurnNode {
    order: Mutex<Order>,
    changed: Notify,
    /// Requests of several priorities are under way; otherwise nobody need look at the order.
    is_contended: AtomicBool,
}

/// The place of one request, until it is dropped.
#[derive(Debug)]
pub struct TurnTaken {
    turns: Arc<NodeTurns>,
    name: NodeId,
    node: Arc<TurnNode>,
    priority: i8,
}

impl NodeTurns {
    /// A request of `node` begins.
    pub fn enter(self: &Arc<Self>, node: NodeId, priority: i8) -> TurnTaken {
        let (mut nodes, turns) = (lock(&self.0), Arc::clone(self));
        let here = Arc::clone(nodes.entry(node).or_default());
        here.change(|order| order.enter(priority, Instant::now()));
        TurnTaken { turns, name: node, node: here, priority }
    }
}

impl TurnNode {
    fn change(&self, f: impl FnOnce(&mut Order)) {
        let mut order = lock(&self.order);
        f(&mut order);
        self.is_contended.store(order.is_contended(), Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}

impl TurnTaken {
    /// Urgency of the request.
    pub const fn priority(&self) -> i8 {
        self.priority
    }

    /// True if its node has requests of several priorities under way.
    pub fn is_contended(&self) -> bool {
        self.node.is_contended.load(Ordering::Relaxed)
    }

    /// True if the next frame may go out.
    pub fn may_go(&self) -> bool {
        !self.is_contended() || lock(&self.node.order).may_go(self.priority, Instant::now())
    }

    /// True if it may go out before what is more urgent and could go, too.
    pub fn owes_nothing(&self) -> bool {
        lock(&self.node.order).owes_nothing(self.priority)
    }

    /// So many bytes went out.
    pub fn went(&self, bytes: u64) {
        if self.is_contended() {
            self.node.change(|order| order.went(self.priority, bytes, Instant::now()));
        }
    }

    /// Completes after a moment, or when something has changed.
    pub fn change(&self) -> impl Future<Output = ()> + Send + use<> {
        let node = Arc::clone(&self.node);
        async move {
            let _ = tokio::time::timeout(TICK, node.changed.notified()).await;
        }
    }
}

impl Drop for TurnTaken {
    fn drop(&mut self) {
        let mut nodes = lock(&self.turns.0);
        self.node.change(|order| order.leave(self.priority));
        if lock(&self.node.order).is_empty() {
            nodes.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 16 << 10;

    /// Priorities that go out, one frame each `every`; the least urgent that may.
    fn frames(order: &mut Order, count: usize, every: Duration, priorities: &[i8]) -> Vec<i8> {
        let start = Instant::now();
        let mut went = Vec::new();
        for tick in 0..count as u32 {
            let now = start + every * tick;
            let next = priorities.iter().copied().filter(|&it| order.may_go(it, now)).min();
            order.went(next.unwrap(), FRAME, now);
            went.extend(next);
        }
        went
    }

    fn order(priorities: &[i8]) -> Order {
        let mut order = Order::default();
        priorities.iter().for_each(|&priority| order.enter(priority, Instant::now()));
        order
    }

    #[test]
    fn what_is_less_urgent_gets_one_frame_in_sixteen() {
        let went = frames(&mut order(&[0, 7]), 160, Duration::from_millis(10), &[0, 7]);
        assert_eq!(went.iter().filter(|&&priority| priority == 0).count(), 10);
        let three = frames(&mut order(&[-1, 0, 7]), 256, Duration::from_millis(10), &[-1, 0, 7]);
        let count = |priority| three.iter().filter(|&&it| it == priority).count();
        assert!(count(7) >= 220 && count(0) >= 15 && count(-1) >= 15, "{} {}", count(0), count(-1));
    }

    #[test]
    fn what_is_urgent_and_has_nothing_to_send_holds_up_nobody_for_long() {
        let (mut order, start) = (order(&[0, 7]), Instant::now());
        order.went(7, FRAME, start);
        order.went(0, FRAME, start);
        assert!(!order.may_go(0, start + STALLED / 2), "it owes fifteen frames");
        assert!(order.may_go(7, start));
        assert!(order.may_go(0, start + STALLED));
    }

    #[test]
    fn a_debt_outlives_its_request_but_not_what_it_is_owed_to() {
        let (mut order, start) = (order(&[0, 7]), Instant::now());
        order.went(0, FRAME, start);
        order.leave(0);
        order.enter(0, start);
        assert!(!order.may_go(0, start), "a new request is no way around it");
        order.leave(7);
        assert!(order.may_go(0, start));
        order.went(0, FRAME, start);
        assert!(order.owes_nothing(0));
        order.leave(0);
        assert!(order.is_empty());
    }

    #[test]
    fn equals_hold_up_nobody_and_nodes_not_each_other() {
        assert!(order(&[3, 3]).may_go(3, Instant::now()));
        let turns = Arc::new(NodeTurns::default());
        let [one, other] = [[1; 32], [2; 32]].map(NodeId);
        let (slow, urgent) = (turns.enter(one, 0), turns.enter(other, 9));
        slow.went(FRAME);
        assert!(slow.may_go() && !slow.is_contended() && !urgent.is_contended());
        let second = turns.enter(one, 1);
        slow.went(FRAME);
        assert!(slow.is_contended() && !slow.may_go() && second.may_go());
        drop(second);
        assert!(slow.may_go() && !slow.is_contended());
        drop((slow, urgent));
        assert!(lock(&turns.0).is_empty(), "nothing is left of nodes that ask nothing");
    }
}
