//! Calls of whoever wants something, and how far their sinks keep up: of one that does not nothing more is asked, so that what
//! waits for it stays bounded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};
use towpath_transfer::source::Sink;
use towpath_transfer::{Delivery, Tag, Want};

/// Deliveries of one call that may wait for its sink before any source is asked for more of it.
pub(super) const MOST_UNDELIVERED: usize = 4;

/// Wants that were handed over in one call.
pub(super) struct DealtCall {
    /// Those that its wants have here, in order.
    pub(super) tags: Vec<Tag>,
    left: AtomicUsize,
    done: Notify,
    /// Deliveries that the sink has not taken yet.
    undelivered: watch::Sender<usize>,
}

impl DealtCall {
    pub(super) fn new(tags: Vec<Tag>) -> Arc<Self> {
        let (left, undelivered) = (AtomicUsize::new(tags.len()), watch::Sender::new(0));
        Arc::new(Self { tags, left, done: Notify::new(), undelivered })
    }

    /// Hands a delivery to the call's sink. It counts until the sink has taken it, or nobody waits for that.
    pub(super) async fn deliver(&self, sink: &dyn Sink, delivery: Delivery) {
        let waiting = self.one_waits();
        sink.deliver(delivery).await;
        drop(waiting);
        self.one_ended();
    }

    /// One more delivery waits for its sink.
    pub(super) fn one_waits(&self) -> WaitingDelivery<'_> {
        self.undelivered.send_modify(|all| *all += 1);
        WaitingDelivery(&self.undelivered)
    }

    /// True if the sink does not keep up with what comes.
    pub(super) fn is_behind(&self) -> bool {
        *self.undelivered.borrow() >= MOST_UNDELIVERED
    }

    /// Waits until the sink keeps up.
    pub(super) async fn keeps_up(&self) {
        // The sender is here: it cannot be gone.
        let _ = self.undelivered.subscribe().wait_for(|all| *all < MOST_UNDELIVERED).await;
    }

    /// Waits until each of its wants has ended.
    pub(super) async fn ended(&self) {
        let mut done = std::pin::pin!(self.done.notified());
        loop {
            done.as_mut().enable();
            if self.left.load(Ordering::Acquire) == 0 {
                return;
            }
            done.as_mut().await;
            done.set(self.done.notified());
        }
    }

    /// One of its wants has ended.
    pub(super) fn one_ended(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_waiters();
        }
    }
}

/// Counts a delivery as long as it waits for its sink.
pub(super) struct WaitingDelivery<'a>(&'a watch::Sender<usize>);

impl Drop for WaitingDelivery<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|all| *all -= 1);
    }
}

/// Wants that sources are asked for as soon as a sink keeps up, each by its source's number and its tag.
#[derive(Default)]
pub(super) struct HeldBack(HashSet<(u32, Tag)>);

impl HeldBack {
    /// A source is to be asked for these later.
    pub(super) fn add(&mut self, number: u32, wants: &[Want]) {
        self.0.extend(wants.iter().map(|want| (number, want.tag)));
    }

    /// It need not bring these any more.
    pub(super) fn forget(&mut self, number: u32, tags: &[Tag]) {
        tags.iter().for_each(|&tag| _ = self.0.remove(&(number, tag)));
    }

    /// A source is asked no more.
    pub(super) fn gone(&mut self, number: u32) {
        self.0.retain(|(of, _)| *of != number);
    }

    /// The sink keeps up. Returns the wants that the source is to be asked for now, and those that it need not bring any more.
    pub(super) fn let_go(&mut self, number: u32, wants: Vec<Want>) -> (Vec<Want>, Vec<Want>) {
        wants.into_iter().partition(|want| self.0.remove(&(number, want.tag)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::to_come::tests::want;
    use super::*;

    #[test]
    fn what_was_held_back_is_asked_unless_it_was_cancelled_or_its_source_is_gone() {
        let mut held_back = HeldBack::default();
        let wants = || vec![want(1, 1 << 20, 7), want(1, 1 << 20, 8)];
        let tags = |wants: &[Want]| wants.iter().map(|want| want.tag).collect::<Vec<_>>();
        (1..=2).for_each(|number| held_back.add(number, &wants()));
        held_back.forget(1, &[7]);
        held_back.gone(2);
        let (asked, cancelled) = held_back.let_go(1, wants());
        assert_eq!((tags(&asked), tags(&cancelled)), (vec![8], vec![7]));
        assert_eq!(held_back.let_go(2, wants()).0, []);
        assert_eq!(held_back.let_go(1, wants()).0, [], "they were asked for");
    }
}
