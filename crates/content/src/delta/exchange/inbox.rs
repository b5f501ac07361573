//! Signatures that a responder will want: as many as the requester was told to send, in their order.
//!
//! They come while the responder works. What nobody waits for is refused, and what nobody wants any more is dropped.

use std::collections::VecDeque;

use super::{NextSignature, NotDue};

/// Signatures of one file.
#[derive(Debug, Default)]
pub struct SignatureInbox {
    /// Signatures that did not come.
    open: u64,
    came: VecDeque<NextSignature>,
    /// Nobody will take them.
    is_forgotten: bool,
}

impl SignatureInbox {
    /// The requester was told to send so many more, or is about to be.
    pub const fn expect(&mut self, more: u64) {
        self.open += more;
        self.is_forgotten = false;
    }

    /// Takes one that came.
    pub fn recv(&mut self, signature: NextSignature) -> Result<(), NotDue> {
        self.open = self.open.checked_sub(1).ok_or(NotDue("a signature that nobody waits for"))?;
        if !self.is_forgotten {
            self.came.push_back(signature);
        }
        Ok(())
    }

    /// The next one.
    pub fn take(&mut self) -> Option<NextSignature> {
        self.came.pop_front()
    }

    /// None of them is of use any more.
    pub fn forget(&mut self) {
        self.came.clear();
        self.is_forgotten = true;
    }

    /// Bytes of those that came and were not taken.
    pub fn held(&self) -> usize {
        self.came.iter().map(NextSignature::len).sum()
    }

    /// True if nothing of it is needed any more.
    pub fn is_done(&self) -> bool {
        self.open == 0 && (self.is_forgotten || self.came.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(len: usize) -> NextSignature {
        NextSignature::Signed(vec![0; len])
    }

    #[test]
    fn signatures_are_taken_in_their_order_and_no_more_than_were_wanted() {
        let mut inbox = SignatureInbox::default();
        assert!(inbox.recv(signed(1)).is_err(), "nothing was wanted");
        inbox.expect(2);
        inbox.recv(signed(1)).unwrap();
        inbox.recv(NextSignature::GivenUp).unwrap();
        assert!(inbox.recv(signed(3)).is_err());
        assert_eq!((inbox.held(), inbox.is_done()), (1, false));
        assert_eq!(
            [inbox.take(), inbox.take(), inbox.take()],
            [Some(signed(1)), Some(NextSignature::GivenUp), None]
        );
        assert!(inbox.is_done());
    }

    #[test]
    fn what_nobody_wants_is_not_held() {
        let mut inbox = SignatureInbox::default();
        inbox.expect(3);
        inbox.recv(signed(100)).unwrap();
        inbox.forget();
        assert_eq!((inbox.held(), inbox.is_done()), (0, false), "two are on the way");
        [1, 2].into_iter().for_each(|len| inbox.recv(signed(len)).unwrap());
        assert_eq!((inbox.held(), inbox.is_done()), (0, true));
        assert!(inbox.recv(signed(1)).is_err());
    }
}
