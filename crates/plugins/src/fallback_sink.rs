//! A sink for sources that wrap others: keeps the wants that ended in a way that somebody else may
//! do better with, and lets everything else through.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use towpath_content::lock::lock;
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::{BoxFuture, Delivery, Outcome, Tag, Want};

/// The sink. What it kept is taken out with [`FallbackSink::left`] when the wrapped source is done.
pub(crate) struct FallbackSink {
    wants: Mutex<HashMap<Tag, Want>>,
    left: Mutex<Vec<Want>>,
    keeps: fn(&Outcome) -> bool,
    sink: Arc<dyn Sink>,
}

impl FallbackSink {
    /// Keeps those of `wants` whose outcome `keeps` says so of; the rest goes on to `sink`.
    pub(crate) fn new(wants: &[Want], sink: Arc<dyn Sink>, keeps: fn(&Outcome) -> bool) -> Self {
        let wants = wants.iter().map(|want| (want.tag, want.clone())).collect();
        Self { wants: Mutex::new(wants), left: Mutex::default(), keeps, sink }
    }

    fn take(&self, tag: Tag) -> Option<Want> {
        lock(&self.wants).remove(&tag)
    }

    /// The wants to hand on, in the order in which they were asked.
    pub(crate) fn left(&self) -> Vec<Want> {
        let mut left = std::mem::take(&mut *lock(&self.left));
        left.sort_by_key(|want| want.tag);
        left
    }
}

impl Sink for FallbackSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        self.take(delivery.tag);
        self.sink.deliver(delivery)
    }

    fn partial_piece(&self, delivery: Delivery) {
        self.sink.partial_piece(delivery);
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        match self.take(tag) {
            Some(want) if (self.keeps)(&outcome) => lock(&self.left).push(want),
            _ => self.sink.outcome(tag, outcome),
        }
    }

    fn backpressure(&self) -> Backlog {
        self.sink.backpressure()
    }
}
