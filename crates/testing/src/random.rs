//! Seeded randomness: the same seed gives the same run.

/// Splitmix64.
#[derive(Clone, Debug)]
pub struct Random(
    /// Its state; initially the seed.
    pub u64,
);

impl Random {
    /// Returns 64 random bits.
    #[allow(clippy::should_implement_trait)] // It has no end.
    pub fn next(&mut self) -> u64 {
        flashwise_core::random::next(&mut self.0)
    }

    /// Returns random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words: Vec<_> = (0..length.div_ceil(8)).map(|_| self.next().to_le_bytes()).collect();
        let mut bytes = words.into_flattened();
        bytes.truncate(length);
        bytes
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in `odds` times.
    pub fn chance(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// Returns one of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
