//! A server on real files, and the simulator.

use std::path::Path;

use flashwise_core::cache::Kind;
use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_device::{ArrayModel, tier_model_of_option};
use flashwise_engine::engine;
use flashwise_sim::array::{InTime, Timed};
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::volume::{Opened, Volume, VolumeConfig};
use flashwise_trace::request_file::CacheRequest;

use super::cache::Shape;
use super::row::IN_PLACE;
use super::slots::{ENTRIES, Slots};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn open(directory: &Path) -> (std::sync::Arc<Volume>, Opened) {
    let mut config = VolumeConfig::of("v", &directory.join("disk"), &directory.join("flash"));
    config.flash_size_bytes = Some(4 << 20);
    config.cache = Settings::of(&[("erase-unit", "64KiB"), ("write-mode", "write-through")]).unwrap();
    config.layout = &IN_PLACE;
    config.state_directory = directory.to_owned();
    Volume::open(config, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(volume: &Volume, operation: Operation, block: u64, blocks: u64) -> Vec<u8> {
    let (sender, answer) = std::sync::mpsc::channel();
    let length = blocks * BLOCK;
    let data = if operation == Operation::Write { vec![block as u8; length as usize] } else { Vec::new() };
    let offset = block * BLOCK;
    let request = Request { operation, offset, length, force_unit_access: false, data, caching: Caching::Usual };
    volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    answer.recv().unwrap().unwrap()
}

#[test]
fn a_server_on_real_files_serves_it_and_keeps_it_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::File::create(directory.path().join("disk")).unwrap().set_len(16 << 20).unwrap();
    let (volume, opened) = open(directory.path());
    assert!(opened.formatted);
    (0..200).for_each(|block| drop(ask(&volume, Operation::Write, block, 1)));
    assert_eq!(ask(&volume, Operation::Read, 7, 1), [7; BLOCK_BYTES]);
    assert_eq!((volume.status().flash_read_hits, volume.status().layout.as_str()), (1, "other"));
    volume.close().unwrap();
    drop(volume);
    let (volume, opened) = open(directory.path());
    assert_eq!((opened.cached_blocks, opened.crashed), (200, false));
    assert_eq!(ask(&volume, Operation::Read, 198, 2)[..BLOCK_BYTES], [198; BLOCK_BYTES]);
    assert_eq!(volume.status().flash_read_hits, 2);
    // It goes on without its flash.
    assert_eq!(volume.detach().unwrap(), 0);
    assert_eq!(ask(&volume, Operation::Read, 100, 1), [100; BLOCK_BYTES]);
}

impl Timed for Slots {}

/// The paper's latencies: 40 and 200 us for reads and writes of the cache, 200 and 1,000 us for the storage.
///
///     comes               storage      cache          answered
///     0      write of 7   0-1000       1000-1200      1000
///     2000   read of 7                 2000-2040      2040
///     3000   read of 9    3000-3200    3200-3400      3200
#[test]
fn the_simulator_runs_it_in_time() {
    let tier = |device: &str| tier_model_of_option("test", &format!("{device}:channels=1")).unwrap();
    let model = ArrayModel { cache: tier("slc"), storage: tier("mlc") };
    let request = |time_us, kind, block: u64| {
        let (offset_bytes, length_bytes) = (BLOCK * block, BLOCK);
        CacheRequest { time_us, kind, offset_bytes, length_bytes, durable: false, caching: Caching::Usual }
    };
    let requests = [request(0, Kind::Write, 7), request(2000, Kind::Read, 7), request(3000, Kind::Read, 9)];
    let latency = |counted: usize| {
        let shape = Shape::new(Geometry { units: 12, unit_pages: 16 }, ENTRIES as u32);
        let settings = engine::Settings { cache: 1, start: 1, ..engine::Settings::default() };
        let engine = super::slots::engine(shape, vec![None; shape.slots as usize], settings);
        let mut run = InTime::of(engine, &model, "trace".parse().unwrap());
        for (number, request) in requests.iter().enumerate() {
            run.await_arrival(request.time_us);
            run.request(request, number == counted);
        }
        run.finish().latencies.mean_us
    };
    assert_eq!([0, 1, 2].map(latency), [1000.0, 40.0, 200.0]);
}
