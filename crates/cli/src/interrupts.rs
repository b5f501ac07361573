//! ^C, requests to end, and terminals that are closed. They count from the program's beginning on, so that none is lost
//! before a command asks for them. A command that does not, or takes too long over the first, is ended; so is one that
//! gets a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Longest time for a command to end once it is asked to.
const WAIT_LIMIT: Duration = Duration::from_millis(850);

/// The signals that came since the program began.
pub struct Signals {
    came: watch::Sender<u32>,
    state: Arc<InterruptState>,
}

#[derive(Default)]
struct InterruptState {
    /// The command asks for interrupts, and ends by itself.
    is_claimed: AtomicBool,
    /// It takes its time.
    is_patient: AtomicBool,
}

/// Interrupts, one after the other.
pub struct Interrupts {
    came: watch::Receiver<u32>,
    taken: u32,
}

impl Signals {
    /// None came so far.
    pub fn new() -> Self {
        Self { came: watch::Sender::new(0), state: Arc::default() }
    }

    /// Listens from now on, in a runtime; `hangups`: for a terminal that is closed as well. What was ignored when the
    /// program began (`nohup`) stays ignored. `end` ends the program; its argument is whether the command still owes a last
    /// word.
    pub fn listen(&self, hangups: bool, end: impl Fn(bool) + Send + Sync + 'static) {
        let end = Arc::new(end);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            if is_ignored(kind) || (kind == SignalKind::hangup() && !hangups) {
                continue;
            }
            let Ok(mut arriving) = signal(kind) else { continue };
            let (came, state, end) = (self.came.clone(), Arc::clone(&self.state), Arc::clone(&end));
            tokio::spawn(async move {
                while arriving.recv().await.is_some() {
                    came.send_modify(|count| *count += 1);
                    let (end, state, count) = (Arc::clone(&end), Arc::clone(&state), *came.borrow());
                    tokio::spawn(async move { state.see_to_the_end(count, &*end).await });
                }
            });
        }
    }

    /// For a command that ends by itself, and soon, when it is interrupted.
    pub fn interrupts(&self) -> Interrupts {
        self.state.is_claimed.store(true, Ordering::Relaxed);
        Interrupts { came: self.came.subscribe(), taken: 0 }
    }

    /// For a command that takes its time after the first one, and ends at once after the second.
    pub fn unhurried(&self) -> Interrupts {
        self.state.is_patient.store(true, Ordering::Relaxed);
        self.interrupts()
    }
}

impl InterruptState {
    /// Ends a program that does not end by itself, after so many signals.
    async fn see_to_the_end(&self, count: u32, end: &(impl Fn(bool) + ?Sized)) {
        if !self.is_claimed.load(Ordering::Relaxed) {
            return end(true);
        }
        let is_patient = self.is_patient.load(Ordering::Relaxed);
        if count == 1 && is_patient {
            return;
        }
        if count == 1 || is_patient {
            tokio::time::sleep(WAIT_LIMIT).await;
        }
        end(false);
    }
}

impl Interrupts {
    /// Completes at the next of them, also if that came already.
    pub async fn next(&mut self) {
        let came = self.came.wait_for(|count| *count > self.taken).await.is_ok();
        match came {
            true => self.taken += 1,
            // Nothing listens any more.
            false => std::future::pending().await,
        }
    }
}

/// True if the program that started this one had it ignore a signal.
pub fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn what_comes_before_it_is_waited_for_is_not_lost() {
        let signals = Signals::new();
        // The whole program of the tests gets these signals; none of them may end it.
        signals.listen(true, |_| {});
        // Those that are ignored since the start, as by `nohup make test &`, would not come.
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let heeded: Vec<_> = kinds.into_iter().filter(|&kind| !is_ignored(kind)).collect();
        assert!(!heeded.is_empty());
        for signal in heeded.iter().map(|kind| Signal::from_named_raw(kind.as_raw_value()).unwrap()) {
            let before = *signals.came.borrow();
            kill_process(getpid(), signal).unwrap();
            let mut coming = signals.came.subscribe();
            let came = coming.wait_for(|count| *count > before);
            tokio::time::timeout(LIMIT, came).await.unwrap().unwrap();
        }
        let mut interrupts = signals.interrupts();
        for _ in heeded {
            tokio::time::timeout(LIMIT, interrupts.next()).await.unwrap();
        }
    }

    /// Result with which a program ends, after so many signals: `Some(true)` if it owes a last word.
    async fn ended(claim: impl Fn(&Signals) -> Option<Interrupts>, count: u32) -> Option<bool> {
        let signals = Signals::new();
        let _interrupts = claim(&signals);
        let ended = std::sync::Mutex::new(None);
        signals.state.see_to_the_end(count, &|owes| *ended.lock().unwrap() = Some(owes)).await;
        ended.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_ended() {
        assert_eq!(ended(|_| None, 1).await, Some(true), "it does not ask for interrupts");
        assert_eq!(ended(|signals| Some(signals.unhurried()), 1).await, None, "it may take its time");
        let (slow, twice, asked_again) = tokio::join!(
            ended(|signals| Some(signals.interrupts()), 1),
            ended(|signals| Some(signals.interrupts()), 2),
            ended(|signals| Some(signals.unhurried()), 2),
        );
        assert_eq!((slow, twice, asked_again), (Some(false), Some(false), Some(false)));
    }

    #[test]
    fn what_is_ignored_is_seen() {
        assert!(!is_ignored(SignalKind::child()));
        // Rust programs ignore it from the start.
        assert!(is_ignored(SignalKind::pipe()));
    }
}
