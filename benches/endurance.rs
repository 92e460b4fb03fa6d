//! Block accesses per second of processor time of the offline algorithms, and of M+ and C on their devices.
//!
//! One core, cache sizes of 1 and 10 %, no DRAM. The trace is a Zipf workload, or each trace in the arguments.

use flashwise_benches::{ZIPF_ACCESSES, processor_seconds, zipf_trace};
use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance::{Buffers, CopyForwardReduction, Endurance, Order, Placement, Settings, perform};
use flashwise_sim::offline::{FlashStream, Plan, Threshold, next_reads};
use flashwise_trace::Trace;
use flashwise_trace::normalised::{self, open};
use flashwise_trace::progress::Silent;

const RUNS: usize = 3;

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if paths.is_empty() {
        measure(&zipf_trace(ZIPF_ACCESSES));
    }
    for path in paths {
        measure(&open(&path, &normalised::Settings::default(), &Silent).expect("the trace can be read"));
    }
}

fn measure(trace: &Trace) {
    println!("{}: {} accesses, {} unique blocks", trace.name(), trace.len(), trace.unique_blocks());
    let accesses = trace.len() as f64;
    let speed = |what: &str, work: &mut dyn FnMut()| {
        let mut times = [0.0; RUNS].map(|_| {
            let start = processor_seconds();
            work();
            // The resolution of processor time is 10 ms.
            (processor_seconds() - start).max(0.01)
        });
        times.sort_by(f64::total_cmp);
        let [best, median] = [times[0], times[RUNS / 2]].map(|seconds| accesses / seconds / 1e6);
        println!("{what:24} {best:8.2} M/s at best, {median:8.2} M/s in the median");
    };
    let mut next = Vec::new();
    speed("next reads", &mut || next = next_reads(trace, &Silent).expect("the trace is short enough"));
    let mut stream = FlashStream::behind_min(trace, &next, 0, 0, &Silent);
    speed("stream without DRAM", &mut || stream = FlashStream::behind_min(trace, &next, 0, 0, &Silent));
    speed("stream behind 1 % DRAM", &mut || {
        drop(FlashStream::behind_min(trace, &next, trace.unique_blocks() / 100, 0, &Silent))
    });
    for percent in [1, 10] {
        let capacity = trace.unique_blocks() * percent / 100;
        // The default size, or a smaller one, so that a small cache has spare units.
        let geometry = [2 << 20, 256 << 10, 64 << 10].into_iter().find_map(|erase_unit_bytes| {
            let settings = Settings { ram: Ram::Bytes(0), erase_unit_bytes, ..Settings::default() };
            settings.geometry("", capacity, trace.block_size_bytes(), Buffers::Units(None)).ok()
        });
        let Some(geometry) = geometry else {
            println!("{percent} % of the trace are too small a cache");
            continue;
        };
        let mut m = Plan::min(&stream, capacity, &Silent);
        speed(&format!("{percent} %: m, decisions"), &mut || m = Plan::min(&stream, capacity, &Silent));
        let in_place = Placement::InPlace { trim: true };
        let containers =
            Placement::Containers { reduction: CopyForwardReduction::Exact, order: Order::Evict, buffers: None };
        for (name, placement) in [("m+", in_place), ("c", containers)] {
            let mut counts: Option<Endurance> = None;
            speed(&format!("{percent} %: {name}"), &mut || {
                let plan = m.rerun(&stream, capacity, Threshold::least_hits(1), &Silent);
                counts = Some(perform(&stream, &plan, &geometry, placement, &Silent));
            });
            let counts = counts.expect("it was run");
            let (units, unit_pages) = (counts.units(), counts.unit_pages);
            let found = format!("RHR {:.4}, {} erasures of {units} units", counts.rhr(), counts.erasures());
            println!("{:24} {found} of {unit_pages} blocks", "");
        }
    }
}
