//! Epochs of a sample: makes their estimates agree with the estimate of the whole run.

use flashwise_core::access::Op;
use flashwise_core::counters::{Counters, OpCounters};

use super::estimate::with_hits;

/// Adjusts the hits of `epochs` so that their sum is that of `counters`. The sample's share of hot blocks is random and
/// affects all epochs, so the odds of a hit change by the same factor in each. The share of misses that are admitted
/// stays.
pub(super) fn agree(epochs: &mut [Counters], counters: &Counters) {
    let ops = [Op::Read, Op::Write].map(|op| {
        let of_op: Vec<OpCounters> = epochs.iter().map(|epoch| *epoch.of(op)).collect();
        let odds = odds(&of_op, counters.of(op).hits as f64);
        let moved = |epoch: &OpCounters| {
            let hits = hits(epoch, odds).round() as u64;
            with_hits(epoch, hits, epoch.accesses() - hits)
        };
        of_op.iter().map(moved).collect::<Vec<_>>()
    });
    let [reads, writes] = ops;
    for ((epoch, reads), writes) in epochs.iter_mut().zip(reads).zip(writes) {
        *epoch = Counters::of_ops([reads, writes]);
    }
}

/// Returns the factor for the odds of a hit.
fn odds(epochs: &[OpCounters], wanted: f64) -> f64 {
    let found = |odds: f64| epochs.iter().map(|epoch| hits(epoch, odds)).sum::<f64>();
    // Exponents of 2; an unreachable goal is approximated.
    let (mut low, mut high) = (-40.0_f64, 40.0_f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if found(middle.exp2()) < wanted { low = middle } else { high = middle }
    }
    ((low + high) / 2.0).exp2()
}

fn hits(epoch: &OpCounters, odds: f64) -> f64 {
    let (hits, accesses) = (epoch.hits as f64, epoch.accesses() as f64);
    if epoch.hits == 0 { 0.0 } else { accesses * hits * odds / (hits * odds + accesses - hits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(hits: u64, fills: u64, replacements: u64, bypasses: u64) -> Counters {
        Counters::of_ops([OpCounters { hits, fills, replacements, bypasses }, OpCounters::default()])
    }

    #[test]
    fn epochs_together_have_the_hits_of_the_run_and_keep_their_accesses() {
        let before = [epoch(500, 400, 0, 100), epoch(900, 0, 60, 40), epoch(0, 0, 0, 1000), epoch(1000, 0, 0, 0)];
        for wanted in [2200, 2600, 1410] {
            let mut epochs = before;
            agree(&mut epochs, &epoch(wanted, 0, 0, 0));
            let found: u64 = epochs.iter().map(Counters::hits).sum();
            assert!(found.abs_diff(wanted) <= 2, "{found} for {wanted}");
            for (epoch, before) in epochs.iter().zip(&before) {
                assert_eq!(epoch.accesses(), before.accesses());
                assert!(epoch.hits() <= epoch.accesses());
            }
            assert_eq!((epochs[2], epochs[3]), (before[2], before[3]), "of these nothing is uncertain");
        }
        // By hand: odds of 1 and of 9, both halved, are 1/2 and 9/2: 333 and 818 hits of 1000.
        let mut epochs = before[..2].to_vec();
        agree(&mut epochs, &epoch(1151, 0, 0, 0));
        assert_eq!(epochs, [epoch(333, 534, 0, 133), epoch(818, 0, 109, 73)]);
    }
}
