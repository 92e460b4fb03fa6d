//! Rows as columns, and as CSV: each figure is a column, named as in JSON.

use std::io::Write;

use super::{BucketFigures, CacheFigures, EnduranceFigures, RamFigures, ResultRow, TierFigures};
use crate::array::ArrayFigures;
use crate::columns::{Cell, Column};
use crate::sampling::SampleFigures;

/// A column's name and its cells.
pub struct Cells {
    pub name: &'static str,
    /// A cell of its kind.
    pub kind: Cell,
    pub cells: Vec<Cell>,
    pub nullable: bool,
}

impl Cells {
    /// Whether any row has the figure, or all must have it.
    pub fn is_shown(&self) -> bool {
        !self.nullable || self.cells.iter().any(|cell| *cell != self.kind)
    }
}

/// All columns of the rows: those of every row, and those of groups of figures that some rows have.
pub fn columns_of(rows: &[ResultRow]) -> Vec<Cells> {
    let mut all = cells_of(ResultRow::COLUMNS, &rows.iter().map(Some).collect::<Vec<_>>());
    // Of a row itself, what no row has is left out.
    all.retain(Cells::is_shown);
    all.extend(group_of(RamFigures::COLUMNS, &rows.iter().map(|row| row.ram.as_ref()).collect::<Vec<_>>()));
    all.extend(group_of(TierFigures::COLUMNS, &rows.iter().map(|row| row.tiers.as_ref()).collect::<Vec<_>>()));
    all.extend(group_of(CacheFigures::COLUMNS, &rows.iter().map(|row| row.cache.as_ref()).collect::<Vec<_>>()));
    all.extend(group_of(BucketFigures::COLUMNS, &rows.iter().map(|row| row.buckets.as_ref()).collect::<Vec<_>>()));
    all.extend(group_of(EnduranceFigures::COLUMNS, &rows.iter().map(|row| row.endurance.as_ref()).collect::<Vec<_>>()));
    all.extend(group_of(ArrayFigures::COLUMNS, &rows.iter().map(|row| row.array.as_ref()).collect::<Vec<_>>()));
    all.extend(group_of(SampleFigures::COLUMNS, &rows.iter().map(|row| row.sample.as_ref()).collect::<Vec<_>>()));
    all
}

/// The columns of a group of figures, if any of the rows has it.
pub fn group_of<R>(columns: &'static [Column<R>], rows: &[Option<&R>]) -> Vec<Cells> {
    if rows.iter().all(Option::is_none) { Vec::new() } else { cells_of(columns, rows) }
}

pub fn cells_of<R>(columns: &'static [Column<R>], rows: &[Option<&R>]) -> Vec<Cells> {
    let nullable = rows.iter().any(Option::is_none);
    let cells = |column: &'static Column<R>| Cells {
        name: column.name,
        kind: column.none.clone(),
        cells: column.cells(rows),
        nullable: column.optional || nullable,
    };
    columns.iter().map(cells).collect()
}

/// Writes rows as CSV with a header. Epochs are left out.
pub fn write_csv(rows: &[ResultRow], out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let columns = columns_of(rows);
    csv.write_record(columns.iter().map(|column| column.name))?;
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
        let (admission, tiers) = (Some(String::new()), Some(TierFigures::default()));
        let worn = ResultRow { tiers: tiers.clone(), endurance: Some(EnduranceFigures::default()), ..whole() };
        let array = ResultRow { admission: admission.clone(), array: Some(ArrayFigures::default()), ..whole() };
        // Everything that a row can have at a time, so that no figure stands in two groups.
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
            assert_eq!(in_json, columns.iter().map(|column| column.name).collect::<Vec<_>>());
        }
    }
}
