//! Random numbers that cannot be foretold, stretched out of 32 bytes of the system's.

use std::fmt;

use rand_core::{CryptoRng, RngCore};
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

const CONTEXT: &str = "towpath 2026-11 code entropy v1";

/// The system gives no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the system gives no random bytes")]
pub struct NoEntropy;

/// A source of random numbers, for one code or one end of an exchange.
pub struct Entropy(blake3::OutputReader);

impl Entropy {
    /// Begins with 32 bytes of the system.
    pub fn of_system() -> Result<Self, NoEntropy> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| NoEntropy)?;
        Ok(Self::from_seed(&seed))
    }

    /// Begins with these bytes: the same numbers each time, for tests and simulations.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_derive_key(CONTEXT).update(seed).finalize_xof())
    }

    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

impl RngCore for Entropy {
    fn next_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn next_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for Entropy {}
