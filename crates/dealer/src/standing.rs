//! How far a source is trusted to bring what it is asked for: a table of what happened to what follows.
//!
//! | standing | right bytes | wrong bytes | not here, though it said so | adds nothing |
//! |---|---|---|---|---|
//! | trying | good | banned | banned after 8 more than were right | doubted |
//! | good | good | the second in 32 runs: banned; one of its first eight, if that was checked after it came: banned | banned after 8 more than were right | doubted |
//! | doubted | as before | banned | as before | |
//! | banned | as before | as before | as before | |
//!
//! Who asks to be left alone is, as if it were banned, but that does not count. Who is banned is tried again when its time is
//! over, or at once if nobody can be counted on: waiting for a liar helps nobody. Instead of being banned a fourth time it is dropped. Who
//! is doubted is asked only for what nobody else has, and tried again ever more seldom.

use std::time::Duration;

/// Right runs after which a wrong one is forgiven.
const FORGIVEN: u32 = 32;
/// Runs that may come of a new source before the first of them is checked.
const UNCHECKED: u32 = 8;
/// Times that a source did not have what it said, beyond those that it had.
const MISSES: u32 = 8;
/// Length of the first ban; each further one is four times as long.
const FIRST_BAN: Duration = Duration::from_secs(4);
/// Bans of a source.
const BANS: u32 = 3;
/// Length of the first doubt; each further one is twice as long.
const FIRST_DOUBT: Duration = Duration::from_secs(15);
/// Shortest time for which a source that asked for it is left alone.
const LEAST_REST: Duration = Duration::from_millis(100);
/// Length of the longest doubt.
const LONGEST_DOUBT: Duration = Duration::from_secs(900);

/// How far a source is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceStanding {
    /// It brought nothing yet.
    Trying,
    /// It brought what it was asked for.
    Good,
    /// It adds nothing, until then.
    Doubted(Duration),
    /// It lied, or asked to be left alone: it is not asked until then.
    Banned(Duration),
}

/// What follows for a source that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keeps,
    /// What it was asked for is taken back.
    Banned,
    /// It is closed.
    Dropped,
}

/// Standing of a source, and how it came to it.
#[derive(Debug, Clone)]
pub struct SourceRecord {
    standing: SourceStanding,
    /// Right ones since the last wrong one.
    right: u32,
    wrong: u32,
    missed: u32,
    bans: u32,
    doubts: u32,
    /// It asked to be left alone: nobody banned it.
    rests: bool,
}

impl Default for SourceRecord {
    fn default() -> Self {
        let standing = SourceStanding::Trying;
        Self { standing, right: 0, wrong: 0, missed: 0, bans: 0, doubts: 0, rests: false }
    }
}

impl SourceRecord {
    /// As it stands.
    pub const fn standing(&self) -> SourceStanding {
        self.standing
    }

    /// It brought what was right.
    pub fn right(&mut self) {
        self.right += 1;
        self.missed = self.missed.saturating_sub(1);
        if self.standing == SourceStanding::Trying {
            self.standing = SourceStanding::Good;
        }
    }

    /// It brought what was wrong.
    pub fn wrong(&mut self, now: Duration) -> Verdict {
        let is_first = self.wrong == 0 || self.right >= FORGIVEN;
        self.wrong += 1;
        self.right = 0;
        match self.standing {
            SourceStanding::Banned(_) => Verdict::Keeps,
            SourceStanding::Good if is_first => Verdict::Keeps,
            _ => self.ban(now),
        }
    }

    /// What counted as right when it came was found to be wrong. One that has brought hardly anything else was never good.
    pub fn wrong_after_all(&mut self, now: Duration) -> Verdict {
        let is_new = self.wrong == 0 && self.right <= UNCHECKED;
        if is_new && self.standing == SourceStanding::Good {
            self.standing = SourceStanding::Trying;
        }
        self.wrong(now)
    }

    /// It did not have what it said.
    pub fn missed(&mut self, now: Duration) -> Verdict {
        self.missed += 1;
        let is_banned = matches!(self.standing, SourceStanding::Banned(_));
        if self.missed < MISSES || is_banned { Verdict::Keeps } else { self.ban(now) }
    }

    fn ban(&mut self, now: Duration) -> Verdict {
        if self.bans == BANS {
            return Verdict::Dropped;
        }
        self.standing = SourceStanding::Banned(now + FIRST_BAN * 4_u32.pow(self.bans));
        self.bans += 1;
        self.missed = 0;
        self.rests = false;
        Verdict::Banned
    }

    /// It adds nothing.
    pub fn doubt(&mut self, now: Duration) {
        if !matches!(self.standing, SourceStanding::Banned(_)) {
            let rest = (FIRST_DOUBT * 2_u32.pow(self.doubts.min(8))).min(LONGEST_DOUBT);
            self.doubts += 1;
            self.standing = SourceStanding::Doubted(now + rest);
        }
    }

    /// It asked to be left alone for so long. Nobody is to blame.
    pub fn rest(&mut self, now: Duration, rest: Duration) {
        let until = now + rest.clamp(LEAST_REST, LONGEST_DOUBT);
        if self.due().is_none_or(|due| due < until) {
            self.standing = SourceStanding::Banned(until);
            self.rests = true;
        }
    }

    /// True if it is banned for what it brought or lacked.
    pub const fn is_banned(&self) -> bool {
        matches!(self.standing, SourceStanding::Banned(_)) && !self.rests
    }

    /// Time at which it is tried again, of one that is not asked now.
    pub const fn due(&self) -> Option<Duration> {
        match self.standing {
            SourceStanding::Doubted(until) | SourceStanding::Banned(until) => Some(until),
            SourceStanding::Trying | SourceStanding::Good => None,
        }
    }

    /// Its time is over, or there is reason to try it sooner.
    pub const fn try_again(&mut self) {
        self.standing = SourceStanding::Trying;
    }
}

#[cfg(test)]
mod tests {
    use super::SourceStanding::{Banned, Doubted, Good, Trying};
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What happens: `+` right, `-` wrong, `~` wrong after it had counted as right, `?` not here, `!` adds nothing, `z` to be left alone for 2 s, `.` its time is over. All at
    /// second 100.
    #[test]
    fn what_happened_decides_on_the_standing() {
        let right = "+".repeat(32);
        for (what, happens, standing, verdict) in [
            ("nothing", "", Trying, Verdict::Keeps),
            ("the first that is right", "+", Good, Verdict::Keeps),
            ("the first is wrong", "-", Banned(at(104)), Verdict::Banned),
            ("one is wrong of a good one", "+-", Good, Verdict::Keeps),
            ("its first one is, as its check shows", "+~", Banned(at(104)), Verdict::Banned),
            ("so it is with those behind it", "++++++++~", Banned(at(104)), Verdict::Banned),
            ("one of many is", "+++++++++~", Good, Verdict::Keeps),
            ("once more after a ban", "+~.+~", Banned(at(116)), Verdict::Banned),
            ("two are", "+-+-", Banned(at(104)), Verdict::Banned),
            ("two are, but seldom", &format!("+-{right}-"), Good, Verdict::Keeps),
            ("wrong ones that were under way count no more", "+----", Banned(at(104)), Verdict::Keeps),
            ("a second ban", "-.-", Banned(at(116)), Verdict::Banned),
            ("a third one", "-.-.-", Banned(at(164)), Verdict::Banned),
            ("instead of a fourth", "-.-.-.-", Trying, Verdict::Dropped),
            ("seven are missing", "+???????", Good, Verdict::Keeps),
            ("eight are", "+????????", Banned(at(104)), Verdict::Banned),
            ("eight of many", "+?+?+?+?+?+?+?+?", Good, Verdict::Keeps),
            ("it adds nothing", "+!", Doubted(at(115)), Verdict::Keeps),
            ("again", "+!.!", Doubted(at(130)), Verdict::Keeps),
            ("right bytes do not end a doubt", "+!+", Doubted(at(115)), Verdict::Keeps),
            ("wrong ones do", "+!+-", Banned(at(104)), Verdict::Banned),
            ("it is to be left alone", "+z", Banned(at(102)), Verdict::Keeps),
            ("that is no ban", "+z.-", Banned(at(104)), Verdict::Banned),
            ("a ban is longer", "-z", Banned(at(104)), Verdict::Keeps),
            ("a ban is worse than a doubt", "-!", Banned(at(104)), Verdict::Keeps),
        ] {
            let (mut record, mut last) = (SourceRecord::default(), Verdict::Keeps);
            for event in happens.chars() {
                last = Verdict::Keeps;
                match event {
                    '+' => record.right(),
                    '-' => last = record.wrong(at(100)),
                    '~' => last = record.wrong_after_all(at(100)),
                    '?' => last = record.missed(at(100)),
                    '!' => record.doubt(at(100)),
                    'z' => record.rest(at(100), at(2)),
                    _ => record.try_again(),
                }
            }
            assert_eq!((record.standing(), last), (standing, verdict), "{what}");
        }
    }

    #[test]
    fn doubts_become_longer_up_to_a_quarter_of_an_hour() {
        let mut record = SourceRecord::default();
        let rests = [(); 9].map(|()| {
            record.doubt(at(0));
            record.due().unwrap().as_secs()
        });
        assert_eq!(rests, [15, 30, 60, 120, 240, 480, 900, 900, 900]);
    }
}
