//! The page that says what each figure means.

use std::fmt::Write;

use super::{BucketFigures, CacheFigures, EnduranceFigures, Epoch, RamFigures, ResultRow, TierFigures};
use crate::advise::AdvisedCache;
use crate::array::{ArrayEpoch, ArrayFigures};
use crate::columns::Column;
use crate::sampling::SampleFigures;

/// All figures of `flashwise simulate` as Markdown: `docs/figures.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Figures\n\nWhat `flashwise simulate` prints, under the same names in JSON, CSV, Parquet and the report. A figure that was not simulated is absent; \
         one that cannot be computed, such as a ratio of nothing, is empty (null in JSON). This page is made from the table of columns in \
         `crates/sim/src/results/`.\n",
    );
    group(&mut page, "Every row", ResultRow::COLUMNS);
    group(&mut page, "A policy behind RAM (`--ram`)", RamFigures::COLUMNS);
    group(&mut page, "RAM and flash (every layout but none)", TierFigures::COLUMNS);
    group(&mut page, "The whole cache (`--layout log`)", CacheFigures::COLUMNS);
    group(&mut page, "Caches of buckets (`--layout wlfc`, `wlfc_c`, `b-like`)", BucketFigures::COLUMNS);
    group(
        &mut page,
        "Modelled flash (`--layout in-place`, algorithms with a layout of their own, and `--layout log` with `--device`)",
        EnduranceFigures::COLUMNS,
    );
    group(
        &mut page,
        "Admission, devices and waiting (`--admission`, `--arrivals`, `--cache-device`, `--storage-device`)",
        ArrayFigures::COLUMNS,
    );
    group(&mut page, "A sample (`--sample`, `--accuracy`)", SampleFigures::COLUMNS);
    group(&mut page, "Each epoch (`--epoch`)", Epoch::COLUMNS);
    group(&mut page, "Each epoch before an array", ArrayEpoch::COLUMNS);
    group(&mut page, "A cache that `flashwise advise` ran", AdvisedCache::COLUMNS);
    page
}

fn group<R>(page: &mut String, heading: &str, columns: &[Column<R>]) {
    let _ = write!(page, "\n## {heading}\n\n| figure | unit | meaning |\n| --- | --- | --- |\n");
    for column in columns {
        let unit = if column.unit.is_empty() { "a name" } else { column.unit };
        let _ = writeln!(page, "| `{}` | {unit} | {} |", column.name, linked(&column.meaning()));
    }
}

/// A meaning without the links of the documentation of the code.
fn linked(meaning: &str) -> String {
    meaning.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
