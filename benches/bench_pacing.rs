//! `make bench-pacing`: draws a minute of a volume in virtual time, from the table that a test of the engine writes.

use std::path::{Path, PathBuf};

use clap::Parser;
use flashwise_report::{Panel, panels_chart};

/// Draws dirty data, rates and waits over time.
#[derive(Parser)]
struct Arguments {
    /// The table: a header, then a line for each second.
    csv: PathBuf,
    /// File for the chart.
    svg: PathBuf,
}

/// A column of the table, and the name of its line.
type Line = (&'static str, &'static str);

/// The charts: label of the vertical axis, largest value drawn, lines.
const PANELS: [(&str, f64, &[Line]); 3] = [
    ("dirty data, MiB", f64::INFINITY, &[("dirty_flash_mib", "on flash"), ("dirty_ram_mib", "in RAM")]),
    (
        "blocks per second, where below 500",
        500.0,
        &[("written_per_second", "clients write"), ("taken_per_second", "backend takes")],
    ),
    (
        "longest wait in each second, ms",
        f64::INFINITY,
        &[("write_ms", "write"), ("flush_ms", "flush"), ("hit_ms", "read of a cached block")],
    ),
];

/// Returns the names of the table's columns, and its rows.
fn read(path: &Path) -> Result<(Vec<String>, Vec<Vec<f64>>), String> {
    let at = |line: usize| format!("{}, line {}", path.display(), line + 1);
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut lines = text.lines().map(|line| line.split(',')).enumerate();
    let names: Vec<_> = lines.next().ok_or_else(|| format!("{}: no lines", at(0)))?.1.map(str::to_owned).collect();
    let rows = lines.map(|(number, line)| {
        let value = |value: &str| value.parse().map_err(|_| format!("{}: '{value}' is no number", at(number)));
        let row = line.map(value).collect::<Result<Vec<f64>, String>>()?;
        let found = row.len();
        let expected = names.len();
        if found == expected { Ok(row) } else { Err(format!("{}: {found} values, expected {expected}", at(number))) }
    });
    let rows = rows.collect::<Result<_, _>>()?;
    Ok((names, rows))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { csv, svg } = Arguments::parse();
    let (names, rows) = read(&csv)?;
    let column = |name: &str| {
        let at = names.iter().position(|other| other == name);
        at.ok_or_else(|| format!("{}, line 1: no column {name}", csv.display()))
    };
    let seconds = column("seconds")?;
    let mut panels = Vec::new();
    for (label, most, lines) in PANELS {
        let mut drawn = Vec::new();
        for (name, shown) in lines {
            let at = column(name)?;
            let points = rows.iter().map(|row| (row[seconds], row[at])).filter(|(_, value)| *value <= most);
            drawn.push(((*shown).to_owned(), points.collect()));
        }
        panels.push(Panel { label: label.to_owned(), lines: drawn });
    }
    let picture = panels_chart(
        "Writers, a reader and flushes before a slow disk",
        "Dirty data, the rates at which clients write and the backend takes blocks, and the longest waits, over a \
         minute in virtual time.",
        "seconds",
        1,
        &panels,
    );
    std::fs::write(svg, picture)?;
    Ok(())
}
