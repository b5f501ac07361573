//! Silence of a link: both sides of a copy say twice a second that they are there, so a link by which not a byte comes for longer
//! leads nowhere, at the moment at least. Its connection is given up later: it may only be late. Pure: handed the time.

use std::time::{Duration, Instant};

/// Two words of the other side are missing.
const QUIET: Duration = Duration::from_millis(1250);

/// What was heard by a link.
#[derive(Debug, Default)]
pub(super) struct LinkSilence {
    /// Bytes that had come, and when the last of them were seen.
    heard: Option<(u64, Instant)>,
}

impl LinkSilence {
    /// True if nothing came for too long: so many bytes `arrived` so far. `listens` tells that this side reads what comes; one that is
    /// busy hears nothing.
    pub(super) fn look(&mut self, now: Instant, arrived: u64, listens: bool) -> bool {
        match self.heard {
            Some((before, since)) if before == arrived && listens => {
                now.saturating_duration_since(since) >= QUIET
            }
            _ => {
                self.heard = Some((arrived, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrived by when, in ms, and whether this side listens.
    #[test]
    fn a_link_is_quiet_once_two_words_are_missing() {
        for (what, looks, is_quiet) in [
            ("the first look", &[(0, 0, true)][..], false),
            ("one word is missing", &[(0, 9, true), (700, 9, true)], false),
            ("two are", &[(0, 9, true), (700, 9, true), (1250, 9, true)], true),
            ("nobody looked meanwhile", &[(0, 9, true), (1250, 9, true)], true),
            ("words came", &[(0, 9, true), (700, 20, true), (1400, 31, true), (2600, 31, true)], false),
            ("it spoke again", &[(0, 9, true), (1250, 9, true), (1300, 10, true)], false),
            ("this side was busy", &[(0, 9, true), (1200, 9, false), (2400, 9, true)], false),
            ("and then nothing came", &[(0, 9, true), (1200, 9, false), (2450, 9, true)], true),
            ("a further connection was closed", &[(0, 900, true), (1200, 40, true), (2400, 40, true)], false),
        ] {
            let (mut silence, start) = (LinkSilence::default(), Instant::now());
            let mut look = |&(at, arrived, listens): &(u64, u64, bool)| {
                silence.look(start + Duration::from_millis(at), arrived, listens)
            };
            assert_eq!(looks.iter().map(&mut look).last(), Some(is_quiet), "{what}");
        }
    }
}
