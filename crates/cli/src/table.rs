//! Results as a table for people.

use std::collections::HashMap;

use comfy_table::{CellAlignment, Table, presets};
use flashwise_core::policy::{Spec, larc, min};
use flashwise_sim::results::{EnduranceFigures, ResultRow};
use flashwise_sim::sampling::SampleFigures;
use flashwise_trace::human;

use crate::fit;

/// Spaces between columns.
const GAP: usize = 2;

/// A table without lines whose columns after the first `text_columns` stand to the right.
pub fn plain(header: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP as u16));
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
         blocks; of best: share of the hits that MIN, which knows the future and need not admit, has{}.",
        if rows.iter().any(|row| row.policy.parse::<Spec>().is_ok_and(|policy| larc::fills_freely(&policy))) {
            LARC_FILLS
        } else {
            ""
        }
    );
    grouped(&header, rows, cells, &footnote)
}

/// The columns of a sample, and what they are.
const SAMPLE_HEADER: [&str; 3] = ["error", "hits from", "to"];
const OF_SAMPLE: &str = " From a sample: error: standard error of hits; from, to: the hits of the whole trace are between them in 95 of 100 samples.";

/// How far the hit ratio of a row may be off.
fn of_sample(sample: &SampleFigures) -> [String; 3] {
    [sample.hit_ratio_standard_error, sample.hit_ratio_low, sample.hit_ratio_high].map(human::percent)
}

/// What limits the sample of a trace, at the smallest cache.
fn too_small(rows: &[ResultRow]) -> String {
    let mut smallest: Vec<(&ResultRow, &SampleFigures)> = Vec::new();
    for (row, sample) in rows.iter().filter_map(|row| Some((row, row.sample.as_ref()?))) {
        match smallest.iter_mut().find(|(found, _)| found.trace == row.trace) {
            Some((_, found)) if found.sample_capacity_groups <= sample.sample_capacity_groups => {}
            Some(found) => *found = (row, sample),
            None => smallest.push((row, sample)),
        }
    }
    let line = |(row, sample): &(&ResultRow, &SampleFigures)| {
        let caveat = sample.sample_caveat.as_ref()?;
        Some(format!("\n\n{}, size {}: {caveat}.", row.trace, row.size))
    };
    smallest.iter().filter_map(line).collect()
}

/// What has to be known of LARC's figures.
const LARC_FILLS: &str =
    "; larc fills an empty cache with whatever is missed, and a scan stays there: larc:fill=ghost is Algorithm 1";

/// A table of the cells of each row behind its trace, policy and size, and before how good a sample is, with a gap where another policy begins, and a footnote.
fn grouped(header: &[&str], rows: &[ResultRow], cells: impl Fn(&ResultRow) -> Vec<String>, footnote: &str) -> String {
    let sampled = rows.iter().any(|row| row.sample.is_some());
    let mut header = header.to_vec();
    header.extend(sampled.then_some(SAMPLE_HEADER).into_iter().flatten());
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut previous: Option<&ResultRow> = None;
    for row in rows {
        if previous.is_some_and(|previous| previous.trace != row.trace || previous.policy != row.policy) {
            lines.push(Vec::new());
        }
        let names = [&row.trace, &row.policy, &row.size].map(String::clone);
        lines.push(names.into_iter().chain(cells(row)).chain(row.sample.iter().flat_map(of_sample)).collect());
        previous = Some(row);
    }
    let len = |text: &str| text.chars().count() + GAP;
    let width_of = |(number, name): (usize, &&str)| {
        lines.iter().filter_map(|line| line.get(number)).map(|cell| len(cell)).fold(len(name), usize::max)
    };
    let widths: Vec<usize> = header.iter().enumerate().map(width_of).collect();
    let width = fit::width();
    let table = |columns: Vec<usize>| {
        let mut table = plain(&columns.iter().map(|&column| header[column]).collect::<Vec<_>>(), 2);
        for line in &lines {
            table.add_row(columns.iter().map(|&column| line.get(column).map_or("", String::as_str)));
        }
        table.trim_fmt()
    };
    // The last gap of a line is not printed.
    let tables: Vec<String> = fit::groups(&widths, 3, width.map(|width| width + GAP)).into_iter().map(table).collect();
    let of_sample = if sampled { OF_SAMPLE } else { "" };
    let footnote = format!("{footnote}{of_sample}");
    format!("{}\n\n{}{}", tables.join("\n\n"), fit::sentences(&footnote, 0, width), too_small(rows))
}

/// One line per trace, policy, size and admission rule, if there is one, of whole caches.
pub fn cache_results(rows: &[ResultRow]) -> String {
    let rules = rows.iter().any(|row| !rule_of(row).is_empty());
    let on_device = rows.iter().any(|row| row.endurance.is_some());
    let arrays = rows.iter().any(|row| row.array.is_some());
    let mut header = vec!["trace", "policy", "size"];
    header.extend(rules.then_some("admission"));
    header.extend(["hits", "read hits", "RAM", "flash", "flash writes", "client", "admitted", "copied", "metadata"]);
    header.extend(["amplified", "erased", "written back"]);
    header.extend(on_device.then_some(["device x", "per day"]).into_iter().flatten());
    header.extend(arrays.then_some(["latency us", "lifetime years"]).into_iter().flatten());
    let cells = |row: &ResultRow| {
        let (Some(cache), Some(tiers)) = (&row.cache, &row.tiers) else { return Vec::new() };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let mut cells: Vec<String> = rules.then(|| rule(rule_of(row))).into_iter().collect();
        cells.extend([
            human::percent(row.hit_ratio),
            human::percent(row.read_hit_ratio),
            human::count(tiers.ram_hits),
            human::count(tiers.flash_hits),
            human::count(row.flash_writes_blocks),
            human::count(tiers.flash_client_blocks),
            human::count(tiers.flash_admission_blocks),
            human::count(tiers.flash_copy_forward_blocks),
            human::count(cache.flash_metadata_blocks),
            format!("{:.2}", tiers.host_write_amplification.unwrap_or(0.0)),
            human::count(tiers.erasures),
            human::count(cache.destaged_blocks),
        ]);
        let wear = row.endurance.as_ref();
        let device = number(wear.and_then(|wear| wear.device_write_amplification));
        let per_day = rate(row.caveat.as_deref(), number(wear.and_then(|wear| wear.epbpd)));
        cells.extend(on_device.then_some([device, per_day]).into_iter().flatten());
        cells.extend(arrays.then(|| of_array(row)).into_iter().flatten());
        cells
    };
    let footnote = "hits: share of block accesses; RAM and flash: blocks read there; flash writes: client + admitted + copied \
                    forward + metadata; amplified: flash writes per block of client and admitted; erased: erase units; \
                    written back: blocks.";
    let of_device = " device x: pages programmed per flash write; per day: erasures of each erase unit.";
    let footnote = footnote.to_owned() + if on_device { of_device } else { "" } + if arrays { OF_ARRAY } else { "" };
    grouped(&header, rows, cells, &footnote) + &overloaded(rows) + &caveats_of(rows)
}

/// What latency and lifetime are, beside other figures.
const OF_ARRAY: &str = " latency: on average; lifetime: of the array, cache and storage.";

/// Latency and lifetime of a row, beside other figures.
fn of_array(row: &ResultRow) -> [String; 2] {
    let years = |years: f64| {
        if years.is_finite() { rate(row.caveat.as_deref(), format!("{years:.2}")) } else { "unlimited".to_owned() }
    };
    let Some(array) = &row.array else { return ["-", "-"].map(str::to_owned) };
    [format!("{:.2}", array.latency_mean_us), years(array.lifetime_years)]
}

/// The rule of a row; empty if there is none.
fn rule_of(row: &ResultRow) -> &str {
    row.admission.as_deref().unwrap_or_default()
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
            rule(rule_of(row)),
            human::percent(row.hit_ratio),
            human::count(array.bypassed),
            number(array.latency_mean_us),
        ];
        let percentiles = [array.latency_p50_us, array.latency_p95_us, array.latency_p99_us, array.latency_p999_us];
        cells.extend(percentiles.into_iter().chain([array.latency_max_us]).map(|us| format!("{us:.0}")));
        cells.extend(throughput.then(|| maybe(array.requests_per_s, |per_s| human::count(per_s.round() as u64))));
        let utilisations = [array.cache_utilisation, array.storage_utilisation];
        cells.extend(waits.then(|| utilisations.map(|share| maybe(share, human::percent))).into_iter().flatten());
        cells.extend(
            [array.lifetime_years, array.latency_over_lifetime].map(|value| rate(row.caveat.as_deref(), number(value))),
        );
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
    grouped(&header, rows, cells, &footnote) + &overloaded(rows) + &caveats_of(rows)
}

/// A little more than 1: what is asked for at the end is done after it.
const KEEPS_UP_MAX: f64 = 1.01;
/// What follows a table where some device is used more than it can be.
const OVERLOADED: &str = "\n\nDevices used beyond 100% cannot keep up: they fall ever further behind, and latencies grow with the length of \
                          the trace.";

/// What follows a table where some device cannot keep up; else nothing.
fn overloaded(rows: &[ResultRow]) -> String {
    let arrays = rows.iter().filter_map(|row| row.array.as_ref());
    let mut utilisations = arrays.flat_map(|array| [array.cache_utilisation, array.storage_utilisation]).flatten();
    if utilisations.any(|utilisation| utilisation > KEEPS_UP_MAX) {
        fit::sentences(OVERLOADED, 0, fit::width())
    } else {
        String::new()
    }
}

/// One line per trace, policy and size of caches whose wear was simulated.
pub fn endurance_results(rows: &[ResultRow]) -> String {
    let arrays = rows.iter().any(|row| row.array.is_some());
    let mut header = vec!["trace", "policy", "size", "spare", "RAM"];
    header.extend(arrays.then_some("admission"));
    header.extend(["read hits", "in RAM", "on flash", "erased", "per day", "flash writes", "copied"]);
    header.extend(["host x", "device x", "FUE", "WFUE"]);
    header.extend(arrays.then_some(["latency us", "lifetime years"]).into_iter().flatten());
    let cells = |row: &ResultRow| {
        let (Some(wear), Some(tiers)) = (&row.endurance, &row.tiers) else { return Vec::new() };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let mut cells = vec![human::percent(wear.over_provision), ram(wear)];
        cells.extend(arrays.then(|| row.admission.as_deref().map_or_else(|| "-".to_owned(), rule)));
        cells.extend([
            human::percent(wear.rhr),
            human::count(tiers.ram_hits),
            human::count(tiers.flash_hits),
            human::count(tiers.erasures),
            rate(row.caveat.as_deref(), number(wear.epbpd)),
            human::count(row.flash_writes_blocks),
            human::count(tiers.flash_copy_forward_blocks),
            number(tiers.host_write_amplification),
            number(wear.device_write_amplification),
            number(wear.fue),
            number(wear.wfue),
        ]);
        cells.extend(arrays.then(|| of_array(row)).into_iter().flatten());
        cells
    };
    let footnote = "RAM: read cache + write buffer or open erase units; read hits: share of the reads; in RAM, on flash: blocks read there; erased: erase units, per day \
                    each; flash writes: blocks, copied forward among them; host x: flash writes per block written because of an access; \
                    device x: pages programmed per flash write; FUE: blocks read from flash per page programmed; WFUE: hits and saved \
                    erasures, weighted, against m+.";
    grouped(&header, rows, cells, &(footnote.to_owned() + if arrays { OF_ARRAY } else { "" })) + &caveats_of(rows)
}

/// What marks figures with a caveat in a table.
const EXTRAPOLATED: &str = "~";

/// A rate or lifetime, marked if it has a caveat.
pub fn rate(caveat: Option<&str>, text: String) -> String {
    if caveat.is_some() && text != "-" { format!("{EXTRAPOLATED}{text}") } else { text }
}

/// What is said of the marked figures below a table: of each trace, from how short a time they come. Ends with a line's end, if anything is said.
pub fn caveats<'a>(rows: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (trace, caveat) in rows {
        let line = caveat.map(|caveat| format!("\n{EXTRAPOLATED}: {trace}: {caveat}.\n"));
        lines.extend(line.filter(|line| !lines.contains(line)));
    }
    lines.concat()
}

/// The caveats of rows, below their table.
fn caveats_of(rows: &[ResultRow]) -> String {
    let caveats = caveats(rows.iter().map(|row| (&row.trace[..], row.caveat.as_deref())));
    if caveats.is_empty() { caveats } else { format!("\n{}", fit::sentences(caveats.trim_end(), 0, fit::width())) }
}

/// What RAM is used for: the read cache, and what gathers there on its way to flash.
fn ram(wear: &EnduranceFigures) -> String {
    let shown = |bytes: u64| if bytes == 0 { "0".to_owned() } else { human::bytes(bytes as f64) };
    format!("{} + {}", shown(wear.read_cache_bytes), shown(wear.buffer_bytes))
}

/// Hits of the best possible, by trace and capacity, where it was simulated.
fn best_hits(rows: &[ResultRow]) -> HashMap<(&str, u64), u64> {
    let mut best = HashMap::new();
    for row in rows {
        if row.policy == min::INFO.name {
            best.entry((row.trace.as_str(), row.capacity_blocks)).or_insert(row.hits);
        }
    }
    best
}
