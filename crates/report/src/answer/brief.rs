//! The choice of policies that a short table shows, and a verdict in three sentences.

use flashwise_sim::results::ResultRow;

use crate::answer::choice::Choice;
use crate::grid::{Grid, GridPolicy};
use crate::numbers::{bytes, percent};

/// Policies that are always shown.
const SHOWN: [&str; 2] = ["lru", "larc"];
/// The best of the others that are shown.
const BEST: usize = 2;

/// The part of the rows of one trace that a short table shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The policies: LRU, LARC, the two others with the most hits on average over the sizes, and the bound. The
    /// recommended policy is one of them.
    pub policies: Vec<String>,
    /// The verdict; empty if nothing was counted.
    pub sentences: Vec<String>,
}

impl Brief {
    /// Chooses from the rows of one trace, which have policies only.
    pub fn of(rows: &[ResultRow]) -> Brief {
        let grid = Grid::new(rows);
        let choice = Choice::of(&grid);
        let candidates = grid.candidates();
        let mean = |policy: GridPolicy| -> f64 {
            let rows = grid.sizes.iter().filter_map(|&size| grid.row(policy, size));
            rows.map(|row| row.hit_ratio).sum()
        };
        let mut others: Vec<&str> = candidates.iter().map(|policy| policy.name).collect();
        others.retain(|name| !SHOWN.contains(name));
        let hits =
            |name: &str| candidates.iter().find(|policy| policy.name == name).map_or(0.0, |&policy| mean(policy));
        let recommended = choice.map(|choice| &*choice.row.policy);
        // The recommended policy first.
        others.sort_by(|a, b| {
            let is_recommended = |name: &str| recommended == Some(name);
            is_recommended(b).cmp(&is_recommended(a)).then(hits(b).total_cmp(&hits(a)))
        });
        let shown = candidates.iter().map(|policy| policy.name).filter(|name| SHOWN.contains(name));
        let bound = grid.bound().map(|policy| policy.name);
        let policies = shown.chain(others.into_iter().take(BEST)).chain(bound.filter(|_| candidates.len() > 1));
        let policies = policies.map(str::to_owned).collect();
        Brief { policies, sentences: choice.map_or_else(Vec::new, |choice| sentences(&grid, &choice)) }
    }
}

fn sentences(grid: &Grid, choice: &Choice) -> Vec<String> {
    let Choice { size, row, .. } = choice;
    let at = |name: &str| {
        grid.policies.iter().find(|policy| policy.name == name).and_then(|&policy| grid.row(policy, *size))
    };
    let first = format!(
        "Recommended: {} with {} ({}), which hits {} of the accesses.",
        row.policy,
        size.given,
        bytes(size.bytes),
        percent(row.hit_ratio)
    );
    let written = |row: &ResultRow| bytes(row.flash_writes_blocks.saturating_mul(row.block_size_bytes));
    let of_lru = at("lru").filter(|lru| lru.policy != row.policy && lru.flash_writes_blocks > 0).map(|lru| {
        let share = row.flash_writes_blocks as f64 / lru.flash_writes_blocks as f64;
        format!(", {} of what lru writes", percent(share))
    });
    let sparing = choice
        .sparing
        .map(|row| format!("; {} hits {} and writes {}", row.policy, percent(row.hit_ratio), written(row)));
    let second =
        format!("It writes {} to flash{}{}.", written(row), of_lru.unwrap_or_default(), sparing.unwrap_or_default());
    let best = grid.bound().and_then(|bound| grid.row(bound, *size));
    let third = match best {
        Some(best) => {
            format!("The best possible policy ({}) hits {} at that size.", best.policy, percent(best.hit_ratio))
        }
        None => format!("{} has the most hits at {} of {} sizes.", choice.leader.0, choice.leader.1, grid.sizes.len()),
    };
    vec![first, second, third]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(&(policy, capacity_blocks, hits): &(&str, u64, u64)) -> ResultRow {
        ResultRow {
            trace: "t".to_owned(),
            policy: policy.into(),
            size: format!("{capacity_blocks}"),
            capacity_blocks,
            block_size_bytes: 4096,
            accesses: 1000,
            hits,
            hit_ratio: hits as f64 / 1000.0,
            flash_writes_blocks: if policy == "lru" { 1000 } else { 1000 - hits },
            ..ResultRow::default()
        }
    }

    #[test]
    fn lru_larc_the_two_best_and_the_bound_are_shown_with_a_verdict() {
        let hits =
            [("lru", 300), ("fifo", 200), ("arc", 390), ("larc", 310), ("mq", 380), ("sieve", 400), ("min", 600)];
        let rows: Vec<ResultRow> = hits.iter().map(|&(policy, hits)| row(&(policy, 512, hits))).collect();
        let brief = Brief::of(&rows);
        assert_eq!(brief.policies, ["lru", "larc", "sieve", "arc", "min"]);
        assert_eq!(
            brief.sentences,
            [
                "Recommended: sieve with 512 (2 MiB), which hits 40% of the accesses.",
                "It writes 2.34 MiB to flash, 60% of what lru writes.",
                "The best possible policy (min) hits 60% at that size."
            ]
        );
        let few = Brief::of(&rows[..2]);
        assert_eq!((few.policies, few.sentences.len()), (vec!["lru".to_owned(), "fifo".to_owned()], 3));
        assert_eq!(Brief::of(&[]), Brief { policies: Vec::new(), sentences: Vec::new() });
    }
}
