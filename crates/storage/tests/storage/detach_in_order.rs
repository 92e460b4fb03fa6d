//! A detach without a server, of a cache that writes back in order. Wherever it stops, the backend is a state of the
//! volume.

use std::path::Path;
use std::sync::{Arc, mpsc};

use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::attach::{BackendSide, Pairing, Record};
use flashwise_storage::disk::identity::Identity;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::offline::detach::{DetachError, Detached, Pair, detach};
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::volume::{OpenDisk, Storage, Volume, VolumeConfig};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::history::History;
use flashwise_testing::random::Random;

use crate::failing::SharedSide;

const BLOCKS: usize = 48;

/// The devices of a volume whose power failed.
struct Devices {
    flash: FakeDisk,
    backend: FakeDisk,
    record: Record,
}

impl Devices {
    fn fork(&self) -> Devices {
        Devices { flash: self.flash.fork(), backend: self.backend.fork(), record: self.record.clone() }
    }

    fn detach(&mut self) -> Result<Detached, DetachError> {
        let side = MemorySide::default();
        side.write(&self.record).unwrap();
        let pairing = Pairing { backend: [9; 16], is_identified: true, discards: false };
        let (flash, backend, journal) = (&self.flash, &self.backend, GivenJournal::Nothing);
        let pair = Pair { flash, backend, journal, side: &side, pairing: &pairing };
        let detached = detach(pair, &|_, _| (), &mut |_, _| ());
        self.record = side.read().unwrap().unwrap();
        detached
    }

    fn contents(&self) -> Vec<u8> {
        (0..BLOCKS).map(|block| self.backend.page(block)[0]).collect()
    }
}

/// Returns a volume after some epochs of changes, and their history.
fn after_changes(random: &mut Random) -> (Devices, History<u8>) {
    let flash = Arc::new(FakeDisk::new(400, BLOCK_BYTES));
    let backend = Arc::new(FakeDisk::new(BLOCKS, BLOCK_BYTES));
    let side: Arc<MemorySide> = Arc::default();
    let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new("flash"));
    config.size_bytes = Some((BLOCKS * BLOCK_BYTES) as u64);
    config.flash_disk = Some(OpenDisk(flash.clone()));
    config.cache = Settings::of(&[
        ("erase-unit", "64KiB"),
        ("ram", "0"),
        ("policy", "lru"),
        ("write-back-order", "barriers"),
        ("dirty-high", "90%"),
        ("dirty-age", "1h"),
        ("commit-age", "1h"),
    ])
    .unwrap();
    let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
    let storage =
        Storage { disk: backend.clone(), identity, side: Box::new(SharedSide(side.clone())), notes: Vec::new() };
    let volume = Volume::open_on(config, storage, &|_, _| ()).unwrap().0;
    let mut history = History::new([0; BLOCKS]);
    let mut acknowledged = Vec::new();
    for number in 1..=120 {
        if random.chance(8) {
            volume.flush().unwrap();
            history.promised(std::mem::take(&mut acknowledged));
        }
        let block = random.below(BLOCKS as u64) as usize;
        acknowledged.push((block, history.written(block, number)));
        let request = Request {
            operation: Operation::Write,
            offset: (block * BLOCK_BYTES) as u64,
            length: BLOCK_BYTES as u64,
            force_unit_access: false,
            data: vec![number; BLOCK_BYTES],
            caching: Caching::Usual,
        };
        let (sender, receiver) = mpsc::channel();
        volume.submit(request, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
    }
    let devices = Devices { flash: flash.fork(), backend: backend.fork(), record: side.read().unwrap().unwrap() };
    volume.close().unwrap();
    let loss = random.pick(&[Loss::Nothing, Loss::Everything, Loss::Writes]);
    devices.flash.crash(loss, random);
    devices.backend.crash(loss, random);
    (devices, history)
}

#[test]
fn an_interrupted_detach_leaves_a_state_of_the_volume() {
    let mut stops = 0;
    for seed in 1..=4 {
        let mut random = Random(seed);
        let (devices, history) = after_changes(&mut random);
        for lives in 0.. {
            let mut stopped = devices.fork();
            stopped.backend.set_lives(lives);
            let detached = stopped.detach();
            stopped.backend.set_lives(u64::MAX);
            let complete = detached.is_ok();
            if let Err(error) = detached {
                assert!(matches!(error, DetachError::Io(_) | DetachError::Unwritten { .. }), "seed {seed}: {error}");
                stopped.backend.crash(random.pick(&[Loss::Nothing, Loss::Everything, Loss::Sectors]), &mut random);
                if let Err(violation) = history.check(&stopped.contents()) {
                    panic!("seed {seed}, after {lives} operations: {violation}");
                }
                stops += 1;
                stopped.detach().unwrap();
            }
            let is_kept = |(block, content): (usize, &u8)| history.is_kept(block, content);
            assert!(stopped.contents().iter().enumerate().all(is_kept), "seed {seed}, after {lives} operations");
            if complete {
                break;
            }
        }
    }
    assert!(stops > 80, "{stops} stops");
}
