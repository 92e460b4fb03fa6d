//! Rows as columns, and as CSV: each figure is a column, named as in JSON.

use std::io::Write;

use super::{BucketFigures, CacheFigures, EnduranceFigures, RamFigures, ResultRow, TierFigures};
use crate::array::ArrayFigures;
use crate::columns::{About, Cell, Column};
use crate::sampling::SampleFigures;

/// A column and its cells of some rows.
pub struct Cells {
    /// Its description.
    pub about: About,
    /// A cell of its type.
    pub kind: Cell,
    /// A cell for each row.
    pub cells: Vec<Cell>,
    /// True if rows may lack it.
    pub nullable: bool,
}

impl Cells {
    /// True if any row has the figure, or all must have it.
    pub fn is_shown(&self) -> bool {
        !self.nullable || self.has_any()
    }

    /// True if any row has the figure.
    pub fn has_any(&self) -> bool {
        self.cells.iter().any(|cell| *cell != self.kind)
    }
}

/// A visitor of the optional groups of figures of a row.
pub(super) trait Groups {
    /// Visits a group: its name, its columns, and its place in a row.
    fn group<R: 'static>(
        &mut self,
        heading: &'static str,
        columns: &'static [Column<R>],
        of: fn(&ResultRow) -> Option<&R>,
    );
}

/// Visits the groups of figures, in the order of every output.
pub(super) fn groups(with: &mut impl Groups) {
    with.group("Every row", ResultRow::COLUMNS, |row| Some(row));
    with.group("A policy behind RAM (`--ram`)", RamFigures::COLUMNS, |row| row.ram.as_ref());
    with.group("RAM and flash (every layout but none)", TierFigures::COLUMNS, |row| row.tiers.as_ref());
    with.group("The whole cache (`--layout log`)", CacheFigures::COLUMNS, |row| row.cache.as_ref());
    let buckets = "Caches of buckets (`--layout wlfc`, `wlfc_c`, `b-like`)";
    with.group(buckets, BucketFigures::COLUMNS, |row| row.buckets.as_ref());
    let wear = "Modelled flash (`--layout in-place`, algorithms with a layout of their own, and `--layout log` with \
        `--device`)";
    with.group(wear, EnduranceFigures::COLUMNS, |row| row.endurance.as_ref());
    let arrays = "Admission, devices and waiting (`--admission`, `--arrivals`, `--cache-device`, `--storage-device`)";
    with.group(arrays, ArrayFigures::COLUMNS, |row| row.array.as_ref());
    with.group("A sample (`--sample`, `--accuracy`)", SampleFigures::COLUMNS, |row| row.sample.as_ref());
}

/// Returns all columns of the rows: those of every row, and those of groups that some rows have.
pub fn columns_of(rows: &[ResultRow]) -> Vec<Cells> {
    struct Of<'a>(&'a [ResultRow], Vec<Cells>);
    impl Groups for Of<'_> {
        fn group<R: 'static>(
            &mut self,
            _heading: &'static str,
            columns: &'static [Column<R>],
            of: fn(&ResultRow) -> Option<&R>,
        ) {
            let of_group = group_of(columns, &self.0.iter().map(of).collect::<Vec<_>>());
            // A row's own columns are left out if no row has them.
            let is_first = self.1.is_empty();
            self.1.extend(of_group.into_iter().filter(|column| !is_first || column.is_shown()));
        }
    }
    let mut all = Of(rows, Vec::new());
    groups(&mut all);
    all.1
}

impl ResultRow {
    /// Returns the figure `name`, if the row has it and it is a number.
    pub fn figure(&self, name: &str) -> Option<f64> {
        struct Number<'a>(&'a ResultRow, &'a str, Option<f64>);
        impl Groups for Number<'_> {
            fn group<R>(&mut self, _: &'static str, columns: &'static [Column<R>], of: fn(&ResultRow) -> Option<&R>) {
                let Some(row) = of(self.0) else { return };
                let column = columns.iter().find(|column| column.about.name == self.1);
                self.2 = self.2.or_else(|| (column?.cell)(row).number());
            }
        }
        let mut number = Number(self, name, None);
        groups(&mut number);
        number.2
    }
}

/// Returns the columns of a group of figures, if any row has it.
pub fn group_of<R>(columns: &'static [Column<R>], rows: &[Option<&R>]) -> Vec<Cells> {
    if rows.iter().all(Option::is_none) { Vec::new() } else { cells_of(columns, rows) }
}

pub fn cells_of<R>(columns: &'static [Column<R>], rows: &[Option<&R>]) -> Vec<Cells> {
    let nullable = rows.iter().any(Option::is_none);
    let cells = |column: &'static Column<R>| Cells {
        about: column.about,
        kind: column.none.clone(),
        cells: column.cells(rows),
        nullable: column.optional || nullable,
    };
    columns.iter().map(cells).collect()
}

/// Writes rows as CSV with a header, without epochs.
pub fn write_csv(rows: &[ResultRow], out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let columns = columns_of(rows);
    csv.write_record(columns.iter().map(|column| column.about.name))?;
    for row in 0..rows.len() {
        csv.write_record(columns.iter().map(|column| column.cells[row].text()))?;
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_columns_name_the_same_figures_in_the_same_order() {
        let (replacements, evictions, write_traffic_blocks) = (Some(0), Some(0), Some(0));
        let whole = || ResultRow { replacements, evictions, write_traffic_blocks, ..ResultRow::default() };
        let (admission, tiers) = (Some("".into()), Some(TierFigures::default()));
        let worn = ResultRow { tiers: tiers.clone(), endurance: Some(EnduranceFigures::default()), ..whole() };
        let array = ResultRow { admission: admission.clone(), array: Some(ArrayFigures::default()), ..whole() };
        // A row with every group at once, so that no figure is in two groups.
        let all = ResultRow {
            tiers,
            admission,
            cache: Some(CacheFigures::default()),
            endurance: Some(EnduranceFigures::default()),
            array: Some(ArrayFigures::default()),
            sample: Some(SampleFigures::default()),
            ..whole()
        };
        let buckets = ResultRow { buckets: Some(BucketFigures::default()), ..whole() };
        for row in [whole(), worn, array, all, buckets] {
            let json = serde_json::to_value(&row).unwrap();
            let in_json: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
            let columns = columns_of(std::slice::from_ref(&row));
            assert_eq!(in_json, columns.iter().map(|column| column.about.name).collect::<Vec<_>>());
        }
    }
}
