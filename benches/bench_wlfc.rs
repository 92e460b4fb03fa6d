//! `make bench-wlfc`: Figures 5 to 8 of the paper on WLFC, in simulation.

use std::path::PathBuf;

use clap::Parser;
use flashwise_benches::wlfc::{
    FLASH_BYTES, Mixed, RandomWrites, Run, TABLE_1, Workload, chart, mixed_table, random_table, range_table, run_all,
    sweep_table,
};
use flashwise_core::quantity::ByteSize;
use flashwise_core::wlfc::{BucketOptions, Refresh};
use flashwise_sim::wlfc::{BucketSettings, System};

/// Runs WLFC, WLFC_c and B_like over random writes, the workloads of Table I and traces, and prints tables.
#[derive(Parser)]
struct Arguments {
    /// Factor by which the data written and the flash are smaller than the paper's.
    #[arg(long, default_value_t = 1)]
    scale: u64,
    /// Ranges of the random writes; the paper names none.
    #[arg(long, value_delimiter = ',', default_values = ["256MiB", "512MiB", "1GiB", "4GiB", "15GiB"])]
    ranges: Vec<ByteSize>,
    /// The range that the chart shows.
    #[arg(long, default_value = "256MiB")]
    shown: ByteSize,
    /// More ranges of the mixed workloads; the paper names none.
    #[arg(long, value_delimiter = ',', default_values = ["128MiB", "256MiB", "384MiB", "512MiB", "544MiB", "1GiB"])]
    mixed_ranges: Vec<ByteSize>,
    /// Traces to run as well.
    #[arg(long, value_delimiter = ',')]
    traces: Vec<String>,
    /// File for the chart.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// 15 GB, as in the paper.
const TOTAL_BYTES: u64 = 15_000_000_000;

struct Plan {
    scale: u64,
    runs: Vec<Run>,
}

impl Plan {
    fn add(&mut self, workload: Workload, systems: &[System], name: &str, settings: &BucketSettings) {
        let run = |system: &System| Run {
            workload: workload.clone(),
            system: *system,
            settings: settings.clone(),
            name: name.to_owned(),
            flash_bytes: FLASH_BYTES / self.scale,
        };
        self.runs.extend(systems.iter().map(run));
    }

    fn print(
        self,
        title: &str,
        table: fn(&[(&Run, &flashwise_sim::results::BucketFigures)]) -> String,
        svg: Option<(&PathBuf, &str)>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let figures = run_all(&self.runs)?;
        let found: Vec<_> = self.runs.iter().zip(&figures).collect();
        println!("{title}\n\n{}", table(&found));
        if let Some((svg, name)) = svg {
            std::fs::write(svg, chart(&found, name))?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { scale, ranges, shown, mixed_ranges, traces, svg } = Arguments::parse();
    let plan = || Plan { scale, runs: Vec::new() };
    let paper = BucketSettings::paper();
    let evict = BucketSettings { options: BucketOptions { refresh: Refresh::Evict, ..paper.options }, ..paper.clone() };
    let random = |kib: u64, range: ByteSize| {
        let (range_bytes, total_bytes) = (range.bytes() / scale, TOTAL_BYTES / scale);
        Workload::Random(RandomWrites { request_bytes: kib << 10, range_bytes, total_bytes })
    };
    let mixed = |row: Mixed| Workload::Mixed(row.scaled(scale as f64));

    let mut writes = plan();
    for range in &ranges {
        for kib in [4, 8, 16, 32, 64, 128, 256] {
            writes.add(random(kib, *range), &[System::Wlfc, System::BLike], &range.to_string(), &paper);
        }
    }
    writes.print(
        "Random writes (Figures 5 and 6)",
        random_table,
        svg.as_ref().map(|svg| (svg, shown.to_string())).as_ref().map(|(svg, name)| (*svg, name.as_str())),
    )?;

    let mut workloads = plan();
    for row in TABLE_1 {
        workloads.add(mixed(row), &System::ALL, "", &paper);
        workloads.add(mixed(row), &System::ALL, "refresh=evict", &evict);
    }
    workloads.print("Mixed workloads (Table I, Figures 7 and 8)", mixed_table, None)?;

    let mut narrow = plan();
    for row in TABLE_1 {
        for range in &mixed_ranges {
            let row = Mixed { range_gib: range.bytes() as f64 / f64::from(1 << 30), ..row };
            narrow.add(mixed(row), &System::ALL, &range.to_string(), &paper);
            narrow.add(mixed(row), &System::ALL, &format!("{range}, refresh=evict"), &evict);
        }
    }
    narrow.print("Mixed workloads by the range that they go to", range_table, None)?;

    if !traces.is_empty() {
        let mut real = plan();
        traces.iter().for_each(|path| real.add(Workload::Trace(path.clone()), &System::ALL, "", &paper));
        real.print("Traces", mixed_table, None)?;
    }

    let mut sweep = plan();
    let systems = [System::Wlfc, System::WlfcC, System::BLike];
    let financial = TABLE_1.into_iter().find(|row| row.name == "Financial").expect("the table has it");
    for workload in [random(4, shown), mixed(financial)] {
        let mut add = |name: String, settings: &BucketSettings| sweep.add(workload.clone(), &systems, &name, settings);
        for bucket in [256, 512, 1024, 2048, 4096] {
            let bucket_bytes = Some(bucket << 10);
            add(format!("bucket {bucket} KiB"), &BucketSettings { bucket_bytes, ..paper.clone() });
        }
        for percent in [10, 30, 50, 70, 90] {
            let options = BucketOptions { write_share: f64::from(percent) / 100.0, ..paper.options };
            add(format!("write queue {percent} %"), &BucketSettings { options, ..paper.clone() });
        }
        for halving in [8, 32, 126, 504, 1_000_000] {
            let options = BucketOptions { halving: Some(halving), ..paper.options };
            add(format!("halving each {halving}"), &BucketSettings { options, ..paper.clone() });
        }
        for journal_logs in [1, 4, 16, 64, 1024] {
            add(
                format!("B_like's journal, logs a page: {journal_logs}"),
                &BucketSettings { journal_logs, ..paper.clone() },
            );
        }
        for percent in [7, 15, 28] {
            let spare = f64::from(percent) / 100.0;
            add(format!("B_like's spare flash {percent} %"), &BucketSettings { spare, ..paper.clone() });
        }
    }
    sweep.print("What the paper does not print", sweep_table, None)
}
