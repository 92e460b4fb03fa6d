//! Merges epochs until they are few enough to draw and read.

use crate::numbers::count;
use flashwise_sim::results::Epoch;

/// Largest number of points over time.
const SPANS_MAX: usize = 120;

/// Consecutive epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Number of merged epochs; the last span may have fewer.
    pub epochs: u64,
    /// Position of the first access in the trace.
    pub first_access: u64,
    /// Accesses.
    pub accesses: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Replacements per access.
    pub replacement_rate: f64,
}

impl Span {
    /// Position at which it is drawn.
    pub fn middle(&self) -> f64 {
        self.first_access as f64 + self.accesses as f64 / 2.0
    }

    /// Position after the last access.
    pub fn end(&self) -> u64 {
        self.first_access + self.accesses
    }

    /// Names the accesses, counted from 1: `1 to 100,000`.
    pub fn named(&self) -> String {
        format!("{} to {}", count(self.first_access + 1), count(self.end()))
    }
}

/// Merges equal numbers of epochs into spans, with means over their accesses.
pub fn spans(epochs: &[Epoch]) -> Vec<Span> {
    let together = epochs.len().div_ceil(SPANS_MAX).max(1);
    let span = |epochs: &[Epoch]| {
        let accesses: u64 = epochs.iter().map(|epoch| epoch.accesses).sum();
        let mean = |figure: fn(&Epoch) -> f64| {
            let sum: f64 = epochs.iter().map(|epoch| figure(epoch) * epoch.accesses as f64).sum();
            sum / accesses.max(1) as f64
        };
        Span {
            epochs: epochs.len() as u64,
            first_access: epochs.first().map_or(0, |epoch| epoch.first_access),
            accesses,
            hit_ratio: mean(|epoch| epoch.hit_ratio),
            replacement_rate: mean(|epoch| epoch.replacement_rate),
        }
    };
    epochs.chunks(together).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, accesses: u64, hit_ratio: f64) -> Epoch {
        Epoch {
            first_access: number * 100,
            accesses,
            hit_ratio,
            replacement_rate: hit_ratio / 2.0,
            flash_writes_blocks: 0,
            erasures: None,
            array: None,
        }
    }

    #[test]
    fn few_epochs_stay_as_they_are() {
        let spans = spans(&[epoch(0, 100, 0.1), epoch(1, 50, 0.3)]);
        assert_eq!(spans.iter().map(|span| span.hit_ratio).collect::<Vec<_>>(), [0.1, 0.3]);
        assert_eq!(spans[1].named(), "101 to 150");
    }

    #[test]
    fn many_epochs_are_put_together_with_the_mean_over_their_accesses() {
        let mut epochs: Vec<_> = (0..241).map(|number| epoch(number, 100, 0.5)).collect();
        epochs[1].hit_ratio = 0.0;
        epochs[240].accesses = 10;
        let spans = spans(&epochs);
        assert_eq!(spans.len(), 81);
        assert!((spans[0].hit_ratio - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((spans[0].epochs, spans[80].epochs), (3, 1));
        assert_eq!(spans.iter().map(|span| span.accesses).sum::<u64>(), 24_010);
        assert_eq!(spans[80].end(), 24_010);
    }
}
