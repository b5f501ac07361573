//! Silence of a link: both sides of a copy say twice a second that they are there, so a link by which not a byte comes while others
//! speak leads nowhere, at the moment at least. Its connection is given up later: it may only be late. Pure: handed the time.
//!
//! A link is quiet by comparison. Where none speaks one of the machines stood still, or all of the network; and once it goes on, what
//! waited comes by one link before it comes by the other. So the time counts for which another one speaks without a pause.

use std::time::{Duration, Instant};

/// Two words of the other side are missing.
const QUIET: Duration = Duration::from_millis(1250);

/// What was heard by a link.
#[derive(Debug, Default)]
pub(super) struct LinkSilence {
    heard: Option<HeardBytes>,
    /// Since then it speaks without a pause; `None`: nothing came since it was looked at first.
    speaks_since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct HeardBytes {
    /// Bytes that had come, and when the last of them were seen.
    bytes: u64,
    at: Instant,
}

impl LinkSilence {
    /// So many bytes came so far. `listens` tells that this side reads what comes; one that is busy hears nothing.
    pub(super) fn look(&mut self, now: Instant, arrived: u64, listens: bool) {
        let Some(heard) = self.heard.replace(HeardBytes { bytes: arrived, at: now }) else { return };
        if heard.bytes == arrived && listens {
            self.heard = Some(heard);
        } else if heard.bytes != arrived && (self.speaks_since.is_none() || is_over(heard.at, now)) {
            self.speaks_since = Some(now);
        }
    }

    /// True if nothing came for too long.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.heard.is_some_and(|heard| is_over(heard.at, now))
    }

    /// True if nothing came for too long, in which `other` spoke without a pause.
    pub(super) fn is_outdone_by(&self, other: &Self, now: Instant) -> bool {
        let spoke_since = other.speaks_since.filter(|_| !other.is_quiet(now));
        self.is_quiet(now) && spoke_since.is_some_and(|since| is_over(since, now))
    }
}

fn is_over(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= QUIET
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look: when, in ms, how many bytes had come by this link, and whether this side listens.
    type Look = (u64, u64, bool);

    fn looked(start: Instant, looks: &[Look]) -> LinkSilence {
        let mut silence = LinkSilence::default();
        let mut look = |&(at, arrived, listens): &Look| {
            silence.look(start + Duration::from_millis(at), arrived, listens);
        };
        looks.iter().for_each(&mut look);
        silence
    }

    #[test]
    fn a_link_is_quiet_once_two_words_are_missing() {
        for (what, looks, is_quiet) in [
            ("the first look", &[(0, 0, true)][..], false),
            ("one word is missing", &[(0, 9, true), (700, 9, true)], false),
            ("two are", &[(0, 9, true), (700, 9, true), (1250, 9, true)], true),
            ("words came", &[(0, 9, true), (700, 20, true), (1400, 31, true), (2600, 31, true)], false),
            ("it spoke again", &[(0, 9, true), (1250, 9, true), (1300, 10, true)], false),
            ("this side was busy", &[(0, 9, true), (1200, 9, false), (2400, 9, true)], false),
            ("and then nothing came", &[(0, 9, true), (1200, 9, false), (2450, 9, true)], true),
            ("a further connection was closed", &[(0, 900, true), (1200, 40, true), (2400, 40, true)], false),
        ] {
            let start = Instant::now();
            let now = start + Duration::from_millis(looks.last().unwrap().0);
            assert_eq!(looked(start, looks).is_quiet(now), is_quiet, "{what}");
        }
    }

    /// Words of the other link, in ms; all come at once what waited.
    fn words(times: impl IntoIterator<Item = u64>) -> Vec<Look> {
        times.into_iter().enumerate().map(|(at, time)| (time, 10 * at as u64, true)).collect()
    }

    /// After a stop of this machine, or of the other one, the first link that was read or spoke outdid the others at once.
    #[test]
    fn a_link_is_outdone_by_one_that_speaks_all_the_time() {
        let all_the_time = words((0..8).map(|at| 500 * at));
        for (what, other, own_last, now, is_outdone) in [
            ("it is quiet, the other one speaks", all_the_time.clone(), 2000, 3500, true),
            ("it spoke lately", all_the_time, 2500, 3500, false),
            ("the other one is quiet, too", words([0, 500, 1000]), 1000, 3500, false),
            ("all stood still, and the other one was read first", words([0, 500, 9000]), 500, 9000, false),
            ("and a moment later", words([0, 500, 9000, 9500, 10_000]), 500, 10_200, false),
            ("it has not spoken since", words([0, 500, 9000, 9500, 10_000]), 500, 10_250, true),
            ("the other one has just joined", words([3400]), 500, 3500, false),
            ("and has said one word", words([3000, 3400]), 500, 3500, false),
        ] {
            let start = Instant::now();
            let at = |millis| start + Duration::from_millis(millis);
            let (own, other) = (looked(start, &[(0, 0, true), (own_last, 9, true)]), looked(start, &other));
            assert_eq!(own.is_outdone_by(&other, at(now)), is_outdone, "{what}");
            assert!(!other.is_outdone_by(&other, at(now)), "{what}");
        }
    }
}
