//! A digest of all buckets of a cache. It shows if a bucket changed since the digest was made, and which one.
//!
//! Each bucket has a value: the checksum of its last header, or 0 if it is empty. Headers are chained, so that the last
//! one depends on all of them. The digest has the sums of `value * (bucket + 1)^n` in the field of 2^61 - 1, as in a
//! Reed-Solomon code. Eliminating a bucket of unknown value from the sums takes one sum. Two sums that are left locate
//! one bucket that changed.

use super::{Page, put, u64_at};

/// The order of the field, a prime.
const PRIME: u64 = (1 << 61) - 1;
const SUMS: usize = 8;

/// The content of all buckets, before a place in the order of programs and resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The run, which is not 0, ...
    run: u64,
    /// ... and the sequence of the next program or reset.
    sequence: u64,
    sums: [u64; SUMS],
}

/// How buckets differ from a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// No bucket differs, or too many values are unknown.
    None,
    /// One bucket differs.
    Bucket(u32),
    /// Several buckets differ.
    Several,
}

impl Digest {
    pub(super) const BYTES: usize = 8 * (2 + SUMS);

    /// The digest of buckets, by their values.
    pub fn new(run: u64, sequence: u64, values: impl Iterator<Item = u32>) -> Digest {
        let mut sums = [0; SUMS];
        for (bucket, value) in (0..).zip(values).filter(|(_, value)| *value != 0) {
            add(&mut sums, bucket, value);
        }
        Digest { run, sequence, sums }
    }

    /// True if a program or reset of this run and sequence precedes the digest.
    pub fn covers(&self, run: u64, sequence: u64) -> bool {
        (run, sequence) < (self.run, self.sequence)
    }

    /// Compares the digest with the values that buckets have now. `None` is an unknown value.
    pub fn compare(&self, values: &[Option<u32>]) -> Difference {
        let now = Digest::new(self.run, self.sequence, values.iter().map(|value| value.unwrap_or(0)));
        let mut left: Vec<u64> = self.sums.iter().zip(now.sums).map(|(then, now)| minus(*then, now)).collect();
        for (bucket, _) in (0..).zip(values).filter(|(_, value)| value.is_none()) {
            let factor = factor(bucket);
            left = left.windows(2).map(|pair| minus(pair[1], times(factor, pair[0]))).collect();
            if left.is_empty() {
                return Difference::None;
            }
        }
        if left.iter().all(|sum| *sum == 0) {
            return Difference::None;
        }
        // If one value changed, the sums are a geometric series.
        let ratio = if left.len() > 1 { times(left[1], inverse(left[0])) } else { 0 };
        let is_series = left.windows(2).all(|pair| pair[1] == times(ratio, pair[0]));
        match ratio.checked_sub(1).filter(|bucket| is_series && *bucket < values.len() as u64) {
            Some(bucket) => Difference::Bucket(bucket as u32),
            None => Difference::Several,
        }
    }

    pub(super) fn encode(of: Option<Digest>, page: &mut Page, at: usize) {
        if let Some(Digest { run, sequence, sums }) = of {
            let words = [run, sequence].into_iter().chain(sums);
            words.enumerate().for_each(|(number, word)| put(page, at + 8 * number, &word.to_le_bytes()));
        }
    }

    pub(super) fn decode(page: &Page, at: usize) -> Option<Digest> {
        let run = Some(u64_at(page, at)).filter(|run| *run > 0)?;
        let sums = std::array::from_fn(|number| u64_at(page, at + 16 + 8 * number) % PRIME);
        Some(Digest { run, sequence: u64_at(page, at + 8), sums })
    }
}

/// Adds a value to the sums.
fn add(sums: &mut [u64; SUMS], bucket: u32, value: u32) {
    let mut term = u64::from(value);
    for sum in sums {
        *sum = (*sum + term) % PRIME;
        term = times(term, factor(bucket));
    }
}

fn factor(bucket: u32) -> u64 {
    u64::from(bucket) + 1
}

fn minus(a: u64, b: u64) -> u64 {
    (a + PRIME - b) % PRIME
}

fn times(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64 & PRIME).wrapping_add((product >> 61) as u64) % PRIME
}

/// Inverts by Fermat's little theorem.
fn inverse(of: u64) -> u64 {
    (0..61).rev().fold(1, |power, bit| {
        let square = times(power, power);
        if (PRIME - 2) >> bit & 1 == 1 { times(square, of) } else { square }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_field_have_inverses() {
        for number in [1, 2, 3, 1 << 60, PRIME - 1, 0x0123_4567_89AB_CDEF % PRIME] {
            assert_eq!(times(number, inverse(number)), 1, "{number}");
        }
        assert_eq!((times(PRIME - 1, PRIME - 1), minus(0, 1)), (1, PRIME - 1));
    }

    #[test]
    fn one_bucket_that_changed_is_located_beside_unknown_ones() {
        let mut seed = 5;
        let values: Vec<u32> =
            (0..100).map(|bucket| if bucket % 4 == 3 { 0 } else { crate::random::next(&mut seed) as u32 }).collect();
        let digest = Digest::new(3, 9, values.iter().copied());
        for unknown in 0..12 {
            let mut now: Vec<Option<u32>> = values.iter().copied().map(Some).collect();
            (0..unknown).for_each(|number| now[number * 7] = None);
            assert_eq!(digest.compare(&now), Difference::None);
            for changed in [1, 50, 99] {
                let other = now[changed].replace(values[changed] ^ 0x8001);
                let expected = match SUMS.checked_sub(unknown) {
                    None | Some(0) => Difference::None,
                    Some(1) => Difference::Several,
                    Some(_) => Difference::Bucket(changed as u32),
                };
                assert_eq!(digest.compare(&now), expected, "{unknown} unknown");
                now[changed] = other;
            }
            (now[1], now[50]) = (Some(values[1] ^ 1), Some(values[50] ^ 1));
            let expected = if unknown < SUMS - 2 { Difference::Several } else { digest.compare(&now) };
            assert_eq!(digest.compare(&now), expected, "{unknown} unknown");
        }
    }

    #[test]
    fn a_digest_covers_earlier_headers() {
        let digest = Digest::new(3, 9, std::iter::empty());
        assert!(digest.covers(3, 8) && digest.covers(2, 10) && !digest.covers(3, 9) && !digest.covers(4, 0));
    }
}
