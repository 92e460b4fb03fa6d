//! What reading a trace costs, from a file in the page cache to a mapped trace on all cores: nanoseconds per access of an
//! oracleGeneral trace with Zipf-distributed objects, and lines per second of CSV traces, parsed alone and normalised.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flashwise_benches::{ZIPF_ACCESSES, seconds, zipf};
use flashwise_core::access::Op;
use flashwise_sim::formats::{FormatSpec, Sample};
use flashwise_sim::input::Input;
use flashwise_sim::normalise::{Settings, open, parse};
use flashwise_sim::progress::Silent;

const RUNS: usize = 3;
const BLOCK_SIZE_BYTES: u64 = 4096;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |title: &str| only.is_empty() || only.iter().any(|name| title.starts_with(name.as_str()));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let accesses = ZIPF_ACCESSES as f64;
    println!("{:40} {:>12} {:>12}", "", "least", "median");
    let path = directory.path().join("objects");
    if wanted("oracle-general") {
        write(&path, |out, _, block, _| {
            let record = [&[0; 4][..], &block.to_le_bytes(), &512_u32.to_le_bytes(), &(-1_i64).to_le_bytes()];
            out.write_all(&record.concat())
        });
        let (least, median) = seconds(RUNS, || normalised(&path, "oracle-general"));
        let ns = 1e9 / accesses;
        println!("{:40} {:9.1} ns {:9.1} ns", "oracle-general, per access", least * ns, median * ns);
    }
    for (title, spec, line) in CSV.into_iter().filter(|(title, ..)| wanted(title)) {
        write(&path, line);
        let show = |what: &str, (least, median): (f64, f64)| {
            let rate = accesses / 1e6;
            println!("{:40} {:8.2} M/s {:8.2} M/s", format!("{title}, {what}"), rate / least, rate / median);
        };
        show("lines parsed", seconds(RUNS, || parsed(&path, spec)));
        show("lines normalised", seconds(RUNS, || normalised(&path, spec)));
    }
}

type Line = fn(&mut dyn Write, usize, u64, Op) -> std::io::Result<()>;

const CSV: [(&str, &str, Line); 3] = [
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
    let trace = open(&path.display().to_string(), &settings, &Silent).expect("the trace can be read");
    assert_eq!(trace.len(), ZIPF_ACCESSES);
}

fn parsed(path: &Path, spec: &str) {
    let mut input = Input::open(&path.display().to_string(), &Silent).expect("the trace can be read");
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
