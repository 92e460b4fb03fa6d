//! The cost of write-back in order, at the limit of dirty data.

use super::Scenario;
use super::scenarios::writers;

/// Blocks that clients wrote in a second, and blocks written to the backend's disk for each, once all are there.
fn cost(order: &'static str, journal_mib: u64) -> (f64, f64) {
    let scenario = writers("lru", "8MiB");
    let half = scenario.lasts / 2;
    let settings = scenario.settings.iter().copied().chain([("write-back-order", order)]).collect();
    let measured = Scenario { settings, journal_mib, drains: true, ..scenario }.run(1);
    let writes = &measured.requests["write"];
    let late = writes.iter().filter(|request| request.asked >= measured.begun + half).count();
    let rate = late as f64 / half.as_secs_f64();
    let each = measured.backend.blocks_written as f64 / writes.len() as f64;
    println!(
        "{order}: {rate:.0} blocks a second, {each:.2} blocks written to the backend's disk for each of {}",
        writes.len()
    );
    (rate, each)
}

/// The journal is on the backend's disk, which takes 8 ms for a block.
#[test]
fn a_journal_costs_at_most_a_fifth_of_the_rate_and_writes_blocks_twice() {
    let (rate, once) = cost("none", 0);
    cost("barriers", 0);
    let (with, each) = cost("journal", 64);
    assert!(with >= 0.8 * rate, "{with:.0} blocks a second, {rate:.0} in any order");
    // With the journal's marks and indexes.
    assert!(each <= 2.1 * once, "{each:.2} blocks for each, {once:.2} in any order");
}
