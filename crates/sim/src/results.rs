//! The figures of a run, named once: JSON, CSV, Parquet, tables and the report all show these rows.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, ListArray, RecordBatch, StringArray, StructArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use flashwise_core::access::Op;
use flashwise_core::counters::Counters;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::Serialize;

use crate::simulate::Run;
use crate::trace::Trace;

/// One (trace, policy, size) and what came of it. Definitions are those of [`Counters`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultRow {
    /// The trace as the user named it.
    pub trace: String,
    /// The policy as the user named it.
    pub policy: String,
    /// The cache size as the user gave it.
    pub size: String,
    /// The cache size.
    pub capacity_blocks: u64,
    /// Length of a block.
    pub block_size_bytes: u64,
    /// Different blocks in the whole trace.
    pub unique_blocks: u64,
    /// Accesses at the start that are not counted.
    pub warmup_accesses: u64,
    /// Block accesses counted.
    pub accesses: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Reads that found their block in the cache.
    pub read_hits: u64,
    /// Writes that found their block in the cache.
    pub write_hits: u64,
    /// Both.
    pub hits: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Read hits per read.
    pub read_hit_ratio: f64,
    /// Misses whose block was put into the cache.
    pub admissions: u64,
    /// Read misses among them.
    pub read_admissions: u64,
    /// Write misses among them.
    pub write_admissions: u64,
    /// Admissions that evicted a block.
    pub replacements: u64,
    /// Blocks that left the cache.
    pub evictions: u64,
    /// Misses that left the cache as it was.
    pub bypasses: u64,
    /// Write hits and admissions.
    pub flash_writes_blocks: u64,
    /// The same in bytes.
    pub flash_bytes_written: u64,
    /// Figures over time, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
}

/// Figures of a run of consecutive accesses (Figure 8 of the LARC paper).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Position of the epoch's first access in the trace.
    pub first_access: u64,
    /// Accesses in the epoch.
    pub accesses: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Replacements per access.
    pub replacement_rate: f64,
    /// Write hits and admissions.
    pub flash_writes_blocks: u64,
}

impl ResultRow {
    /// The row of `run`, which ran over `trace`.
    pub fn new(trace: &Trace, run: &Run) -> ResultRow {
        let counters = &run.counters;
        let (read, write) = (counters.of(Op::Read), counters.of(Op::Write));
        ResultRow {
            trace: trace.name().to_owned(),
            policy: run.job.policy.to_string(),
            size: run.job.size.clone(),
            capacity_blocks: run.job.capacity_blocks as u64,
            block_size_bytes: trace.block_size_bytes(),
            unique_blocks: trace.unique_blocks() as u64,
            warmup_accesses: trace.len() as u64 - counters.accesses(),
            accesses: counters.accesses(),
            reads: read.accesses(),
            writes: write.accesses(),
            read_hits: read.hits,
            write_hits: write.hits,
            hits: counters.hits(),
            hit_ratio: counters.hit_ratio(),
            read_hit_ratio: counters.read_hit_ratio(),
            admissions: counters.admissions(),
            read_admissions: read.admissions(),
            write_admissions: write.admissions(),
            replacements: counters.replacements(),
            evictions: counters.evictions(),
            bypasses: counters.bypasses(),
            flash_writes_blocks: counters.flash_writes_blocks(),
            flash_bytes_written: counters.flash_writes_blocks() * trace.block_size_bytes(),
            epochs: epochs(&run.epochs),
        }
    }
}

fn epochs(counters: &[Counters]) -> Vec<Epoch> {
    let mut first_access = 0;
    let epoch = |counters: &Counters| {
        let epoch = Epoch {
            first_access,
            accesses: counters.accesses(),
            hit_ratio: counters.hit_ratio(),
            replacement_rate: counters.replacement_rate(),
            flash_writes_blocks: counters.flash_writes_blocks(),
        };
        first_access += epoch.accesses;
        epoch
    };
    counters.iter().map(epoch).collect()
}

/// A column of results. JSON takes the same names from the fields of [`ResultRow`].
enum Column {
    Text(fn(&ResultRow) -> &str),
    Count(fn(&ResultRow) -> u64),
    Ratio(fn(&ResultRow) -> f64),
}

/// Names each field of [`ResultRow`] once more, with its kind.
macro_rules! columns {
    ($($kind:ident { $($field:ident)* })*) => {
        &[$($((stringify!($field), columns!(@ $kind $field))),*),*]
    };
    (@ Text $field:ident) => { Column::Text(|row| &row.$field) };
    (@ $kind:ident $field:ident) => { Column::$kind(|row| row.$field) };
}

/// The columns of CSV and Parquet, in the order of JSON.
const COLUMNS: &[(&str, Column)] = columns! {
    Text { trace policy size }
    Count { capacity_blocks block_size_bytes unique_blocks warmup_accesses accesses reads writes read_hits write_hits hits }
    Ratio { hit_ratio read_hit_ratio }
    Count { admissions read_admissions write_admissions replacements evictions bypasses flash_writes_blocks flash_bytes_written }
};

/// Writes rows as CSV with a header. Epochs are left out.
pub fn write_csv(rows: &[ResultRow], out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS.iter().map(|(name, _)| name))?;
    for row in rows {
        csv.write_record(COLUMNS.iter().map(|(_, column)| match column {
            Column::Text(field) => field(row).to_owned(),
            Column::Count(field) => field(row).to_string(),
            Column::Ratio(field) => field(row).to_string(),
        }))?;
    }
    csv.flush()
}

/// Rows as the contents of a Parquet file; the epochs of a row are a list in the last column.
pub fn parquet(rows: &[ResultRow]) -> Result<Vec<u8>, ParquetError> {
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for (name, column) in COLUMNS {
        let array: ArrayRef = match column {
            Column::Text(field) => Arc::new(StringArray::from_iter_values(rows.iter().map(field))),
            Column::Count(field) => Arc::new(UInt64Array::from_iter_values(rows.iter().map(field))),
            Column::Ratio(field) => Arc::new(Float64Array::from_iter_values(rows.iter().map(field))),
        };
        fields.push(Field::new(*name, array.data_type().clone(), false));
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
    let field = |(name, array): (&str, ArrayRef)| (Arc::new(Field::new(name, array.data_type().clone(), false)), array);
    let values = StructArray::from(columns.map(field).to_vec());
    let item = Field::new("item", DataType::Struct(values.fields().clone()), false);
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.epochs.len()));
    ListArray::new(Arc::new(item), offsets, Arc::new(values), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_columns_name_the_same_figures_in_the_same_order() {
        let row = ResultRow { trace: "t".to_owned(), ..ResultRow::default() };
        let json = serde_json::to_value(&row).unwrap();
        let in_json: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let in_columns: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(in_json, in_columns);
    }
}
