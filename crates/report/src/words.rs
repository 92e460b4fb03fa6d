//! The two sentences that say what the numbers of a trace mean: one of hits, one of flash writes.
//!
//! Each statement follows from the rows alone, whatever policies and sizes there are; policies that know the future are
//! compared with, never recommended.

use super::grid::{Grid, GridPolicy, GridSize};
use super::numbers::{about_percent, about_points, bytes, counted};
use flashwise_sim::results::ResultRow;
use flashwise_trace::tools::info::Info;

/// Caching is called hardly worthwhile when fewer accesses than this share are to a block accessed before.
const REACCESS_RATIO_MIN: f64 = 0.10;
/// Caching is called hardly worthwhile at the simulated sizes when the best policy hits less than this.
const HIT_RATIO_MIN: f64 = 0.05;
const ALL: &str = "all policies";

/// What the results of a trace mean: a sentence about hits and one about flash writes.
pub fn sentences(info: &Info, grid: &Grid) -> [String; 2] {
    let Some((size, best)) = grid.best() else {
        let again = about_percent(info.reaccess_ratio);
        return [
            "No policy was simulated.".to_owned(),
            format!("{again} of the accesses are to a block accessed before, which is the most that a cache can hit."),
        ];
    };
    if best.accesses == 0 {
        return [
            "Nothing was counted, because the warm-up is as long as the trace.".to_owned(),
            "A shorter warm-up leaves accesses to count.".to_owned(),
        ];
    }
    [hits(info, grid, size, best), writes(grid, size, best)]
}

fn hits(info: &Info, grid: &Grid, size: GridSize, best: &ResultRow) -> String {
    let again = about_percent(info.reaccess_ratio);
    if info.reaccess_ratio == 0.0 {
        return "Caching is not worthwhile here: no block is accessed twice, so no cache can hit.".to_owned();
    }
    if best.hits == 0 {
        let beside = beside_bound(grid, size, best);
        return format!(
            "No policy hits at all, although {again} of the accesses are to a block accessed before{beside}."
        );
    }
    let (leader, leads) = leader(grid, size, best);
    let beside = beside_bound(grid, size, best);
    if info.reaccess_ratio < REACCESS_RATIO_MIN {
        return format!(
            "Caching is hardly worthwhile here, because only {again} of the accesses are to a block accessed before: {leader}{beside}."
        );
    }
    if best.hit_ratio < HIT_RATIO_MIN {
        return format!(
            "Caching is hardly worthwhile at these sizes, although {again} of the accesses are to a block accessed before: \
             {leader}{beside}."
        );
    }
    // A policy's name is not capitalised.
    let leader = leader.strip_prefix(ALL).map_or(leader.clone(), |rest| format!("All policies{rest}"));
    // After a warm-up, hits are counted over a part of the trace, and may be a larger share of it.
    let bound = (best.warmup_accesses == 0).then(|| format!("a cache without bound would hit {again}"));
    let rest: Vec<_> = leads.into_iter().chain(bound).collect();
    let rest = if rest.is_empty() { String::new() } else { format!("; {}", rest.join(", and ")) };
    format!("{leader}{beside}{rest}.")
}

/// Who hits most and where, and at how many sizes it leads if not at all.
fn leader(grid: &Grid, size: GridSize, best: &ResultRow) -> (String, Option<String>) {
    let candidates = grid.candidates();
    let ratio = about_percent(best.hit_ratio);
    let sizes = grid.sizes.len();
    if candidates.len() == 1 {
        let leader = match sizes {
            1 => format!("{} hits {ratio} of the accesses with {}", best.policy, size.named()),
            _ => format!("{} hits up to {ratio} of the accesses, with {}", best.policy, size.named()),
        };
        return (leader, None);
    }
    let leads = |policy: &str, size: GridSize| {
        let rows = || candidates.iter().filter_map(|&other| grid.row(other, size));
        let most = rows().map(|row| row.hits).max();
        rows().any(|row| row.policy == policy && Some(row.hits) == most)
    };
    let equals: Vec<_> = candidates.iter().map(|policy| policy.name).filter(|policy| leads(policy, size)).collect();
    if equals.len() > 1 {
        let who = if equals.len() == candidates.len() { ALL.to_owned() } else { list(&equals) };
        let most = if equals.len() == candidates.len() { "hit" } else { "hit most, each" };
        let leader = match sizes {
            1 => format!("{who} {most} {ratio} of the accesses with {}", size.named()),
            _ => format!("{who} {most} up to {ratio} of the accesses, with {}", size.named()),
        };
        return (leader, None);
    }
    let led = grid.sizes.iter().filter(|&&size| leads(&best.policy, size)).count();
    let who = format!("{} has the highest hit ratio", best.policy);
    let with = size.named();
    match sizes {
        1 => (format!("{who}, {ratio} with {with}"), None),
        _ if led == sizes => (format!("{who} at {}, up to {ratio} with {with}", all(sizes)), None),
        _ => (format!("{who}, {ratio} with {with}"), Some(format!("it leads at {led} of {sizes} sizes"))),
    }
}

fn all(sizes: usize) -> String {
    if sizes == 2 { "both sizes".to_owned() } else { format!("all {sizes} sizes") }
}

/// `a, b and c`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// How MIN compares with `best` at the same size.
fn beside_bound(grid: &Grid, size: GridSize, best: &ResultRow) -> String {
    let Some(bound) = grid.bound().filter(|bound| bound.name != best.policy).and_then(|bound| grid.row(bound, size))
    else {
        return String::new();
    };
    let points = points(bound.hit_ratio - best.hit_ratio);
    if best.hits == 0 {
        return match bound.hits {
            0 => ", and neither does MIN, which knows the future".to_owned(),
            _ => {
                format!("; MIN, which knows the future, hits {} with {}", about_percent(bound.hit_ratio), size.named())
            }
        };
    }
    match bound.hits.cmp(&best.hits) {
        std::cmp::Ordering::Greater => format!(", {points} below MIN, which knows the future"),
        std::cmp::Ordering::Equal => ", as much as MIN, which knows the future".to_owned(),
        std::cmp::Ordering::Less => {
            format!(", {points} above MIN, which has the most hits of the whole trace")
        }
    }
}

fn writes(grid: &Grid, size: GridSize, best: &ResultRow) -> String {
    let candidates = grid.candidates();
    let every_row =
        || grid.sizes.iter().flat_map(|&size| candidates.iter().filter_map(move |&policy| grid.row(policy, size)));
    if every_row().all(|row| row.flash_writes_blocks == 0) {
        return "Nothing is written to flash in the accesses that were counted.".to_owned();
    }
    let Some(lru) = grid.lru() else { return writes_without_lru(grid, size, best) };
    let mut compared: Vec<_> = (candidates.iter())
        .filter(|&&policy| policy != lru)
        .map(|&policy| Comparison::new(grid, policy, lru))
        .filter(|comparison| !comparison.at_sizes.is_empty())
        .collect();
    // Of those that write equally little the one that hits most comes first.
    compared.sort_by(|a, b| {
        a.writes_to_lru.total_cmp(&b.writes_to_lru).then_with(|| b.hit_ratio_gain().total_cmp(&a.hit_ratio_gain()))
    });
    let Some(least) = compared.first() else { return written_by(size, best) };
    if least.writes_to_lru >= 1.0 {
        let over = if grid.sizes.len() == 1 { "" } else { ", summed over the sizes" };
        let Some(row) = grid.row(lru, size) else { return written_by(size, best) };
        return format!("No other policy writes less to flash than {}{over}: {}.", lru.name, written(row, size));
    }
    let alone = compared.iter().filter(|other| other.writes_to_lru == least.writes_to_lru).count() == 1;
    least.sentence(compared.len(), alone, grid)
}

/// A policy beside LRU.
struct Comparison<'a> {
    policy: GridPolicy<'a>,
    lru: GridPolicy<'a>,
    /// Flash writes over LRU's, both summed over the sizes.
    writes_to_lru: f64,
    /// At each size at which LRU writes: the share of LRU's flash writes saved, and the gain in hit ratio.
    at_sizes: Vec<(f64, f64)>,
}

impl<'a> Comparison<'a> {
    fn new(grid: &Grid<'a>, policy: GridPolicy<'a>, lru: GridPolicy<'a>) -> Self {
        let (mut sums, mut at_sizes) = ([0_u64; 2], Vec::new());
        for &size in &grid.sizes {
            if let (Some(row), Some(lru)) = (grid.row(policy, size), grid.row(lru, size)) {
                sums = [sums[0] + row.flash_writes_blocks, sums[1] + lru.flash_writes_blocks];
                if lru.flash_writes_blocks > 0 {
                    let saved = 1.0 - row.flash_writes_blocks as f64 / lru.flash_writes_blocks as f64;
                    at_sizes.push((saved, row.hit_ratio - lru.hit_ratio));
                }
            }
        }
        let writes_to_lru = if sums[1] == 0 { f64::INFINITY } else { sums[0] as f64 / sums[1] as f64 };
        Comparison { policy, lru, writes_to_lru, at_sizes }
    }

    fn hit_ratio_gain(&self) -> f64 {
        self.at_sizes.iter().map(|&(_, gain)| gain).sum()
    }

    fn sentence(&self, compared: usize, alone: bool, grid: &Grid) -> String {
        let range = |value: fn(&(f64, f64)) -> f64| {
            let values = || self.at_sizes.iter().map(value);
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
        };
        let (policy, lru) = (self.policy.name, self.lru.name);
        let saved = saved(range(|&(saved, _)| saved));
        let gained = gained(range(|&(_, gain)| gain));
        let with = match &grid.sizes[..] {
            [only] => format!("with {}", only.named()),
            sizes => format!("over the {} sizes", sizes.len()),
        };
        match (compared, alone) {
            (1, _) => format!("{policy} writes {saved} to flash than {lru} {with}, and its hit ratio is {gained}."),
            (_, true) => {
                format!("{policy} writes least to flash {with}: {saved} than {lru}, while its hit ratio is {gained}.")
            }
            _ => format!(
                "No policy writes less to flash {with} than {policy}: {saved} than {lru}, while its hit ratio is {gained}."
            ),
        }
    }
}

/// `41.0% to 63.2% less`, from the least and the most that is saved.
fn saved((least, most): (f64, f64)) -> String {
    let (low, high) = (about_percent(least.abs()), about_percent(most.abs()));
    match (least < 0.0, most < 0.0) {
        (false, false) if low == high => format!("{high} less"),
        (false, false) => format!("{low} to {high} less"),
        (true, false) => format!("between {low} more and {high} less"),
        (_, true) => format!("{high} to {low} more"),
    }
}

/// `2.1 percentage points higher`, from the least and the most that is gained.
fn gained((least, most): (f64, f64)) -> String {
    let (low, high) = (about_points(least), about_points(most));
    if least == 0.0 && most == 0.0 {
        return "the same".to_owned();
    }
    match (least < 0.0, most > 0.0) {
        (true, true) => format!("between {} lower and {high} higher", points(least)),
        (true, false) if low == high => format!("{} lower", points(least)),
        (true, false) => format!("{high} to {low} percentage points lower"),
        (false, _) if low == high => format!("{} higher", points(most)),
        (false, _) => format!("{low} to {high} percentage points higher"),
    }
}

/// `2.1 percentage points`, without the sign.
fn points(difference: f64) -> String {
    let number = about_points(difference);
    let unit = if number == "1" { "percentage point" } else { "percentage points" };
    format!("{number} {unit}")
}

fn writes_without_lru(grid: &Grid, size: GridSize, best: &ResultRow) -> String {
    let mut rows: Vec<_> = grid.candidates().iter().filter_map(|&policy| grid.row(policy, size)).collect();
    rows.sort_by_key(|row| row.flash_writes_blocks);
    let ([least, ..], [.., most]) = (&rows[..], &rows[..]) else { return written_by(size, best) };
    if rows.len() == 1 {
        return written_by(size, best);
    }
    if least.flash_writes_blocks == most.flash_writes_blocks {
        return format!("All policies write equally much to flash with {}: {}.", size.named(), volume(least));
    }
    let names = |of: &ResultRow| {
        let equal = rows.iter().filter(|row| row.flash_writes_blocks == of.flash_writes_blocks);
        list(&equal.map(|row| row.policy.as_str()).collect::<Vec<_>>())
    };
    format!(
        "With {} the fewest flash writes are those of {}, {}, and the most those of {}, {}.",
        size.named(),
        names(least),
        volume(least),
        names(most),
        volume(most)
    )
}

/// What the only policy there is to speak of writes.
fn written_by(size: GridSize, best: &ResultRow) -> String {
    let per_hit = match best.hits {
        0 => String::new(),
        hits => {
            let per_hit = best.flash_writes_blocks as f64 / hits as f64;
            let text =
                if per_hit > 0.0 && per_hit < 0.01 { "less than 0.01".to_owned() } else { format!("{per_hit:.2}") };
            format!(", {text} blocks for each hit")
        }
    };
    format!("With {} {} writes {} to flash{per_hit}.", size.named(), best.policy, volume(best))
}

fn written(row: &ResultRow, size: GridSize) -> String {
    format!("with {} it writes {}", size.named(), volume(row))
}

fn volume(row: &ResultRow) -> String {
    format!("{} ({})", counted(row.flash_writes_blocks, "block", "blocks"), bytes(row.flash_bytes_written))
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
