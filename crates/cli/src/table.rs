//! Results as a table for people.

use comfy_table::{CellAlignment, Table, presets};
use flashwise_core::policy::Spec;
use flashwise_sim::human;
use flashwise_sim::results::ResultRow;

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
            human::bytes((row.capacity_blocks * row.block_size_bytes) as f64),
            human::percent(row.hit_ratio),
            human::percent(row.read_hit_ratio),
            human::count(row.flash_writes_blocks),
            human::count(row.replacements),
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
