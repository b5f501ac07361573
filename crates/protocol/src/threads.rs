//! The threads that answer, a few for all peers together: answers read the store, which blocks.
//!
//! Whoever has something to answer takes a thread for a turn, and gives it back as soon as it has to wait for its peer or its
//! object. [`ThreadOrder`] decides who is next and is pure: nodes take turns, however many connections each has, and none
//! takes more than its share of the threads, should its objects lie on the slowest of disks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use towpath_content::NodeId;
use towpath_content::lock::lock;

/// Order in which those of several nodes get their turns. Pure.
#[derive(Debug)]
pub struct ThreadOrder<Turn> {
    most: usize,
    per_node: usize,
    busy: usize,
    nodes: HashMap<NodeId, NodeShare<Turn>>,
    /// Nodes of which one waits and may go, each once.
    next: VecDeque<NodeId>,
}

#[derive(Debug)]
struct NodeShare<Turn> {
    busy: usize,
    waiting: VecDeque<Turn>,
    is_next: bool,
}

impl<Turn> ThreadOrder<Turn> {
    /// For `most` threads, of which one node has at most `per_node`.
    pub fn new(most: usize, per_node: usize) -> Self {
        Self { most, per_node, busy: 0, nodes: HashMap::new(), next: VecDeque::new() }
    }

    /// One of `node` waits for its turn.
    pub fn enter(&mut self, node: NodeId, turn: Turn) {
        let new = || NodeShare { busy: 0, waiting: VecDeque::new(), is_next: false };
        self.nodes.entry(node).or_insert_with(new).waiting.push_back(turn);
        self.line_up(node);
    }

    /// The next one that gets a thread, if there is one.
    pub fn begin(&mut self) -> Option<(NodeId, Turn)> {
        if self.busy >= self.most {
            return None;
        }
        let node = self.next.pop_front()?;
        let share = self.nodes.get_mut(&node)?;
        share.is_next = false;
        let turn = share.waiting.pop_front()?;
        share.busy += 1;
        self.busy += 1;
        self.line_up(node);
        Some((node, turn))
    }

    /// A turn of `node` is over.
    pub fn end(&mut self, node: NodeId) {
        let Some(share) = self.nodes.get_mut(&node) else { return };
        share.busy -= 1;
        self.busy -= 1;
        if share.busy == 0 && share.waiting.is_empty() {
            self.nodes.remove(&node);
        }
        self.line_up(node);
    }

    /// True if somebody waits for whom a turn of `node` should end.
    pub fn is_wanted(&self, node: &NodeId) -> bool {
        !self.next.is_empty() || self.nodes.get(node).is_some_and(|share| !share.waiting.is_empty())
    }

    fn line_up(&mut self, node: NodeId) {
        let Some(share) = self.nodes.get_mut(&node) else { return };
        if !share.is_next && !share.waiting.is_empty() && share.busy < self.per_node {
            share.is_next = true;
            self.next.push_back(node);
        }
    }
}

/// See the head of this module.
#[derive(Debug, Clone)]
pub struct AnswerThreads(Arc<Mutex<ThreadOrder<oneshot::Sender<ThreadTaken>>>>);

/// A thread, until this is dropped.
#[derive(Debug)]
struct ThreadTaken {
    threads: AnswerThreads,
    node: NodeId,
}

impl AnswerThreads {
    /// `most` threads, of which one node has at most `per_node`.
    pub fn new(most: usize, per_node: usize) -> Self {
        Self(Arc::new(Mutex::new(ThreadOrder::new(most, per_node))))
    }

    /// Does `work` of `node` in a thread, in its turn; `None` if it panicked, or the program ends.
    pub async fn run<Done: Send + 'static>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> Done + Send + 'static,
    ) -> Option<Done> {
        let (begin, begun) = oneshot::channel();
        lock(&self.0).enter(node, begin);
        self.begin();
        let taken = begun.await.ok()?;
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(taken);
            done
        });
        working.await.ok()
    }

    /// True if somebody waits for whom a turn of `node` should end.
    pub fn is_wanted(&self, node: &NodeId) -> bool {
        lock(&self.0).is_wanted(node)
    }

    /// Lets all begin for whom there are threads.
    fn begin(&self) {
        loop {
            let begun = lock(&self.0).begin();
            let Some((node, turn)) = begun else { return };
            // Whoever has gone meanwhile gives it back.
            drop(turn.send(ThreadTaken { threads: self.clone(), node }));
        }
    }
}

impl Drop for ThreadTaken {
    fn drop(&mut self) {
        lock(&self.threads.0).end(self.node);
        self.threads.begin();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const NODES: [NodeId; 3] = [NodeId([1; 32]), NodeId([2; 32]), NodeId([3; 32])];

    fn begun(order: &mut ThreadOrder<u32>) -> Vec<u32> {
        std::iter::from_fn(|| order.begin()).map(|(_, turn)| turn).collect()
    }

    #[test]
    fn nodes_take_turns_however_many_of_each_wait() {
        let [greedy, one, other] = NODES;
        let mut order = ThreadOrder::new(1, 1);
        (0..5).for_each(|turn| order.enter(greedy, turn));
        order.enter(one, 10);
        order.enter(other, 20);
        let mut went = Vec::new();
        while let Some((node, turn)) = order.begin() {
            assert!(order.begin().is_none(), "there is one thread");
            went.push(turn);
            order.end(node);
        }
        assert_eq!(went, [0, 10, 20, 1, 2, 3, 4]);
        assert!(order.nodes.is_empty() && order.next.is_empty(), "nothing is left of those who ask nothing");
    }

    #[test]
    fn one_node_cannot_take_every_thread() {
        let [slow, other, _] = NODES;
        let mut order = ThreadOrder::new(4, 3);
        (0..9).for_each(|turn| order.enter(slow, turn));
        assert_eq!(begun(&mut order), [0, 1, 2]);
        assert!(order.is_wanted(&slow) && !order.is_wanted(&other));
        (10..13).for_each(|turn| order.enter(other, turn));
        assert_eq!(begun(&mut order), [10]);
        assert!(order.is_wanted(&slow) && order.is_wanted(&other));
        order.end(slow);
        assert_eq!(begun(&mut order), [11], "it is the turn of the other one");
        order.end(other);
        assert_eq!(begun(&mut order), [3]);
    }

    #[tokio::test]
    async fn a_turn_that_panics_or_that_nobody_waits_for_leaves_its_thread_to_others() {
        let threads = AnswerThreads::new(1, 1);
        assert_eq!(threads.run(NODES[0], || panic!("on purpose")).await, None::<()>);
        let given_up = threads.run(NODES[1], || ());
        drop(given_up);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let long = tokio::spawn({
            let threads = threads.clone();
            async move { threads.run(NODES[0], move || ended.recv().is_err()).await }
        });
        while lock(&threads.0).busy == 0 {
            tokio::task::yield_now().await;
        }
        let mut goes = Box::pin(threads.run(NODES[1], || ()));
        assert_eq!(goes.as_mut().now_or_never(), None);
        drop(goes);
        drop(end);
        assert_eq!(long.await.unwrap(), Some(true));
        assert_eq!(threads.run(NODES[2], || 7).await, Some(7));
    }
}
