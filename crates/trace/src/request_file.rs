//! The requests of a trace as a cache receives them, in a temporary file: in order, with their bytes and flags. Each
//! run reads the file.
//!
//! A cache's blocks are 32-bit numbers. A trace of one volume that ends below 16 TiB keeps its addresses, as on the
//! server. Otherwise the accessed regions of 256 MiB of all volumes are placed one after the other, in order of volume
//! and address. A region stays free between two that are not neighbours, so that no stream runs from one into the
//! other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;

use flashwise_core::access::Op;
use flashwise_core::cache::Kind;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::recording::Operation;

use crate::error::TraceError;
use crate::files::{temporary_file, temporary_name};
use crate::formats::Batch;
use crate::request::{RecordedRequest, volume_name};

/// The length of a region.
const REGION_BYTES: u64 = 256 << 20;
/// The size of a cache's address space.
const ADDRESSES_BYTES: u64 = BLOCK_BYTES as u64 * (u32::MAX as u64);
/// The maximum number of regions.
const REGIONS_MAX: u64 = ADDRESSES_BYTES / REGION_BYTES;
/// The length of a record: time, offset and length (8 bytes each), volume, kind, durable flag, decision of the I/O
/// filter, one unused byte.
const RECORD_BYTES: usize = 32;

/// A request as a client of the server sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    /// Microseconds on the cache's clock.
    pub time_us: u64,
    /// The kind of request.
    pub kind: Kind,
    /// The first byte.
    pub offset_bytes: u64,
    /// The number of bytes; 0 for a flush.
    pub length_bytes: u64,
    /// True if the change must be durable before the answer.
    pub durable: bool,
    /// The decision of the I/O filter for the client.
    pub caching: Caching,
}

/// The position of a region: its volume and its number in the volume.
type Place = (u32, u64);

/// Collects the requests of a trace that is being read.
#[derive(Debug)]
pub struct RequestWriter {
    out: BufWriter<File>,
    volumes: BTreeMap<Vec<u8>, u32>,
    /// The time of the first request; none for recordings, which keep the clock of the server.
    start_us: Option<i64>,
    requests: u64,
    /// The accessed regions.
    regions: BTreeMap<Place, u64>,
    end_bytes: u64,
}

fn unwritten(source: std::io::Error) -> TraceError {
    TraceError::Io { path: temporary_name(), source }
}

impl RequestWriter {
    /// Creates a writer without requests.
    pub fn new() -> Result<RequestWriter, TraceError> {
        Ok(RequestWriter {
            out: BufWriter::with_capacity(1 << 20, temporary_file()?),
            volumes: BTreeMap::new(),
            start_us: None,
            requests: 0,
            regions: BTreeMap::new(),
            end_bytes: 0,
        })
    }

    /// Adds the requests of a batch.
    pub fn batch(&mut self, batch: &Batch) -> Result<(), TraceError> {
        let mut volumes = Vec::new();
        for name in batch.volumes.names() {
            let number = self.volumes.len() as u32;
            volumes.push(*self.volumes.entry(name.clone()).or_insert(number));
        }
        if !batch.recorded.is_empty() {
            for request in &batch.recorded {
                if let Some(cache_request) = cache_request(request) {
                    self.request(volumes[request.volume as usize], &cache_request)?;
                }
            }
            return Ok(());
        }
        for (at, request) in batch.requests.iter().enumerate() {
            let start_us = *self.start_us.get_or_insert(request.time_us);
            let cache_request = CacheRequest {
                time_us: u64::try_from(request.time_us.saturating_sub(start_us)).unwrap_or(0),
                kind: if request.op == Op::Read { Kind::Read } else { Kind::Write },
                offset_bytes: request.offset_bytes,
                length_bytes: request.length_bytes,
                durable: false,
                caching: batch.caching.get(at).copied().unwrap_or_default(),
            };
            self.request(volumes[request.volume as usize], &cache_request)?;
        }
        Ok(())
    }

    fn request(&mut self, volume: u32, request: &CacheRequest) -> Result<(), TraceError> {
        let CacheRequest { kind, offset_bytes, length_bytes, durable, caching, .. } = *request;
        let end_bytes = offset_bytes + length_bytes;
        self.end_bytes = self.end_bytes.max(end_bytes);
        // A range that is discarded and was never accessed needs no address.
        if matches!(kind, Kind::Read | Kind::Write | Kind::Prefetch) {
            for region in offset_bytes / REGION_BYTES..end_bytes.div_ceil(REGION_BYTES) {
                self.regions.entry((volume, region)).or_insert(0);
            }
        }
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&request.time_us.to_le_bytes());
        record[8..16].copy_from_slice(&offset_bytes.to_le_bytes());
        record[16..24].copy_from_slice(&length_bytes.to_le_bytes());
        record[24..28].copy_from_slice(&volume.to_le_bytes());
        (record[28], record[29], record[30]) = (code(kind), u8::from(durable), caching.number());
        self.requests += 1;
        self.out.write_all(&record).map_err(unwritten)
    }

    /// Ends the file. Errors call the trace `name`.
    ///
    /// # Errors
    /// A trace whose regions do not fit into a cache's addresses.
    pub fn finish(self, name: &str) -> Result<RequestFile, TraceError> {
        let regions = match self.volumes.len() <= 1 && self.end_bytes <= ADDRESSES_BYTES {
            true => None,
            false => Some(place(self.regions, name)?),
        };
        let file = self.out.into_inner().map_err(|error| unwritten(error.into_error()))?;
        let (records, requests) = (self.requests, self.requests);
        let begins_anew = self.start_us.is_some();
        Ok(RequestFile {
            file,
            records,
            requests,
            begins_anew,
            start_us: 0,
            volumes: self.volumes,
            volume: None,
            regions,
        })
    }
}

/// Assigns addresses to the regions.
fn place(mut regions: BTreeMap<Place, u64>, name: &str) -> Result<BTreeMap<Place, u64>, TraceError> {
    let mut next = 0;
    let mut previous: Option<Place> = None;
    for (place, number) in &mut regions {
        let is_neighbour = previous.is_some_and(|(volume, region)| *place == (volume, region + 1));
        *number = if is_neighbour || previous.is_none() { next } else { next + 1 };
        (next, previous) = (*number + 1, Some(*place));
    }
    if next > REGIONS_MAX {
        let (path, what) = (name.to_owned(), "256 MiB regions in the addresses of a cache");
        return Err(TraceError::TooLarge { path, what, found: next, most: REGIONS_MAX });
    }
    Ok(regions)
}

/// Returns the request that the server sent to its cache, if any. Empty requests, and zeroes that must be refused
/// unless they are fast, do not reach the cache. The time is on the server's own clock, which also drives its ticks.
fn cache_request(request: &RecordedRequest) -> Option<CacheRequest> {
    let kind = match request.operation {
        Operation::Read => Kind::Read,
        Operation::Write => Kind::Write,
        Operation::Flush => Kind::Flush,
        Operation::Trim => Kind::Trim,
        Operation::WriteZeroes if request.flags.only_if_fast => return None,
        Operation::WriteZeroes => Kind::WriteZeroes { may_punch_holes: !request.flags.no_hole },
        Operation::Cache => Kind::Prefetch,
    };
    let caching = request.flags.caching;
    if kind == Kind::Flush {
        let time_us = u64::try_from(request.time_us).unwrap_or(0);
        return Some(CacheRequest { time_us, kind, offset_bytes: 0, length_bytes: 0, durable: false, caching });
    }
    (request.length_bytes > 0).then(|| CacheRequest {
        time_us: u64::try_from(request.time_us).unwrap_or(0),
        kind,
        offset_bytes: request.offset_bytes,
        length_bytes: request.length_bytes,
        durable: request.flags.force_unit_access,
        caching,
    })
}

const PUNCH: Kind = Kind::WriteZeroes { may_punch_holes: true };
const KEEP: Kind = Kind::WriteZeroes { may_punch_holes: false };
const KINDS: [Kind; 7] = [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim, PUNCH, KEEP, Kind::Prefetch];

fn code(kind: Kind) -> u8 {
    KINDS.iter().position(|&other| other == kind).expect("the table has all kinds") as u8
}

/// Reads a file from its start, independently of other readers.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The requests of a trace.
#[derive(Debug)]
pub struct RequestFile {
    file: File,
    /// The number of requests in the file.
    records: u64,
    /// The number of requests to `volume`, if there is one; otherwise all.
    requests: u64,
    /// True if time begins with the first request; false for the clock of a server.
    begins_anew: bool,
    /// The time of the first request in the file.
    start_us: u64,
    /// The volumes of the file, by name.
    volumes: BTreeMap<Vec<u8>, u32>,
    volume: Option<u32>,
    /// The addresses of the regions, unless addresses are kept.
    regions: Option<BTreeMap<Place, u64>>,
}

impl RequestFile {
    /// Returns the number of requests.
    pub fn len(&self) -> u64 {
        self.requests
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Returns the requests to each of `volumes`, by name, as if there were no others.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn each(&self, volumes: &[String]) -> Result<Vec<RequestFile>, TraceError> {
        let mut found = vec![(0, 0, 0); self.volumes.len()];
        self.for_each_record(|volume, request| {
            let (requests, first_us, end_bytes) = &mut found[volume as usize];
            if *requests == 0 && self.begins_anew {
                *first_us = request.time_us;
            }
            *requests += 1;
            *end_bytes = request.offset_bytes.saturating_add(request.length_bytes).max(*end_bytes);
        })?;
        let numbers: BTreeMap<String, u32> =
            self.volumes.iter().map(|(name, &number)| (volume_name(name), number)).collect();
        let of_volume = |name: &String| {
            let number = numbers[name];
            let (requests, start_us, end_bytes) = found[number as usize];
            let own = self.regions.iter().flat_map(|all| all.range((number, 0)..=(number, u64::MAX)));
            let own = own.map(|(place, number)| (*place, *number)).collect();
            let regions = if end_bytes <= ADDRESSES_BYTES { None } else { Some(place(own, name)?) };
            let file = self.file.try_clone().map_err(unwritten)?;
            let volumes = self.volumes.clone();
            Ok(RequestFile {
                file,
                records: self.records,
                requests,
                begins_anew: self.begins_anew,
                start_us,
                volumes,
                volume: Some(number),
                regions,
            })
        };
        volumes.iter().map(of_volume).collect()
    }

    /// Hands the requests to `consume`, in order.
    pub fn for_each(&self, mut consume: impl FnMut(&CacheRequest)) -> Result<(), TraceError> {
        let mut now_us = 0;
        self.for_each_record(|volume, request| {
            if self.volume.is_some_and(|only| only != volume) {
                return;
            }
            // If the clock went backwards, all later ticks would be late.
            now_us = request.time_us.saturating_sub(self.start_us).max(now_us);
            let request = CacheRequest { time_us: now_us, ..request };
            match &self.regions {
                Some(regions) => placed(regions, volume, request, &mut consume),
                None => consume(&request),
            }
        })
    }

    /// Hands all requests of the file to `consume`, each with its volume.
    fn for_each_record(&self, mut consume: impl FnMut(u32, CacheRequest)) -> Result<(), TraceError> {
        let mut input = BufReader::with_capacity(1 << 18, FromStart { file: &self.file, at: 0 });
        let mut record = [0; RECORD_BYTES];
        for _ in 0..self.records {
            input.read_exact(&mut record).map_err(unwritten)?;
            let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
            let request = CacheRequest {
                time_us: number(0),
                offset_bytes: number(8),
                length_bytes: number(16),
                kind: KINDS[usize::from(record[28])],
                durable: record[29] == 1,
                caching: Caching::of_number(record[30]).expect("it was written as a number of one"),
            };
            consume(number(24) as u32, request);
        }
        Ok(())
    }
}

/// Hands over the parts of a request that lie in placed regions, one for each run of neighbours.
fn placed(regions: &BTreeMap<Place, u64>, volume: u32, request: CacheRequest, consume: &mut impl FnMut(&CacheRequest)) {
    let CacheRequest { offset_bytes, length_bytes, .. } = request;
    if length_bytes == 0 {
        return consume(&request);
    }
    let end_bytes = offset_bytes + length_bytes;
    let mut open: Option<CacheRequest> = None;
    let touched = (volume, offset_bytes / REGION_BYTES)..(volume, end_bytes.div_ceil(REGION_BYTES));
    for (&(_, region), &number) in regions.range(touched) {
        let start = offset_bytes.max(region * REGION_BYTES);
        let stop = end_bytes.min((region + 1) * REGION_BYTES);
        let at = number * REGION_BYTES + start % REGION_BYTES;
        match &mut open {
            Some(run) if run.offset_bytes + run.length_bytes == at => run.length_bytes += stop - start,
            _ => {
                let run = CacheRequest { offset_bytes: at, length_bytes: stop - start, ..request };
                if let Some(run) = open.replace(run) {
                    consume(&run);
                }
            }
        }
    }
    if let Some(run) = open {
        consume(&run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Request, Volumes};

    const WRITE: Kind = Kind::Write;

    fn request(kind: Kind, offset_bytes: u64, length_bytes: u64) -> CacheRequest {
        CacheRequest { time_us: 5, kind, offset_bytes, length_bytes, durable: true, caching: Caching::Never }
    }

    fn read_back(requests: &[(u32, CacheRequest)]) -> Vec<CacheRequest> {
        let mut writer = RequestWriter::new().unwrap();
        for (volume, request) in requests {
            writer.volumes.insert(volume.to_string().into_bytes(), *volume);
            writer.request(*volume, request).unwrap();
        }
        let mut found = Vec::new();
        writer.finish("trace").unwrap().for_each(|request| found.push(*request)).unwrap();
        found
    }

    #[test]
    fn requests_of_one_volume_are_read_as_they_were_written() {
        let requests = KINDS.map(|kind| (0, request(kind, 512 + (15 << 40), 4096)));
        assert_eq!(read_back(&requests), requests.map(|(_, request)| request));
    }

    #[test]
    fn each_volume_has_its_requests_at_their_own_addresses() {
        let far = 20 << 40;
        let requests = [
            (1, request(WRITE, 512, 1024)),
            (0, request(WRITE, 4096, 10)),
            (2, request(WRITE, far, 10)),
            (1, request(Kind::Flush, 0, 0)),
            (0, request(Kind::Trim, 0, 8192)),
        ];
        let mut writer = RequestWriter::new().unwrap();
        for (volume, request) in &requests {
            writer.volumes.insert(format!("v{volume}").into_bytes(), *volume);
            writer.request(*volume, request).unwrap();
        }
        let whole = writer.finish("trace").unwrap();
        let of = |file: &RequestFile| {
            let mut found = Vec::new();
            file.for_each(|request| found.push(*request)).unwrap();
            assert_eq!(found.len() as u64, file.len());
            found
        };
        let each = whole.each(&["v1", "v2", "v0"].map(str::to_owned)).unwrap();
        let wanted = |volume| -> Vec<CacheRequest> {
            requests.iter().filter(|(of, _)| *of == volume).map(|(_, request)| *request).collect()
        };
        assert_eq!((of(&each[0]), of(&each[2])), (wanted(1), wanted(0)));
        assert_eq!(
            of(&each[1]),
            [request(WRITE, 0, 10)],
            "its only region is placed, as it lies beyond a cache's addresses"
        );
    }

    /// Regions of 256 MiB: volume 0 has 5, 6 and 9; volume 1 has 0.
    #[test]
    fn regions_that_are_accessed_are_placed_in_order_with_one_free_between_strangers() {
        let mib = |mib: u64| mib << 20;
        let requests = [
            (1, request(WRITE, 512, 1024)),
            (0, request(WRITE, mib(9 * 256) + 7, 10)),
            (0, request(WRITE, mib(6 * 256) - 1, 2)),
            (0, request(Kind::Flush, 0, 0)),
            (0, request(Kind::Trim, mib(128), mib(1 << 20))),
            (2, request(Kind::Trim, 0, mib(1 << 20))),
        ];
        let expected = [
            request(WRITE, mib(5 * 256) + 512, 1024),
            request(WRITE, mib(3 * 256) + 7, 10),
            request(WRITE, mib(256) - 1, 2),
            request(Kind::Flush, 0, 0),
            request(Kind::Trim, 0, mib(512)),
            request(Kind::Trim, mib(3 * 256), mib(256)),
        ];
        assert_eq!(read_back(&requests), expected);
    }

    #[test]
    fn a_trace_of_more_regions_than_there_are_addresses_is_refused() {
        let mut writer = RequestWriter::new().unwrap();
        for region in 0..40_000 {
            writer.request(0, &request(WRITE, 2 * region * REGION_BYTES, 4096)).unwrap();
        }
        let refused = writer.finish("trace").unwrap_err().to_string();
        let expected = "trace: 256 MiB regions in the addresses of a cache: found 79999, expected at most 65535";
        assert_eq!(refused, expected);
    }

    #[test]
    fn times_count_from_the_first_request_and_do_not_go_back() {
        let mut volumes = Volumes::default();
        let volume = volumes.number(b"a");
        let read = |time_us| Request { time_us, op: Op::Read, volume, offset_bytes: 0, length_bytes: 1 };
        let requests = [-7, 3, -20, i64::MAX].map(read).to_vec();
        let mut writer = RequestWriter::new().unwrap();
        writer.batch(&Batch { requests, volumes, ..Batch::default() }).unwrap();
        let mut times = Vec::new();
        writer.finish("trace").unwrap().for_each(|request| times.push(request.time_us)).unwrap();
        assert_eq!(times, [0, 10, 10, i64::MAX as u64]);
    }
}
