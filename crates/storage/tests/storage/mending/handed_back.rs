//! Requests that fail with the flash: each is handed back once, or answered.

use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::engine::FLASH;
use flashwise_storage::disk::Operation as DiskOperation;
use flashwise_storage::export::{Error, Operation};

use super::world::{ANYWHERE, World};

/// A write fails with the flash while a read of its block is in progress. At that moment the volume decides to answer
/// such writes. The decision covers this write, and nothing is returned to the volume later.
#[test]
fn a_write_that_waits_to_be_handed_back_is_answered_by_the_decision_about_it() {
    let mut world = World::new();
    let [old, new] = [[1; BLOCK_BYTES], [2; BLOCK_BYTES]];
    world.ask(Operation::Write, 3, &old).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing = [DiskOperation::Write, DiskOperation::Sync].map(|operation| (FLASH, operation, ANYWHERE)).to_vec();
    world.begin(Operation::Write, 5, &new);
    world.perform();
    assert!(world.engine.recovery().stopped().is_some());
    world.output.held.clear();
    world.find_again().unwrap();
    assert!(world.engine.cache().is_frozen());
    world.perform();

    let read = world.begin(Operation::Read, 3, &[]);
    let write = world.begin(Operation::Write, 7, &new);
    assert!(world.engine.running() > 0 && write.lock().unwrap().is_none());
    let mut held = world.engine.recovery_mut().stop_holding();
    assert_eq!(held.len(), 1, "the write waits until nothing runs");
    let (request, done) = held.remove(0);
    assert_eq!((request.operation, request.offset), (Operation::Write, 7 * BLOCK_BYTES as u64));
    done(Err(Error::Io));
    world.perform();
    assert_eq!(*read.lock().unwrap(), Some(Ok(old.to_vec())));
    assert_eq!(*write.lock().unwrap(), Some(Err(Error::Io)));
    // Later writes are answered at once.
    let read = world.begin(Operation::Read, 3, &[]);
    let late = world.begin(Operation::Write, 9, &new);
    assert_eq!(*late.lock().unwrap(), Some(Err(Error::Io)));
    world.perform();
    assert!(read.lock().unwrap().is_some() && world.output.held.is_empty());
}
