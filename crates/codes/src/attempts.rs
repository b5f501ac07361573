//! What follows a wrong guess: counting. How often an address may try is the business of who keeps mailboxes.

use crate::code::{MAX_WORDS, USUAL_WORDS};

/// New codes that a host makes by itself.
pub const RENEWALS: u32 = 3;
/// Words of the code that follows them, at least.
pub const STANDING_WORDS: usize = 3;
/// Wrong guesses that this one stands. All together are as likely to be right as one guess at two words.
pub const STANDING_GUESSES: u32 = 1024;

/// What a host does after a wrong guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Show a new code: a new [`crate::Code::random`] and a new [`crate::CodeHost`] for it.
    NewCode {
        /// How many words it has.
        words: usize,
        /// True if people compare fingerprints from now on.
        is_verified: bool,
    },
    /// Show nothing: the code stays as it is. From now on each guest that comes has a new [`crate::CodeHost`] of its
    /// own for it, so that a guesser spoils nobody else's; when one has sold the ticket, the others are dropped.
    SameCode,
    /// End, and say that somebody guesses.
    End,
}

/// The wrong guesses at one host's codes.
///
/// A code is void after one wrong guess, and is followed by a new one, three times. Whoever still guesses then
/// counts mailboxes on purpose, and would spoil every code of that kind before the guest has typed it. So the next one
/// is longer, is compared by its fingerprint, and stands many guesses; with these used up, the host ends. A guesser is
/// right once in 2^17 at best, all codes taken together.
#[derive(Debug, Clone)]
pub struct Renewals {
    words: usize,
    is_verified: bool,
    wrong: u32,
}

impl Renewals {
    /// For a host whose codes have so many words, and compare fingerprints or do not.
    pub const fn new(words: usize, is_verified: bool) -> Self {
        Self { words, is_verified, wrong: 0 }
    }

    /// A guess was wrong ([`crate::exchange::HostStep::Void`]).
    pub fn void(&mut self) -> Renewal {
        self.wrong = self.wrong.saturating_add(1);
        let words = self.words.clamp(USUAL_WORDS, MAX_WORDS);
        match self.wrong {
            ..=RENEWALS => Renewal::NewCode { words, is_verified: self.is_verified },
            FIRST_STANDING => Renewal::NewCode { words: words.max(STANDING_WORDS), is_verified: true },
            wrong if wrong - FIRST_STANDING < STANDING_GUESSES => Renewal::SameCode,
            _ => Renewal::End,
        }
    }
}

const FIRST_STANDING: u32 = RENEWALS + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_void_code_is_renewed_three_times_and_then_one_stands() {
        let usual = |words| Renewal::NewCode { words, is_verified: false };
        let standing = |words| Renewal::NewCode { words, is_verified: true };
        for (words, is_verified, first, then) in [
            (2, false, usual(2), standing(3)),
            (2, true, standing(2), standing(3)),
            (5, false, usual(5), standing(5)),
            (99, false, usual(MAX_WORDS), standing(MAX_WORDS)),
        ] {
            let mut renewals = Renewals::new(words, is_verified);
            let steps: Vec<Renewal> = (0..3).map(|_| renewals.void()).collect();
            assert_eq!((steps, renewals.void()), (vec![first; 3], then));
            let same = (1..STANDING_GUESSES).map(|_| renewals.void());
            assert!(same.collect::<Vec<_>>().iter().all(|step| *step == Renewal::SameCode));
            assert_eq!([renewals.void(), renewals.void()], [Renewal::End; 2]);
        }
    }

    #[test]
    fn all_guesses_together_are_right_less_often_than_once_in_two_to_the_sixteen() {
        let mut renewals = Renewals::new(USUAL_WORDS, false);
        let (mut words, mut chance) = (USUAL_WORDS, 0.0);
        loop {
            chance += (1024f64).powi(-(words as i32));
            match renewals.void() {
                Renewal::NewCode { words: next, .. } => words = next,
                Renewal::SameCode => {}
                Renewal::End => break,
            }
        }
        assert!(chance < 1.0 / f64::from(1 << 17), "{chance}");
    }
}
