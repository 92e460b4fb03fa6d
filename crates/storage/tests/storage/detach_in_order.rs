//! A detach without a server, of a cache that writes back in order. Wherever it stops, the backend is a state of the
//! volume.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::attach::{BackendSide, Pairing, Record};
use flashwise_storage::disk::identity::Identity;
use flashwise_storage::export::{Operation, Request};
use flashwise_storage::journal::{self, JournalOwner};
use flashwise_storage::offline::detach::{DetachError, Detached, Pair, detach};
use flashwise_storage::offline::journal::GivenJournal;
use flashwise_storage::volume::{OpenDisk, Storage, Volume, VolumeConfig};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::history::History;
use flashwise_testing::random::Random;
use flashwise_testing::virtual_time::{self, pass};

use crate::failing::SharedSide;
use crate::pool::in_order::perform;

const BLOCKS: usize = 48;

/// The devices of a volume whose power failed.
struct Devices {
    flash: FakeDisk,
    backend: FakeDisk,
    /// Blank if the order needs none.
    journal: FakeDisk,
    record: Record,
}

impl Devices {
    fn fork(&self) -> Devices {
        let [flash, backend, journal] = [&self.flash, &self.backend, &self.journal].map(FakeDisk::fork);
        Devices { flash, backend, journal, record: self.record.clone() }
    }

    fn detach(&mut self) -> Result<Detached, DetachError> {
        let side = MemorySide::default();
        side.write(&self.record).unwrap();
        let pairing = Pairing { backend: [9; 16], is_identified: true, discards: false };
        let (flash, backend, journal) = (&self.flash, &self.backend, GivenJournal::Disk(&self.journal));
        let pair = Pair { flash, backend, journal, side: &side, pairing: &pairing };
        let detached = detach(pair, &|_, _| (), &mut |_, _| ());
        self.record = side.read().unwrap().unwrap();
        detached
    }

    /// Completes the backend from the journal, as a start without the flash does. Returns whether it lacked blocks.
    fn lose_flash(&self) -> bool {
        let recorded = self.record.journal.id;
        let owner = JournalOwner { gives_up: true, ..JournalOwner::of_volume([9; 16], recorded) };
        recorded.is_some() && journal::open(&self.journal, &self.backend, &owner).unwrap().replayed_blocks.is_some()
    }

    fn contents(&self) -> Vec<u8> {
        (0..BLOCKS).map(|block| self.backend.page(block)[0]).collect()
    }
}

/// Returns a volume after some epochs of changes, and their history. Its backend is slow, so several epochs are dirty.
fn after_changes(order: &str, random: &mut Random) -> (Devices, History<u8>) {
    let [flash, backend, journal] = [1600, BLOCKS, 64].map(|pages| Arc::new(FakeDisk::new(pages, BLOCK_BYTES)));
    let side: Arc<MemorySide> = Arc::default();
    let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new("flash"));
    config.size_bytes = Some((BLOCKS * BLOCK_BYTES) as u64);
    config.flash_disk = Some(OpenDisk(flash.clone()));
    config.cache = Settings::of(&[
        ("erase-unit", "64KiB"),
        ("ram", "0"),
        ("policy", "lru"),
        ("write-back-order", order),
        ("dirty-high", "90%"),
        ("dirty-age", "1h"),
        ("commit-age", "1h"),
    ])
    .unwrap();
    config.backend_delay_us = 2_000;
    if order == "journal" {
        config.journal = Some("journal".into());
        config.journal_disk = Some(OpenDisk(journal.clone()));
    }
    let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
    let storage =
        Storage { disk: backend.clone(), identity, side: Box::new(SharedSide(side.clone())), notes: Vec::new() };
    let volume = Volume::open_on(config, storage, &|_, _| ()).unwrap().0;
    let mut history = History::new([0; BLOCKS]);
    let mut acknowledged = Vec::new();
    for number in 1..=120 {
        if random.chance(8) {
            perform(&*volume, Request::flush()).unwrap();
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
        perform(&*volume, request).unwrap();
    }
    pass(Duration::from_millis(random.below(100)));
    let [flash, backend, journal] = [&flash, &backend, &journal].map(|disk| disk.fork());
    let devices = Devices { flash, backend, journal, record: side.read().unwrap().unwrap() };
    volume.close().unwrap();
    let loss = random.pick(&[Loss::Nothing, Loss::Everything, Loss::Writes]);
    for disk in [&devices.flash, &devices.backend, &devices.journal] {
        disk.crash(loss, random);
    }
    (devices, history)
}

#[test]
fn an_interrupted_detach_leaves_a_state_of_the_volume() {
    let (mut stops, mut replays) = (0, 0);
    for (order, seed) in ["barriers", "journal"].into_iter().flat_map(|order| (1..=8).map(move |seed| (order, seed))) {
        let mut random = Random(seed);
        let ((devices, history), _) = virtual_time::run(seed, move || after_changes(order, &mut Random(seed)));
        for lives in 0.. {
            let case = format!("{order}, seed {seed}, after {lives} operations");
            let mut stopped = devices.fork();
            stopped.backend.set_lives(lives);
            let detached = stopped.detach();
            stopped.backend.set_lives(u64::MAX);
            let complete = detached.is_ok();
            if let Err(error) = detached {
                assert!(
                    matches!(error, DetachError::Io(_) | DetachError::Unwritten { .. } | DetachError::Journal { .. }),
                    "{case}: {error}"
                );
                let loss = random.pick(&[Loss::Nothing, Loss::Everything, Loss::Sectors]);
                stopped.backend.crash(loss, &mut random);
                stopped.journal.crash(loss, &mut random);
                let without_flash = stopped.fork();
                replays += u64::from(without_flash.lose_flash());
                if let Err(violation) = history.check(&without_flash.contents()) {
                    panic!("{case}: {violation}");
                }
                stops += 1;
                stopped.detach().unwrap();
            }
            let is_kept = |(block, content): (usize, &u8)| history.is_kept(block, content);
            assert!(stopped.contents().iter().enumerate().all(is_kept), "{case}");
            if complete {
                break;
            }
        }
    }
    assert!(stops > 160 && replays > 20, "{stops} stops, {replays} of them with a group in the journal");
}
