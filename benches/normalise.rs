//! Time to read a trace, per access on all cores. The file is in the page cache; the result is parsed requests, or a
//! mapped trace.
//!
//! The traces are oracleGeneral and CSV. Their requests have one block each and follow Zipf's law.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flashwise_benches::{ZIPF_ACCESSES, processor_seconds, seconds, zipf};
use flashwise_core::access::Op;
use flashwise_trace::formats::{FormatSpec, Sample};
use flashwise_trace::input::Input;
use flashwise_trace::normalised::{Settings, open, parse};
use flashwise_trace::progress::Silent;

const RUNS: usize = 3;
const BLOCK_SIZE_BYTES: u64 = 4096;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |title: &str| only.is_empty() || only.iter().any(|name| title.starts_with(name.as_str()));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    println!("{:34} {:>12} {:>12} {:>18}", "", "wall, least", "wall, median", "processor, mean");
    let path = directory.path().join("trace");
    for (title, spec, record) in TRACES.into_iter().filter(|(title, ..)| wanted(title)) {
        write(&path, record);
        show(&format!("{title}, parsed"), || parsed(&path, spec));
        show(&format!("{title}, normalised"), || normalised(&path, spec));
    }
}

/// Prints the cost of `work` per access.
fn show(what: &str, work: impl FnMut()) {
    let before = processor_seconds();
    let (least, median) = seconds(RUNS, work);
    let processor = (processor_seconds() - before) / RUNS as f64;
    let ns = 1e9 / ZIPF_ACCESSES as f64;
    println!("{what:34} {:9.1} ns {:9.1} ns {:15.1} ns", least * ns, median * ns, processor * ns);
}

type Line = fn(&mut dyn Write, usize, u64, Op) -> std::io::Result<()>;

const TRACES: [(&str, &str, Line); 4] = [
    ("oracle-general", "oracle-general", |out, _, block, _| {
        let record = [&[0; 4][..], &block.to_le_bytes(), &512_u32.to_le_bytes(), &(-1_i64).to_le_bytes()];
        out.write_all(&record.concat())
    }),
    ("csv of 4 columns", "csv:time=0,op=1,offset=2,length=3", |out, at, block, op| {
        writeln!(out, "{at},{},{},4096", letter(op), block * BLOCK_SIZE_BYTES)
    }),
    ("alibaba", "alibaba", |out, at, block, op| {
        writeln!(out, "7,{},{},4096,{at}", letter(op), block * BLOCK_SIZE_BYTES)
    }),
    ("msr", "msr", |out, at, block, op| {
        let op = if op == Op::Read { "Read" } else { "Write" };
        writeln!(out, "{},hm,0,{op},{},4096,51980", 128_166_385_295_514_663 + at, block * BLOCK_SIZE_BYTES)
    }),
];

fn letter(op: Op) -> char {
    if op == Op::Read { 'R' } else { 'W' }
}

fn write(path: &Path, record: Line) {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a temporary file can be made"));
    for (at, (block, op)) in zipf(ZIPF_ACCESSES).enumerate() {
        record(&mut out, at, block, op).expect("the trace can be written");
    }
    out.flush().expect("the trace can be written");
}

fn normalised(path: &Path, spec: &str) {
    let settings = Settings { format: Some(spec.parse().expect("the format is known")), ..Settings::default() };
    let trace = open(path, &settings, &Silent).expect("the trace can be read");
    assert_eq!(trace.len(), ZIPF_ACCESSES);
}

fn parsed(path: &Path, spec: &str) {
    let mut input = Input::open(path, &Silent).expect("the trace can be read");
    let mut head = vec![0; 64 << 10];
    input.fill(&mut head).expect("the trace can be read");
    let spec: FormatSpec = spec.parse().expect("the format is known");
    let sample = Sample { bytes: &head, whole: false };
    let parser = spec.parser(&sample, BLOCK_SIZE_BYTES).expect("the format's options are right");
    let mut requests = 0;
    parse(&mut input, head, &*parser, |batch, _| {
        requests += batch.requests.len();
        Ok(())
    })
    .expect("the trace can be read");
    assert_eq!(requests, ZIPF_ACCESSES);
}
