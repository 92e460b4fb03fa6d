//! Nanoseconds per access of each policy with full counters: one core, a prepared Zipf trace, a cache of 10 %.
//!
//! Each is compared with a straightforward LRU: a standard `HashMap` and a linked list.

use std::collections::HashMap;

use flashwise_benches::{ZIPF_ACCESSES, seconds, zipf_trace};
use flashwise_core::policy::{POLICIES, Spec};
use flashwise_sim::experiment::Case;
use flashwise_sim::simulate::{Counting, Warmup, simulate};
use flashwise_trace::Trace;
use flashwise_trace::progress::Silent;

const RUNS: usize = 3;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let trace = zipf_trace(ZIPF_ACCESSES);
    let capacity = trace.unique_blocks() / 10;
    println!("{} accesses, {} unique blocks, cache of {capacity} blocks", trace.len(), trace.unique_blocks());
    let accesses = trace.len() as f64;
    let mut hits = 0;
    let (plain_least, plain) = seconds(RUNS, || hits = plain_lru(&trace, capacity));
    println!("{:24} {:>9} {:>9} {:>16} {:>9}", "", "ns least", "ns median", "of plain LRU", "hits");
    let show = |name: &str, least: f64, median: f64, hits: u64| {
        let ns = 1e9 / accesses;
        println!(
            "{name:24} {:9.1} {:9.1} {:15.2}x {:8.2}%",
            least * ns,
            median * ns,
            median / plain,
            100.0 * hits as f64 / accesses
        );
    };
    show("plain LRU", plain_least, plain, hits);
    for info in POLICIES.iter().filter(|info| only.is_empty() || only.iter().any(|name| name == info.name)) {
        let policy = Spec::parse(info.name).expect("a listed policy can be named");
        let mut hits = 0;
        let (least, median) = seconds(RUNS, || hits = run(&trace, &policy, capacity));
        show(info.name, least, median, hits);
    }
}

fn run(trace: &Trace, policy: &Spec, capacity_blocks: usize) -> u64 {
    let case = Case::of(policy.clone(), "10%", capacity_blocks);
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    let runs = simulate(std::slice::from_ref(trace), vec![case], counting, &Silent).expect("the trace is short enough");
    runs[0].counts().hits()
}

/// Returns the hits of a straightforward LRU: a `HashMap` from block to node, and a doubly linked list with the most
/// recently used node first.
fn plain_lru(trace: &Trace, capacity: usize) -> u64 {
    struct Node {
        block: u64,
        prev: usize,
        next: usize,
    }
    const HEAD: usize = 0;
    let mut nodes = vec![Node { block: 0, prev: HEAD, next: HEAD }];
    let mut node_of: HashMap<u64, usize> = HashMap::new();
    let mut hits = 0;
    for (block, _) in trace.accesses() {
        let block = u64::from(block);
        let found = node_of.get(&block).copied();
        hits += u64::from(found.is_some());
        let node = match found {
            None if node_of.len() < capacity => {
                nodes.push(Node { block, prev: HEAD, next: HEAD });
                nodes.len() - 1
            }
            _ => {
                let node = found.unwrap_or(nodes[HEAD].prev);
                let Node { prev, next, .. } = nodes[node];
                nodes[prev].next = next;
                nodes[next].prev = prev;
                node
            }
        };
        if found.is_none() {
            if nodes[node].block != block && node_of.len() >= capacity {
                node_of.remove(&nodes[node].block);
                nodes[node].block = block;
            }
            node_of.insert(block, node);
        }
        let first = nodes[HEAD].next;
        (nodes[node].prev, nodes[node].next) = (HEAD, first);
        nodes[first].prev = node;
        nodes[HEAD].next = node;
    }
    hits
}
