//! An export in memory that records every request, with its data.

use std::sync::{Arc, Mutex};

use flashwise_storage::export::{Done, Error, Export, Extent, Operation, Request};
use flashwise_testing::memory::Memory;
use flashwise_testing::work::Moments;

/// A recorded request.
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

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Returns the number of flushes among `requests`.
    pub fn flushes(&self, requests: std::ops::RangeFrom<usize>) -> usize {
        let is_flush = |request: &&Recorded| request.operation == Operation::Flush;
        self.requests.lock().unwrap()[requests].iter().filter(is_flush).count()
    }

    pub fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }
}

/// Moments are numbers of requests.
impl Moments for &Recording {
    fn now(&self) -> u64 {
        self.len() as u64
    }

    /// Returns the number of requests up to and including the last flush. Everything durable by now is durable after
    /// these.
    fn durable(&self) -> u64 {
        let requests = self.requests.lock().unwrap();
        let last = requests.iter().rposition(|request| request.operation == Operation::Flush);
        last.map_or(0, |last| last as u64 + 1)
    }
}

impl Export for Recording {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Completes each request before it records the next. So a request that a reply causes is recorded after the
    /// request that was answered.
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
