//! Events of a volume and its devices under load.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwise_storage::export::Operation;
use flashwise_storage::status::VolumeState;
use flashwise_storage::time;
use flashwise_testing::virtual_time::pass;

use super::device::Speed;
use super::{Answered, World, ask, ms};
use flashwise_core::format::BLOCK_BYTES;

#[derive(Clone, Debug)]
pub enum Event {
    /// The backend serves nothing for so long.
    Hangs(Duration),
    /// The backend becomes slower or faster.
    BackendIs(Speed),
    /// The volume is detached from its flash.
    Detach,
    /// Blocks are trimmed by one request.
    Trim { blocks: Range<u64> },
    /// Blocks are written once and flushed, one after the other, each when the backend has the one before. Each counts
    /// as a request `once`, which waits until the backend has it.
    WriteOnce { blocks: Range<u64> },
    /// A block is overwritten every 100 ms for a minute. Each write counts as a request `overwrite`, which waits for as
    /// long as the backend is behind.
    Overwrite { block: u64 },
}

impl Event {
    pub fn happen(self, world: &World) {
        let World { volume, backend, .. } = world;
        let write = |block, byte| ask(&**volume, Operation::Write, &(block..block + 1), byte);
        let stored = |block| backend.byte_at(block * BLOCK_BYTES as u64);
        match self {
            Event::Hangs(lasts) => backend.hang(lasts),
            Event::BackendIs(speed) => backend.change_speed(speed),
            Event::Detach => {
                let dirty = volume.status().dirty_blocks;
                let started = time::now();
                let told: Arc<Mutex<Vec<_>>> = Arc::default();
                let (watched, tells) = (volume.clone(), told.clone());
                time::start("watcher", move || {
                    loop {
                        pass(ms(500));
                        let status = watched.status();
                        if status.state == VolumeState::Detached {
                            break;
                        }
                        let remaining = status.detach_remaining_seconds;
                        tells.lock().unwrap().extend(remaining.map(|remaining| (time::now(), remaining)));
                    }
                });
                assert_eq!(volume.detach().unwrap(), 0);
                let took = time::elapsed(started);
                println!("{dirty} dirty blocks are detached in {took:?}");
                // The first seconds write neighbours back together.
                let told = told.lock().unwrap();
                for &(at, remaining) in told.iter().filter(|(at, _)| at.duration_since(started) > ms(5_000)) {
                    let really = (started + took).duration_since(at).as_secs_f64();
                    let is_near = (remaining - really).abs() <= 0.1 * really + 0.2;
                    assert!(is_near, "{remaining} s are reported, {really} s remain");
                }
                assert!(told.len() > 20);
            }
            Event::Trim { blocks } => world.note("trim", ask(&**volume, Operation::Trim, &blocks, 0)),
            Event::WriteOnce { blocks } => {
                for block in blocks {
                    let Answered { blocks, .. } = write(block, 3);
                    volume.flush().unwrap();
                    let asked = time::now();
                    while stored(block) != 3 {
                        pass(ms(100));
                    }
                    world.note("once", Answered { asked, waited: time::elapsed(asked), blocks });
                    pass(ms(700));
                }
            }
            Event::Overwrite { block } => {
                let writes: Vec<_> = (1..=600).map(|number| (number % 250 + 1) as u8).collect();
                for number in 0..writes.len() {
                    let answered = write(block, writes[number]);
                    pass(ms(100));
                    let has = stored(block);
                    let behind = writes[..=number].iter().rev().take_while(|&&write| write != has).count();
                    world.note("overwrite", Answered { waited: ms(100 * behind as u64), ..answered });
                }
            }
        }
    }
}
