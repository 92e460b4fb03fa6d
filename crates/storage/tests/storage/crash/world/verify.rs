//! Checks of a world: after a crash, after faults, and after the flash was removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::engine::{BACKEND, FLASH};
use flashwise_engine::log::Engine;
use flashwise_storage::driver::Performer;
use flashwise_storage::export::{Operation, Request};
use flashwise_testing::random::Random;

use super::{Cached, Outcome, Setup, World};
use crate::crash::fake_side::FakeSide;
use crate::crash::model::{Content, SECTORS, decode};

/// The ways in which the flash is lost at each operation.
const FLASH_LOSSES: u64 = 2;

impl<S: Cached> World<S> {
    /// Reads every block; `None` where that failed.
    pub fn read_all(&mut self) -> Outcome<Vec<Option<Content>>> {
        let blocks = self.setup.volume_blocks();
        let found: Arc<Mutex<Vec<Option<Content>>>> = Arc::new(Mutex::new(vec![None; blocks]));
        self.read_into(&found, 0, blocks);
        self.settle()?;
        if found.lock().unwrap()[0].is_none() {
            (0..blocks).for_each(|block| self.read_into(&found, block, 1));
            self.settle()?;
        }
        Ok(std::mem::take(&mut *found.lock().unwrap()))
    }

    fn read_into(&mut self, found: &Arc<Mutex<Vec<Option<Content>>>>, first: usize, count: usize) {
        let found = found.clone();
        let done = move |result: Result<Vec<u8>, _>| {
            let Ok(bytes) = result else { return };
            for (bytes, found) in bytes.chunks(BLOCK_BYTES).zip(&mut found.lock().unwrap()[first..]) {
                *found = Some(decode(bytes).try_into().unwrap());
            }
        };
        let request = Request {
            operation: Operation::Read,
            offset: (first * BLOCK_BYTES) as u64,
            length: (count * BLOCK_BYTES) as u64,
            force_unit_access: false,
            data: Vec::new(),
            caching: Default::default(),
        };
        self.engine.submit_waited(request, Box::new(done), self.now_us, 0);
        self.collect();
    }

    /// The blocks that the cache says are lost.
    pub fn lost(&self) -> BTreeSet<usize> {
        self.setup.lost_blocks(&self.engine).into_iter().collect()
    }

    /// Reads every block after a crash; from then on each is what it was found to be.
    pub fn verify_recovered(&mut self) -> Outcome<()> {
        let found = self.read_all()?;
        let lost = self.lost();
        let mut model = self.clients.model.lock().unwrap();
        for (block, content) in found.into_iter().enumerate() {
            match content {
                Some(content) => model.settled(block, &content, self.killed)?,
                None => model.read_lost(block, lost.contains(&block))?,
            }
        }
        Ok(())
    }

    /// Reads every block while nothing fails any more.
    pub fn verify_readable(&mut self) -> Outcome<()> {
        let found = self.read_all()?;
        let lost = self.lost();
        let mut model = self.clients.model.lock().unwrap();
        for (block, content) in found.into_iter().enumerate() {
            match content {
                Some(content) => {
                    let earliest = model.earliest(block);
                    model.read(block, earliest, &content, 0..SECTORS)?;
                }
                None => model.read_lost(block, lost.contains(&block))?,
            }
        }
        Ok(())
    }

    /// Loses the flash at this moment, in several ways, if data is written back in order. Returns in how many.
    pub fn lose_flash(&self, random: &mut Random) -> Outcome<u64> {
        if !self.setup.in_order() || !S::is_backend_a_state(&self.engine) {
            return Ok(0);
        }
        S::write_early(self, random);
        let model = self.clients.model.lock().unwrap();
        for _ in 0..FLASH_LOSSES {
            let backend = self.backend_after_crash(random)?;
            let checked = model.check_backend(|block| backend.page(block).to_vec());
            checked.map_err(|error| format!("without the flash: {error}"))?;
        }
        Ok(FLASH_LOSSES)
    }

    /// Compares the blocks of the backend, except for lost ones.
    pub fn verify_backend(&self, lost: &BTreeSet<usize>) -> Outcome<()> {
        let mut model = self.clients.model.lock().unwrap();
        for block in (0..self.setup.volume_blocks()).filter(|block| !lost.contains(block)) {
            let content: Content = decode(&self.disks[BACKEND].page(block)).try_into().unwrap();
            let earliest = model.earliest(block);
            let checked = model.read(block, earliest, &content, 0..SECTORS);
            checked.map_err(|error| format!("after detaching: {error}"))?;
        }
        Ok(())
    }
}

impl World {
    /// The devices work again: what can be read is right, what was lost is listed, and heals by being written.
    pub fn verify_after_faults(&mut self) -> Outcome<()> {
        self.setup.faults.clear();
        self.setup.gives_up = false;
        self.in_flight.iter_mut().for_each(|transfer| transfer.stalled = false);
        self.settle()?;
        self.now_us += 10_000_000;
        self.engine.tick(self.now_us);
        self.collect();
        self.settle()?;
        self.verify_readable()?;
        if !self.engine.cache().has_flash_failed() {
            // Background work may find more that cannot be read; the first flush may report a failure from before.
            for round in 0..5 {
                let lost = self.lost();
                if round == 4 && !lost.is_empty() {
                    return Err(format!("blocks {lost:?} stay lost after they were written"));
                }
                for block in lost {
                    self.submit(Operation::Write, block * BLOCK_BYTES, BLOCK_BYTES, false);
                }
                self.submit(Operation::Flush, 0, 0, false);
                self.settle()?;
            }
            self.clients.model.lock().unwrap().set_faults(false);
            self.verify_readable()?;
            // A device that lost something may show it again.
            self.clients.model.lock().unwrap().set_faults(true);
        }
        Ok(())
    }

    fn destage(&mut self, start: impl Fn(&mut Engine, u64)) -> Outcome<()> {
        for _ in 0..3 {
            self.now_us += 2_000_000;
            if self.setup.in_order() && self.engine.cache().has_flash_failed() {
                let side = FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] };
                self.attachment.note_ahead(&side).unwrap();
            }
            start(&mut self.engine, self.now_us);
            self.collect();
            let mut random = Random(self.now_us);
            self.settle_with(&mut |world| world.lose_flash(&mut random).map(drop))?;
        }
        Ok(())
    }

    /// Writes everything back. Then the backend must be complete without the flash, except for lost blocks.
    pub fn verify_detached(&mut self) -> Outcome<()> {
        self.destage(Engine::destage_all)?;
        if self.engine.cache().has_flash_failed() {
            // Until it is known that the flash is detached, starting again must do no harm.
            let mut random = Random(self.random.next());
            let mut again = self.crashed(&mut random)?;
            again.verify_recovered()?;
            again.verify_detached().map_err(|error| format!("after a restart: {error}"))?;
            if !self.lost().is_empty() {
                // The remaining contents of lost blocks are useful, so the flash is not detached.
                return self.clients.model.lock().unwrap().lost_are_allowed(&self.lost());
            }
            // The server goes on under this condition, too.
            let due = self.engine.cache().durable_dirty_blocks();
            if due > 0 {
                return Err(format!("{due} blocks that the flash holds are not written back"));
            }
            let side = FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] };
            self.attachment.detach(&self.disks[FLASH], &side).unwrap();
            self.destage(Engine::destage_rest)?;
        }
        let lost = self.lost();
        let cache = self.engine.cache();
        let dirty = cache.log().dirty_blocks();
        if dirty > lost.len() as u64 || cache.buffered_blocks() > 0 {
            return Err(format!("{dirty} blocks stay dirty, {} in memory", cache.buffered_blocks()));
        }
        self.verify_backend(&lost)?;
        if lost.is_empty() && !Setup::is_backend_a_state(&self.engine) {
            return Err("the order is said to be broken, and everything is written back".to_owned());
        }
        self.clients.model.lock().unwrap().lost_are_allowed(&lost)
    }
}
