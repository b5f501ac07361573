//! Feeds every target random and changed valid inputs for some seconds: `smoke [SECONDS [SEED]]`.
//!
//! A failure names the target and prints the input in hexadecimal; the seed repeats the run.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use towpath_fuzz::{TARGETS, Target};

/// Bytes of the longest random input.
const LONGEST: u64 = 600;

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
fn smoke(target: &Target, time: Duration, random: &mut Random) -> Result<u64, Vec<u8>> {
    let (seeds, start, mut count) = ((target.seeds)(), Instant::now(), 0);
    for seed in &seeds {
        catch_unwind(|| (target.run)(seed)).map_err(|_| seed.clone())?;
    }
    while start.elapsed() < time {
        for _ in 0..64 {
            let input = input(&seeds, random);
            catch_unwind(|| (target.run)(&input)).map_err(|_| input)?;
            count += 1;
        }
    }
    Ok(count)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let fresh = std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
    let seed: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(fresh);
    eprintln!("fuzz: {seconds} s for each of {} parsers, seed {seed}", TARGETS.len());
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let is_good = report(target, Duration::from_secs_f64(seconds), seed);
                    failed.fetch_or(!is_good, Ordering::Relaxed);
                }
            });
        }
    });
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one target and tells how it went; false if an input made it fail.
fn report(target: &Target, time: Duration, seed: u64) -> bool {
    match smoke(target, time, &mut Random(seed | 1)) {
        Ok(count) => eprintln!("fuzz: {:20} {count} inputs", target.name),
        Err(input) => {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("fuzz: {:20} FAILED on {hex}", target.name);
            return false;
        }
    }
    true
}
