//! Description of a trace.

use crate::numbers::{bytes, count, duration, percent};
use crate::table::Table;
use flashwise_core::human;
use flashwise_trace::tools::info::Info;

/// Returns a description of a trace: LARC's Table II and more.
pub fn characteristics(info: &Info) -> Table {
    let block = info.block_size_bytes;
    let in_blocks = |blocks: u64| vec![count(blocks), bytes(blocks.saturating_mul(block))];
    let sized = |number: u64, size_bytes: u64| vec![count(number), bytes(size_bytes)];
    let plain = |text: String| vec![text, String::new()];
    let mut table = Table::new("The trace", ["Figure", "Number", "Bytes"]);
    table.push("Format", plain(info.format.clone()));
    table.push(
        "Duration",
        plain(if info.duration_us == 0 { "not in the trace".to_owned() } else { duration(info.duration_us as f64) }),
    );
    if let (Some(requests), Some(per_s)) = (info.requests_per_s, info.bytes_per_s) {
        table.push("Requests per second", vec![human::number(requests), format!("{} per second", human::bytes(per_s))]);
    }
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
        table.push("Records without data, skipped", plain(count(info.skipped_records)));
    }
    if info.malformed_records > 0 {
        table.push("Malformed records, skipped", plain(count(info.malformed_records)));
    }
    table
}
