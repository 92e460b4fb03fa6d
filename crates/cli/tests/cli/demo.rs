//! `flashwise demo --page` compares the same requests with and without a cache. `signals.rs` ends a demo early.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use flashwise_storage::status::{ServerStatus, VolumeStatus};
use flashwise_testing::waiting::wait_until;

use crate::common::{fail, flashwise, succeed};

/// A demo that runs, with its files below `folder`.
pub struct Demo {
    child: Child,
    out: BufReader<ChildStdout>,
    told: String,
    /// Address of the page.
    pub page: String,
    api: String,
}

impl Demo {
    /// Starts a demo of `seconds` and reads its output up to the address of the page.
    pub fn start(folder: &Path, seconds: &str) -> Demo {
        let mut command = flashwise(folder, &["demo", "--page", "--seconds", seconds]);
        command.env("TMPDIR", folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut told = String::new();
        while !told.contains("page --api ") {
            assert!(out.read_line(&mut told).unwrap() > 0, "{told}");
        }
        let word_with = |start: &str| told.split_whitespace().find(|word| word.starts_with(start)).unwrap().to_owned();
        let (page, api) = (word_with("http://127.0.0.1:"), word_with("unix:"));
        Demo { child, out, told, page, api }
    }

    /// The statuses of the volume with a cache and of the one without.
    fn volumes(&self, folder: &Path) -> [VolumeStatus; 2] {
        let json = succeed(folder, &["status", "--json", "--api", &self.api]);
        let status: ServerStatus = serde_json::from_str(&json).unwrap();
        let compared = status.comparison.unwrap();
        let named = |name: String| status.volumes.iter().find(|volume| volume.name == name).unwrap().clone();
        [named(compared.cached), named(compared.uncached)]
    }

    /// Interrupts it as Ctrl-C does. Returns all of its output.
    pub fn interrupt(self) -> String {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        self.end()
    }

    /// Waits for its end. Returns all of its output.
    fn end(mut self) -> String {
        self.out.read_to_string(&mut self.told).unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        self.told
    }
}

/// The number in `text` before `after`.
fn number_before(text: &str, after: &str) -> f64 {
    let (before, _) = text.split_once(after).unwrap_or_else(|| panic!("no {after:?} in {text}"));
    before.rsplit([' ', '\n']).next().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn a_demo_with_a_page_sends_the_same_requests_to_both_volumes_and_its_figures_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let demo = Demo::start(path, "5");
    let mut volumes = demo.volumes(path);
    // The first requests of a cache miss.
    wait_until("a hundred reads are hits", || {
        volumes = demo.volumes(path);
        volumes[0].ram_read_hits + volumes[0].flash_read_hits >= 100
    });
    let [cached, uncached] = &volumes;
    // A request is under way at most, and the statuses are taken one after the other.
    assert!(cached.reads.abs_diff(uncached.reads) <= 2 && cached.writes.abs_diff(uncached.writes) <= 2, "{volumes:?}");
    let hits = cached.ram_read_hits + cached.flash_read_hits;
    assert!((cached.reads - hits).abs_diff(cached.cache.backend_read_blocks) <= 1, "{cached:?}");
    assert_eq!((uncached.read_hit_ratio, uncached.flash.as_str()), (0.0, ""));
    assert!(uncached.reads.abs_diff(uncached.cache.backend_read_blocks) <= 1, "{uncached:?}");
    assert!(uncached.writes.abs_diff(uncached.cache.backend_written_blocks) <= 1, "{uncached:?}");
    let of_reads = |volume: &VolumeStatus| volume.latencies.iter().find(|of| of.operation == "read").unwrap().clone();
    assert!(of_reads(uncached).p50_us >= 4_000 && of_reads(cached).mean_us < of_reads(uncached).mean_us, "{volumes:?}");

    let told = demo.end();
    let (_, result) = told.split_once("\n\n").unwrap();
    let (result, next) = result.split_once("\n\n").unwrap();
    let (_, disk_reads) = result.split_once("which ").unwrap();
    let (avoided, of) = (number_before(disk_reads, " of "), number_before(disk_reads, " disk reads"));
    let hit_share = number_before(result, "% of the reads") / 100.0;
    assert!(of >= uncached.reads as f64 && (avoided / of - hit_share).abs() < 0.001, "{result}");
    assert!(number_before(result, " times as fast") > 1.0, "{result}");
    assert!(next.starts_with("Next:\n") && next.ends_with("The temporary files are deleted.\n"), "{next}");
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn a_demo_with_a_page_that_is_interrupted_prints_its_result_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Demo::start(folder.path(), "3600");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    let told = demo.interrupt();
    assert!(told.contains(" of the reads were hits") || told.contains("ended before both volumes answered"), "{told}");
    assert!(told.ends_with("The temporary files are deleted.\n"), "{told}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn the_options_of_a_demo_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--seconds", "3"][..], &["--page", "--requests", "3"], &["--page", "--seconds", "0"]] {
        let error = fail(folder.path(), &[&["demo"], arguments].concat(), 2);
        assert!(error.contains("--seconds") || error.contains("--page"), "{error}");
    }
}
