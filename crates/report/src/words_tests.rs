use super::*;

/// A trace of 1000 accesses, of which the given number in a thousand are to a block accessed before.
fn info(reaccesses: u64) -> Info {
    Info {
        trace: "t".to_owned(),
        format: "msr".to_owned(),
        block_size_bytes: 4096,
        requests: 1000,
        read_requests: 1000,
        write_requests: 0,
        request_bytes_min: 4096,
        request_bytes_mean: 4096.0,
        request_bytes_max: 4096,
        read_bytes: 4_096_000,
        write_bytes: 0,
        accesses: 1000,
        reads: 1000,
        writes: 0,
        read_share: 1.0,
        unique_blocks: 1000 - reaccesses,
        unique_blocks_read: 1000 - reaccesses,
        unique_blocks_written: 0,
        working_set_bytes: 4096 * (1000 - reaccesses),
        reaccess_ratio: reaccesses as f64 / 1000.0,
        read_reaccess_ratio: reaccesses as f64 / 1000.0,
        read_reuse_distance_min: None,
        write_reuse_distance_min: None,
        columns: None,
        duration_us: 0,
        out_of_order_requests: 0,
        absurd_requests: 0,
        volumes: 1,
        skipped_records: 0,
        malformed_records: 0,
    }
}

/// Policy, blocks, hits in 1000 accesses, blocks written to flash.
fn row(&(policy, capacity_blocks, hits, flash_writes_blocks): &(&str, u64, u64, u64)) -> ResultRow {
    ResultRow {
        policy: policy.to_owned(),
        size: capacity_blocks.to_string(),
        capacity_blocks,
        block_size_bytes: 4096,
        accesses: 1000,
        hits,
        hit_ratio: hits as f64 / 1000.0,
        flash_writes_blocks,
        flash_bytes_written: flash_writes_blocks * 4096,
        ..ResultRow::default()
    }
}

fn say(reaccesses: u64, rows: &[(&str, u64, u64, u64)]) -> [String; 2] {
    let rows: Vec<_> = rows.iter().map(row).collect();
    sentences(&info(reaccesses), &Grid::new(&rows))
}

#[test]
fn the_policy_with_the_most_hits_is_named_with_its_size_its_distance_to_min_and_the_sizes_it_leads_at() {
    let rows = [
        ("lru", 256, 100, 900),
        ("lru", 512, 300, 700),
        ("larc", 256, 150, 90),
        ("larc", 512, 280, 350),
        ("min", 256, 250, 750),
        ("min", 512, 345, 655),
    ];
    let [hits, writes] = say(400, &rows);
    assert_eq!(
        hits,
        "lru has the highest hit ratio, 30% with 2 MiB (512 blocks), 4.5 percentage points below MIN, which knows the \
         future; it leads at 1 of 2 sizes, and a cache without bound would hit 40%."
    );
    assert_eq!(
        writes,
        "larc writes 50% to 90% less to flash than lru over the 2 sizes, and its hit ratio is between 2 percentage points \
         lower and 5 higher."
    );
}

#[test]
fn a_policy_that_leads_everywhere_is_said_to() {
    let rows = [("larc", 256, 150, 90), ("lru", 256, 100, 900), ("larc", 512, 301, 350), ("lru", 512, 300, 700)];
    let [hits, writes] = say(400, &rows);
    let expected = "larc has the highest hit ratio at both sizes, up to 30.1% with 2 MiB (512 blocks); a cache without bound \
                    would hit 40%.";
    assert_eq!(hits, expected);
    let expected = "larc writes 50% to 90% less to flash than lru over the 2 sizes, and its hit ratio is 0.1 to 5 percentage \
                    points higher.";
    assert_eq!(writes, expected);
}

#[test]
fn one_policy_at_one_size_is_not_compared() {
    let [hits, writes] = say(400, &[("sieve", 1, 200, 800)]);
    assert_eq!(hits, "sieve hits 20% of the accesses with 4 KiB (1 block); a cache without bound would hit 40%.");
    assert_eq!(writes, "With 4 KiB (1 block) sieve writes 800 blocks (3.12 MiB) to flash, 4.00 blocks for each hit.");
    let [hits, _] = say(400, &[("sieve", 1, 200, 800), ("sieve", 256, 300, 700), ("min", 256, 300, 700)]);
    let expected = "sieve hits up to 30% of the accesses, with 1 MiB (256 blocks), as much as MIN, which knows the future; \
                    a cache without bound would hit 40%.";
    assert_eq!(hits, expected);
}

#[test]
fn min_alone_is_not_compared_with_itself() {
    let [hits, writes] = say(400, &[("min", 256, 200, 800)]);
    assert_eq!(hits, "min hits 20% of the accesses with 1 MiB (256 blocks); a cache without bound would hit 40%.");
    assert_eq!(writes, "With 1 MiB (256 blocks) min writes 800 blocks (3.12 MiB) to flash, 4.00 blocks for each hit.");
}

#[test]
fn after_a_warm_up_a_policy_can_be_above_min() {
    let [hits, _] = say(400, &[("larc", 256, 201, 90), ("min", 256, 200, 800)]);
    let expected = "larc hits 20.1% of the accesses with 1 MiB (256 blocks), 0.1 percentage points above MIN, which has the \
                    most hits of the whole trace; a cache without bound would hit 40%.";
    assert_eq!(hits, expected);
}

#[test]
fn caching_is_hardly_worthwhile_when_few_blocks_come_again() {
    let [hits, _] = say(32, &[("lru", 256, 20, 980), ("larc", 256, 10, 50), ("min", 256, 30, 970)]);
    let expected = "Caching is hardly worthwhile here, because only 3.2% of the accesses are to a block accessed before: lru has \
                    the highest hit ratio, 2% with 1 MiB (256 blocks), 1 percentage points below MIN, which knows the future.";
    assert_eq!(hits, expected.replace("1 percentage points", "1 percentage point"));
    let [hits, _] = say(0, &[("lru", 256, 0, 1000)]);
    assert_eq!(hits, "Caching is not worthwhile here: no block is accessed twice, so no cache can hit.");
}

#[test]
fn caching_is_hardly_worthwhile_at_sizes_that_are_too_small() {
    let [hits, _] = say(450, &[("lru", 256, 49, 951)]);
    let expected = "Caching is hardly worthwhile at these sizes, although 45% of the accesses are to a block accessed before: \
                    lru hits 4.9% of the accesses with 1 MiB (256 blocks).";
    assert_eq!(hits, expected);
}

#[test]
fn no_hits_at_all_are_told_with_what_min_would_have() {
    let [hits, writes] = say(450, &[("lru", 256, 0, 1000), ("larc", 256, 0, 256)]);
    assert_eq!(hits, "No policy hits at all, although 45% of the accesses are to a block accessed before.");
    assert_eq!(
        writes,
        "larc writes 74.4% less to flash than lru with 1 MiB (256 blocks), and its hit ratio is the same."
    );
    let [hits, _] = say(450, &[("lru", 256, 0, 1000), ("min", 256, 100, 900)]);
    let expected = "No policy hits at all, although 45% of the accesses are to a block accessed before; MIN, which knows the \
                    future, hits 10% with 1 MiB (256 blocks).";
    assert_eq!(hits, expected);
    let [hits, _] = say(450, &[("lru", 256, 0, 1000), ("min", 256, 0, 1000)]);
    let expected = "No policy hits at all, although 45% of the accesses are to a block accessed before, and neither does MIN, \
                    which knows the future.";
    assert_eq!(hits, expected);
}

#[test]
fn policies_that_hit_equally_share_the_lead() {
    let [hits, writes] = say(400, &[("lru", 256, 300, 700), ("sieve", 256, 300, 700)]);
    let expected = "All policies hit 30% of the accesses with 1 MiB (256 blocks); a cache without bound would hit 40%.";
    assert_eq!(hits, expected);
    let expected =
        "No other policy writes less to flash than lru: with 1 MiB (256 blocks) it writes 700 blocks (2.73 MiB).";
    assert_eq!(writes, expected);
    let [hits, _] = say(400, &[("lru", 256, 300, 700), ("sieve", 256, 300, 700), ("larc", 256, 299, 70)]);
    let expected = "lru and sieve hit most, each 30% of the accesses with 1 MiB (256 blocks); a cache without bound would hit \
                    40%.";
    assert_eq!(hits, expected);
}

#[test]
fn the_least_writer_of_many_is_named_and_ties_are_not_called_least() {
    let rows = [("lru", 256, 300, 700), ("sieve", 256, 310, 690), ("larc", 256, 250, 70)];
    let [_, writes] = say(400, &rows);
    let expected = "larc writes least to flash with 1 MiB (256 blocks): 90% less than lru, while its hit ratio is 5 percentage \
                    points lower.";
    assert_eq!(writes, expected);
    let [_, writes] = say(400, &[("lru", 256, 300, 700), ("a", 256, 310, 70), ("b", 256, 320, 70)]);
    let expected = "No policy writes less to flash with 1 MiB (256 blocks) than b: 90% less than lru, while its hit ratio is 2 \
                    percentage points higher.";
    assert_eq!(writes, expected);
}

#[test]
fn without_lru_the_fewest_and_the_most_flash_writes_are_named() {
    let [_, writes] = say(400, &[("sieve", 256, 310, 690), ("larc", 256, 250, 70), ("lirs", 256, 300, 690)]);
    let expected = "With 1 MiB (256 blocks) the fewest flash writes are those of larc, 70 blocks (280 KiB), and the most those \
                    of sieve and lirs, 690 blocks (2.7 MiB).";
    assert_eq!(writes, expected);
    let [_, writes] = say(400, &[("sieve", 256, 310, 690), ("lirs", 256, 300, 690)]);
    assert_eq!(writes, "All policies write equally much to flash with 1 MiB (256 blocks): 690 blocks (2.7 MiB).");
}

#[test]
fn a_policy_that_writes_more_at_some_size_is_said_to() {
    let rows = [("lru", 256, 300, 100), ("lru", 512, 300, 700), ("larc", 256, 300, 110), ("larc", 512, 300, 350)];
    let [_, writes] = say(400, &rows);
    let expected =
        "larc writes between 10% more and 50% less to flash than lru over the 2 sizes, and its hit ratio is the same.";
    assert_eq!(writes, expected);
}

#[test]
fn nothing_counted_and_nothing_written_are_said_plainly() {
    let [hits, writes] = say(400, &[]);
    assert_eq!(hits, "No policy was simulated.");
    assert_eq!(writes, "40% of the accesses are to a block accessed before, which is the most that a cache can hit.");
    let [_, writes] = say(400, &[("lru", 256, 300, 0), ("larc", 256, 300, 0)]);
    assert_eq!(writes, "Nothing is written to flash in the accesses that were counted.");
    let rows = [ResultRow { accesses: 0, hits: 0, ..row(&("lru", 256, 0, 0)) }];
    let [hits, _] = sentences(&info(400), &Grid::new(&rows));
    assert_eq!(hits, "Nothing was counted, because the warm-up is as long as the trace.");
}

#[test]
fn after_a_warm_up_hits_are_not_measured_against_the_whole_trace() {
    let rows = [ResultRow { warmup_accesses: 500, ..row(&("lru", 256, 450, 100)) }];
    let [hits, _] = sentences(&info(400), &Grid::new(&rows));
    assert_eq!(hits, "lru hits 45% of the accesses with 1 MiB (256 blocks).");
}
