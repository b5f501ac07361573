//! Outlines that a sender has told, and the receiver's answers to them: as many, in their order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use towpath_api::ApiError;

use super::message::{Finer, violation};
use super::sender::hung_up;
use crate::lock::lock;

/// See the head of this module.
pub struct Outlines {
    /// How many were not answered.
    open: AtomicUsize,
    /// None once the copy is over.
    answers_in: Mutex<Option<mpsc::UnboundedSender<Finer>>>,
    answers: Mutex<mpsc::UnboundedReceiver<Finer>>,
}

impl Outlines {
    /// None told yet.
    pub fn new() -> Self {
        let (answers_in, answers) = mpsc::unbounded_channel();
        let (answers_in, answers) = (Mutex::new(Some(answers_in)), Mutex::new(answers));
        Self { open: AtomicUsize::new(0), answers_in, answers }
    }

    /// One is about to be told.
    pub fn told(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes an answer, which somebody waits for or will.
    pub fn answered(&self, answer: Finer) -> Result<(), ApiError> {
        let less_one = |open: usize| open.checked_sub(1);
        if self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one).is_err() {
            return Err(violation("an answer to no outline"));
        }
        if let Some(answers) = &*lock(&self.answers_in) {
            let _ = answers.send(answer);
        }
        Ok(())
    }

    /// The next answer. Blocks.
    pub fn next(&self) -> Result<Finer, ApiError> {
        lock(&self.answers).blocking_recv().ok_or_else(hung_up)
    }

    /// The copy is over: whoever waits for an answer gets none.
    pub fn end(&self) {
        *lock(&self.answers_in) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outline_is_answered_once_and_nobody_waits_beyond_the_end() {
        let outlines = Outlines::new();
        let answer = |entry| Finer { entry, ..Finer::default() };
        assert!(outlines.answered(answer(1)).is_err(), "nothing was told");
        outlines.told();
        outlines.told();
        outlines.answered(answer(1)).unwrap();
        outlines.answered(answer(2)).unwrap();
        assert!(outlines.answered(answer(3)).is_err());
        assert_eq!((outlines.next().unwrap().entry, outlines.next().unwrap().entry), (1, 2));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| outlines.next());
            outlines.end();
            assert!(waiting.join().unwrap().is_err());
        });
    }
}
