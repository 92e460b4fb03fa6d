//! Results as a table for people.

use comfy_table::{CellAlignment, Table, presets};
use flashwise_core::policy::Spec;
use flashwise_sim::results::ResultRow;
use flashwise_sim::size::format_bytes;

/// A table without lines whose columns after the first `text_columns` stand to the right.
pub fn plain(header: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if number >= text_columns {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

fn percent(ratio: f64) -> String {
    format!("{:.2}%", 100.0 * ratio)
}

/// One line per trace, policy and size. The last column tells how much of the best possible hit ratio a policy reaches, where
/// the best was simulated too.
pub fn results(rows: &[ResultRow]) -> String {
    let header = ["trace", "policy", "size", "capacity", "hits", "read hits", "flash writes", "replaced", "of best"];
    let mut table = plain(&header, 2);
    let mut previous: Option<&ResultRow> = None;
    for row in rows {
        if previous.is_some_and(|previous| previous.trace != row.trace || previous.policy != row.policy) {
            table.add_row([""]);
        }
        table.add_row([
            row.trace.clone(),
            row.policy.clone(),
            row.size.clone(),
            format_bytes_short(row.capacity_blocks * row.block_size_bytes),
            percent(row.hit_ratio),
            percent(row.read_hit_ratio),
            thousands(row.flash_writes_blocks),
            thousands(row.replacements),
            of_best(rows, row),
        ]);
        previous = Some(row);
    }
    let footnote = "hits: share of block accesses; flash writes and replaced: blocks; of best: share of the hits that FIF \
                    (Belady), which knows the future, has.";
    format!("{}\n\n{footnote}", table.trim_fmt())
}

fn of_best(rows: &[ResultRow], row: &ResultRow) -> String {
    let is_best = |best: &&ResultRow| {
        let offline = best.policy.parse::<Spec>().is_ok_and(|policy| policy.info().offline);
        offline && best.trace == row.trace && best.capacity_blocks == row.capacity_blocks
    };
    match rows.iter().find(is_best) {
        Some(best) if best.hits > 0 => format!("{:.1}%", 100.0 * row.hits as f64 / best.hits as f64),
        _ => "-".to_owned(),
    }
}

/// `bytes` in the unit that keeps it readable: `1.2 GiB`.
pub fn format_bytes_short(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    if power == 0 {
        return format_bytes(bytes);
    }
    format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * power)) as f64, UNITS[power as usize])
}
