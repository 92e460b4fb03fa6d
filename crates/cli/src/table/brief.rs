//! The table of `flashwise simulate` where no policy is named: hits and flash writes of some policies, and a verdict.

use flashwise_core::human;
use flashwise_report::Brief;
use flashwise_sim::results::ResultRow;

use super::{caveats_of, plain, sample_caveats};
use crate::fit;

/// Most sizes that are columns.
const SIZES_MAX: usize = 8;

/// Hits and flash writes by policy and size, trace by trace, and how to see the rest. None where rows have more than
/// that, or more sizes than fit.
pub fn brief(rows: &[ResultRow]) -> Option<String> {
    let is_of_policy = |row: &ResultRow| {
        let is_alone = row.ram.is_none() && row.tiers.is_none() && row.cache.is_none() && row.buckets.is_none();
        is_alone && row.endurance.is_none() && row.array.is_none() && row.admission.is_none()
    };
    if !rows.iter().all(is_of_policy) {
        return None;
    }
    let of_trace: Vec<&[ResultRow]> = rows.chunk_by(|one, other| one.trace == other.trace).collect();
    let all = of_trace.first()?;
    let briefs: Vec<Brief> = of_trace.iter().map(|rows| Brief::of(rows)).collect();
    let blocks: Option<Vec<String>> = of_trace.iter().zip(&briefs).map(|(rows, brief)| of(rows, brief)).collect();
    let mut names: Vec<&str> = all.iter().map(|row| &row.policy[..]).collect();
    names.dedup();
    let hidden = names.len() - briefs.first()?.policies.len();
    let more = match hidden {
        0 => String::new(),
        1 => "\n\n1 more policy: --policy all".to_owned(),
        _ => format!("\n\n{hidden} more policies: --policy all"),
    };
    let of_shown = |(rows, brief): (&&[ResultRow], &Brief)| {
        rows.iter().filter(|row| brief.policies.iter().any(|policy| row.policy == *policy)).cloned().collect::<Vec<_>>()
    };
    let shown: Vec<ResultRow> = of_trace.iter().zip(&briefs).flat_map(of_shown).collect();
    Some(blocks?.join("\n\n") + &more + &sample_caveats(&shown) + &caveats_of(&shown))
}

/// The tables of one trace and its verdict.
fn of(rows: &[ResultRow], brief: &Brief) -> Option<String> {
    let mut sizes: Vec<&ResultRow> = Vec::new();
    for row in rows {
        if !sizes.iter().any(|size| size.size == row.size) {
            sizes.push(row);
        }
    }
    if sizes.len() > SIZES_MAX {
        return None;
    }
    let table = |title: &str, cell: &dyn Fn(&ResultRow) -> String| {
        let header: Vec<&str> = [title].into_iter().chain(sizes.iter().map(|row| &row.size[..])).collect();
        let mut table = plain(&header, 1);
        for policy in &brief.policies {
            let of_size = |size: &&ResultRow| {
                let row = rows.iter().find(|row| row.policy == *policy && row.size == size.size);
                row.map_or_else(|| "-".to_owned(), cell)
            };
            table.add_row([policy.clone()].into_iter().chain(sizes.iter().map(of_size)));
        }
        table.trim_fmt()
    };
    let bytes = |blocks: u64, row: &ResultRow| human::bytes(blocks.saturating_mul(row.block_size_bytes) as f64);
    let hits = table("hits", &|row| human::percent(row.hit_ratio));
    let writes = table("written to flash", &|row| bytes(row.flash_writes_blocks, row));
    let capacities: Vec<String> =
        sizes.iter().map(|row| format!("{} is {}", row.size, bytes(row.capacity_blocks, row))).collect();
    let first = rows.first()?;
    let about = format!(
        "{}: {} accesses to {}; {}.",
        first.trace,
        human::count(first.accesses),
        human::counted(first.unique_blocks, "block"),
        capacities.join(", ")
    );
    let verdict = brief.sentences.join(" ");
    let margin = rows.iter().filter_map(|row| row.sample.as_ref()).map(|sample| sample.hit_ratio_margin);
    let margin = margin.reduce(f64::max).map_or_else(String::new, |margin| {
        format!(" Hits are estimates from a sample, off by at most {} in 95 of 100 samples.", human::percent(margin))
    });
    let [about, verdict] = [about, verdict + &margin].map(|text| fit::sentences(&text, 0, fit::width()));
    Some(format!("{about}\n\n{hits}\n\n{writes}\n\n{verdict}").trim_end().to_owned())
}
