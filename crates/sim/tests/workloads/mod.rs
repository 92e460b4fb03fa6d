//! Traces that the tests of offline algorithms and of endurance share.

use flashwise_core::access::Op;
use flashwise_trace::Trace;
use flashwise_trace::normalised::Normaliser;
use flashwise_trace::request::Request;
use flashwise_trace::tools::generate::{Arrivals, Length, Workload};

fn normalised(name: &str, requests: impl Iterator<Item = Request>) -> Trace {
    let file = std::io::BufWriter::new(tempfile::tempfile().unwrap());
    let mut normaliser = Normaliser::new(name, 4096, file).unwrap();
    normaliser.volume(b"0").unwrap();
    for request in requests {
        normaliser.request(&request).unwrap();
    }
    Trace::map(name, &normaliser.finish().unwrap().into_inner().unwrap()).unwrap()
}

/// The accesses that the letters name, a second apart: reads of `A` to `Z`, writes of `a` to `z`, which are the same blocks.
#[allow(dead_code)]
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
#[allow(dead_code)]
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
#[allow(dead_code)]
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
