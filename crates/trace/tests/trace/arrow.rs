//! Trace files are Arrow IPC files. The reader of the crate arrow-ipc finds the written values in them, and files of
//! its writer are read as traces.

use std::collections::HashMap;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};
use flashwise_trace::Trace;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;
use flashwise_trace::tools::convert::convert;

/// Several batches and a part of one, with times and requests that zstd makes shorter.
const REQUESTS: usize = 300_000;

/// Returns a persistent trace file, packed and with checksums, and a temporary one.
fn files(folder: &Path) -> [Vec<u8>; 2] {
    let contents = crate::fixtures::all(2000).swap_remove(0).contents.repeat(REQUESTS / 2000);
    let (original, kept) = (folder.join("trace.csv"), folder.join("kept.arrow"));
    fs::write(&original, &contents).unwrap();
    convert(&original, &kept, &Settings::default(), &Silent).unwrap();
    let input = crate::fixtures::input(contents).unwrap();
    [fs::read(kept).unwrap(), normalised::normalise(input, &Settings::default(), Vec::new()).unwrap()]
}

fn open(folder: &Path, bytes: &[u8]) -> Result<Trace, String> {
    let path = folder.join("opened.arrow");
    fs::write(&path, bytes).unwrap();
    Trace::open(&path).map_err(|error| error.to_string())
}

fn reader(bytes: Vec<u8>) -> FileReader<Cursor<Vec<u8>>> {
    FileReader::try_new(Cursor::new(bytes), None).unwrap()
}

fn schema() -> Schema {
    let addresses = DataType::Dictionary(DataType::Int32.into(), DataType::UInt64.into());
    let fields = vec![
        Field::new("time_us", DataType::Int64, false),
        Field::new("op", DataType::UInt8, false),
        Field::new("block", addresses, false),
        Field::new("request", DataType::UInt64, false),
        Field::new("request_blocks", DataType::UInt32, false),
    ];
    let metadata = [("flashwise.trace.version", "2"), ("flashwise.trace.block_size_bytes", "4096")];
    Schema::new(fields).with_metadata(HashMap::from(metadata.map(|(key, value)| (key.to_owned(), value.to_owned()))))
}

#[test]
fn the_reader_of_arrow_finds_all_written_rows() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in files(folder.path()) {
        let trace = open(folder.path(), &bytes).unwrap();
        let reader = reader(bytes);
        assert_eq!(*reader.schema(), schema());
        let said: HashMap<String, String> = reader.custom_metadata().clone();
        let description = serde_json::to_string(trace.description()).unwrap();
        assert_eq!(said["flashwise.trace.description"], description);
        let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        assert_eq!(batches.len(), trace.batches().len());
        assert!(batches.len() > 2, "{} batches", batches.len());
        for (found, expected) in batches.iter().zip(trace.batches()) {
            assert!(found.columns().iter().all(|column| column.null_count() == 0));
            assert_eq!(found.column(0).as_primitive::<Int64Type>().values()[..], expected.time_us[..]);
            assert_eq!(found.column(1).as_primitive::<UInt8Type>().values()[..], expected.op[..]);
            let block = found.column(2).as_dictionary::<Int32Type>();
            assert_eq!(block.keys().values()[..], expected.block[..]);
            assert_eq!(block.values().as_primitive::<UInt64Type>().values()[..], *trace.addresses());
            assert_eq!(found.column(3).as_primitive::<UInt64Type>().values()[..], expected.request[..]);
            assert_eq!(found.column(4).as_primitive::<UInt32Type>().values()[..], expected.request_blocks[..]);
        }
    }
}

/// Returns the file that arrow's writer makes of a few rows and the description of another trace.
fn of_arrow(folder: &Path, compression: Option<CompressionType>, schema: Schema) -> Vec<u8> {
    let described = open(folder, &files(folder)[1]).unwrap();
    let block = DictionaryArray::new(Int32Array::from(vec![0, 1, 0]), Arc::new(UInt64Array::from(vec![7, 9])));
    let columns: [ArrayRef; 5] = [
        Arc::new(Int64Array::from(vec![0, 10, 20])),
        Arc::new(UInt8Array::from(vec![0, 1, 1])),
        Arc::new(block),
        Arc::new(UInt64Array::from(vec![0, 1, 1 << 40])),
        Arc::new(UInt32Array::from(vec![1, 2, 3])),
    ];
    let columns = columns[..schema.fields().len()].to_vec();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
    writer.write_metadata("flashwise.trace.description", serde_json::to_string(described.description()).unwrap());
    writer.write(&RecordBatch::try_new(Arc::new(schema), columns).unwrap()).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn a_file_of_the_writer_of_arrow_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for compression in [None, Some(CompressionType::ZSTD)] {
        let trace = open(folder.path(), &of_arrow(folder.path(), compression, schema())).unwrap();
        let columns = trace.batches().next().unwrap();
        assert_eq!((&columns.time_us[..], &columns.op[..]), (&[0, 10, 20][..], &[0, 1, 1][..]));
        assert_eq!((&columns.block[..], trace.addresses()), (&[0, 1, 0][..], &[7, 9][..]));
        assert_eq!((&columns.request[..], &columns.request_blocks[..]), (&[0, 1, 1 << 40][..], &[1, 2, 3][..]));
        assert_eq!(trace.block_size_bytes(), 4096);
    }
}

#[test]
fn other_files_of_the_writer_of_arrow_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |schema: Schema| open(folder.path(), &of_arrow(folder.path(), None, schema)).unwrap_err();
    let other = refusal(schema().with_metadata(HashMap::<String, String>::new()));
    assert!(
        other.contains("found an Arrow file of another schema, expected schema metadata flashwise.trace.version = 2")
    );
    let short = refusal(schema().project(&[0, 1]).unwrap());
    let expected = "found columns time_us: Int64, op: UInt8, expected columns time_us: Int64, op: UInt8, \
                    block: Dictionary(Int32, UInt64), request: UInt64, request_blocks: UInt32";
    assert!(short.ends_with(expected), "{short}");
}
