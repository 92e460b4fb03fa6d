//! The rows of a sweep, read back from its files.

use std::collections::BTreeMap;
use std::path::Path;

use arrow_array::{Array, Float64Array, RecordBatch, StringArray, UInt64Array};
use bytes::Bytes;
use flashwise_trace::output::name_of;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::SweepError;
use super::folder::Folder;
use crate::results::Brief;

/// Rows, and notes about them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The rows by trace, in the order of their jobs; each job once per trace.
    pub rows: Vec<Brief>,
    /// Notes about rows left out, one line per trace. A newer file has rows of the same job over the same trace, which
    /// has changed since, or from another version.
    pub stale: Vec<String>,
}

/// Reads the rows of all Parquet files in `folder`, a path or a prefix in S3.
///
/// # Errors
/// The folder has no such file, or a file is not from a sweep.
pub fn rows(folder: &Path) -> Result<Rows, SweepError> {
    let results = Folder::open(folder)?;
    let mut files = results.list()?;
    files.retain(|(_, name)| Path::new(name).extension().is_some_and(|end| end == "parquet"));
    if files.is_empty() {
        let problem = "found no file that ends in .parquet, expected the folder of a sweep".to_owned();
        return Err(SweepError::NotResults { path: name_of(folder), problem });
    }
    // The newest is last, and replaces older rows.
    files.sort();
    let (mut by_trace, mut stale) = (BTreeMap::<String, Vec<(Brief, String)>>::new(), BTreeMap::new());
    for (_, name) in files {
        let path = folder.join(&name);
        // A file removed meanwhile does not count.
        let Some(contents) = results.read(&name)? else { continue };
        for (row, origin) in read(&path, contents)? {
            let of_trace = by_trace.entry(row.trace.clone()).or_default();
            match of_trace.iter_mut().find(|(known, _)| known.job == row.job) {
                None => of_trace.push((row, origin)),
                Some(known) => {
                    if known.1 != origin {
                        let said = format!(
                            "{}: {} has newer results of it, older ones are left out",
                            row.trace,
                            name_of(&path)
                        );
                        stale.insert(row.trace.clone(), said);
                    }
                    *known = (row, origin);
                }
            }
        }
    }
    let rows = by_trace.into_values().flatten().map(|(row, _)| row).collect();
    Ok(Rows { rows, stale: stale.into_values().collect() })
}

/// Returns the rows of a file, each with the checksum and version that it came from.
fn read(path: &Path, contents: Vec<u8>) -> Result<Vec<(Brief, String)>, SweepError> {
    let refused = |problem: String| SweepError::NotResults { path: name_of(path), problem };
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(contents)).and_then(|builder| builder.build());
    let mut rows = Vec::new();
    for batch in reader.map_err(|error| refused(error.to_string()))? {
        let batch = batch.map_err(|error| refused(error.to_string()))?;
        let text = |name: &str| column::<StringArray>(&batch, name).map_err(refused);
        let count = |name: &str| column::<UInt64Array>(&batch, name).map_err(refused);
        let ratio = |name: &str| column::<Float64Array>(&batch, name).map_err(refused);
        let (traces, policies, sizes, jobs) = (text("trace")?, text("policy")?, text("size")?, text("job")?);
        let (checksums, versions) = (text("trace_checksum")?, text("version")?);
        let (capacities, accesses) = (count("capacity_blocks")?, count("accesses")?);
        let (hits, read_hits, writes) = (ratio("hit_ratio")?, ratio("read_hit_ratio")?, count("flash_writes_blocks")?);
        for at in 0..batch.num_rows() {
            let of = |texts: &StringArray| if texts.is_null(at) { String::new() } else { texts.value(at).to_owned() };
            let row = Brief {
                trace: of(traces),
                policy: of(policies),
                size: of(sizes),
                capacity_blocks: capacities.value(at),
                accesses: accesses.value(at),
                hit_ratio: hits.value(at),
                read_hit_ratio: read_hits.value(at),
                flash_writes_blocks: writes.value(at),
                job: of(jobs),
            };
            rows.push((row, format!("{} {}", of(checksums), of(versions))));
        }
    }
    Ok(rows)
}

fn column<'a, T: 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a T, String> {
    let array = batch.column_by_name(name).and_then(|array| array.as_any().downcast_ref());
    array.ok_or_else(|| format!("found no column '{name}' of its kind, expected the results of a sweep"))
}
