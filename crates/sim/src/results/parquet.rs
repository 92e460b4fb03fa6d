//! Rows as Arrow columns and as a Parquet file: each figure is a column, named as in JSON.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, ListArray, RecordBatch, StringArray, StructArray, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::output::{Cells, cells_of, columns_of, group_of};
use super::{Epoch, ResultRow};
use crate::array::ArrayEpoch;
use crate::columns::{Cell, Column};

/// Returns rows as columns; the epochs of a row are a list in the last column.
pub fn batch(rows: &[ResultRow]) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut arrays) = arrays(columns_of(rows));
    let epochs = epoch_lists(rows);
    fields.push(Field::new("epochs", arrow_array::Array::data_type(&epochs).clone(), false));
    arrays.push(Arc::new(epochs));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// Returns rows of one table of columns as columns, without those that no row has.
pub fn batch_of<R>(columns: &'static [Column<R>], rows: &[R]) -> Result<RecordBatch, ArrowError> {
    let mut columns = cells_of(columns, &rows.iter().map(Some).collect::<Vec<_>>());
    columns.retain(Cells::is_shown);
    let (fields, arrays) = arrays(columns);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

fn arrays(columns: Vec<Cells>) -> (Vec<Field>, Vec<ArrayRef>) {
    let both = |Cells { about, kind, cells, nullable }: Cells| {
        let array = array_of(&kind, &cells);
        (Field::new(about.name, array.data_type().clone(), nullable), array)
    };
    columns.into_iter().map(both).unzip()
}

/// Returns rows as the contents of a Parquet file, with the columns of [`batch`].
pub fn parquet(rows: &[ResultRow]) -> Result<Vec<u8>, ParquetError> {
    written(&batch(rows)?)
}

/// Returns columns as the contents of a Parquet file.
pub fn written(batch: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(batch)?;
    writer.into_inner()
}

fn epoch_lists(rows: &[ResultRow]) -> ListArray {
    let epochs: Vec<&Epoch> = rows.iter().flat_map(|row| &row.epochs).collect();
    let mut columns = cells_of(Epoch::COLUMNS, &epochs.iter().copied().map(Some).collect::<Vec<_>>());
    columns.retain(Cells::is_shown);
    columns.extend(group_of(ArrayEpoch::COLUMNS, &epochs.iter().map(|epoch| epoch.array.as_ref()).collect::<Vec<_>>()));
    let field = |Cells { about, kind, cells, nullable }: Cells| {
        let array = array_of(&kind, &cells);
        (Arc::new(Field::new(about.name, array.data_type().clone(), nullable)), array)
    };
    let values = StructArray::from(columns.into_iter().map(field).collect::<Vec<_>>());
    let item = Field::new("item", DataType::Struct(values.fields().clone()), false);
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.epochs.len()));
    ListArray::new(Arc::new(item), offsets, Arc::new(values), None)
}

/// Returns the cells of a column, of the type of `kind`, as an Arrow array.
fn array_of(kind: &Cell, cells: &[Cell]) -> ArrayRef {
    fn of<T>(cells: &[Cell], value: impl Fn(&Cell) -> Option<T>) -> Vec<Option<T>> {
        cells.iter().map(value).collect()
    }
    match kind {
        Cell::Count(_) => {
            let counts = of(cells, |cell| if let Cell::Count(value) = cell { *value } else { None });
            Arc::new(UInt64Array::from(counts))
        }
        Cell::Ratio(_) => {
            let ratios = of(cells, |cell| if let Cell::Ratio(value) = cell { *value } else { None });
            Arc::new(Float64Array::from(ratios))
        }
        Cell::Text(_) => {
            let texts = of(cells, |cell| if let Cell::Text(value) = cell { value.clone() } else { None });
            Arc::new(StringArray::from(texts))
        }
    }
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
}
