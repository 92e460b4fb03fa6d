//! Opens samples of traces in any format, without a copy of the trace on disk.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashwise_core::access::Op;

use crate::error::TraceError;
use crate::files::name_of;
use crate::normalised::column::{Column, Element, Rows};
use crate::normalised::trace::Trace;
use crate::normalised::trace_file::{BATCH_ROWS, Columns, ROW_BYTES, TraceFile};
use crate::normalised::{Normaliser, Settings};
use crate::progress::Progress;
use crate::requests::Requests;
use crate::sampling::{LOOK_ACCESSES, SampleNotes, Sampling};
use crate::tools::concat::join;

/// The number of accesses that are filtered at once.
const CHUNK_ACCESSES: usize = 1 << 12;

/// Opens a sample of the trace of any kind at `path`; `-` is standard input. The sample is in memory: 25 bytes for each
/// of its accesses, and the memory of a trace for each of its blocks. A normalised trace is mapped, not copied, as long
/// as its sample exists; others are read once, from the beginning to the end. `progress` receives the number of bytes
/// read from `path`.
///
/// # Errors
/// Those of [`open`](crate::normalised::open), and a sample without accesses.
pub fn open(
    path: impl AsRef<Path>,
    settings: &Settings,
    sampling: Sampling,
    progress: &dyn Progress,
) -> Result<Trace, TraceError> {
    let path = path.as_ref();
    let requests = Requests::open(path, settings, progress)?;
    let block_size_bytes = requests.block_size_bytes(settings)?;
    match requests {
        Requests::Normalised(trace, _) => of(&trace, sampling, progress),
        requests => {
            let mut normaliser = Normaliser::new(&name_of(path), block_size_bytes, Vec::new())?;
            normaliser.keep_sample(sampling);
            normaliser.description = requests.about();
            requests
                .for_each_batch(block_size_bytes, &mut |batch| normaliser.batch(batch).map(ControlFlow::Continue))?;
            normaliser.finish_sample()
        }
    }
}

/// Opens a sample of traces as one, each after the previous one, as [`join`] does.
///
/// # Errors
/// Those of [`join`], and a sample without accesses.
pub fn open_joined(
    paths: &[PathBuf],
    settings: &Settings,
    sampling: Sampling,
    progress: &dyn Progress,
) -> Result<Trace, TraceError> {
    of(&join(paths, settings, progress)?, sampling, progress)
}

/// Returns a sample of one of several traces with the same sampling. If the sample would be empty, returns the whole
/// trace.
///
/// # Errors
/// Those of [`of`], except for samples without accesses.
pub fn of_volume(volume: &Trace, sampling: Sampling, progress: &dyn Progress) -> Result<Trace, TraceError> {
    match of(volume, sampling, progress) {
        Err(TraceError::EmptySample { .. }) => {
            of(volume, Sampling::new(1.0, sampling.seed()).unwrap_or(sampling), progress)
        }
        sampled => sampled,
    }
}

/// Returns a sample of a normalised trace. `progress` receives the number of bytes of the trace.
///
/// # Errors
/// A sample without accesses.
pub fn of(trace: &Trace, sampling: Sampling, progress: &dyn Progress) -> Result<Trace, TraceError> {
    let mut notes = SampleNotes::new(sampling, trace.block_size_bytes());
    notes.hot.seek(&mut parts_of(trace));
    let kept = Kept::new(trace, sampling);
    let wanted = kept.with(notes.hot.blocks());
    let all_kept = notes.hot.is_empty();
    let mut renumbered = Renumbered { ids: vec![-1; trace.unique_blocks()], addresses: Vec::new() };
    let (mut batches, mut picked) = (Vec::new(), Picked::default());
    let mut found = Vec::new();
    for columns in trace.batches() {
        let (blocks, ops) = (&columns.block[..], &columns.op[..]);
        let mut rows = Vec::new();
        for start in (0..columns.block.len()).step_by(CHUNK_ACCESSES) {
            let end = columns.block.len().min(start + CHUNK_ACCESSES);
            wanted.find(&blocks[start..end], &mut found);
            let (before, sampled) = notes.noted();
            let mut taken = 0;
            for &in_chunk in &found {
                let at = start + in_chunk as usize;
                let is_kept = all_kept || kept.has(blocks[at]);
                if !all_kept {
                    let op = if ops[at] == Op::Read as u8 { Op::Read } else { Op::Write };
                    notes.hot.note(blocks[at] as u64, op, before + u64::from(in_chunk), sampled + taken, is_kept);
                }
                if is_kept {
                    taken += 1;
                    rows.push(at as u32);
                    picked.op.push(ops[at]);
                    picked.block.push(renumbered.id(blocks[at], trace.addresses()));
                }
            }
            let reads = ops[start..end].iter().filter(|&&op| op == Op::Read as u8).count();
            notes.note_mixed((end - start) as u64, reads as u64, taken);
        }
        if !rows.is_empty() {
            // A clone does not keep unpacked values.
            picked.of.push((columns.clone(), Arc::new(rows)));
        }
        if picked.block.len() >= BATCH_ROWS {
            batches.push(std::mem::take(&mut picked).into());
        }
        progress.advance(columns.bytes);
    }
    if !picked.block.is_empty() {
        batches.push(picked.into());
    }
    if batches.is_empty() {
        return Err(notes.nothing(trace.name().to_owned()));
    }
    let (block_size_bytes, description) = (trace.block_size_bytes(), trace.description().clone());
    let addresses = renumbered.addresses.into();
    let sampled = Trace::of_file(trace.name(), TraceFile { batches, addresses, block_size_bytes, description });
    let accesses = sampled.accesses().map(|(block, _)| block);
    let sample = notes.finish(sampled.addresses(), accesses, Some(trace.unique_blocks() as u64));
    Ok(sampled.into_sample(sample))
}

/// Returns the blocks of some accesses distributed over `trace`.
fn parts_of(trace: &Trace) -> Vec<u64> {
    let batches = trace.batches().len();
    let mean = trace.len().div_ceil(batches.max(1)).max(1);
    let every = batches.div_ceil((4 * LOOK_ACCESSES / mean).max(1)).max(1);
    let of_batch = |columns: &[i32]| columns.iter().map(|&block| block as u64).collect::<Vec<_>>();
    trace.batches().step_by(every).flat_map(|columns| of_batch(&columns.block)).collect()
}

/// The rows of a sample's batch. The columns that every policy reads are copied; the others are picked on first use,
/// since unpacking them takes most of the time.
#[derive(Default)]
struct Picked {
    op: Vec<u8>,
    block: Vec<i32>,
    /// Their rows in the whole trace.
    of: Vec<(Columns, Rows)>,
}

impl From<Picked> for Columns {
    fn from(Picked { op, block, of }: Picked) -> Columns {
        fn each<T: Element>(of: &[(Columns, Rows)], column: impl Fn(&Columns) -> &Column<T>) -> Column<T> {
            Column::picked(of.iter().map(|(columns, rows)| (column(columns).clone(), rows.clone())).collect())
        }
        let rows = block.len();
        Columns {
            time_us: each(&of, |columns| &columns.time_us),
            op: op.into(),
            block: block.into(),
            request: each(&of, |columns| &columns.request),
            request_blocks: each(&of, |columns| &columns.request_blocks),
            rows,
            bytes: (rows * ROW_BYTES) as u64,
        }
    }
}

/// The blocks of a normalised trace that are in a sample: a bit for each id.
#[derive(Clone, Debug)]
pub struct Kept(Vec<u64>);

impl Kept {
    /// Returns the blocks of `trace` that `sampling` chooses.
    pub fn new(trace: &Trace, sampling: Sampling) -> Kept {
        let filter = sampling.filter(trace.block_size_bytes());
        let word = |addresses: &[u64]| {
            let bit = |word: u64, (at, &address): (usize, &u64)| word | u64::from(filter.keeps(address)) << at;
            addresses.iter().enumerate().fold(0, bit)
        };
        Kept(trace.addresses().chunks(u64::BITS as usize).map(word).collect())
    }

    /// Returns these blocks and `more`.
    fn with(&self, more: impl Iterator<Item = u64>) -> Kept {
        let mut words = self.0.clone();
        for block in more {
            words[block as usize / u64::BITS as usize] |= 1 << (block % u64::from(u64::BITS));
        }
        Kept(words)
    }

    /// True if the sample has `block`, an id.
    #[inline]
    fn has(&self, block: i32) -> bool {
        self.0[block as usize / u64::BITS as usize] >> (block as u32 % u64::BITS) & 1 == 1
    }

    /// Replaces the contents of `found` by the positions in `blocks`, a list of ids, of those in the sample.
    pub fn find(&self, blocks: &[i32], found: &mut Vec<u32>) {
        found.clear();
        // 64 independent look-ups make a word, which is mostly 0.
        for (number, some) in blocks.chunks(u64::BITS as usize).enumerate() {
            let mut kept = 0;
            for (at, &block) in some.iter().enumerate() {
                let word = self.0[block as usize / u64::BITS as usize];
                kept |= (word >> (block as u32 % u64::BITS) & 1) << at;
            }
            while kept != 0 {
                found.push(number as u32 * u64::BITS + kept.trailing_zeros());
                kept &= kept - 1;
            }
        }
    }
}

/// The blocks of a sample, renumbered in order of first appearance.
struct Renumbered {
    /// New ids by the id in the whole trace; -1 for those that have not appeared yet.
    ids: Vec<i32>,
    addresses: Vec<u64>,
}

impl Renumbered {
    #[inline]
    fn id(&mut self, block: i32, addresses: &[u64]) -> i32 {
        let id = &mut self.ids[block as usize];
        if *id < 0 {
            *id = self.addresses.len() as i32;
            self.addresses.push(addresses[block as usize]);
        }
        *id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::normalised;
    use crate::normalised::trace::Accesses;
    use crate::progress::Silent;
    use crate::request::Request;
    use crate::sampling::CLASSES;

    /// Requests of 1 to 40 blocks of 4 KiB, distributed over two volumes; each third one writes.
    fn requests() -> Vec<Request> {
        let request = |number: u64| Request {
            time_us: 1000 * number as i64,
            op: if number.is_multiple_of(3) { Op::Write } else { Op::Read },
            volume: (number % 2) as u32,
            offset_bytes: 4096 * (number * number * 2_654_435_761 % 60_000),
            length_bytes: 4096 * (1 + number % 40),
        };
        (0..5000).map(request).collect()
    }

    /// Formats requests as the text of a trace.
    fn text(requests: &[Request]) -> String {
        let line = |request: &Request| {
            let Request { time_us, op, volume, offset_bytes, length_bytes } = *request;
            let filetime = 128_166_372_003_061_629 + 10 * time_us;
            format!("{filetime},web,{volume},{op:?},{offset_bytes},{length_bytes},0\n")
        };
        requests.iter().map(line).collect()
    }

    type Found = (i64, u8, u64, u64, u32);

    fn found(trace: &Trace) -> Vec<Found> {
        let of = |columns: Accesses| {
            let row = |at: usize| {
                let address = trace.addresses()[columns.block[at] as usize];
                (columns.time_us[at], columns.op[at], address, columns.request[at], columns.request_blocks[at])
            };
            (0..columns.block.len()).map(row).collect::<Vec<_>>()
        };
        trace.batches().flat_map(of).collect()
    }

    #[test]
    fn a_sample_has_all_accesses_to_some_groups_and_none_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, text(&requests())).unwrap();
        let whole = normalised::open(&path, &Settings::default(), &Silent).unwrap();
        let sampling = Sampling::new(0.1, 7).unwrap().by_groups();
        assert_eq!((sampling.group_bytes(4096), Sampling::new(0.1, 7).unwrap().group_bytes(4096)), (65536, 4096));
        let filter = sampling.filter(4096);
        let expected: Vec<Found> = found(&whole).into_iter().filter(|row| filter.keeps(row.2)).collect();
        let groups: BTreeSet<u64> = expected.iter().map(|row| row.2 / 16).collect();
        assert!(groups.len() > 500, "{}", groups.len());
        let left_out = found(&whole).iter().filter(|row| groups.contains(&(row.2 / 16))).count() - expected.len();
        assert_eq!(left_out, 0, "a group is whole");
        let (mapped, read) =
            (of(&whole, sampling, &Silent).unwrap(), open(&path, &Settings::default(), sampling, &Silent));
        let read = read.unwrap();
        for sampled in [&mapped, &read] {
            assert!(found(sampled) == expected);
            assert_eq!(sampled.description(), whole.description());
            let sample = sampled.sample().unwrap();
            assert_eq!((sample.accesses(), sample.groups()), (whole.len() as u64, groups.len() as u64));
            // At marks and at the end the counts are exact.
            let reads = whole.accesses().filter(|(_, op)| *op == Op::Read).count() as u64;
            assert_eq!(
                (sample.sampled_before(u64::MAX), sample.reads_before(u64::MAX)),
                (expected.len() as u64, reads)
            );
            let half = found(&whole)[..50_000].iter().filter(|row| filter.keeps(row.2)).count() as f64;
            let said = sample.sampled_before(50_000) as f64;
            assert!((said / half - 1.0).abs() < 0.05, "{said} of {half}");
            let classes: BTreeSet<u8> = sample.classes().iter().copied().collect();
            assert!(classes.len() > CLASSES && classes.iter().all(|&class| usize::from(class) < 2 * CLASSES));
        }
        assert_eq!(mapped.sample().unwrap().unique_blocks(), Some(whole.unique_blocks() as u64));
        assert_eq!((read.sample().unwrap().unique_blocks(), mapped.whole_len()), (None, whole.len() as u64));
        let estimate = read.whole_unique_blocks() as f64 / whole.unique_blocks() as f64;
        assert!((estimate - 1.0).abs() < 0.15, "{estimate}");
    }

    #[test]
    fn smaller_samples_are_parts_of_larger_ones_and_all_of_it_is_the_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, text(&requests())).unwrap();
        let whole = normalised::open(&path, &Settings::default(), &Silent).unwrap();
        let sample = |rate: f64, seed: u64| of(&whole, Sampling::new(rate, seed).unwrap(), &Silent).unwrap();
        let rows = |trace: &Trace| found(trace).into_iter().collect::<BTreeSet<_>>();
        assert!(found(&sample(1.0, 3)) == found(&whole));
        let (small, large, other) = (rows(&sample(0.02, 1)), rows(&sample(0.2, 1)), rows(&sample(0.2, 2)));
        assert!(small.is_subset(&large) && !large.is_subset(&other));
        let share = large.len() as f64 / whole.len() as f64;
        assert!((share - 0.2).abs() < 0.02, "{share}");
        for wrong in [0.0, -0.1, 1.1, f64::NAN] {
            assert_eq!(Sampling::new(wrong, 0), None);
        }
    }

    /// A sample of a packed trace only unpacks the columns in use, with the same result.
    #[test]
    fn a_sample_of_a_packed_trace_is_that_of_a_plain_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, packed) = (folder.path().join("trace.csv"), folder.path().join("trace.arrow"));
        // Several batches, whose sampled accesses share one batch.
        std::fs::write(&path, text(&[requests(), requests(), requests(), requests()].concat())).unwrap();
        let plain = normalised::open(&path, &Settings::default(), &Silent).unwrap();
        crate::tools::convert::convert(&path, &packed, &Settings::default(), &Silent).unwrap();
        let packed = normalised::open(&packed, &Settings::default(), &Silent).unwrap();
        let sample = |trace: &Trace| of(trace, Sampling::new(0.1, 7).unwrap(), &Silent).unwrap();
        let (plain, packed) = (sample(&plain), sample(&packed));
        assert!(plain.len() > 30_000);
        assert!(found(&plain) == found(&packed) && found(&packed) == found(&packed.clone()));
    }

    #[test]
    fn a_sample_of_nothing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, text(&requests()[..1])).unwrap();
        let sampling = Sampling::new(1e-9, 0).unwrap();
        let error = open(&path, &Settings::default(), sampling, &Silent).unwrap_err().to_string();
        let expected = "none of its 1 accesses is in a sample of 0.0000001%; expected a larger share";
        assert!(error.ends_with(expected), "{error}");
        let whole = normalised::open(&path, &Settings::default(), &Silent).unwrap();
        assert_eq!(of(&whole, sampling, &Silent).unwrap_err().to_string(), error);
    }
}
