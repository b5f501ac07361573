//! Versions that follow each other, sent without waiting for each one's certificate: which goes next, and when an answer is due. Pure.
//!
//! ```text
//!   Send 0, Send 1, Send 2 ...   as many as are allowed on their way
//!   Await 0, Send 3, Await 1 ...
//!   refused: nothing more is sent, and the answers to what is on its way are awaited: they are refused, too
//! ```

/// Versions on their way at most.
const MOST: usize = 32;
/// Bytes of versions on their way, if there is more than one.
const MOST_BYTES: u64 = 8 << 20;

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    /// Send the version at this place.
    Send(usize),
    /// Wait for the answer to the version at this place.
    Await(usize),
    /// Nothing: all are answered that were sent.
    Done,
}

/// Versions on their way.
#[derive(Debug, Clone)]
pub struct CommitWindow {
    /// Of all versions.
    bytes: Vec<u64>,
    sent: usize,
    answered: usize,
    is_over: bool,
}

impl CommitWindow {
    /// Of versions with so many bytes each, in order.
    pub const fn new(bytes: Vec<u64>) -> Self {
        Self { bytes, sent: 0, answered: 0, is_over: false }
    }

    /// What is to be done; what it says counts as done with the next call of this, or of [`Self::answered`].
    pub fn step(&mut self) -> CommitStep {
        if self.may_send() {
            self.sent += 1;
            return CommitStep::Send(self.sent - 1);
        }
        match self.answered < self.sent {
            true => CommitStep::Await(self.answered),
            false => CommitStep::Done,
        }
    }

    /// The awaited answer came.
    pub fn answered(&mut self, is_committed: bool) {
        self.answered = self.sent.min(self.answered + 1);
        self.is_over |= !is_committed;
    }

    /// True if none was refused, and all are answered.
    pub fn is_whole(&self) -> bool {
        !self.is_over && self.answered == self.bytes.len()
    }

    fn may_send(&self) -> bool {
        let Some(next) = self.bytes.get(self.sent).filter(|_| !self.is_over) else { return false };
        let under_way = &self.bytes[self.answered..self.sent];
        let bytes = under_way.iter().fold(*next, |sum, bytes| sum.saturating_add(*bytes));
        under_way.is_empty() || under_way.len() < MOST && bytes <= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CommitStep::{Await, Done, Send};

    /// All steps, where the version at `refused` is refused and with it those that follow.
    fn steps(bytes: &[u64], refused: usize) -> (Vec<CommitStep>, bool) {
        let mut window = CommitWindow::new(bytes.to_vec());
        let mut steps = Vec::new();
        loop {
            let step = window.step();
            steps.push(step);
            match step {
                Send(_) => {}
                Await(at) => window.answered(at < refused),
                Done => return (steps, window.is_whole()),
            }
        }
    }

    #[test]
    fn small_versions_are_sent_before_the_first_is_answered() {
        let (steps_made, is_whole) = steps(&[10, 10, 10], 9);
        assert_eq!(steps_made, [Send(0), Send(1), Send(2), Await(0), Await(1), Await(2), Done]);
        assert!(is_whole);
        let (steps, _) = steps(&[1; 100], 100);
        assert_eq!(steps[MOST..MOST + 3], [Await(0), Send(MOST), Await(1)]);
        assert_eq!(steps.len(), 201);
    }

    #[test]
    fn large_ones_go_one_by_one() {
        let (steps, is_whole) = steps(&[5 << 20, 5 << 20, u64::MAX, u64::MAX], 4);
        let expected = [Send(0), Await(0), Send(1), Await(1), Send(2), Await(2), Send(3), Await(3), Done];
        assert_eq!((steps, is_whole), (expected.to_vec(), true));
    }

    #[test]
    fn after_a_refusal_nothing_is_sent_and_all_answers_are_heard() {
        let (steps_made, is_whole) = steps(&[1, 1, 1], 1);
        assert_eq!(steps_made, [Send(0), Send(1), Send(2), Await(0), Await(1), Await(2), Done]);
        assert!(!is_whole);
        let (steps_made, is_whole) = steps(&[8 << 20, 8 << 20], 0);
        assert_eq!((steps_made, is_whole), (vec![Send(0), Await(0), Done], false));
        assert_eq!(steps(&[], 0), (vec![Done], true));
    }
}
