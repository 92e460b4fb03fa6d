//! Pictures of a workload: accesses over time and address, rate, lengths of requests, and popularity of blocks.

use std::fmt::Write;

use flashwise_trace::tools::workload::{Part, Workload};

use crate::draw::charts::{Chart, Series, head, standalone, text_at};
use crate::draw::look::{READS, WRITES};
use crate::draw::scales::{linear, powers_of_two};
use crate::figures::{NUMBERS_FOLLOW, figure};
use crate::numbers::{self, bytes, count, duration, percent, shortest};
use crate::table::{Figure, Table};

/// Width and height of the map, its width on a narrow screen, and the position of its axes.
const SIZE: (f64, f64) = (640.0, 370.0);
const NARROW: f64 = 340.0;
const LEFT: f64 = 34.0;
const TOP: f64 = 54.0;
const RIGHT: f64 = 10.0;
const BELOW: f64 = 46.0;
/// Shades of the map, from few accesses to the most, in equal ratios.
const SHADES: usize = 6;
/// Parts of time and of addresses in the table of the map.
const TOLD: usize = 8;
/// Title of the map.
const HEAT: &str = "Accesses over time and address";

/// All pictures of a workload.
pub fn figures(id: &str, workload: &Workload) -> Vec<Figure> {
    let charts = charts(id, workload).into_iter().map(|(_, figure)| figure);
    std::iter::once(heat(id, workload).0).chain(charts).collect()
}

/// Returns the pictures as files, with their titles.
pub fn pictures(workload: &Workload) -> Vec<(String, String)> {
    let charts = charts("workload", workload).into_iter().map(|(chart, _)| (chart.title.clone(), chart.standalone()));
    std::iter::once((HEAT.to_owned(), heat("workload", workload).1)).chain(charts).collect()
}

fn charts(id: &str, workload: &Workload) -> Vec<(Chart, Figure)> {
    rate(id, workload).into_iter().chain([sizes(id, workload), popularity(id, workload)]).collect()
}

/// Returns the start of a bin.
fn begins(workload: &Workload, part: usize) -> String {
    let since = workload.part_len.saturating_mul(part as u64);
    if workload.start_us.is_some() { duration(since as f64) } else { count(since) }
}

fn time_label(workload: &Workload) -> &'static str {
    if workload.start_us.is_some() { "Time since the first request" } else { "Accesses since the start of the trace" }
}

/// Returns the shade of a cell: 0 is empty, the last is the most, with equal ratios between shades.
fn shade(accesses: u64, most: u64) -> usize {
    if accesses == 0 {
        return 0;
    }
    let share = (accesses as f64).ln_1p() / (most as f64).ln_1p();
    ((share * SHADES as f64).ceil() as usize).clamp(1, SHADES)
}

/// Returns the key of the shades: from one access to the most in a cell.
fn key(most: u64) -> String {
    const SIDE: f64 = 14.0;
    let (y, baseline) = (26.0, 37.0);
    let shades: Vec<usize> = (1..=SHADES).filter(|&number| number == SHADES || most > 1).collect();
    let squares = shades.iter().enumerate().map(|(at, &number)| {
        let (x, opacity) = (20.0 + SIDE * at as f64, shade_opacity(number));
        format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{SIDE}\" height=\"{SIDE}\" fill=\"var(--fw-read)\" \
            fill-opacity=\"{opacity}\" />"
        )
    });
    let from = if most > 1 { text_at(8.0, baseline, "start", "1") } else { String::new() };
    let to = if most == 1 { "1 access in a cell".to_owned() } else { format!("{} accesses in a cell", count(most)) };
    from + &squares.collect::<String>() + &text_at(26.0 + SIDE * shades.len() as f64, baseline, "start", &to)
}

fn shade_opacity(number: usize) -> String {
    shortest(number as f64 / SHADES as f64, 2)
}

/// Returns accesses over time and address, as a figure and as a file.
fn heat(id: &str, workload: &Workload) -> (Figure, String) {
    let (rows, columns) = (workload.heat.len().max(1), workload.parts.len().max(1));
    let most = workload.heat.iter().flatten().copied().max().unwrap_or(0);
    let (width, height) = (SIZE.0 - LEFT - RIGHT, SIZE.1 - TOP - BELOW);
    let (cell_width, cell_height) = (width / columns as f64, height / rows as f64);
    let mut paths = vec![String::new(); SHADES + 1];
    for (row, cells) in workload.heat.iter().enumerate() {
        // The lowest addresses are at the bottom.
        let y = TOP + height - cell_height * (row + 1) as f64;
        let mut start = 0;
        for run in cells.chunk_by(|one, other| shade(*one, most) == shade(*other, most)) {
            let path = &mut paths[shade(run[0], most)];
            let (x, long) = (LEFT + cell_width * start as f64, cell_width * run.len() as f64);
            let (x, y, long) = (shortest(x, 1), shortest(y, 1), shortest(long, 1));
            let _ = write!(path, "M{x} {y}h{long}v{high}h-{long}z", high = shortest(cell_height, 1));
            start += run.len();
        }
    }
    let description = format!("A map: time from left to right, block addresses from bottom to top. {NUMBERS_FOLLOW}");
    let mut map = format!("<g id=\"{id}-heat-map\">");
    for (number, path) in paths.iter().enumerate().skip(1).filter(|(_, path)| !path.is_empty()) {
        let opacity = shade_opacity(number);
        let _ = write!(map, "<path d=\"{path}\" fill=\"var(--fw-read)\" fill-opacity=\"{opacity}\" />");
    }
    map += "</g>";
    let around = |all: f64, map: &str, ticks: &[usize]| {
        let width = all - LEFT - RIGHT;
        let mut svg = map.to_owned();
        let frame = format!("M{LEFT} {TOP}V{y}H{x}", y = TOP + height, x = all - RIGHT);
        let _ = write!(svg, "<path d=\"{frame}\" fill=\"none\" stroke=\"var(--fw-axis)\" />");
        svg += &text_at(8.0, 18.0, "start", "Blocks in the order of their addresses");
        svg += &key(most);
        for &quarter in ticks {
            let anchor = ["start", "middle", "middle", "middle", "end"][quarter];
            let x = LEFT + width * quarter as f64 / 4.0;
            svg += &text_at(x, TOP + height + 18.0, anchor, &begins(workload, columns * quarter / 4));
        }
        svg + &text_at(LEFT + width / 2.0, SIZE.1 - 8.0, "middle", time_label(workload)) + "</svg>"
    };
    let whole = around(SIZE.0, &map, &[0, 1, 2, 3, 4]);
    // The same map, compressed.
    let share = (NARROW - LEFT - RIGHT) / width;
    let pressed = format!("matrix({share:.4} 0 0 1 {:.2} 0)", LEFT * (1.0 - share));
    let again = format!("<use href=\"#{id}-heat-map\" transform=\"{pressed}\" />");
    let narrow = head(&format!("{id}-heat-narrow"), HEAT, &description, (NARROW, SIZE.1), "")
        + &around(NARROW, &again, &[0, 2, 4]);

    let told =
        |all: usize| (0..all.min(TOLD)).map(move |at| (all * at / all.min(TOLD), all * (at + 1) / all.min(TOLD)));
    let heads = told(columns).map(|(start, _)| format!("from {}", begins(workload, start)));
    let mut table = Table::new("Accesses, by address and time", ["Blocks".to_owned()].into_iter().chain(heads));
    let row_blocks = workload.unique_blocks.div_ceil(rows as u64).max(1);
    for (first, end) in told(workload.heat.len()) {
        let sum = |(start, last): (usize, usize)| {
            count(workload.heat[first..end].iter().flat_map(|cells| &cells[start..last]).sum())
        };
        let blocks = (first as u64 * row_blocks + 1, (end as u64 * row_blocks).min(workload.unique_blocks));
        table.push(format!("{} to {}", count(blocks.0), count(blocks.1)), told(columns).map(sum).collect());
    }
    let caption = format!(
        "Accesses over time and address. All {} rows have the same number of blocks, with the lowest addresses at the \
         bottom. The strongest shade stands for {} \
         accesses, and each fainter one for about {} times fewer.",
        count(workload.heat.len() as u64),
        count(most),
        shortest((most as f64 + 1.0).powf(1.0 / SHADES as f64), 1),
    );
    let file = standalone(&format!("{id}-heat"), HEAT, &description, SIZE, &whole);
    let svg = head(&format!("{id}-heat"), HEAT, &description, SIZE, "") + &whole;
    (Figure { caption, svg, narrow, legend: Vec::new(), table, open: false }, file)
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), look: if name == "Reads" { READS } else { WRITES }, points }
}

/// Returns requests per second over time; `None` without a clock.
fn rate(id: &str, workload: &Workload) -> Option<(Chart, Figure)> {
    workload.start_us?;
    let seconds = workload.part_len as f64 / 1e6;
    // In the unit that gives a small number for the whole trace.
    let all = seconds * workload.parts.len() as f64;
    let units = [("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)];
    let (unit, length) = units.into_iter().find(|(_, length)| all >= 3.0 * length).unwrap_or(("milliseconds", 1e-3));
    let x_of = |part: usize| (part as f64 + 0.5) * seconds / length;
    let points = |of: fn(&Part) -> u64| {
        let point = |(number, part): (usize, &Part)| (x_of(number), of(part) as f64 / seconds);
        workload.parts.iter().enumerate().map(point).collect::<Vec<_>>()
    };
    let series =
        vec![line("Reads", points(|part| part.read_requests)), line("Writes", points(|part| part.write_requests))];
    let title = "Requests per second".to_owned();
    let chart = Chart {
        id: format!("{id}-rate-of-requests"),
        title: title.clone(),
        description: format!("Read and write requests per second over the trace. {NUMBERS_FOLLOW}"),
        x: linear(format!("Time since the first request, in {unit}"), [all / length].into_iter(), ""),
        y: linear("Requests per second", series.iter().flat_map(|line| &line.points).map(|point| point.1), ""),
        series,
        markers: false,
    };
    let mut table = Table::new(&title, ["From", "Reads per second", "Writes per second", "Bytes asked for"]);
    for (number, part) in workload.parts.iter().enumerate() {
        let per_second = |requests: u64| numbers::number(requests as f64 / seconds);
        let asked = bytes((part.reads + part.writes) * workload.block_size_bytes);
        let cells = vec![per_second(part.read_requests), per_second(part.write_requests), asked];
        table.push(begins(workload, number), cells);
    }
    let length = duration(workload.part_len as f64);
    let figure = Figure { caption: format!("Requests per second, in parts of {length}."), ..figure(&chart, table) };
    Some((chart, figure))
}

/// Returns cumulative lengths of requests, reads and writes separately.
fn sizes(id: &str, workload: &Workload) -> (Chart, Figure) {
    let sums = workload.sizes.each_ref().map(|sizes| sizes.iter().sum::<u64>());
    let cumulative = workload.sizes.each_ref().map(|sizes| {
        let mut sum = 0;
        sizes
            .iter()
            .map(|requests| {
                sum += requests;
                sum
            })
            .collect::<Vec<u64>>()
    });
    let share = |of: usize, power: usize| cumulative[of][power] as f64 / sums[of].max(1) as f64;
    let powers = workload.sizes[0].len();
    let series: Vec<Series> = ["Reads", "Writes"]
        .into_iter()
        .enumerate()
        .filter(|(of, _)| sums[*of] > 0)
        .map(|(of, name)| line(name, (0..powers).map(|power| (power as f64, 100.0 * share(of, power))).collect()))
        .collect();
    let chart = Chart {
        id: format!("{id}-sizes"),
        title: "Lengths of requests".to_owned(),
        description: format!("Cumulative shares of read and of write requests by length. {NUMBERS_FOLLOW}"),
        x: powers_of_two("Length of a request, in blocks (logarithmic)", powers.saturating_sub(1)),
        y: linear("Share of the reads, and of the writes", [100.0].into_iter(), "%"),
        series,
        markers: true,
    };
    let mut table =
        Table::new("Share of the requests that are no longer", ["Blocks up to", "Bytes", "Reads", "Writes"]);
    for power in 0..powers {
        let cell = |of: usize| if sums[of] == 0 { "none".to_owned() } else { percent(share(of, power)) };
        let cells = vec![bytes((1 << power) * workload.block_size_bytes), cell(0), cell(1)];
        table.push(count(1 << power), cells);
    }
    let caption =
        "Lengths of requests, in blocks: a point is the share of the read or write requests that are no longer.";
    let figure = Figure { caption: caption.to_owned(), ..figure(&chart, table) };
    (chart, figure)
}

/// Returns the share of accesses to the most popular blocks.
fn popularity(id: &str, workload: &Workload) -> (Chart, Figure) {
    let all = workload.popularity.last().copied().unwrap_or(0).max(1) as f64;
    let blocks = |power: usize| (1_u64 << power).min(workload.unique_blocks.max(1));
    let shares: Vec<(u64, f64)> =
        workload.popularity.iter().enumerate().map(|(power, &sum)| (blocks(power), sum as f64 / all)).collect();
    let points = shares.iter().map(|&(blocks, share)| ((blocks as f64).log2(), 100.0 * share)).collect();
    let title = "Accesses to the most accessed blocks".to_owned();
    let chart = Chart {
        id: format!("{id}-popularity"),
        title: title.clone(),
        description: format!("Cumulative share of the accesses by number of blocks. {NUMBERS_FOLLOW}"),
        x: powers_of_two("Blocks, the most accessed first (logarithmic)", shares.len().saturating_sub(1)),
        y: linear("Share of the accesses", [100.0].into_iter(), "%"),
        series: vec![Series { name: "Accesses".to_owned(), look: READS, points }],
        markers: true,
    };
    let mut table = Table::new(&title, ["Blocks", "Share of the blocks", "Share of the accesses"]);
    for (blocks, share) in shares {
        let of_blocks = blocks as f64 / workload.unique_blocks.max(1) as f64;
        table.push(count(blocks), vec![percent(of_blocks), percent(share)]);
    }
    let caption = "Accesses to the most accessed blocks: a point is the share of all accesses that this many blocks \
        have. It is what a cache would hit \
                   that held these blocks all the time.";
    let figure = Figure { caption: caption.to_owned(), ..figure(&chart, table) };
    (chart, figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        let part = Part { read_requests: 2, write_requests: 1, reads: 4, writes: 2 };
        let heat = vec![vec![0, 1, 100, 100], vec![6, 6, 0, 0]];
        let sizes = [vec![6, 2, 0], vec![3, 0, 1]];
        Workload {
            block_size_bytes: 4096,
            start_us: Some(0),
            part_len: 1_000_000,
            parts: vec![part; 4],
            heat,
            sizes,
            popularity: vec![100, 160, 213],
            unique_blocks: 3,
        }
    }

    #[test]
    fn shades_are_of_equally_many_times_more() {
        let shades = [0, 1, 2, 7, 700, 1000].map(|accesses| shade(accesses, 1000));
        assert_eq!(shades, [0, 1, 1, 2, 6, 6]);
        assert_eq!((shade(1, 1), shade(0, 0)), (SHADES, 0));
    }

    #[test]
    fn the_pictures_and_their_tables_say_the_same() {
        let all = figures("t", &workload());
        let [heat, rate, sizes, popularity] = &all[..] else { panic!("four pictures") };
        // The cells of 1, of 100 and 100, and of 6 and 6: neighbours of one shade are merged.
        assert_eq!(heat.svg.matches('M').count(), 3 + 1, "and the axes: {}", heat.svg);
        // The key: six shades from 1 access to the most.
        assert_eq!((heat.svg.matches("<rect ").count(), heat.narrow.matches("<rect ").count()), (SHADES, SHADES));
        assert!(heat.svg.contains(">100 accesses in a cell<"), "{}", heat.svg);
        assert!(heat.svg.starts_with("<svg ") && heat.svg.ends_with("</svg>"));
        // The narrow map reuses the cells: half the width between the axes, which start at the same position.
        assert!(heat.svg.contains("<g id=\"t-heat-map\">") && heat.narrow.contains("<use href=\"#t-heat-map\""));
        assert!(heat.narrow.contains("matrix(0.4966 0 0 1 17.11 0)"), "{}", heat.narrow);
        let cells = |figure: &Figure| figure.table.rows.iter().map(|row| row.cells.clone()).collect::<Vec<_>>();
        assert_eq!(cells(heat), [["0", "1", "100", "100"], ["6", "6", "0", "0"]]);
        assert_eq!(cells(rate)[0], ["2", "1", "24 KiB"]);
        assert_eq!(cells(sizes), [["4 KiB", "75%", "75%"], ["8 KiB", "100%", "75%"], ["16 KiB", "100%", "100%"]]);
        assert_eq!(cells(popularity)[1], ["66.7%", "75.1%"]);
        assert_eq!(popularity.table.rows[2].head, "3");
        let without_clock = figures("t", &Workload { start_us: None, ..workload() });
        assert_eq!(without_clock.len(), 3);
    }
}
