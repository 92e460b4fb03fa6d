//! What a trace is like, and all traces of a report side by side.

use super::Section;
use super::grid::Grid;
use super::numbers::{about_percent, bytes, count, counted, duration, percent};
use super::table::Table;
use flashwise_trace::tools::info::Info;

/// What a trace is like: LARC's Table II and more.
pub fn characteristics(info: &Info) -> Table {
    let block = info.block_size_bytes;
    let in_blocks = |blocks: u64| vec![count(blocks), bytes(blocks.saturating_mul(block))];
    let sized = |number: u64, size_bytes: u64| vec![count(number), bytes(size_bytes)];
    let plain = |text: String| vec![text, String::new()];
    let mut table = Table::new("The trace", ["Figure", "Number", "Bytes"]);
    table.push("Format", plain(info.format.clone()));
    table.push(
        "Duration",
        plain(if info.duration_us == 0 { "not in the trace".to_owned() } else { duration(info.duration_us) }),
    );
    table.push("Volumes", plain(count(info.volumes)));
    table.push("Read requests", sized(info.read_requests, info.read_bytes));
    table.push("Write requests", sized(info.write_requests, info.write_bytes));
    table.push("Requests", sized(info.requests, info.read_bytes.saturating_add(info.write_bytes)));
    let mean = bytes(info.request_bytes_mean.round() as u64);
    let lengths = [bytes(info.request_bytes_min), mean, bytes(info.request_bytes_max)];
    table.push("Request length: shortest, mean, longest", vec![String::new(), lengths.join(", ")]);
    table.push("Block reads", in_blocks(info.reads));
    table.push("Block writes", in_blocks(info.writes));
    table.push("Block accesses", in_blocks(info.accesses));
    table.push("Reads among the accesses", plain(percent(info.read_share)));
    table.push("Different blocks read", in_blocks(info.unique_blocks_read));
    table.push("Different blocks written", in_blocks(info.unique_blocks_written));
    table.push("Different blocks (working set)", in_blocks(info.unique_blocks));
    table.push("Accesses to a block accessed before", plain(percent(info.reaccess_ratio)));
    table.push("Reads of a block accessed before, among reads", plain(percent(info.read_reaccess_ratio)));
    if info.skipped_records > 0 {
        table.push("Records without data, passed over", plain(count(info.skipped_records)));
    }
    if info.malformed_records > 0 {
        table.push("Malformed records, passed over", plain(count(info.malformed_records)));
    }
    table
}

/// The traces side by side, each with the policy that hits most.
pub fn traces(sections: &[Section], grids: &[Grid]) -> Table {
    let columns = [
        "Trace",
        "Block accesses",
        "Reads",
        "Working set",
        "Accessed before",
        "Most hits",
        "Hit ratio",
        "MIN there",
        "With a cache of",
        "Flash writes",
    ];
    let mut table =
        Table::new("All traces: the policy with the most hits, and what MIN hits at the same size", columns);
    for (section, grid) in sections.iter().zip(grids) {
        let info = &section.info;
        let working_set = bytes(info.unique_blocks.saturating_mul(info.block_size_bytes));
        let mut cells =
            vec![count(info.accesses), about_percent(info.read_share), working_set, about_percent(info.reaccess_ratio)];
        match grid.best() {
            Some((size, best)) => {
                let bound = grid.bound().and_then(|bound| grid.row(bound, size));
                cells.push(best.policy.clone());
                cells.push(percent(best.hit_ratio));
                cells.push(bound.map_or_else(|| "not run".to_owned(), |bound| percent(bound.hit_ratio)));
                cells.push(format!("{}\n{}", bytes(size.bytes), counted(size.blocks, "block", "blocks")));
                let blocks = counted(best.flash_writes_blocks, "block", "blocks");
                cells.push(format!("{}\n{blocks}", bytes(best.flash_bytes_written)));
            }
            None => cells.extend(vec![String::new(); 5]),
        }
        table.push(info.trace.clone(), cells);
    }
    table
}
