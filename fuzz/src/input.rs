//! Numbers and runs out of the front of any bytes, for targets that need more than one of them; and the bytes that
//! give some, for their seeds.

use std::sync::LazyLock;

use towpath_content::Oid;

/// Gives out what inputs are made of. It never ends: where nothing is left, all is zero or empty.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number of up to 64 bits in groups of seven, as varints have it.
    pub fn number(&mut self) -> u64 {
        let mut number = 0;
        for group in 0..10 {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << (7 * group);
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Some bytes, as many as a number says, or all that are left.
    pub fn run(&mut self) -> &'a [u8] {
        let len = usize::try_from(self.number()).unwrap_or(usize::MAX).min(self.0.len());
        let (run, rest) = self.0.split_at(len);
        self.0 = rest;
        run
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// The bytes of which a [`Source`] gives this out again.
#[derive(Default)]
pub struct Written(Vec<u8>);

impl Written {
    #[must_use]
    pub fn number(mut self, mut number: u64) -> Self {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    #[must_use]
    pub fn run(self, run: &[u8]) -> Self {
        self.number(run.len() as u64).rest(run)
    }

    #[must_use]
    pub fn runs<'a>(self, runs: impl IntoIterator<Item = &'a [u8]>) -> Self {
        runs.into_iter().fold(self, Self::run)
    }

    #[must_use]
    pub fn rest(mut self, rest: &[u8]) -> Self {
        self.0.extend_from_slice(rest);
        self
    }

    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Bytes that look random and are always the same, at most `MOST_NOISE`.
pub fn noise(len: usize) -> &'static [u8] {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let hash = |block: u64| *Oid::of(&block.to_le_bytes()).digest();
        (0..MOST_NOISE as u64 / 32).flat_map(hash).collect()
    });
    &NOISE[..len.min(MOST_NOISE)]
}

/// See [`noise`].
const MOST_NOISE: usize = 1 << 20;
