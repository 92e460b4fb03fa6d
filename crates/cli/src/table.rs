//! Results as a table for people.

mod brief;
mod screen;

use std::collections::HashMap;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use flashwise_core::human;
use flashwise_core::policy::min;
use flashwise_sim::columns::{About, Cell, Head, Show};
use flashwise_sim::results::{Cells, ResultRow, columns_of};
use flashwise_sim::sampling::SampleFigures;

use crate::fit;
pub use brief::brief;
use screen::FigureTable;

/// Spaces between columns.
pub const GAP: usize = 2;

/// Returns a table without lines, with the columns after the first `text_columns` aligned right. If it is wider than
/// the terminal, cells wrap between words.
pub fn plain(header: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    if let Some(width) = fit::width() {
        // The gap behind the last column is not printed.
        let width = u16::try_from(width + GAP).unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP as u16));
        if number >= text_columns {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns one line per trace, policy, size and admission rule, with the columns with a heading that any row has. If
/// the best possible was simulated too, a column gives each row's share of its hits.
pub fn results(rows: &[ResultRow]) -> String {
    let columns: Vec<(Head, Cells)> = columns_of(rows)
        .into_iter()
        .filter_map(|column| Some((column.about.head?, column)))
        .filter(|(_, column)| column.has_any() && !is_without_names(column))
        .collect();
    let (names, numbers): (Vec<_>, Vec<_>) =
        columns.into_iter().partition(|(_, column)| matches!(column.kind, Cell::Text(_)));
    let text_columns = names.len();
    let mut header: Vec<&str> = names.iter().chain(&numbers).map(|(head, _)| head.text).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let cell = |(head, column): &(Head, Cells)| shown(&column.about, *head, &column.cells[at], row);
        lines.push(names.iter().chain(&numbers).map(cell).collect());
    }
    let mut notes: Vec<&str> = names.iter().chain(&numbers).map(|(head, _)| head.note).collect();
    let best = best_hits(rows);
    if !best.is_empty() {
        header.push("of best");
        for (line, row) in lines.iter_mut().zip(rows) {
            line.push(match best.get(&part_of(row)) {
                Some(&best) if best > 0 => human::percent(row.hits as f64 / best as f64),
                _ => "-".to_owned(),
            });
        }
        notes.push("share of the hits that MIN, which knows the future and need not admit, has");
    }
    let another = |pair: &[ResultRow]| pair[0].trace != pair[1].trace || pair[0].policy != pair[1].policy;
    let begins = rows.windows(2).enumerate().filter(|(_, pair)| another(pair)).map(|(before, _)| before + 1).collect();
    let figures = FigureTable { header, names: text_columns, notes, rows: lines, begins };
    figures.print(fit::width()) + &sample_caveats(rows) + &overloaded(rows) + &caveats_of(rows)
}

/// Returns a line per row, whose first `names` cells are names. If that is wider than the terminal, figures go down the
/// screen.
pub fn fitting(header: Vec<&str>, names: usize, rows: Vec<Vec<String>>) -> String {
    let notes = vec![""; header.len()];
    FigureTable { header, names, notes, rows, begins: Vec::new() }.print(fit::width())
}

/// Returns the heading of a figure.
pub fn heading(about: About) -> &'static str {
    about.head.map_or(about.name, |head| head.text)
}

/// True if a column holds names, and all of them are empty.
fn is_without_names(column: &Cells) -> bool {
    column.cells.iter().all(|cell| matches!(cell, Cell::Text(name) if name.as_deref().unwrap_or_default().is_empty()))
}

/// Formats a cell for tables.
fn shown(about: &About, head: Head, cell: &Cell, row: &ResultRow) -> String {
    match (cell, head.show) {
        (Cell::Text(Some(name)), _) if !name.is_empty() => name.clone(),
        (Cell::Text(_), _) => "none".to_owned(),
        (Cell::Count(Some(blocks)), Show::Bytes) => human::bytes((blocks * row.block_size_bytes) as f64),
        (Cell::Count(Some(bytes)), _) if about.unit == "bytes" => human::bytes(*bytes as f64),
        (Cell::Count(Some(count)), _) => human::count(*count),
        (Cell::Ratio(Some(value)), show) => {
            let text = match about.unit {
                "share" => human::percent(*value),
                "us" => human::duration(*value),
                "years" => human::years(*value),
                _ => human::number(*value),
            };
            if show == Show::Rate { rate(row.caveat.as_deref(), text) } else { text }
        }
        (Cell::Count(None) | Cell::Ratio(None), _) => "-".to_owned(),
    }
}

/// Returns the caveats of samples: for each trace that of the smallest cache, if the sample is too small, and each
/// other once.
fn sample_caveats(rows: &[ResultRow]) -> String {
    let sampled = || rows.iter().filter_map(|row| Some((row, row.sample.as_ref()?)));
    let mut smallest: Vec<(&ResultRow, &SampleFigures)> = Vec::new();
    for (row, sample) in sampled().filter(|(_, sample)| sample.is_small()) {
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
    let mut others: Vec<String> = Vec::new();
    for (row, sample) in sampled().filter(|(_, sample)| !sample.is_small()) {
        let other = sample.sample_caveat.as_ref().map(|caveat| format!("\n\n{}: {caveat}.", row.trace));
        others.extend(other.filter(|other| !others.contains(other)));
    }
    smallest.iter().filter_map(line).chain(others).collect()
}

/// A little more than 1, because the last requests are served after the last arrival.
const KEEPS_UP_MAX: f64 = 1.01;
/// Note below a table with an overloaded device.
const OVERLOADED: &str = "\n\nDevices used beyond 100% cannot keep up: they fall ever further behind, and latencies \
    grow with the length of \
                          the trace.";

/// Returns a note if a device cannot keep up; otherwise nothing.
fn overloaded(rows: &[ResultRow]) -> String {
    let arrays = rows.iter().filter_map(|row| row.array.as_ref());
    let mut utilisations = arrays.flat_map(|array| [array.cache_utilisation, array.storage_utilisation]).flatten();
    if utilisations.any(|utilisation| utilisation > KEEPS_UP_MAX) {
        fit::sentences(OVERLOADED, 0, fit::width())
    } else {
        String::new()
    }
}

/// Mark of figures with a caveat in a table.
const EXTRAPOLATED: &str = "~";

/// Formats a rate or lifetime, marked if it has a caveat.
pub fn rate(caveat: Option<&str>, text: String) -> String {
    if caveat.is_some() && text != "-" { format!("{EXTRAPOLATED}{text}") } else { text }
}

/// Explains the marked figures below a table: for each trace, how short the measured time is. Ends with a line break
/// unless empty.
pub fn caveats<'a>(rows: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (trace, caveat) in rows {
        let line = caveat.map(|caveat| format!("\n{EXTRAPOLATED}: {trace}: {caveat}.\n"));
        lines.extend(line.filter(|line| !lines.contains(line)));
    }
    lines.concat()
}

/// Returns the caveats of rows, below their table.
fn caveats_of(rows: &[ResultRow]) -> String {
    let caveats = caveats(rows.iter().map(|row| (&row.trace[..], row.caveat.as_deref())));
    if caveats.is_empty() { caveats } else { format!("\n{}", fit::sentences(caveats.trim_end(), 0, fit::width())) }
}

/// Key of rows whose hits can be compared: trace, warm-up, counted accesses, and capacity.
type Part<'a> = (&'a str, u64, u64, u64);

fn part_of(row: &ResultRow) -> Part<'_> {
    (&row.trace, row.warmup_accesses, row.accesses, row.capacity_blocks)
}

/// Returns the hits of the best possible, by key, if simulated.
fn best_hits(rows: &[ResultRow]) -> HashMap<Part<'_>, u64> {
    let mut best = HashMap::new();
    for row in rows {
        if row.policy == min::INFO.name {
            best.entry(part_of(row)).or_insert(row.hits);
        }
    }
    best
}
