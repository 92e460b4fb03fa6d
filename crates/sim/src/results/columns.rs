//! Rows as CSV and Parquet: each figure is a column, named as in JSON.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, ListArray, RecordBatch, StringArray, StructArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{CacheFigures, EnduranceFigures, Epoch, RamFigures, ResultRow};
use crate::array::{ArrayEpoch, ArrayFigures};

/// A column of results. JSON takes the same names from the fields of [`ResultRow`].
enum Column<R> {
    Text(fn(&R) -> &str),
    Count(fn(&R) -> u64),
    Ratio(fn(&R) -> f64),
    MaybeText(fn(&R) -> Option<&str>),
    MaybeCount(fn(&R) -> Option<u64>),
    MaybeRatio(fn(&R) -> Option<f64>),
}

/// Names each field of a row once more, with its kind.
macro_rules! columns {
    ($($kind:ident { $($field:ident)* })*) => {
        &[$($((stringify!($field), columns!(@ $kind $field))),*),*]
    };
    (@ Text $field:ident) => { Column::Text(|row| &row.$field) };
    (@ MaybeText $field:ident) => { Column::MaybeText(|row| row.$field.as_deref()) };
    (@ $kind:ident $field:ident) => { Column::$kind(|row| row.$field) };
}

/// The columns of CSV and Parquet, in the order of JSON.
const COLUMNS: &[(&str, Column<ResultRow>)] = columns! {
    Text { trace policy size }
    Count { capacity_blocks block_size_bytes unique_blocks warmup_accesses accesses reads writes read_hits write_hits hits }
    Ratio { hit_ratio read_hit_ratio }
    Count { admissions read_admissions write_admissions }
    MaybeCount { replacements evictions write_traffic_blocks }
    Count { bypasses flash_writes_blocks flash_bytes_written }
};

/// The columns that follow where policies stand behind RAM.
const RAM_COLUMNS: &[(&str, Column<RamFigures>)] = columns! { Count { ram_bytes ram_hits } };

/// The columns that follow where whole caches were simulated.
const CACHE_COLUMNS: &[(&str, Column<CacheFigures>)] = columns! {
    Text { admission write_mode }
    Count { flash_bytes ram_bytes ram_hits ram_write_hits flash_hits }
    Count { flash_client_blocks flash_admission_blocks flash_copy_forward_blocks dropped_blocks flash_metadata_blocks erasures }
    Ratio { host_write_amplification }
    Count { destaged_blocks backend_read_blocks backend_written_blocks sequential_blocks }
    Count { refused_read_blocks refused_write_blocks filtered_blocks }
};

/// The columns that follow where endurance was simulated.
const ENDURANCE_COLUMNS: &[(&str, Column<EnduranceFigures>)] = columns! {
    Text { layout }
    Count { erase_unit_bytes erase_units }
    Ratio { over_provision }
    Count { ram_bytes }
    Ratio { rhr }
    Count { ram_hits flash_hits erasures }
    MaybeRatio { epbpd fue wfue }
    Ratio { wfue_alpha }
    MaybeRatio { host_write_amplification device_write_amplification write_amplification }
    Count { client_blocks admission_blocks copy_forward_blocks device_programs_pages device_copies_pages }
    MaybeRatio { live_at_eviction }
    Count { wear_min }
    Ratio { wear_mean }
    Count { wear_max }
    Ratio { wear_deviation }
    MaybeRatio { days flash_bytes_per_day drive_writes_per_day drive_writes_budget_used }
    MaybeText { device }
    MaybeRatio { flash_lifetime_years }
};

/// The columns that follow where an array was simulated.
const ARRAY_COLUMNS: &[(&str, Column<ArrayFigures>)] = columns! {
    Text { admission arrivals }
    Ratio { latency_mean_us latency_p50_us latency_p95_us latency_p99_us latency_p999_us latency_max_us }
    MaybeRatio { requests_per_s cache_utilisation storage_utilisation }
    Ratio { lifetime_years latency_over_lifetime cache_write_rate storage_write_rate }
    Count { bypassed }
};

/// What epochs have besides, where an array was simulated.
const ARRAY_EPOCH_COLUMNS: &[(&str, Column<ArrayEpoch>)] = columns! {
    Ratio { start_s seconds miss_ratio write_share latency_mean_us }
    Ratio { cache_write_rate storage_write_rate cache_wear_rate storage_wear_rate }
    MaybeRatio { threshold threshold_position }
    MaybeText { chosen_policy }
};

/// A column's name, and its cells as text or as an array.
struct Cells {
    name: &'static str,
    text: Vec<String>,
    array: ArrayRef,
    nullable: bool,
}

/// All columns of the rows: those of every row, and those of groups of figures that some rows have.
fn columns_of(rows: &[ResultRow]) -> Vec<Cells> {
    fn cells<'a, R: 'a>(columns: &'static [(&'static str, Column<R>)], rows: Vec<Option<&'a R>>) -> Vec<Cells> {
        if rows.iter().all(Option::is_none) {
            return Vec::new();
        }
        let cells = |(name, column): &'static (&'static str, Column<R>)| Cells {
            name,
            text: rows.iter().map(|row| row.map(|row| column.text(row)).unwrap_or_default()).collect(),
            array: column.array(&rows),
            nullable: column.nullable() || rows.iter().any(Option::is_none),
        };
        columns.iter().map(cells).collect()
    }
    let mut all = cells(COLUMNS, rows.iter().map(Some).collect());
    all.extend(cells(RAM_COLUMNS, rows.iter().map(|row| row.ram.as_ref()).collect()));
    all.extend(cells(CACHE_COLUMNS, rows.iter().map(|row| row.cache.as_ref()).collect()));
    all.extend(cells(ENDURANCE_COLUMNS, rows.iter().map(|row| row.endurance.as_ref()).collect()));
    all.extend(cells(ARRAY_COLUMNS, rows.iter().map(|row| row.array.as_ref()).collect()));
    all
}

impl<R> Column<R> {
    fn text(&self, row: &R) -> String {
        fn maybe(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        match self {
            Column::Text(field) => field(row).to_owned(),
            Column::Count(field) => field(row).to_string(),
            Column::Ratio(field) => field(row).to_string(),
            Column::MaybeText(field) => maybe(field(row)),
            Column::MaybeCount(field) => maybe(field(row)),
            Column::MaybeRatio(field) => maybe(field(row)),
        }
    }

    /// The cells of some rows; null of those that have none of the group.
    fn array(&self, rows: &[Option<&R>]) -> ArrayRef {
        let rows = rows.iter().copied();
        match self {
            Column::Text(field) => Arc::new(rows.map(|row| row.map(field)).collect::<StringArray>()),
            Column::Count(field) => Arc::new(rows.map(|row| row.map(field)).collect::<UInt64Array>()),
            Column::Ratio(field) => Arc::new(rows.map(|row| row.map(field)).collect::<Float64Array>()),
            Column::MaybeText(field) => Arc::new(rows.map(|row| row.and_then(field)).collect::<StringArray>()),
            Column::MaybeCount(field) => Arc::new(rows.map(|row| row.and_then(field)).collect::<UInt64Array>()),
            Column::MaybeRatio(field) => Arc::new(rows.map(|row| row.and_then(field)).collect::<Float64Array>()),
        }
    }

    fn nullable(&self) -> bool {
        matches!(self, Column::MaybeText(_) | Column::MaybeCount(_) | Column::MaybeRatio(_))
    }
}

/// Writes rows as CSV with a header. Epochs are left out.
pub fn write_csv(rows: &[ResultRow], out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let columns = columns_of(rows);
    csv.write_record(columns.iter().map(|column| column.name))?;
    for row in 0..rows.len() {
        csv.write_record(columns.iter().map(|column| &column.text[row]))?;
    }
    csv.flush()
}

/// Rows as the contents of a Parquet file; the epochs of a row are a list in the last column.
pub fn parquet(rows: &[ResultRow]) -> Result<Vec<u8>, ParquetError> {
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for Cells { name, array, nullable, .. } in columns_of(rows) {
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
    let epochs = || rows.iter().flat_map(|row| &row.epochs);
    let count = |figure: fn(&Epoch) -> u64| Arc::new(UInt64Array::from_iter_values(epochs().map(figure))) as ArrayRef;
    let ratio = |figure: fn(&Epoch) -> f64| Arc::new(Float64Array::from_iter_values(epochs().map(figure))) as ArrayRef;
    let columns = [
        ("first_access", count(|epoch| epoch.first_access)),
        ("accesses", count(|epoch| epoch.accesses)),
        ("hit_ratio", ratio(|epoch| epoch.hit_ratio)),
        ("replacement_rate", ratio(|epoch| epoch.replacement_rate)),
        ("flash_writes_blocks", count(|epoch| epoch.flash_writes_blocks)),
    ];
    let mut columns: Vec<_> = columns.into_iter().map(|(name, array)| (name, array, false)).collect();
    if epochs().any(|epoch| epoch.erasures.is_some()) {
        let erasures: UInt64Array = epochs().map(|epoch| epoch.erasures).collect();
        columns.push(("erasures", Arc::new(erasures), true));
    }
    let of_array: Vec<_> = epochs().map(|epoch| epoch.array.as_ref()).collect();
    if of_array.iter().any(Option::is_some) {
        let column = |(name, column): &(&'static str, Column<ArrayEpoch>)| {
            (*name, column.array(&of_array), column.nullable() || of_array.iter().any(Option::is_none))
        };
        columns.extend(ARRAY_EPOCH_COLUMNS.iter().map(column));
    }
    let field = |(name, array, nullable): (&str, ArrayRef, bool)| {
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
        let row = ResultRow { cache: Some(CacheFigures::default()), ..whole() };
        let worn = ResultRow { endurance: Some(EnduranceFigures::default()), ..whole() };
        let array = ResultRow { array: Some(ArrayFigures::default()), ..whole() };
        for row in [whole(), row, worn, array] {
            let json = serde_json::to_value(&row).unwrap();
            let in_json: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
            let columns = columns_of(std::slice::from_ref(&row));
            assert_eq!(in_json, columns.iter().map(|column| column.name).collect::<Vec<_>>());
        }
    }
}
