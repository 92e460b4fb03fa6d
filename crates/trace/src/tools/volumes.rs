//! Splits a trace into one trace for each of its volumes.

use crate::normalised::numbering::BlockAddress;
use crate::normalised::times::Clock;
use crate::normalised::trace::{Accesses, Description, Trace};
use crate::normalised::trace_file::TraceFile;
use crate::normalised::values::Values;
use crate::progress::Progress;

/// The number of accesses in a batch.
const BATCH_ROWS: usize = 1 << 16;

/// Returns the accesses to each volume of `trace` as a separate trace, in order of the volumes' first appearance. Each
/// is named by the trace and the volume.
///
/// Blocks and requests are renumbered, and times begin with the first request to the volume, as in a [cut](super::cut).
/// Lengths in bytes are those of whole blocks. Takes as much memory as `trace` has on disk. `progress` receives the
/// number of accesses.
pub fn each(trace: &Trace, progress: &dyn Progress) -> Vec<Trace> {
    let names = &trace.description().volumes;
    let mut lens = vec![0; names.len()];
    let (mut ids, mut addresses) = (Vec::with_capacity(trace.unique_blocks()), vec![Vec::new(); names.len()]);
    for &address in trace.addresses() {
        let of_volume = &mut addresses[BlockAddress(address).volume() as usize];
        ids.push(of_volume.len() as i32);
        of_volume.push(address);
    }
    let volume_of = |block: i32| BlockAddress(trace.addresses()[block as usize]).volume() as usize;
    for columns in trace.batches() {
        columns.block.iter().for_each(|&block| lens[volume_of(block)] += 1);
    }
    let mut parts: Vec<VolumeAccesses> = lens.iter().map(|&len| VolumeAccesses::with_capacity(len)).collect();
    for columns in trace.batches() {
        for row in 0..columns.block.len() {
            let block = columns.block[row];
            parts[volume_of(block)].push(&columns, row, ids[block as usize]);
        }
        progress.advance(columns.block.len() as u64);
    }
    let named = names.iter().zip(parts).zip(addresses);
    let filled = named.filter(|((_, part), _)| !part.block.is_empty());
    filled.map(|((name, part), addresses)| part.finish(trace, name, addresses)).collect()
}

/// The accesses to one volume.
struct VolumeAccesses {
    time_us: Vec<i64>,
    op: Vec<u8>,
    block: Vec<i32>,
    request: Vec<u64>,
    request_blocks: Vec<u32>,
    /// The number in the whole trace of the last request.
    last: Option<u64>,
    /// The times of its requests in the whole trace.
    clock: Clock,
    about: Description,
}

impl VolumeAccesses {
    fn with_capacity(len: usize) -> VolumeAccesses {
        VolumeAccesses {
            time_us: Vec::with_capacity(len),
            op: Vec::with_capacity(len),
            block: Vec::with_capacity(len),
            request: Vec::with_capacity(len),
            request_blocks: Vec::with_capacity(len),
            last: None,
            clock: Clock::default(),
            about: Description { request_bytes_min: u64::MAX, ..Description::default() },
        }
    }

    #[inline]
    fn push(&mut self, columns: &Accesses, row: usize, id: i32) {
        let (op, blocks) = (columns.op[row], columns.request_blocks[row]);
        if self.last.replace(columns.request[row]) != Some(columns.request[row]) {
            self.clock.tick(columns.time_us[row]);
            let about = &mut self.about;
            about.requests += 1;
            // In blocks, until the length of a block is known.
            about.request_bytes_min = about.request_bytes_min.min(blocks.into());
            about.request_bytes_max = about.request_bytes_max.max(blocks.into());
            match op {
                0 => {
                    about.read_requests += 1;
                    about.read_bytes += u64::from(blocks);
                }
                _ => about.write_bytes += u64::from(blocks),
            }
        }
        self.time_us.push(columns.time_us[row]);
        self.op.push(op);
        self.block.push(id);
        self.request.push(self.about.requests - 1);
        self.request_blocks.push(blocks);
    }

    /// Returns the trace of the volume named `volume` of `whole`.
    fn finish(self, whole: &Trace, volume: &str, addresses: Vec<u64>) -> Trace {
        let VolumeAccesses { mut time_us, op, block, request, request_blocks, last: _, clock, about } = self;
        let first_us = time_us.first().copied().unwrap_or(0);
        time_us.iter_mut().for_each(|time_us| *time_us = time_us.saturating_sub(first_us));
        let (block_size_bytes, known) = (whole.block_size_bytes(), whole.description());
        let in_bytes = |blocks: u64| blocks.saturating_mul(block_size_bytes);
        let description = Description {
            format: known.format.clone(),
            columns: known.columns.clone(),
            start_us: known.start_us.saturating_add(first_us),
            read_bytes: in_bytes(about.read_bytes),
            write_bytes: in_bytes(about.write_bytes),
            request_bytes_min: in_bytes(about.request_bytes_min),
            request_bytes_max: in_bytes(about.request_bytes_max),
            volumes: vec![volume.to_owned()],
            tells_volumes: known.tells_volumes,
            times: Some(clock.times()),
            ..about
        };
        // The trace's only volume has the number 0.
        let addresses = addresses.into_iter().map(|address| BlockAddress(address).block());
        let (time_us, op, block) = (Values::from(time_us), Values::from(op), Values::from(block));
        let (request, request_blocks) = (Values::from(request), Values::from(request_blocks));
        let batch = |start: usize| {
            let len = BATCH_ROWS.min(block.len() - start);
            let (time_us, op, block) = (time_us.slice(start, len), op.slice(start, len), block.slice(start, len));
            Accesses::in_memory(time_us, op, block, request.slice(start, len), request_blocks.slice(start, len))
        };
        let batches = (0..block.len()).step_by(BATCH_ROWS).map(batch).collect();
        let file =
            TraceFile { batches, addresses: addresses.collect::<Vec<_>>().into(), block_size_bytes, description };
        Trace::of_file(&format!("{}, volume {volume}", whole.name()), file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalised::{self, Settings};
    use crate::progress::Silent;
    use crate::tools::cut::{Cut, cut};

    #[test]
    fn each_volume_is_the_trace_that_a_cut_of_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Three volumes, requests of 1 to 5 blocks; sometimes two at one time.
        let line = |number: u64| {
            let time = 128_166_372_003_061_629 + 10 * (number / 2);
            let op = if number.is_multiple_of(3) { "Write" } else { "Read" };
            let offset = 4096 * (number * number * 2_654_435_761 % 1000);
            format!("{time},web,{},{op},{offset},{},0\n", number * number % 3 + number % 2, 4096 * (1 + number % 5))
        };
        std::fs::write(at("all.csv"), (0..40_000).map(line).collect::<String>()).unwrap();
        let whole = normalised::open(at("all.csv"), &Settings::default(), &Silent).unwrap();
        let parts = each(&whole, &Silent);
        assert_eq!(parts.iter().map(Trace::len).sum::<usize>(), whole.len());
        let names: Vec<&str> = parts.iter().map(|part| part.description().volumes[0].as_str()).collect();
        assert_eq!(names, whole.description().volumes);
        for part in &parts {
            let volume = &part.description().volumes[0];
            assert_eq!(part.name(), format!("{}, volume {volume}", whole.name()));
            let only = Cut { volumes: vec![volume.clone()], ..Cut::default() };
            cut(at("all.csv"), at("one.arrow"), &only, &Settings::default(), &Silent).unwrap();
            let one = Trace::open(&at("one.arrow")).unwrap();
            assert!(part.accesses().eq(one.accesses()) && part.addresses() == one.addresses());
            let rows = |trace: &Trace| -> Vec<(i64, u64, u32)> {
                let of = |columns: Accesses| {
                    let row = |row| (columns.time_us[row], columns.request[row], columns.request_blocks[row]);
                    (0..columns.block.len()).map(row).collect::<Vec<_>>()
                };
                trace.batches().flat_map(of).collect()
            };
            assert_eq!(rows(part), rows(&one));
            assert_eq!(part.description(), one.description());
            assert!(part.times() != whole.times() && part.times() == one.times());
        }
    }
}
