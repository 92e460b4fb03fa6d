//! Clients of a world with any cache: their requests, the legal answers, and the data that survives a power failure.

use std::sync::{Arc, Mutex};

use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::disk::{Disk, Operation as DiskOperation, Transfer};
use flashwise_storage::export::{Done, Operation, Request};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;

use crate::crash::model::{Content, Model, SECTOR_BYTES, SECTORS, Shared, decode, encode};

pub type Outcome<T> = Result<T, String>;

/// Requests in progress, and the model that checks their answers.
pub struct Clients {
    pub model: Shared,
    outstanding: Arc<Mutex<usize>>,
    violations: Arc<Mutex<Vec<String>>>,
    /// The content of the next written block.
    pub next_tag: u64,
}

impl Clients {
    pub fn new(model: Model, next_tag: u64) -> Clients {
        let model = Arc::new(Mutex::new(model));
        Clients { model, outstanding: Arc::default(), violations: Arc::default(), next_tag }
    }

    /// Requests that were not answered yet.
    pub fn outstanding(&self) -> usize {
        *self.outstanding.lock().unwrap()
    }

    /// The first answer that no client may get.
    pub fn check(&self) -> Outcome<()> {
        self.violations.lock().unwrap().first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// A request, and what becomes of its answer.
    pub fn ask(
        &mut self,
        operation: Operation,
        offset: usize,
        length: usize,
        force_unit_access: bool,
        caching: Caching,
    ) -> (Request, Done) {
        let blocks = offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES);
        let (mut data, mut written): (Vec<u8>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        let mut model = self.model.lock().unwrap();
        let zeroes = matches!(operation, Operation::Trim | Operation::WriteZeroes { .. });
        if zeroes || operation == Operation::Write {
            for block in blocks.clone() {
                let mut content: Content = model.newest(block);
                let start = offset.max(block * BLOCK_BYTES) - block * BLOCK_BYTES;
                let stop = (offset + length).min((block + 1) * BLOCK_BYTES) - block * BLOCK_BYTES;
                if operation == Operation::Trim && stop - start < BLOCK_BYTES {
                    continue;
                }
                let sectors = start / SECTOR_BYTES..stop / SECTOR_BYTES;
                content[sectors.clone()].fill(if zeroes { 0 } else { self.next_tag });
                self.next_tag += 1;
                if operation == Operation::Write {
                    data.extend(&encode(&content)[start..stop]);
                }
                written.push((block, model.written(block, content, sectors)));
            }
        }
        let earliest: Vec<usize> = blocks.map(|block| model.earliest(block)).collect();
        let answered = model.answered();
        drop(model);
        *self.outstanding.lock().unwrap() += 1;
        let (shared, outstanding, violations) = (self.model.clone(), self.outstanding.clone(), self.violations.clone());
        let done = move |result: Result<Vec<u8>, _>| {
            *outstanding.lock().unwrap() -= 1;
            let mut model = shared.lock().unwrap();
            let result = match (operation, result) {
                (Operation::Read, Ok(bytes)) => check_read(&mut model, offset, &bytes, &earliest),
                (Operation::Flush, Ok(_)) => {
                    model.flushed(&answered);
                    Ok(())
                }
                (_, Ok(_)) => {
                    written.iter().for_each(|&(block, version)| model.acknowledged(block, version, force_unit_access));
                    Ok(())
                }
                (_, Err(_)) => {
                    written.iter().for_each(|&(block, version)| model.write_failed(block, version));
                    model.failed(operation)
                }
            };
            violations.lock().unwrap().extend(result.err());
        };
        let (offset, length) = (offset as u64, length as u64);
        (Request { operation, offset, length, force_unit_access, data, caching }, Box::new(done))
    }
}

fn check_read(model: &mut Model, offset: usize, bytes: &[u8], earliest: &[usize]) -> Outcome<()> {
    let mut tags = decode(bytes).into_iter();
    let first = offset / BLOCK_BYTES;
    let end = offset + bytes.len();
    for (block, &earliest) in (first..).zip(earliest) {
        let start = offset.max(block * BLOCK_BYTES) - block * BLOCK_BYTES;
        let stop = end.min((block + 1) * BLOCK_BYTES) - block * BLOCK_BYTES;
        let sectors = start / SECTOR_BYTES..stop / SECTOR_BYTES;
        let mut content: Content = [0; SECTORS];
        for sector in sectors.clone() {
            content[sector] = tags.next().unwrap();
        }
        model.read(block, earliest, &content, sectors)?;
    }
    Ok(())
}

/// A range of a volume: half of all lie in its first `hot` blocks, and one in `part_odds` does not begin and end with
/// blocks. Of `lengths`, in blocks, each is as likely.
pub fn random_range(
    random: &mut Random,
    volume_blocks: usize,
    hot: usize,
    lengths: &[usize],
    part_odds: u64,
) -> (usize, usize) {
    let limit = if random.chance(2) { hot } else { volume_blocks };
    let block = random.below(limit as u64) as usize;
    let blocks = random.pick(lengths).min(volume_blocks - block);
    let (mut offset, mut length) = (block * BLOCK_BYTES, blocks * BLOCK_BYTES);
    if random.chance(part_odds) {
        offset += random.below(SECTORS as u64) as usize * SECTOR_BYTES;
        let left = block * BLOCK_BYTES + length - offset;
        length = SECTOR_BYTES * (1 + random.below((left / SECTOR_BYTES) as u64) as usize);
    }
    (offset, length)
}

/// A power failure of `disks`, or the death of the process, while transfers are in progress, each with the position of
/// its disk. Each of these may have taken place or not, and any unflushed data may be lost.
pub fn fail<'a>(
    disks: &[FakeDisk],
    in_flight: impl Iterator<Item = (usize, &'a Transfer)>,
    killed: bool,
    random: &mut Random,
) {
    for (disk, transfer) in in_flight {
        let changes = !matches!(transfer.operation, DiskOperation::Read | DiskOperation::Sync);
        if changes && random.chance(2) {
            // One that reaches past the end fails.
            let _ = disks[disk].perform(transfer);
        }
    }
    let losses = [Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Sectors, Loss::Writes, Loss::Writes];
    for disk in disks.iter().filter(|disk| disk.size() > 0) {
        disk.crash(if killed { Loss::Process } else { random.pick(&losses) }, random);
    }
}
