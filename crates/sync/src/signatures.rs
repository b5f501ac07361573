//! Signatures that a sender waits for while a file goes in parts: for each file as many answers of the receiver as it was
//! told to give, in their order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex};

use bytes::Bytes;

use super::message::hung_up;
use super::message::{Finer, violation};
use crate::error::CopyError;
use towpath_content::lock::lock;

/// Bytes of answers that nobody took yet, at most.
const MOST_WAITING: usize = 16 << 20;

/// See the head of this module.
#[derive(Default)]
pub struct Signatures {
    state: Mutex<SignatureState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignatureState {
    files: HashMap<u64, Expected>,
    bytes: usize,
    is_over: bool,
}

/// What is expected for one file.
#[derive(Default)]
struct Expected {
    /// How many answers did not come.
    open: usize,
    came: VecDeque<Finer>,
    /// Nobody will take them.
    is_forgotten: bool,
}

impl Signatures {
    /// The receiver was, or is about to be, told to give one more.
    pub fn expect(&self, entry: u64) {
        let mut state = lock(&self.state);
        let expected = state.files.entry(entry).or_default();
        expected.open += 1;
        expected.is_forgotten = false;
    }

    /// Takes an answer, which somebody waits for or will.
    pub fn answered(&self, answer: Finer) -> Result<(), CopyError> {
        let mut state = lock(&self.state);
        let (entry, bytes) = (answer.entry, answer.signature.len());
        let expected = state.files.get_mut(&entry).filter(|expected| expected.open > 0);
        let expected = expected.ok_or_else(|| violation("a signature that nobody waits for"))?;
        expected.open -= 1;
        if expected.is_forgotten {
            if expected.open == 0 {
                state.files.remove(&entry);
            }
            return Ok(());
        }
        // Shared with its message, a byte of it would keep all of that.
        let signature = Bytes::copy_from_slice(&answer.signature);
        expected.came.push_back(Finer { signature, ..answer });
        state.bytes += bytes;
        if state.bytes > MOST_WAITING {
            return Err(violation("more signatures than it may have files"));
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The next answer for a file. Blocks.
    pub fn next(&self, entry: u64) -> Result<Finer, CopyError> {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                return Err(hung_up());
            }
            if let Some(answer) = state.files.get_mut(&entry).and_then(|file| file.came.pop_front()) {
                state.bytes -= answer.signature.len();
                return Ok(answer);
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// No answer for this file is of use any more.
    pub fn forget(&self, entry: u64) {
        let mut state = lock(&self.state);
        let Some(mut expected) = state.files.remove(&entry) else { return };
        let bytes = |answer: Finer| answer.signature.len();
        state.bytes -= expected.came.drain(..).map(bytes).sum::<usize>();
        if expected.open > 0 {
            state.files.insert(entry, Expected { is_forgotten: true, ..expected });
        }
    }

    /// The copy is over: whoever waits for an answer gets none.
    pub fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(entry: u64, bytes: usize) -> Finer {
        Finer { entry, signature: vec![0; bytes].into() }
    }

    #[test]
    fn each_file_gets_its_answers_in_their_order_and_nobody_waits_beyond_the_end() {
        let signatures = Signatures::default();
        assert!(signatures.answered(answer(1, 1)).is_err(), "nothing was told");
        [1, 2, 1, 2].into_iter().for_each(|entry| signatures.expect(entry));
        [(1, 1), (2, 2), (1, 3)]
            .iter()
            .for_each(|(entry, bytes)| signatures.answered(answer(*entry, *bytes)).unwrap());
        assert!(signatures.answered(answer(1, 4)).is_err());
        let came = [2, 1, 1].map(|entry| signatures.next(entry).unwrap().signature.len());
        assert_eq!(came, [2, 1, 3]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| signatures.next(2));
            signatures.end();
            assert!(waiting.join().unwrap().is_err());
        });
    }

    #[test]
    fn what_nobody_wants_is_not_held() {
        let signatures = Signatures::default();
        [1, 1, 1].into_iter().for_each(|entry| signatures.expect(entry));
        signatures.answered(answer(1, MOST_WAITING)).unwrap();
        signatures.forget(1);
        for _ in 0..2 {
            signatures.answered(answer(1, MOST_WAITING)).unwrap();
        }
        assert!(signatures.answered(answer(1, 1)).is_err(), "all came");
        assert!(lock(&signatures.state).files.is_empty());
        [1, 2].into_iter().for_each(|entry| signatures.expect(entry));
        signatures.answered(answer(1, MOST_WAITING)).unwrap();
        assert!(signatures.answered(answer(2, 1)).is_err());
    }
}
