//! `flashwise capture`: records the requests to a block device.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use flashwise_core::human;
use flashwise_core::quantity::{ByteSize, Duration};
use flashwise_storage::offline::capture::{Capture as Tracing, Device};
use flashwise_storage::record::segments::Limits;
use flashwise_storage::record::{self, LIMIT_BYTES_MIN, Recorder};
use flashwise_storage::status::RecordingState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Misuse;
use crate::input::parse_time;
use crate::log::{note, warning};

/// Record the requests to a block device as a trace
///
/// Needs root and the kernel's tracepoints. Ends with Ctrl-C, after --time, or when the files are full. Read the files
/// like a server's recording: flashwise simulate --join FILES. Reads that the page cache answers do not reach the
/// device and are not recorded. On other systems use `blktrace -d DEVICE -o - | blkparse -i -`, whose output flashwise
/// reads as format blkparse.
#[derive(Debug, Args)]
pub struct Capture {
    /// Whole block device, such as /dev/sdb, or one of a volume manager
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// Output, not on the device itself; FILE.csv.zst or FILE.csv becomes FILE.000001.csv.zst and so on
    #[arg(long, value_name = "FILE", default_value = "capture.csv.zst", value_parser = parse_out)]
    out: PathBuf,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    time: Option<Duration>,
    /// Start a new file at this size
    #[arg(long, value_name = "SIZE", default_value = record::SEGMENT_SIZE)]
    segment_size: ByteSize,
    /// Stop when all files, also of earlier starts, reach this size
    #[arg(long, value_name = "SIZE", default_value = record::SIZE_MAX)]
    size_max: ByteSize,
}

/// Parses the pattern of the output's names: CSV in numbered files.
fn parse_out(text: &str) -> Result<PathBuf, String> {
    let expected = "expected a file whose name ends in .csv.zst or .csv";
    match text {
        "-" => Err(format!("found '-', standard output, {expected}")),
        text if [".csv.zst", ".csv"].iter().any(|ending| text.ends_with(ending)) => Ok(PathBuf::from(text)),
        text => Err(format!("found '{text}', {expected}")),
    }
}

impl Capture {
    pub fn run(&self) -> anyhow::Result<()> {
        for (flag, size) in [("segment-size", self.segment_size), ("size-max", self.size_max)] {
            if size.bytes() < LIMIT_BYTES_MIN {
                let least = ByteSize::new(LIMIT_BYTES_MIN);
                return Err(Misuse(format!("--{flag}: found {size}, expected at least {least}")).into());
            }
        }
        let folder = self.out.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
        let device = Device::open(&self.device, &folder)?;
        let ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, ending.clone()).context("signals")?;
        }
        let limits = Limits { segment_bytes_max: self.segment_size.bytes(), total_bytes_max: self.size_max.bytes() };
        let recorder = Recorder::start(&self.out, limits, &[device.name().to_owned()])?;
        let mut tracing = Tracing::start(&device)?;
        note!("requests to {} are recorded to {}", self.device.display(), recorder.pattern());
        let begun = Instant::now();
        let time_is_up = || self.time.is_some_and(|time| begun.elapsed().as_micros() >= u128::from(time.us()));
        let ends =
            || ending.load(Ordering::Relaxed) || time_is_up() || recorder.status().state != RecordingState::Recording;
        let captured = tracing.record(&recorder, ends)?;
        drop(tracing);
        let status = recorder.finish()?;
        note!(
            "{} recorded in {}; the files take {}",
            human::counted(status.recorded_requests, "request"),
            human::seconds(begun.elapsed().as_secs_f64()),
            human::bytes(status.size_bytes as f64)
        );
        if status.recorded_requests == 0 && captured.lost == 0 {
            warning!(
                "no request to {} was seen: it was idle, or the page cache answered every read",
                self.device.display()
            );
        }
        let requests = |number| human::counted(number, "request");
        let mut missing = captured.lost;
        match status.state {
            RecordingState::Full => {
                let most = self.size_max;
                let last = requests(status.dropped_requests);
                warning!(
                    "--size-max: the capture stopped because the files reached {most}; the last {last} are missing"
                );
            }
            _ => missing += status.dropped_requests,
        }
        if missing > 0 {
            warning!("{} came faster than they could be written and are missing", requests(missing));
        }
        Ok(())
    }
}
