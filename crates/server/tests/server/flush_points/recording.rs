//! An export in memory that remembers every request, with its data.

use std::sync::{Arc, Mutex};

use flashwise_engine::export::{Done, Error, Export, Extent, Operation, Request};
use flashwise_testing::memory::Memory;

/// A request that was made.
#[derive(Clone)]
pub struct Recorded {
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub force_unit_access: bool,
    pub data: Arc<[u8]>,
}

pub struct Recording {
    memory: Memory,
    requests: Mutex<Vec<Recorded>>,
}

impl Recording {
    pub fn new(size: u64) -> Recording {
        Recording { memory: Memory::new(size), requests: Mutex::default() }
    }

    /// How many requests there were.
    pub fn len(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Requests up to and with the last flush: all that is durable by now is so after these.
    pub fn flushed(&self) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().rposition(|request| request.operation == Operation::Flush).map_or(0, |last| last + 1)
    }

    /// How many of `requests` are flushes.
    pub fn flushes(&self, requests: std::ops::RangeFrom<usize>) -> usize {
        let is_flush = |request: &&Recorded| request.operation == Operation::Flush;
        self.requests.lock().unwrap()[requests].iter().filter(is_flush).count()
    }

    pub fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }
}

impl Export for Recording {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Each request is over, and its effect seen, before the next is taken down: what a client asked for because of an answer is
    /// behind what was answered.
    fn submit(&self, request: Request, done: Done) {
        let mut requests = self.requests.lock().unwrap();
        let Request { operation, offset, length, force_unit_access, ref data, .. } = request;
        requests.push(Recorded { operation, offset, length, force_unit_access, data: data.as_slice().into() });
        self.memory.submit(request, done);
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        self.memory.extents(offset, length, extents_max)
    }
}
