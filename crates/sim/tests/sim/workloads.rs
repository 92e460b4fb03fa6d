//! Traces, and replays of them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::index::Dense;
use flashwise_core::policy::{Outcome, Policy, Spec, Visitor};
use flashwise_trace::Trace;
use flashwise_trace::normalised::{Normaliser, Settings, open};
use flashwise_trace::progress::Silent;
use flashwise_trace::request::Request;
use flashwise_trace::tools::generate::{Arrivals, Length, Workload};

/// The next of the numbers below 2^31 that follow from `state`.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// The file of the bundled trace.
pub fn bundled_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/netsfs.csv.zst")
}

/// The bundled trace, normalised once for all tests.
pub fn bundled() -> Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(|| open(bundled_path(), &Settings::default(), &Silent).unwrap()).clone()
}

/// The accesses of a trace, as if each were a request.
pub fn accesses(trace: &Trace) -> impl Iterator<Item = Access<u32>> {
    trace.accesses().map(|(block, op)| Access { block, op, request_blocks: 1, next_use: NEVER })
}

/// True for each access that hits a cache of `capacity` blocks with `policy`.
pub fn hits(trace: &Trace, policy: &str, capacity: usize) -> Vec<bool> {
    struct Hits<'a>(&'a Trace);
    impl Visitor<u32> for Hits<'_> {
        type Output = Vec<bool>;

        fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Vec<bool> {
            accesses(self.0).map(|access| policy.access(access) == Outcome::Hit).collect()
        }
    }
    Spec::parse(policy).unwrap().build(Dense::new(trace.unique_blocks()), capacity, Hits(trace))
}

/// A trace of these requests, all to one volume.
pub fn normalised(name: &str, requests: impl Iterator<Item = Request>) -> Trace {
    let file = std::io::BufWriter::new(tempfile::tempfile().unwrap());
    let mut normaliser = Normaliser::new(name, 4096, file).unwrap();
    normaliser.volume(b"0").unwrap();
    for request in requests {
        normaliser.request(&request).unwrap();
    }
    Trace::map(name, &normaliser.finish().unwrap().into_inner().unwrap()).unwrap()
}

/// The accesses that the letters name, a second apart: reads of `A` to `Z`, writes of `a` to `z`, which are the same
/// blocks.
pub fn letters(letters: &str) -> Trace {
    let request = |(at, letter): (usize, char)| Request {
        time_us: at as i64 * 1_000_000,
        op: if letter.is_ascii_uppercase() { Op::Read } else { Op::Write },
        volume: 0,
        offset_bytes: u64::from(letter.to_ascii_uppercase() as u32 - 'A' as u32) * 4096,
        length_bytes: 4096,
    };
    normalised(letters, letters.chars().enumerate().map(request))
}

/// A trace without times.
pub fn without_times() -> Trace {
    let request = |at: u64| Request {
        time_us: 0,
        op: Op::Read,
        volume: 0,
        offset_bytes: ((at * 2_654_435_761) >> 12) % 1000 * 4096,
        length_bytes: 4096,
    };
    normalised("without times", (0..20_000).map(request))
}

/// A generated trace of so many accesses; `pattern` as on the command line.
pub fn generated(pattern: &str, blocks: u64, accesses: u64, read_share: f64, seed: u64) -> Trace {
    let workload = Workload {
        pattern: pattern.parse().unwrap(),
        blocks,
        length: Length::Accesses(accesses),
        read_share,
        request_blocks: 1..=4,
        rate: 10.0,
        arrivals: Arrivals::Poisson,
        seed,
        block_size_bytes: 4096,
    };
    normalised(pattern, workload.generator().unwrap().map(Result::unwrap))
}
