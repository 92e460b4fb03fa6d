//! Rows as CSV and Parquet: each figure is a column, named as in JSON.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ListArray, RecordBatch, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{BucketFigures, CacheFigures, EnduranceFigures, Epoch, RamFigures, ResultRow, TierFigures};
use crate::array::{ArrayEpoch, ArrayFigures};
use crate::columns::{Cell, Column, array_of};
use crate::sampling::SampleFigures;

/// A column's name and its cells.
struct Cells {
    name: &'static str,
    /// A cell of its kind.
    kind: Cell,
    cells: Vec<Cell>,
    nullable: bool,
}

impl Cells {
    /// Whether any row has the figure, or all must have it.
    fn is_shown(&self) -> bool {
        !self.nullable || self.cells.iter().any(|cell| *cell != self.kind)
    }
}

/// All columns of the rows: those of every row, and those of groups of figures that some rows have.
fn columns_of(rows: &[ResultRow]) -> Vec<Cells> {
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
fn group_of<R>(columns: &'static [Column<R>], rows: &[Option<&R>]) -> Vec<Cells> {
    if rows.iter().all(Option::is_none) { Vec::new() } else { cells_of(columns, rows) }
}

fn cells_of<R>(columns: &'static [Column<R>], rows: &[Option<&R>]) -> Vec<Cells> {
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

/// Rows as the contents of a Parquet file; the epochs of a row are a list in the last column.
pub fn parquet(rows: &[ResultRow]) -> Result<Vec<u8>, ParquetError> {
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for Cells { name, kind, cells, nullable } in columns_of(rows) {
        let array = array_of(&kind, &cells);
        fields.push(Field::new(name, array.data_type().clone(), nullable));
        arrays.push(array);
    }
    let epochs = epoch_lists(rows);
    fields.push(Field::new("epochs", arrow::array::Array::data_type(&epochs).clone(), false));
    arrays.push(Arc::new(epochs));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn epoch_lists(rows: &[ResultRow]) -> ListArray {
    let epochs: Vec<&Epoch> = rows.iter().flat_map(|row| &row.epochs).collect();
    let mut columns = cells_of(Epoch::COLUMNS, &epochs.iter().copied().map(Some).collect::<Vec<_>>());
    columns.retain(Cells::is_shown);
    columns.extend(group_of(ArrayEpoch::COLUMNS, &epochs.iter().map(|epoch| epoch.array.as_ref()).collect::<Vec<_>>()));
    let field = |Cells { name, kind, cells, nullable }: Cells| {
        let array = array_of(&kind, &cells);
        (Arc::new(Field::new(name, array.data_type().clone(), nullable)), array)
    };
    let values = StructArray::from(columns.into_iter().map(field).collect::<Vec<_>>());
    let item = Field::new("item", DataType::Struct(values.fields().clone()), false);
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.epochs.len()));
    ListArray::new(Arc::new(item), offsets, Arc::new(values), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last columns of an epoch are those of the array.
    #[test]
    fn json_and_parquet_name_the_same_figures_of_epochs() {
        let array = Some(ArrayEpoch::default());
        let epoch = Epoch {
            first_access: 0,
            accesses: 1,
            hit_ratio: 0.0,
            replacement_rate: 0.0,
            flash_writes_blocks: 0,
            erasures: Some(0),
            array,
        };
        let json = serde_json::to_value(&epoch).unwrap();
        let in_json: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        let lists = epoch_lists(&[ResultRow { epochs: vec![epoch], ..ResultRow::default() }]);
        let DataType::Struct(fields) = lists.value_type() else { panic!("a list of records") };
        assert_eq!(in_json, fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>());
    }

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
