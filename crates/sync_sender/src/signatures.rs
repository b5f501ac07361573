//! Signatures that a sender waits for while a file goes in parts: for each file as many as it requested, in their order.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

use towpath_content::delta::exchange::{NextSignature, SignatureInbox};
use towpath_content::lock::lock;

use super::message::{DeltaMessage, hung_up, violation};
use crate::error::CopyError;

/// Bytes of signatures that nobody took yet, at most.
const MOST_WAITING: usize = 16 << 20;

/// See the head of this module.
#[derive(Default)]
pub struct Signatures {
    state: Mutex<SignatureState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignatureState {
    files: HashMap<u64, SignatureInbox>,
    bytes: usize,
    is_over: bool,
}

impl Signatures {
    /// So many more were requested of the receiver, or are about to be.
    pub fn expect(&self, entry: u64, more: u64) {
        if more > 0 {
            lock(&self.state).files.entry(entry).or_default().expect(more);
        }
    }

    /// Takes a signature, which somebody waits for or will.
    pub fn recv(&self, message: &DeltaMessage) -> Result<(), CopyError> {
        let bad = |error: &dyn std::fmt::Display| violation(&error.to_string());
        let signature = NextSignature::from_bytes(&message.bytes).map_err(|error| bad(&error))?;
        let mut state = lock(&self.state);
        state.with(message.entry, |inbox| inbox.recv(signature)).map_err(|error| bad(&error))?;
        if state.bytes > MOST_WAITING {
            return Err(violation("more signatures than it may have files"));
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The next signature of a file. Blocks.
    pub fn next(&self, entry: u64) -> Result<NextSignature, CopyError> {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                return Err(hung_up());
            }
            if let Some(signature) = state.with(entry, SignatureInbox::take) {
                return Ok(signature);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No signature of this file is of use any more.
    pub fn forget(&self, entry: u64) {
        lock(&self.state).with(entry, SignatureInbox::forget);
    }

    /// The copy is over: whoever waits for a signature gets none.
    pub fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

impl SignatureState {
    /// Changes what is expected of a file, and counts what that holds.
    fn with<T>(&mut self, entry: u64, change: impl FnOnce(&mut SignatureInbox) -> T) -> T {
        let inbox = self.files.entry(entry).or_default();
        let before = inbox.held();
        let result = change(inbox);
        self.bytes = self.bytes + inbox.held() - before;
        if inbox.is_done() {
            self.files.remove(&entry);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(entry: u64, bytes: usize) -> DeltaMessage {
        DeltaMessage { entry, bytes: NextSignature::Signed(vec![0; bytes]).to_bytes().into() }
    }

    #[test]
    fn each_file_gets_its_signatures_and_nobody_waits_beyond_the_end() {
        let signatures = Signatures::default();
        assert!(signatures.recv(&signed(1, 1)).is_err(), "nothing was requested");
        [1, 2].into_iter().for_each(|entry| signatures.expect(entry, 2));
        for (entry, bytes) in [(1, 1), (2, 2), (1, 3)] {
            signatures.recv(&signed(entry, bytes)).unwrap();
        }
        assert!(signatures.recv(&signed(1, 4)).is_err());
        let came = [2, 1, 1].map(|entry| signatures.next(entry).unwrap().len());
        assert_eq!(came, [2, 1, 3]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| signatures.next(2));
            signatures.end();
            assert!(waiting.join().unwrap().is_err());
        });
    }

    #[test]
    fn what_nobody_wants_is_not_held_and_the_rest_is_bounded() {
        let signatures = Signatures::default();
        let most = towpath_content::delta::exchange::MAX_SIGNATURE_LEN;
        signatures.expect(1, 200);
        (0..80).for_each(|_| signatures.recv(&signed(1, most)).unwrap());
        signatures.forget(1);
        (80..200).for_each(|_| signatures.recv(&signed(1, most)).unwrap());
        assert!(signatures.recv(&signed(1, 1)).is_err(), "all came");
        assert!(lock(&signatures.state).files.is_empty());
        signatures.expect(2, 200);
        assert!((0..200).any(|_| signatures.recv(&signed(2, most)).is_err()));
    }
}
