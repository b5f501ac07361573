//! The first bytes that a copy asks a near sender for, as nothing but their time tells whether the network is slow. Of the other
//! files an older version is worth something only if it is. They are a few small files, as these have to come; where there are
//! none, but a large file with an older version, they are a probe, which means nothing.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use towpath_content::lock::lock;
use towpath_reuse::policy::network::Network;
use towpath_reuse::policy::table::{FIRST_FILES, LARGE, NEAR_WARM_UP, PROBE_LATE};
use towpath_transfer::progress::Progress;

/// Pause between two looks at what came.
const LOOK: Duration = Duration::from_millis(1);
/// Files in a batch for which a probe is asked, at most.
const MOST_PROBED: usize = 64;

/// See the head of this module.
#[derive(Debug)]
pub struct FirstFiles {
    state: Mutex<Lateness>,
}

#[derive(Debug, Clone, Copy)]
enum Lateness {
    /// No files were asked for.
    NotAsked,
    /// They came as from a fast network, or were not needed.
    Done,
    /// They are late: no more bytes a second than this.
    Late(f64),
}

/// What is to be asked for first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstStep {
    /// All files.
    All,
    /// Those in these places, in order, by [`FirstFiles::ask`].
    Files(Vec<usize>),
    /// A probe: [`FirstFiles::probe`].
    Probe,
}

/// A file that may be among the first.
#[derive(Debug, Clone, Copy)]
pub struct FirstFile {
    /// Its bytes.
    pub size: u64,
    /// An older version is here, so its bytes may come in vain.
    pub has_older: bool,
}

impl FirstFiles {
    /// None are asked for apart from the others, unless `are_wanted`.
    pub fn new(are_wanted: bool) -> Self {
        Self { state: Mutex::new(if are_wanted { Lateness::NotAsked } else { Lateness::Done }) }
    }

    /// Bytes a second that the network has at most; 0 if the first files showed no limit.
    pub fn rate(&self) -> f64 {
        if let Lateness::Late(rate) = *lock(&self.state) { rate } else { 0.0 }
    }

    /// What is to be asked for before all of `files`; of the first batch for once, if it is worth it.
    pub fn choose(&self, network: &Network, files: &[FirstFile], most: u64) -> FirstStep {
        let mut state = lock(&self.state);
        if !matches!(*state, Lateness::NotAsked) {
            return FirstStep::All;
        }
        *state = Lateness::Done;
        match first(files, most) {
            _ if !network.may_be_either() => FirstStep::All,
            // On a far network it would be in vain to wait for files.
            FirstStep::Files(_) if network.is_unknown() || network.is_far() => FirstStep::All,
            step => step,
        }
    }

    /// Has a probe of so many bytes fetched, which tells false if it is not here after some time. Blocks.
    pub fn probe(&self, bytes: usize, fetch: impl FnOnce(Duration) -> bool) {
        let since = Instant::now();
        if !fetch(PROBE_LATE) {
            let late = since.elapsed().max(PROBE_LATE);
            *lock(&self.state) = Lateness::Late(Network::probed(late, bytes));
        }
    }

    /// Asks for so many bytes by `ask`, and waits for them, not for long. Blocks.
    pub fn ask<E>(
        &self,
        bytes: u64,
        progress: &Progress,
        ask: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let (since, before) = (Instant::now(), progress.with(|progress| progress.done));
        ask()?;
        loop {
            let came = progress.with(|progress| progress.done) - before;
            if came >= bytes {
                return Ok(());
            }
            if since.elapsed() >= NEAR_WARM_UP {
                *lock(&self.state) = Lateness::Late(late_rate(bytes, since.elapsed()));
                return Ok(());
            }
            sleep(LOOK);
        }
    }
}

/// Small files of together about [`FIRST_FILES`] bytes, those without an older version before others; not if the others
/// have not several times as many. Else a probe, if a large file is among them whose older version could save more. Pure.
fn first(files: &[FirstFile], most: u64) -> FirstStep {
    let mut small: Vec<_> = (0..files.len()).filter(|&at| (1..=most).contains(&files[at].size)).collect();
    small.sort_by_key(|&at| files[at].has_older);
    let (mut chosen, mut sum) = (Vec::new(), 0);
    for at in small {
        if sum >= FIRST_FILES {
            break;
        }
        sum += files[at].size;
        chosen.push(at);
    }
    let all = files.iter().fold(0u64, |all, file| all.saturating_add(file.size));
    chosen.sort_unstable();
    if sum >= FIRST_FILES && all >= 4 * sum {
        return FirstStep::Files(chosen);
    }
    let is_worth_it = |file: &FirstFile| file.has_older && file.size >= LARGE;
    // More files than this come while the descriptor does, and a probe would wait behind that.
    let is_alone = files.len() <= MOST_PROBED;
    if is_alone && files.iter().any(is_worth_it) { FirstStep::Probe } else { FirstStep::All }
}

/// Rate of a network on which so many bytes are not all here yet. Pure.
fn late_rate(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 / elapsed.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    use towpath_reuse::policy::table::FAR;

    const MOST: u64 = 64 << 10;
    const BIG: u64 = 4 * LARGE;
    const NEAR: Network = Network { rate: 0.0, round_trip: Duration::from_millis(1) };

    fn files(count: usize, size: u64, has_older: impl Fn(usize) -> bool) -> Vec<FirstFile> {
        (0..count).map(|at| FirstFile { size, has_older: has_older(at) }).collect()
    }

    #[test]
    fn the_first_ones_are_small_and_new_and_few_beside_the_others() {
        let part = FIRST_FILES / 4;
        let mixed =
            [files(4, part, |_| true), files(2, part, |_| false), files(1, 10 * FIRST_FILES, |_| true)];
        for (what, files, expected) in [
            ("new ones first", mixed.concat(), FirstStep::Files(vec![0, 1, 4, 5])),
            ("too few others", files(8, part, |_| true), FirstStep::All),
            ("enough others", files(16, part, |_| true), FirstStep::Files(vec![0, 1, 2, 3])),
            ("none is small", files(16, MOST + 1, |_| true), FirstStep::All),
            ("little in all", files(3, 100, |_| false), FirstStep::All),
            ("nothing", Vec::new(), FirstStep::All),
            ("a large one", files(1, BIG, |_| true), FirstStep::Probe),
            ("a large one that is new", files(1, BIG, |_| false), FirstStep::All),
            ("a small one", files(1, LARGE - 1, |_| true), FirstStep::All),
            ("many large ones", files(MOST_PROBED + 1, BIG, |_| true), FirstStep::All),
        ] {
            assert_eq!(first(&files, MOST), expected, "{what}");
        }
    }

    #[test]
    fn they_are_chosen_once_and_where_nothing_else_tells_of_the_network() {
        let files = files(100, FIRST_FILES / 4, |_| true);
        for (network, are_chosen) in [
            (NEAR, true),
            (Network { rate: 1e6, ..NEAR }, false),
            (Network { round_trip: FAR, ..NEAR }, false),
            (Network { round_trip: Duration::from_millis(20), ..NEAR }, false),
            (Network::default(), false),
        ] {
            let first = FirstFiles::new(true);
            assert_eq!(first.choose(&network, &files, MOST) != FirstStep::All, are_chosen, "{network:?}");
            assert_eq!(first.choose(&NEAR, &files, MOST), FirstStep::All, "once");
            let large = [FirstFile { size: BIG, has_older: true }];
            let is_probed = FirstFiles::new(true).choose(&network, &large, MOST) == FirstStep::Probe;
            let is_hardly_far = network.rate <= 0.0 && network.round_trip < 2 * FAR;
            assert_eq!(is_probed, is_hardly_far, "{network:?}");
            assert_eq!(FirstFiles::new(false).choose(&network, &files, MOST), FirstStep::All);
        }
    }

    #[test]
    fn a_network_on_which_a_probe_is_late_is_slow() {
        for is_here in [true, false] {
            let first = FirstFiles::new(true);
            first.probe(1000, |_| is_here);
            assert_eq!(NEAR.or_limit(first.rate()).is_slow(), !is_here);
        }
    }

    #[test]
    fn a_network_on_which_they_are_late_is_slow_and_another_is_what_it_was() {
        for (came, is_slow) in [(1000, false), (999, true)] {
            let (first, progress) = (FirstFiles::new(true), Progress::default());
            let sender = towpath_transfer::SourceId::other("sender", None);
            progress.brought(&sender, 5000);
            let since = Instant::now();
            let ask = || {
                progress.brought(&sender, came);
                Ok::<_, ()>(())
            };
            first.ask(1000, &progress, ask).unwrap();
            assert_eq!(since.elapsed() >= NEAR_WARM_UP, is_slow);
            assert_eq!(NEAR.or_limit(first.rate()).is_slow(), is_slow);
        }
    }
}
