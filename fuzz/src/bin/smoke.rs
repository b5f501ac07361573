//! Feeds every target its seeds, the inputs that are kept for it, and then random and changed ones for some seconds:
//! `smoke [SECONDS [SEED [NAME...]]]`. Without a number of seconds, all of it takes about a minute.
//!
//! A failure names the target and prints the input in hexadecimal; the seed repeats the run.
//!
//! `smoke --seeds FOLDER` writes the seeds there instead, in a folder for each target: libFuzzer begins from them.

use std::fs;
use std::io;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, exit};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_fuzz::corpus::kept;
use towpath_fuzz::{TARGETS, Target};

/// Bytes of the longest random input.
const LONGEST: u64 = 600;
/// Time that all targets take together, unless that would be less or more than this many seconds for each.
const ALL: Duration = Duration::from_secs(50);
const LEAST: f64 = 1.0;
const MOST: f64 = 2.0;
/// Time after which an input has no end: the slowest inputs take some milliseconds.
const ENDLESS: Duration = Duration::from_secs(60);

/// A small generator of random numbers (xorshift64*): the same seed, the same run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// One change of the kinds that parsers trip over.
fn change(input: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 => input.truncate(at),
        1 => input.insert(at, random.next() as u8),
        2 if at < input.len() => input[at] ^= 1 << random.below(8),
        3 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        4 if at < input.len() => drop(input.remove(at)),
        5 => {
            let copy = input[at..].to_vec();
            input.extend_from_slice(&copy[..copy.len().min(64)]);
        }
        _ => {
            // A huge number where a small one was.
            let end = input.len().min(at + 9);
            input.splice(at..end, [0xff; 9]);
        }
    }
}

fn input(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.below(8) == 0 {
        let len = random.below(LONGEST as usize);
        return random.bytes(len);
    }
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..random.below(4) {
        change(&mut input, random);
    }
    input
}

/// Returns how many inputs were tried, or the one that failed.
fn smoke(target: &Target, time: Duration, random: &mut Random, running: &Running) -> Result<u64, Arc<[u8]>> {
    let try_it = |input: Vec<u8>| {
        let input = running.begin(target.name, input);
        let tried = catch_unwind(|| (target.run)(&input));
        running.end();
        tried.map_err(|_| input)
    };
    let kept = kept(target.name).expect("the kept inputs can be read");
    let (seeds, mut count) = ([(target.seeds)(), kept].concat(), 0);
    for seed in &seeds {
        try_it(seed.clone())?;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..16 {
            try_it(input(&seeds, random))?;
            count += 1;
        }
    }
    Ok(count)
}

/// An input with the name of its target and when it began.
type Run = (&'static str, Arc<[u8]>, Instant);

/// The input that a thread is at, so that one without end can be named.
#[derive(Default)]
struct Running(Mutex<Option<Run>>);

impl Running {
    fn begin(&self, name: &'static str, input: Vec<u8>) -> Arc<[u8]> {
        let input: Arc<[u8]> = input.into();
        *self.now() = Some((name, Arc::clone(&input), Instant::now()));
        input
    }

    fn end(&self) {
        *self.now() = None;
    }

    fn now(&self) -> MutexGuard<'_, Option<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the program if an input takes so long that it must have no end.
    fn check(&self) {
        if let Some((name, input, since)) = &*self.now()
            && since.elapsed() > ENDLESS
        {
            eprintln!("fuzz: {name:20} HANGS on {}", hex(input));
            exit(1);
        }
    }
}

/// Seconds for each target if all are to be tried in [`ALL`] by so many threads.
fn share(threads: usize) -> f64 {
    (ALL.as_secs_f64() * threads as f64 / TARGETS.len() as f64).clamp(LEAST, MOST)
}

/// Writes all seeds as files.
fn write_seeds(folder: &Path) -> io::Result<()> {
    for target in TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("--seeds").is_some() {
        write_seeds(&PathBuf::from(arguments.next().expect("a folder"))).expect("a folder to write to");
        return ExitCode::SUCCESS;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or_else(|| share(threads));
    let fresh = std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
    let seed: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(fresh);
    let only: Vec<String> = arguments.collect();
    let is_asked = |target: &&Target| only.is_empty() || only.iter().any(|name| name == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(is_asked).collect();
    eprintln!("fuzz: {seconds:.1} s for each of {} parsers, seed {seed}", targets.len());
    let (next, failed, left) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(threads));
    let running: Vec<Running> = (0..threads).map(|_| Running::default()).collect();
    std::thread::scope(|scope| {
        for running in &running {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let is_good = report(target, Duration::from_secs_f64(seconds), seed, running);
                    failed.fetch_or(!is_good, Ordering::Relaxed);
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            running.iter().for_each(Running::check);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one target and tells how it went; false if an input made it fail.
fn report(target: &Target, time: Duration, seed: u64, running: &Running) -> bool {
    let tried = smoke(target, time, &mut Random(seed | 1), running);
    match &tried {
        Ok(count) => eprintln!("fuzz: {:20} {count} inputs", target.name),
        Err(input) => eprintln!("fuzz: {:20} FAILED on {}", target.name, hex(input)),
    }
    tried.is_ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
