//! Results as a table for people.

use std::collections::HashMap;

use comfy_table::{CellAlignment, Table, presets};
use flashwise_core::policy::Spec;
use flashwise_sim::results::ResultRow;
use flashwise_trace::human;

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
    let in_ram = rows.iter().any(|row| row.ram.is_some());
    let mut header = vec!["trace", "policy", "size", "capacity", "hits", "read hits"];
    header.extend(in_ram.then_some("RAM"));
    header.extend(["flash writes", "replaced", "W", "of best"]);
    let best = best_hits(rows);
    let cells = |row: &ResultRow| {
        let mut cells = vec![
            human::bytes((row.capacity_blocks * row.block_size_bytes) as f64),
            human::percent(row.hit_ratio),
            human::percent(row.read_hit_ratio),
        ];
        cells.extend(in_ram.then(|| row.ram.as_ref().map_or_else(|| "-".to_owned(), |ram| human::count(ram.ram_hits))));
        cells.extend([
            human::count(row.flash_writes_blocks),
            row.replacements.map_or_else(|| "-".to_owned(), human::count),
            row.write_traffic_blocks.map_or_else(|| "-".to_owned(), human::count),
            match best.get(&(row.trace.as_str(), row.capacity_blocks)) {
                Some(&best) if best > 0 => format!("{:.1}%", 100.0 * row.hits as f64 / best as f64),
                _ => "-".to_owned(),
            },
        ]);
        cells
    };
    let ram = if in_ram { "RAM: reads that it had, which are hits; " } else { "" };
    let footnote = format!(
        "hits: share of block accesses; {ram}flash writes, replaced and W, the write hits and replaced of the LARC paper: \
         blocks; of best: share of the hits that FIF (Belady), which knows the future, has."
    );
    grouped(&header, rows, cells, &footnote)
}

/// A table of the cells of each row behind its trace, policy and size, with a gap where another policy begins, and a footnote.
fn grouped(header: &[&str], rows: &[ResultRow], cells: impl Fn(&ResultRow) -> Vec<String>, footnote: &str) -> String {
    let mut table = plain(header, 2);
    let mut previous: Option<&ResultRow> = None;
    for row in rows {
        if previous.is_some_and(|previous| previous.trace != row.trace || previous.policy != row.policy) {
            table.add_row([""]);
        }
        let names = [&row.trace, &row.policy, &row.size].map(String::clone);
        table.add_row(names.into_iter().chain(cells(row)));
        previous = Some(row);
    }
    format!("{}\n\n{footnote}", table.trim_fmt())
}

/// One line per trace, policy, size and admission rule, if there is one, of whole caches.
pub fn cache_results(rows: &[ResultRow]) -> String {
    let is_behind_rule = |row: &ResultRow| row.cache.as_ref().is_some_and(|cache| !cache.admission.is_empty());
    let rules = rows.iter().any(is_behind_rule);
    let mut header = vec!["trace", "policy", "size"];
    header.extend(rules.then_some("admission"));
    header.extend([
        "hits",
        "read hits",
        "RAM",
        "flash",
        "flash writes",
        "client",
        "admitted",
        "copied",
        "metadata",
        "amplified",
        "erased",
        "written back",
    ]);
    let cells = |row: &ResultRow| {
        let Some(cache) = &row.cache else { return Vec::new() };
        let mut cells: Vec<String> = rules.then(|| rule(&cache.admission)).into_iter().collect();
        cells.extend([
            human::percent(row.hit_ratio),
            human::percent(row.read_hit_ratio),
            human::count(cache.ram_hits),
            human::count(cache.flash_hits),
            human::count(row.flash_writes_blocks),
            human::count(cache.flash_client_blocks),
            human::count(cache.flash_admission_blocks),
            human::count(cache.flash_copy_forward_blocks),
            human::count(cache.flash_metadata_blocks),
            format!("{:.2}", cache.host_write_amplification),
            human::count(cache.erasures),
            human::count(cache.destaged_blocks),
        ]);
        cells
    };
    let footnote = "hits: share of block accesses; RAM and flash: blocks read there; flash writes: client + admitted + copied \
                    forward + metadata; amplified: flash writes per block of client and admitted; erased: erase units; \
                    written back: blocks.";
    grouped(&header, rows, cells, footnote)
}

/// One line per trace, cache of buckets and size.
pub fn bucket_results(rows: &[ResultRow]) -> String {
    let header = [
        "trace",
        "layout",
        "size",
        "hits",
        "erased",
        "per request",
        "backend",
        "per request",
        "latency us",
        "read us",
        "write us",
        "MiB/s",
        "flash writes",
        "metadata",
    ];
    let cells = |row: &ResultRow| {
        let Some(buckets) = &row.buckets else { return Vec::new() };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        vec![
            human::percent(row.hit_ratio),
            human::count(buckets.erasures),
            format!("{:.5}", buckets.erase_ratio),
            human::count(buckets.backend_accesses),
            format!("{:.4}", buckets.backend_ratio),
            number(buckets.latency_mean_us),
            number(buckets.read_latency_mean_us),
            number(buckets.write_latency_mean_us),
            number(buckets.throughput_mib_s),
            human::count(row.flash_writes_blocks),
            human::count(buckets.metadata_blocks),
        ]
    };
    let footnote = "hits: share of block accesses; erased: erase blocks; backend: times that it was read or written; latency: mean, of \
                    reads and of writes, of requests that come one after the other; flash writes and metadata: blocks.";
    grouped(&header, rows, cells, footnote)
}

fn rule(admission: &str) -> String {
    if admission.is_empty() { "none".to_owned() } else { admission.to_owned() }
}

/// One line per trace, policy, size and admission rule before an array.
pub fn array_results(rows: &[ResultRow]) -> String {
    let arrays = || rows.iter().filter_map(|row| row.array.as_ref());
    let waits = arrays().any(|array| array.arrivals != "none");
    let throughput = arrays().any(|array| array.requests_per_s.is_some());
    let mut header = vec!["trace", "policy", "size", "admission", "hits", "bypassed"];
    header.extend(["latency us", "p50", "p95", "p99", "p99.9", "max"]);
    header.extend(throughput.then_some("requests/s"));
    header.extend(waits.then_some(["cache use", "storage use"]).into_iter().flatten());
    header.extend(["lifetime years", "us per year", "cache writes", "storage writes"]);
    let cells = |row: &ResultRow| {
        let Some(array) = &row.array else { return Vec::new() };
        let number = |number: f64| if number.is_finite() { format!("{number:.2}") } else { "unlimited".to_owned() };
        let maybe = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
        let mut cells = vec![
            rule(&array.admission),
            human::percent(row.hit_ratio),
            human::count(array.bypassed),
            number(array.latency_mean_us),
        ];
        let percentiles = [array.latency_p50_us, array.latency_p95_us, array.latency_p99_us, array.latency_p999_us];
        cells.extend(percentiles.into_iter().chain([array.latency_max_us]).map(|us| format!("{us:.0}")));
        cells.extend(throughput.then(|| maybe(array.requests_per_s, |per_s| human::count(per_s.round() as u64))));
        let utilisations = [array.cache_utilisation, array.storage_utilisation];
        cells.extend(waits.then(|| utilisations.map(|share| maybe(share, human::percent))).into_iter().flatten());
        cells.extend([array.lifetime_years, array.latency_over_lifetime].map(number));
        cells.extend([array.cache_write_rate, array.storage_write_rate].map(|rate| format!("{rate:.2e}")));
        cells
    };
    let (of, uses) = if waits {
        ("a request", " cache and storage use: work of the busiest device, per time of its channels;")
    } else {
        ("a block access", "")
    };
    let footnote = format!(
        "hits: share of block accesses; bypassed: accesses that went past the cache; latency: of {of}, on average, and what that share of \
         them does not exceed;{uses} us per year: latency over lifetime; cache and storage writes: per cell and second."
    );
    let mut utilisations = arrays().flat_map(|array| [array.cache_utilisation, array.storage_utilisation]).flatten();
    let overloaded = utilisations.any(|utilisation| utilisation > KEEPS_UP_MAX);
    grouped(&header, rows, cells, &footnote) + if overloaded { OVERLOADED } else { "" }
}

/// A little more than 1: what is asked for at the end is done after it.
const KEEPS_UP_MAX: f64 = 1.01;
/// What follows a table where some device is used more than it can be.
const OVERLOADED: &str = "\n\nDevices used beyond 100% cannot keep up: they fall ever further behind, and latencies grow with the length of \
                          the trace.";

/// One line per trace, policy and size of caches whose wear was simulated.
pub fn endurance_results(rows: &[ResultRow]) -> String {
    let arrays = rows.iter().any(|row| row.array.is_some());
    let mut header = vec!["trace", "policy", "size", "spare"];
    header.extend(arrays.then_some("admission"));
    header.extend(["read hits", "RAM", "flash", "erased", "per day", "flash writes", "copied"]);
    header.extend(["host x", "device x", "FUE", "WFUE"]);
    header.extend(arrays.then_some(["latency us", "lifetime years"]).into_iter().flatten());
    let cells = |row: &ResultRow| {
        let Some(wear) = &row.endurance else { return Vec::new() };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let array = row.array.as_ref();
        let mut cells = vec![human::percent(wear.over_provision)];
        cells.extend(arrays.then(|| array.map_or_else(|| "-".to_owned(), |array| rule(&array.admission))));
        cells.extend([
            human::percent(wear.rhr),
            human::count(wear.ram_hits),
            human::count(wear.flash_hits),
            human::count(wear.erasures),
            number(wear.epbpd),
            human::count(row.flash_writes_blocks),
            human::count(wear.flash_copy_forward_blocks),
            number(wear.host_write_amplification),
            number(wear.device_write_amplification),
            number(wear.fue),
            number(wear.wfue),
        ]);
        let years = |years: f64| if years.is_finite() { format!("{years:.2}") } else { "unlimited".to_owned() };
        let of_array = array.map(|array| [format!("{:.2}", array.latency_mean_us), years(array.lifetime_years)]);
        cells.extend(arrays.then(|| of_array.unwrap_or_else(|| ["-", "-"].map(str::to_owned))).into_iter().flatten());
        cells
    };
    let footnote = "read hits: share of the reads, from RAM and flash; RAM and flash: blocks read there; erased: erase units, per day \
                    each; flash writes: blocks, copied forward among them; host x: flash writes per block written because of an access; \
                    device x: pages programmed per flash write; FUE: blocks read from flash per page programmed; WFUE: hits and saved \
                    erasures, weighted, against m+.";
    let of_array = " latency: on average; lifetime: of the array, cache and storage.";
    grouped(&header, rows, cells, &(footnote.to_owned() + if arrays { of_array } else { "" }))
}

/// Hits of the best possible, by trace and capacity, where it was simulated.
fn best_hits(rows: &[ResultRow]) -> HashMap<(&str, u64), u64> {
    let mut best = HashMap::new();
    for row in rows {
        if row.policy.parse::<Spec>().is_ok_and(|policy| policy.info().offline) {
            best.entry((row.trace.as_str(), row.capacity_blocks)).or_insert(row.hits);
        }
    }
    best
}
