//! Runs situations side by side: most of them wait for processes. Unlike the standard harness it
//! lets a situation say that it can't be had here, and counts those. What failed beside others runs once more, alone: a
//! machine that was too busy for its limits of time is told from a fault, and both are told.

use std::any::Any;
use std::io::Write;
use std::panic::{catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// At once: they wait more than they compute.
const THREADS: usize = 4;

/// At once beside these, of those that wait for slow links: they compute next to nothing.
const WAITING_THREADS: usize = 2;

/// More failures than these are no busy machine's: nothing is run again.
const MOST_AGAIN: usize = 4;

/// A test, named for its situation.
#[derive(Clone, Copy)]
pub struct Situation {
    /// Its module and function.
    pub name: &'static str,
    /// Panics if it fails.
    pub run: fn(),
}

/// The table of a module's situations; a function that is missing here is reported as dead code.
macro_rules! situations {
    ($($name:ident),* $(,)?) => {
        /// Situations that this module tests.
        pub const SITUATIONS: &[$crate::runner::Situation] = &[$($crate::runner::Situation {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: $name,
        }),*];
    };
}
pub(crate) use situations;

struct Skipped(String);

/// Ends a situation that can't be had on this machine.
pub fn skip(why: &str) -> ! {
    resume_unwind(Box::new(Skipped(why.into())))
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed,
}

#[derive(Default)]
struct Counts {
    passed: usize,
    skipped: usize,
    failed: Vec<Situation>,
}

/// Runs all situations that the command line asks for; beside most of them those that wait for slow links.
pub fn run(modules: &[&[Situation]], waiting: &[&[Situation]]) -> ExitCode {
    let lanes = [(asked(modules), THREADS), (asked(waiting), WAITING_THREADS)];
    if std::env::args().any(|word| word == "--list") {
        lanes.iter().flat_map(|(chosen, _)| chosen).for_each(|it| say(&format!("{}: test", it.name)));
        return ExitCode::SUCCESS;
    }
    let Counts { mut passed, mut skipped, mut failed } = run_all(&lanes);
    if failed.len() <= MOST_AGAIN {
        let alone = run_all(&[(failed.clone(), 1)]);
        failed.iter().for_each(|it| say(&format!("failed beside others: {}", it.name)));
        passed += alone.passed;
        skipped += alone.skipped;
        failed = alone.failed;
    }
    for situation in &failed {
        say(&format!("failed: {}", situation.name));
    }
    say(&format!("end to end: {passed} passed, {} failed, {skipped} skipped", failed.len()));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Those of the modules that the command line asks for.
fn asked(modules: &[&[Situation]]) -> Vec<Situation> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_asked = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    modules.iter().copied().flatten().copied().filter(|it| is_asked(it.name)).collect()
}

/// Runs each lane's situations in so many threads, all lanes at once.
fn run_all(lanes: &[(Vec<Situation>, usize)]) -> Counts {
    let counts = Mutex::new(Counts::default());
    let next: Vec<AtomicUsize> = lanes.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for ((chosen, threads), next) in lanes.iter().zip(&next) {
            for _ in 0..*threads {
                scope.spawn(|| {
                    while let Some(situation) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = run_one(*situation);
                        count(&mut counts.lock().unwrap(), *situation, &outcome);
                    }
                });
            }
        }
    });
    counts.into_inner().unwrap()
}

/// In a thread with the situation's name, so that a panic's message shows it.
fn run_one(situation: Situation) -> Outcome {
    let start = Instant::now();
    let named = thread::Builder::new().name(situation.name.into());
    let thread = named.spawn(move || catch_unwind(situation.run)).unwrap();
    let outcome = match thread.join().and_then(|caught| caught) {
        Ok(()) => Outcome::Passed,
        Err(payload) => take_result(payload),
    };
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Outcome::Passed => say(&format!("ok {} ({seconds:.1} s)", situation.name)),
        Outcome::Skipped(why) => say(&format!("skipped: {}: {why}", situation.name)),
        Outcome::Failed => say(&format!("FAILED {} ({seconds:.1} s)", situation.name)),
    }
    outcome
}

fn take_result(payload: Box<dyn Any + Send>) -> Outcome {
    payload.downcast::<Skipped>().map_or(Outcome::Failed, |skipped| Outcome::Skipped(skipped.0))
}

fn count(counts: &mut Counts, situation: Situation, outcome: &Outcome) {
    match outcome {
        Outcome::Passed => counts.passed += 1,
        Outcome::Skipped(_) => counts.skipped += 1,
        Outcome::Failed => counts.failed.push(situation),
    }
}

/// A line for whoever reads the test's output.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
