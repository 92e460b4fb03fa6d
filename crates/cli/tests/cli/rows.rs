//! Checks the rows of every mode of `simulate` over the bundled trace, bit for bit: `tests/rows/*.csv`.
//!
//! The first line of each file is the command that made it. Columns may be added; existing figures keep their values,
//! except those in [`MEANINGS`]. Some commands have changed since the files were made. A budget is a share of C's
//! erasures. `--write-buffer-half-life 0` disables the ageing of frequencies, and `--ram` keeps the size of the read
//! cache.

use std::collections::BTreeMap;
use std::fs;

use crate::common::{project, succeed};

/// Figures with a new name and the same value. The new name is that of the server's status, or of the same figure in
/// another mode.
const NAMES: [(&str, &str); 6] = [
    ("ram_hits", "ram_read_hits"),
    ("flash_hits", "flash_read_hits"),
    ("client_blocks", "flash_client_blocks"),
    ("admission_blocks", "flash_admission_blocks"),
    ("copy_forward_blocks", "flash_copy_forward_blocks"),
    ("bypassed", "bypasses"),
];

/// Figures with a new meaning: the first letters of the files, the columns, and the reason.
const MEANINGS: [(&str, &[&str], &str); 9] = [
    (
        "wear",
        &["write_hits", "hits", "hit_ratio", "admissions", "write_admissions"],
        "writes that find their block in a cache in place or in containers are hits and not admissions, as everywhere",
    ),
    ("wear", &["replacements", "evictions", "write_traffic_blocks"], "they are counted of policies in place too"),
    (
        "wear",
        &["lifetime_years"],
        "that of the flash alone is flash_lifetime_years; lifetime_years is that of an array",
    ),
    (
        "wear",
        &["ram_hits", "flash_hits", "fue"],
        "reads that a write buffer or an open erase unit in RAM had are RAM's and not flash's",
    ),
    ("wear", &["ram_bytes"], "it is the RAM that blocks lie in, and no longer the RAM that was given"),
    ("wear-units", &["wfue"], "M+, with which it compares, has all of the RAM for its read cache"),
    ("wear-warm", &WORN, "the wear is that of the time after the warm-up, as erasures and days are"),
    ("wear-units-warm", &WORN, "the wear is that of the time after the warm-up, as erasures and days are"),
    (
        "write-",
        &PUT_IN,
        "what a client writes over what was admitted and still waits in the same segment is the client's; their sum is \
         what it was",
    ),
];

/// Flash writes from outside of the cache.
const PUT_IN: [&str; 2] = ["flash_client_blocks", "flash_admission_blocks"];

/// How often erase units were erased.
const WORN: [&str; 4] = ["wear_min", "wear_mean", "wear_max", "wear_deviation"];

/// True if a figure is unchanged to the last bit. Deviations of unit caching may differ by rounding.
fn is_same(column: &str, kept: &str, found: &str) -> bool {
    match (kept.parse::<f64>(), found.parse::<f64>()) {
        (Ok(kept), Ok(found)) if column == "wear_deviation" => (found - kept).abs() <= 1e-9 * kept.abs(),
        _ => found == kept,
    }
}

/// The rows of a CSV file: the cells of each, by column.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#')).map(cells);
    let header = lines.next().unwrap();
    lines.map(|cells| header.iter().cloned().zip(cells).collect()).collect()
}

/// Returns the cells of a line; some are quoted.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cells.last_mut().unwrap().push(letter),
        }
    }
    cells
}

#[test]
fn rows_of_every_mode_are_unchanged() {
    let mut files: Vec<_> =
        fs::read_dir(project().join("tests/rows")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 18, "{files:?}");
    let (mut compared, mut sums, mut differ) = (0, 0, Vec::new());
    for file in files {
        let (name, kept) = (file.file_stem().unwrap().to_str().unwrap(), fs::read_to_string(&file).unwrap());
        let command = kept.lines().next().unwrap().strip_prefix("# ").unwrap();
        let arguments: Vec<&str> = command.split(' ').chain(["--csv"]).collect();
        let (kept, found) = (rows(&kept), rows(&succeed(&project(), &arguments)));
        assert_eq!(kept.len(), found.len(), "{command}");
        let put_in = |row: &BTreeMap<String, String>| -> Option<u64> {
            PUT_IN.iter().map(|column| row.get(*column)?.parse::<u64>().ok()).sum()
        };
        for (kept, found) in kept.iter().zip(&found) {
            if let Some(kept) = put_in(kept).filter(|_| name.starts_with("write-")) {
                assert_eq!(put_in(found), Some(kept), "{name}");
                sums += 1;
            }
            for (column, value) in kept {
                let is_another = |(files, columns, _): &(&str, &[&str], &str)| {
                    name.starts_with(files) && columns.contains(&column.as_str())
                };
                if MEANINGS.iter().any(is_another) {
                    continue;
                }
                let now = NAMES.iter().find(|(before, _)| before == column).map_or(column.as_str(), |(_, now)| now);
                // It is a figure of all modes, and CSV has no such column where it is empty in all rows.
                if column == "drive_writes_budget_used" && value.is_empty() && !found.contains_key(now) {
                    continue;
                }
                if found.get(now).is_none_or(|found| !is_same(column, value, found)) {
                    let which = [&kept["policy"], &kept["size"]];
                    let found = found.get(now).map_or("no such column", String::as_str);
                    differ.push(format!("{name}: {column} of {which:?} was {value}, found {found}"));
                }
                compared += 1;
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(compared > 5000 && sums > 20, "{compared} figures and {sums} sums were compared");
}

/// A table of all policies would have 130 lines.
#[test]
fn the_table_of_all_policies_shows_some_with_a_verdict_unless_all_are_asked_for() {
    let run = |more: &str| {
        let arguments = format!("simulate traces/netsfs.csv.zst --sample 5% {more}");
        succeed(&project(), &arguments.split_whitespace().collect::<Vec<_>>())
    };
    let (short, all, csv) = (run(""), run("--policy all"), run("--csv"));
    let rows = csv.lines().count() - 1;
    let policies = rows / 6;
    assert!(short.lines().count() <= 30 && policies > 20, "{rows} rows\n{short}");
    for shown in [
        "lru ",
        "larc ",
        "min ",
        "hits ",
        "written to flash ",
        "Recommended: ",
        &format!("{} more policies: --policy all", policies - 5),
    ] {
        assert!(short.lines().any(|line| line.starts_with(shown)), "{shown} in\n{short}");
    }
    assert_eq!(all.lines().filter(|line| line.starts_with("traces/netsfs.csv.zst  ")).count(), rows);
}
