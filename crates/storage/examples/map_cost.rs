//! Measures the cost of a pool's map per request: `map_cost [THOUSANDS]`. Reads of 4 KiB hit RAM, alternately through a
//! logical disk and directly through the pool's cache.

use std::sync::Arc;
use std::time::Instant;

use flashwise_core::cache::settings::Settings;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::pool::{CHUNK_BYTES, Metadata, NewLogical, Pool, PoolConfig};
use flashwise_storage::volume::VolumeConfig;

const DISK_BYTES: usize = 64 << 20;
const SIZE: u64 = 32 << 20;
const TURNS: usize = 9;

fn request(operation: Operation, offset: u64, data: Vec<u8>) -> Request {
    Request { operation, offset, length: 4096, force_unit_access: false, data, caching: Default::default() }
}

/// Returns the nanoseconds of a read of `export`; `place` gives the offset of each.
fn reads(export: &dyn Export, requests: u64, place: impl Fn(u64) -> u64) -> f64 {
    let begun = Instant::now();
    for number in 0..requests {
        let block = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        export.submit(
            request(Operation::Read, place(block), Vec::new()),
            Box::new(|read| drop(read.expect("it is there"))),
        );
    }
    begun.elapsed().as_nanos() as f64 / requests as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let thousands: u64 = std::env::args().nth(1).map_or(Ok(300), |text| text.parse())?;
    let disks: Vec<Arc<dyn Disk>> = (0..3).map(|_| Arc::new(MemoryDisk::new(DISK_BYTES)) as Arc<dyn Disk>).collect();
    drop(Metadata::create("tank", disks.clone())?);
    let mut cache = VolumeConfig::of("tank", "".as_ref(), "".as_ref());
    cache.cache = Settings::of(&[("ram", "128MiB"), ("write-buffer-share", "50%")])?;
    let config = PoolConfig { disks: Vec::new(), degraded: false, cache };
    let (pool, _) = Pool::open_on(config, disks, &|_, _| ())?;
    let new = NewLogical {
        name: "a".to_owned(),
        size_bytes: SIZE,
        thick: false,
        striped: true,
        cached: true,
        pinned_ram_bytes: 0,
        mode: None,
    };
    let disk = pool.create_logical(&new)?;
    for block in 0..SIZE / 4096 {
        let (sender, receiver) = std::sync::mpsc::channel();
        let write = request(Operation::Write, block * 4096, vec![1; 4096]);
        disk.submit(write, Box::new(move |written| drop(sender.send(written))));
        receiver.recv()??;
    }
    // Positions of chunks in the pool, which the cache uses as addresses. Chunks of a disk follow those of the previous
    // disk.
    let base = |number: u32| u64::from(number - 1) * DISK_BYTES as u64;
    let mut places = vec![0; (SIZE / CHUNK_BYTES) as usize];
    for run in pool.map_of("a")? {
        for k in 0..run.length_bytes / CHUNK_BYTES {
            let at = (run.offset_bytes + k * run.step_bytes) / CHUNK_BYTES;
            places[at as usize] = base(run.disk) + run.disk_offset_bytes + k * CHUNK_BYTES;
        }
    }
    let blocks = SIZE / 4096;
    let in_chunk = CHUNK_BYTES / 4096;
    let mut costs: Vec<f64> = (0..TURNS)
        .map(|_| {
            let straight = reads(&**pool.volume(), thousands * 1000, |number| {
                let block = number % blocks;
                places[(block / in_chunk) as usize] + block % in_chunk * 4096
            });
            let mapped = reads(&*disk, thousands * 1000, |number| number % blocks * 4096);
            println!("{straight:.0} ns straight, {mapped:.0} ns by the map, {:.0} ns more", mapped - straight);
            mapped - straight
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!("median: {:.0} ns", costs[TURNS / 2]);
    pool.close()?;
    Ok(())
}
