//! The figures of one trace, each a chart and its table. They follow Figures 3 to 8 of LARC (MSST 2013).

use crate::draw::charts::{Chart, Series};
use crate::draw::look::{Looks, READS, WRITES};
use crate::draw::scales::{SizeAxis, linear, powers_of_two};
use crate::draw::timeline::{self, Span};
use crate::grid::{Grid, GridPolicy, GridSize};
use crate::numbers::{bytes, count, counted, duration, number, percent, signed, years};
use crate::table::{Figure, Table};
use flashwise_core::policy::{Spec, larc};
use flashwise_sim::columns::{About, Cell};
use flashwise_sim::results::{ResultRow, columns_of};
use flashwise_trace::tools::reuse::{Distance, Histogram, ReuseDistances};

/// Note about LARC's hits.
const LARC_FILLS: &str = " larc fills an empty cache on every miss, and keeps those blocks until others are missed \
    twice; larc:fill=ghost, \
                          the paper's Algorithm 1, does not.";

/// Note about hits from a sample.
const OF_SAMPLE: &str = " It comes from a sample of the trace: \u{b1} is its standard error, and the upright lines \
    hold the truth in 95 of 100 samples.";

/// Cell of a policy that was not simulated at a size.
pub const NOT_RUN: &str = "not run";
/// Description for screen readers, at every chart.
pub const NUMBERS_FOLLOW: &str = "The table after it has the numbers.";

/// Source data of the figures of one trace.
pub struct Subject<'a> {
    /// Start of the charts' ids.
    pub id: &'a str,
    /// The trace's results.
    pub grid: &'a Grid<'a>,
    /// Looks of the policies.
    pub looks: &'a Looks,
}

impl<'a> Subject<'a> {
    /// Hit ratio against cache size (Figures 4 and 6).
    pub fn hit_ratio(&self) -> Figure {
        let chart = self.hit_ratio_chart();
        let cell = |row: &ResultRow| {
            let ratio = percent(row.hit_ratio);
            let error = row.sample.as_ref().map(|sample| percent(sample.hit_ratio_standard_error));
            Some(error.map_or_else(|| ratio.clone(), |error| format!("{ratio}\n\u{b1} {error}")))
        };
        let table = self.by_policy("Hit ratio by policy and cache size", &self.grid.policies, cell);
        let fills_freely = |policy: &str| Spec::parse(policy).is_ok_and(|policy| larc::fills_freely(&policy));
        let larc = if self.grid.policies.iter().any(|policy| fills_freely(policy.name)) { LARC_FILLS } else { "" };
        let sampled = if self.rows().any(|row| row.sample.is_some()) { OF_SAMPLE } else { "" };
        let caption = format!("Hit ratio: the share of the accesses whose block is in the cache.{sampled}{larc}");
        Figure { caption, ..figure(&chart, table) }
    }

    /// The chart of [`hit_ratio`](Self::hit_ratio).
    pub fn hit_ratio_chart(&self) -> Chart {
        let value = |row: &ResultRow| Some(row.hit_ratio * 100.0);
        let policies = &self.grid.policies;
        let mut chart = self.against_size("hits", "Hit ratio against cache size", "Hit ratio", "%", &value, policies);
        let x = SizeAxis::new(self.grid.sizes.iter().map(|size| size.bytes));
        let mut intervals = Vec::new();
        for policy in policies {
            let interval = |&size: &GridSize| {
                let sample = self.grid.row(*policy, size)?.sample.as_ref()?;
                let ends = [sample.hit_ratio_low, sample.hit_ratio_high];
                let points = ends.map(|end| (x.place(size.bytes), 100.0 * end)).to_vec();
                Some(Series { name: policy.name.to_owned(), look: self.looks.of(policy.name), points })
            };
            intervals.extend(self.grid.sizes.iter().filter_map(interval));
        }
        if !intervals.is_empty() {
            chart.series.extend(intervals);
            let values = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1);
            chart.y = linear("Hit ratio", values, "%");
        }
        chart
    }

    /// Flash writes against cache size.
    pub fn flash_writes(&self) -> Figure {
        let written = |row: &ResultRow| row.flash_bytes_written;
        let most = self.rows().map(written).max().unwrap_or(0);
        let (unit, unit_bytes) = crate::numbers::binary_unit(most);
        let value = |row: &ResultRow| Some(row.flash_bytes_written as f64 / unit_bytes);
        let label = format!("Flash writes, in {unit}");
        let chart =
            self.against_size("writes", "Flash writes against cache size", &label, "", &value, &self.grid.policies);
        let cell =
            |row: &ResultRow| Some(format!("{}\n{}", count(row.flash_writes_blocks), bytes(row.flash_bytes_written)));
        let table =
            self.by_policy("Flash writes by policy and cache size, in blocks and bytes", &self.grid.policies, cell);
        let caption = "Flash writes: blocks written to the cache by write hits and admissions.";
        Figure { caption: caption.to_owned(), ..figure(&chart, table) }
    }

    /// Returns LARC's write traffic against cache size, as in Figures 5 and 7 of the paper; `None` if replacements are
    /// not counted.
    pub fn write_traffic(&self) -> Option<Figure> {
        let counted = |row: &ResultRow| row.write_traffic_blocks;
        let most = self.rows().filter_map(counted).max()?;
        let (unit, unit_blocks) = match most {
            0..10_000 => ("blocks", 1.0),
            10_000..10_000_000 => ("thousands of blocks", 1e3),
            _ => ("millions of blocks", 1e6),
        };
        let value = |row: &ResultRow| counted(row).map(|blocks| blocks as f64 / unit_blocks);
        let (title, label) = ("Write traffic W against cache size", format!("Write traffic W, in {unit}"));
        let chart = self.against_size("write-traffic", title, &label, "", &value, &self.grid.policies);
        let cell = |row: &ResultRow| counted(row).map(count);
        let table = self.by_policy("Write traffic W by policy and cache size, in blocks", &self.grid.policies, cell);
        let caption = "Write traffic W = H_w + R as the LARC paper counts it: write hits and replacements, without the \
            admissions \
                       that fill an empty cache.";
        Some(Figure { caption: caption.to_owned(), ..figure(&chart, table) })
    }

    /// Compares the policies' hit ratios and flash writes with MIN's; empty without MIN or without others.
    pub fn distance_to_bound(&self) -> Vec<Figure> {
        let Some(bound) = self.grid.bound() else { return Vec::new() };
        let others: Vec<_> = self.grid.policies.iter().copied().filter(|&policy| policy != bound).collect();
        if others.is_empty() {
            return Vec::new();
        }
        let of_bound = |row: &ResultRow| {
            self.grid
                .sizes
                .iter()
                .find(|size| size.blocks == row.capacity_blocks)
                .and_then(|&size| self.grid.row(bound, size))
        };
        let points = |row: &ResultRow| Some((row.hit_ratio - of_bound(row)?.hit_ratio) * 100.0);
        let title = "Hit ratio compared with MIN";
        let chart =
            self.against_size("points", title, "Hit ratio minus MIN's, in percentage points", "", &points, &others);
        let caption = "Hit ratio minus that of MIN, in percentage points";
        let table = self.by_policy(caption, &others, |row| points(row).map(signed));
        let caption = "Hit ratio compared with MIN: 0 is as good, \u{2212}5 is five percentage points fewer hits.";
        let hits = Figure { caption: caption.to_owned(), ..figure(&chart, table) };

        let more = |row: &ResultRow| {
            let bound = of_bound(row)?.flash_writes_blocks;
            (bound > 0).then(|| (row.flash_writes_blocks as f64 / bound as f64 - 1.0) * 100.0)
        };
        let title = "Flash writes compared with MIN";
        let chart = self.against_size(
            "writes-to-bound",
            title,
            "Flash writes more or less than MIN's, in percent",
            "%",
            &more,
            &others,
        );
        let cell = |row: &ResultRow| more(row).map(|more| format!("{}%", signed(more)));
        let table = self.by_policy("Flash writes more (+) or less (\u{2212}) than those of MIN", &others, cell);
        let caption = "Flash writes compared with MIN: \u{2212}50% is half of what MIN writes. It admits only blocks \
            that \
                       it will hit.";
        vec![hits, Figure { caption: caption.to_owned(), ..figure(&chart, table) }]
    }

    /// Returns all columns of the rows, one row for each policy and size.
    pub fn all_counts(&self) -> Table {
        let found = self.grid.policies.iter().flat_map(|&policy| {
            self.grid.sizes.iter().filter_map(move |&size| Some((policy, size, self.grid.row(policy, size)?)))
        });
        let found: Vec<_> = found.collect();
        let rows: Vec<ResultRow> = found.iter().map(|(_, _, row)| (*row).clone()).collect();
        let mut columns = columns_of(&rows);
        columns.retain(|column| !matches!(column.kind, Cell::Text(_)) && column.has_any());
        let heads = columns.iter().map(|column| column.about.name.replace('_', " "));
        let heads: Vec<String> = ["policy", "size"].map(str::to_owned).into_iter().chain(heads).collect();
        let mut table = Table::new("All figures, by the names that JSON and CSV have", heads);
        for (at, (policy, size, _)) in found.iter().enumerate() {
            let cells = columns.iter().map(|column| cell(&column.about, &column.cells[at]));
            table.push(policy.name, std::iter::once(size.named()).chain(cells).collect());
        }
        table
    }

    fn rows(&self) -> impl Iterator<Item = &'a ResultRow> {
        let grid = self.grid;
        let sizes = grid.sizes.iter().copied();
        sizes.flat_map(move |size| grid.policies.iter().filter_map(move |&policy| grid.row(policy, size)))
    }

    /// Returns a chart of `value` against the cache size.
    pub fn against_size(
        &self,
        id: &str,
        title: &str,
        label: &str,
        suffix: &'static str,
        value: &dyn Fn(&ResultRow) -> Option<f64>,
        policies: &[GridPolicy],
    ) -> Chart {
        let x = SizeAxis::new(self.grid.sizes.iter().map(|size| size.bytes));
        let line = |policy: &GridPolicy| {
            let point = |&size: &GridSize| Some((x.place(size.bytes), value(self.grid.row(*policy, size)?)?));
            let points = self.grid.sizes.iter().filter_map(point).collect();
            Series { name: policy.name.to_owned(), look: self.looks.of(policy.name), points }
        };
        let series: Vec<_> = policies.iter().map(line).collect();
        let y = linear(label, series.iter().flat_map(|series| &series.points).map(|point| point.1), suffix);
        let id = format!("{}-{id}", self.id);
        let named: Vec<_> = policies.iter().map(|policy| policy.name).collect();
        let sizes = counted(self.grid.sizes.len() as u64, "cache size", "cache sizes");
        let description = format!("A line for each of {}, over {sizes}. {NUMBERS_FOLLOW}", named.join(", "));
        Chart { id, title: title.to_owned(), description, x: x.axis, y, series, markers: true }
    }

    /// Returns a table with a row for each policy and a column for each size.
    pub fn by_policy(
        &self,
        caption: &str,
        policies: &[GridPolicy],
        cell: impl Fn(&ResultRow) -> Option<String>,
    ) -> Table {
        let head = |size: &GridSize| {
            // A size given in bytes or blocks is not repeated.
            let given = if size.given.ends_with('%') { format!("\n{}", size.given) } else { String::new() };
            let blocks = counted(size.blocks, "block", "blocks").replace(' ', "\n");
            format!("{}\n{blocks}{given}", bytes(size.bytes))
        };
        let mut table = Table::new(caption, ["Policy".to_owned()].into_iter().chain(self.grid.sizes.iter().map(head)));
        for &policy in policies {
            let run =
                |&size: &GridSize| self.grid.row(policy, size).and_then(&cell).unwrap_or_else(|| NOT_RUN.to_owned());
            table.push(policy.name, self.grid.sizes.iter().map(run).collect());
        }
        table
    }

    /// Returns hit ratio and replacement rate over time at one size (Figure 8); empty without epochs.
    pub fn over_time(&self, size: GridSize) -> Vec<Figure> {
        let lines: Vec<_> = (self.grid.policies.iter())
            .filter_map(|&policy| Some((policy.name, timeline::spans(&self.grid.row(policy, size)?.epochs))))
            .filter(|(_, spans)| !spans.is_empty())
            .collect();
        if lines.is_empty() {
            return Vec::new();
        }
        let id = format!("time-{}", size.blocks);
        let hits = self.over_spans(&format!("{id}-hits"), "Hit ratio", size, &lines, |span| span.hit_ratio);
        let rates =
            self.over_spans(&format!("{id}-rate"), "Replacement rate", size, &lines, |span| span.replacement_rate);
        vec![hits, rates]
    }

    fn over_spans(
        &self,
        id: &str,
        what: &str,
        size: GridSize,
        lines: &[(&str, Vec<Span>)],
        value: fn(&Span) -> f64,
    ) -> Figure {
        let series: Vec<_> = (lines.iter())
            .map(|(name, spans)| Series {
                name: (*name).to_owned(),
                look: self.looks.of(name),
                points: spans.iter().map(|span| (span.middle(), value(span) * 100.0)).collect(),
            })
            .collect();
        let end = lines.iter().flat_map(|(_, spans)| spans).map(Span::end).max().unwrap_or(1);
        let x = linear("Accesses since the start of the trace", [end as f64].into_iter(), "");
        let y = linear(what, series.iter().flat_map(|series| &series.points).map(|point| point.1), "%");
        let title = format!("{what} over time with {}", size.named());
        let description = format!("A line for each policy over the trace. {NUMBERS_FOLLOW}");
        let chart =
            Chart { id: format!("{}-{id}", self.id), title: title.clone(), description, x, y, series, markers: false };

        let mut table = Table::new(&title, ["Accesses"].into_iter().chain(lines.iter().map(|(name, _)| *name)));
        let longest = lines.iter().map(|(_, spans)| &spans[..]).max_by_key(|spans| spans.len()).unwrap_or_default();
        for (at, span) in longest.iter().enumerate() {
            let cell = |(_, spans): &(&str, Vec<Span>)| {
                spans.get(at).map_or_else(|| NOT_RUN.to_owned(), |span| percent(value(span)))
            };
            table.push(span.named(), lines.iter().map(cell).collect());
        }
        let meaning = match what {
            "Hit ratio" => "hits per access",
            _ => "admissions that evicted a block, per access",
        };
        let merged = match longest.first() {
            Some(span) if span.epochs > 1 => format!(" Each point is the mean of {} epochs.", count(span.epochs)),
            _ => String::new(),
        };
        Figure { caption: format!("{what} over time: {meaning}.{merged}"), open: false, ..figure(&chart, table) }
    }
}

/// Returns cumulative reuse distances of reads and of writes, in powers of two (Figure 3).
pub fn reuse_distances(id: &str, reuse: &ReuseDistances, block_size_bytes: u64) -> (Chart, Figure) {
    let (what, unique) = match reuse.distance {
        Distance::Unique => ("different blocks", true),
        Distance::Accesses => ("accesses", false),
    };
    let (reads, writes) = (reuse.reads.cumulative(), reuse.writes.cumulative());
    let line = |name: &str, look, cumulative: &[f64]| Series {
        name: name.to_owned(),
        look,
        points: cumulative.iter().enumerate().map(|(power, share)| (power as f64, share * 100.0)).collect(),
    };
    let lines = [("Reads", READS, &reads, &reuse.reads), ("Writes", WRITES, &writes, &reuse.writes)];
    let present = lines.iter().filter(|(_, _, _, histogram)| histogram.accesses() > 0);
    let series: Vec<_> = present.map(|&(name, look, cumulative, _)| line(name, look, cumulative)).collect();
    let powers = reads.len().max(writes.len());
    let y = linear(
        "Share of the reads, and of the writes",
        series.iter().flat_map(|series| &series.points).map(|point| point.1),
        "%",
    );
    let chart = Chart {
        id: format!("{id}-reuse"),
        title: "Reuse distances".to_owned(),
        description: format!("Cumulative shares of reads and of writes by reuse distance. {NUMBERS_FOLLOW}"),
        x: powers_of_two(format!("Reuse distance, in {what} (logarithmic)"), powers.saturating_sub(1)),
        y,
        series,
        markers: true,
    };
    let share = |histogram: &Histogram, cumulative: &[f64], power: usize| {
        if histogram.accesses() == 0 {
            "none".to_owned()
        } else {
            percent(cumulative.get(power).or(cumulative.last()).copied().unwrap_or(0.0))
        }
    };
    let mut columns = vec![format!("Distance up to,\nin {what}")];
    columns.extend(unique.then(|| "Bytes".to_owned()));
    columns.extend(["Reads".to_owned(), "Writes".to_owned()]);
    let mut table = Table::new("Share of the reads, and of the writes, whose reuse distance is no more", columns);
    for power in 0..powers {
        let distance = 1_u64.checked_shl(power as u32).unwrap_or(u64::MAX);
        let mut cells = Vec::new();
        cells.extend(unique.then(|| bytes(distance.saturating_mul(block_size_bytes))));
        cells.extend([share(&reuse.reads, &reads, power), share(&reuse.writes, &writes, power)]);
        table.push(count(distance), cells);
    }
    let figure = Figure { caption: reuse_caption(reuse, what), ..figure(&chart, table) };
    (chart, figure)
}

/// Formats a cell for the table of all figures.
fn cell(about: &About, cell: &Cell) -> String {
    match (cell, about.unit) {
        (Cell::Count(Some(found)), "bytes") => bytes(*found),
        (Cell::Count(Some(found)), _) => count(*found),
        (Cell::Ratio(Some(share)), "share") => percent(*share),
        (Cell::Ratio(Some(found)), "years") => years(*found),
        (Cell::Ratio(Some(found)), "us") => duration(*found),
        (Cell::Ratio(Some(found)), _) => number(*found),
        _ => "none".to_owned(),
    }
}

fn reuse_caption(reuse: &ReuseDistances, what: &str) -> String {
    let first = |(histogram, one, many): (&Histogram, &str, &str)| {
        let of = counted(histogram.accesses(), one, many);
        (histogram.accesses() > 0).then(|| format!("{} of {of}", count(histogram.first_accesses)))
    };
    let both = [(&reuse.reads, "read", "reads"), (&reuse.writes, "write", "writes")];
    let first: Vec<String> = both.into_iter().filter_map(first).collect();
    let lru = match reuse.distance {
        Distance::Unique => " A cache with LRU hits the accesses whose distance is smaller than its size.",
        Distance::Accesses => "",
    };
    format!(
        "Reuse distances: {what} between two accesses to a block; a point is the share whose distance is no more.{lru} \
         First \
         accesses have no distance: {}.",
        first.join(" and ")
    )
}

/// Returns a chart with its table, without a caption.
pub fn figure(chart: &Chart, table: Table) -> Figure {
    let (svg, narrow) = chart.inline_told(None, &[]);
    Figure { caption: String::new(), svg, narrow, legend: chart.legend(), table, open: false }
}
