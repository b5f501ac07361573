//! A test under many seeds, with the one that failed.

/// The variable that repeats one seed alone.
const VARIABLE: &str = "SIMNET_SEED";

/// Runs `test` with seeds 0 to `count`; or, if the variable `SIMNET_SEED` holds one, with that seed
/// alone. A test that panics has its seed printed on standard error.
///
/// # Panics
///
/// If the variable holds no number, and with `test`.
pub fn for_seeds(count: u64, test: impl Fn(u64)) {
    let seeds = match std::env::var(VARIABLE) {
        Ok(text) => {
            let seed: u64 = text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number"));
            seed..seed.saturating_add(1)
        }
        Err(_) => 0..count,
    };
    for seed in seeds {
        let _told = SeedRun(seed);
        test(seed);
    }
}

/// Tells the seed when its test panics.
struct SeedRun(u64);

impl Drop for SeedRun {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simnet: failed with seed {0}; {VARIABLE}={0} repeats it alone", self.0);
        }
    }
}
