use flashwise_sim::results::{CacheFigures, Epoch};
use flashwise_sim::sampling::SampleFigures;
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::reuse::{Distance, Histogram, ReuseDistances};

use super::*;
use crate::draw::look::Looks;

/// A trace of 1000 accesses over a day; `reaccesses` of them are to a block accessed before.
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
        duration_us: 86_400_000_000,
        requests_per_s: None,
        bytes_per_s: None,
        out_of_order_requests: 0,
        absurd_requests: 0,
        volumes: 1,
        skipped_records: 0,
        malformed_records: 0,
    }
}

/// Policy, blocks, hits in 1000 reads, blocks written to flash.
fn row(&(policy, capacity_blocks, hits, flash_writes_blocks): &(&str, u64, u64, u64)) -> ResultRow {
    ResultRow {
        policy: policy.into(),
        size: capacity_blocks.to_string(),
        capacity_blocks,
        block_size_bytes: 4096,
        accesses: 1000,
        reads: 1000,
        hits,
        read_hits: hits,
        hit_ratio: hits as f64 / 1000.0,
        flash_writes_blocks,
        flash_bytes_written: flash_writes_blocks * 4096,
        ..ResultRow::default()
    }
}

fn answer_of(info: Info, rows: Vec<ResultRow>, checks: Option<Checks>) -> Answer {
    let reuse =
        ReuseDistances { distance: Distance::Unique, reads: Histogram::default(), writes: Histogram::default() };
    let section = Section { info, reuse, workload: None, rows, checks };
    let grid = Grid::new(&section.rows);
    let looks = Looks::few(&["arc"], grid.policies.iter().map(|policy| policy.name));
    of(&section, &Subject { id: "t", grid: &grid, looks: &looks }, None)
}

fn say(reaccesses: u64, rows: &[(&str, u64, u64, u64)]) -> Vec<String> {
    answer_of(info(reaccesses), rows.iter().map(row).collect(), None).sentences
}

/// 512 blocks are the knee: 300 of 340 hits with half of the largest size.
const ROWS: [(&str, u64, u64, u64); 8] = [
    ("lru", 256, 100, 900),
    ("lru", 512, 200, 800),
    ("lru", 1024, 330, 700),
    ("larc", 512, 250, 100),
    ("arc", 256, 160, 900),
    ("arc", 512, 300, 800),
    ("arc", 1024, 340, 700),
    ("min", 512, 345, 655),
];

/// The next 2 MiB serve 40 more of 1000 where the second MiB serves another 140: 14.3 % a byte. 800 blocks a day are
/// 3.12 MiB, and 876 TB last for ever.
#[test]
fn it_has_purchase_reason_and_cost() {
    let answer = answer_of(info(400), ROWS.iter().map(row).collect(), None);
    let [buy, what, why, cost] = &answer.sentences[..] else { panic!("four sentences") };
    let all = "Buy 1 GiB of RAM for 5 USD: it holds all 2.34 MiB that the trace touches, and 40% of the reads hit. As \
        much flash costs 76.8 USD.";
    assert_eq!(buy, all);
    assert_eq!(
        what,
        "Of less flash, take 2 MiB (512 blocks) and run arc: it serves 30% of the accesses, where lru serves 20% and \
         the best possible \
         34.5%; it leads at all 3 sizes."
    );
    let facts: Vec<_> = answer.facts.iter().map(|fact| (fact.name, &fact.value[..], &fact.note[..])).collect();
    let expected = [
        ("Buy", "1 GiB of RAM", "holds all 2.34 MiB that the trace touches"),
        ("Hits", "40%", "of the reads"),
        ("Costs", "5 USD", "at assumed prices"),
        ("Lasts", "no wear", "RAM"),
        ("Certainty", "fair", "1,000 accesses in 1 d"),
    ];
    assert_eq!(facts, expected);
    let curve = "The curve bends there: the next 2 MiB, to 4 MiB, would serve another 4 percentage points, 14.3% as \
        much a byte as the step before.";
    assert_eq!(why, curve);
    assert_eq!(
        cost,
        "It keeps 30% of the reads from the disks and writes 3.12 MiB a day to flash, so read-intensive 480 GB \
         would last more than 1,000 years. With larc: 12.5% of these flash writes, 25% served, more than 1,000 years."
    );
}

/// A terabyte a day wears out a drive of 1 TB, rated for 1,380 TB, in 1,380 days. With 375 GB, rated for 20,531.25 TB,
/// it takes 20,531.25 days.
#[test]
fn years_follow_the_ratings_of_drives() {
    let rows = vec![ResultRow { flash_bytes_written: 1_000_000_000_000, ..row(&("lru", 512, 300, 800)) }];
    let answer = answer_of(info(400), rows, None);
    let table = answer.drives.unwrap();
    let cells: Vec<&[String]> = table.rows.iter().map(|row| &row.cells[..]).collect();
    assert_eq!(cells[0], ["1", "0.756", "1", "3.78"]);
    assert_eq!(cells[2], ["1", "30", "2.67", "56.2"]);
    assert!((answer.recommended.unwrap().years.unwrap() - 1380.0 / 365.0).abs() < 1e-9);
    // The cheapest drive of 480 GB is rated for 1,825 times that.
    assert!(answer.sentences[3].contains("would last 2.4 years."), "{}", answer.sentences[3]);
}

#[test]
fn a_cache_that_is_larger_than_a_drive_takes_several() {
    let first = &drives()[0];
    assert_eq!([1, 1_000_000_000_000, 1_000_000_000_001].map(|bytes| number_of(first, bytes)), [1.0, 1.0, 2.0]);
    assert_eq!(years(first, 2_000_000_000_000, 1e12), 2.0 * 1380.0 / 365.0);
}

#[test]
fn a_cache_that_is_not_worth_its_price_is_not_praised() {
    let [what, ..] = &say(32, &[("lru", 256, 20, 980), ("larc", 256, 10, 50)])[..] else { panic!("a sentence") };
    let expected = "A cache is hardly worth its price here, because only 3.2% of the accesses are to a block accessed \
        before; if any, buy \
                    1 GiB of RAM for 5 USD: it holds all 3.78 MiB that the trace touches, and 3.2% of the reads hit. \
                    As much flash costs \
                    76.8 USD.";
    assert_eq!(what, expected);
    assert_eq!(say(0, &[("lru", 256, 0, 1000)]), ["Buy no cache: no block is accessed twice, so that none can hit."]);
    let few = large(450, row(&("lru", 256, 49, 951)), 1 << 40);
    let hardly = "A cache of these sizes is hardly worth its price; if any, buy read-intensive 480 GB for 76.8 USD. \
        Use 256 GiB ";
    assert!(few.sentences[0].starts_with(hardly), "{few:?}");
    let with_min = |hits| say(450, &[("lru", 256, 0, 1000), ("min", 256, hits, 900)]);
    let none = "Buy none of these: no policy hits at all, although 45% of the accesses are to a block accessed before";
    assert_eq!(with_min(100), [format!("{none}; MIN, which knows the future, hits 10%.")]);
    assert_eq!(with_min(0), [format!("{none}, and neither does MIN, which knows the future.")]);
}

#[test]
fn empty_simulations_are_reported() {
    let most = "40% of the accesses are to a block accessed before, which is the most that a cache can hit.";
    assert_eq!(say(400, &[]), ["No policy was simulated.", most]);
    let rows = vec![ResultRow { accesses: 0, hits: 0, ..row(&("lru", 256, 0, 0)) }];
    let answer = answer_of(info(400), rows, None);
    assert_eq!(answer.sentences[0], "Nothing was counted, because the warm-up is as long as the trace.");
}

#[test]
fn without_times_there_are_no_years() {
    let timeless = Info { duration_us: 0, ..info(400) };
    let answer = answer_of(timeless, vec![row(&("lru", 256, 300, 700))], None);
    let cost = "It keeps 30% of the reads from the disks and writes 700 blocks (2.73 MiB) to flash; the trace has no \
        times, so years are \
                unknown.";
    assert_eq!(answer.sentences[3], cost);
    assert!(answer.drives.is_none());
    assert_eq!(answer.certainty.verdict, "low");
}

/// Checks of 20 parts of a trace; the recommended policy leads in `ahead` of them.
fn checks(ahead: usize, rule_hits: u64, rule_writes: u64) -> Checks {
    let epoch = |hit_ratio| Epoch { hit_ratio, ..Epoch::default() };
    let arc = ResultRow { epochs: vec![epoch(0.3); 20], ..row(&("arc", 512, 300, 800)) };
    let behind = row(&("arc", 512, rule_hits, rule_writes));
    let behind = ResultRow { admission: Some("reject-x".into()), ..behind };
    let mut epochs = vec![epoch(0.2); 20];
    epochs[ahead..].iter_mut().for_each(|epoch| epoch.hit_ratio = 0.4);
    let lru = ResultRow { epochs, ..row(&("lru", 512, 200, 800)) };
    Checks { recommended: vec![arc, behind], lru, days: Some(8.0) }
}

#[test]
fn a_rule_that_keeps_hits_and_saves_writes_is_recommended() {
    let said = |hits, writes| {
        let rows = ROWS.iter().map(row).collect();
        answer_of(info(400), rows, Some(checks(20, hits, writes))).sentences[..3].join(" ")
    };
    assert!(said(297, 400).contains("run arc behind reject-x: it serves"), "{}", said(297, 400));
    assert!(
        said(297, 400)
            .ends_with("14.3% as much a byte as the step before, and the rule saves 50% of the flash writes.")
    );
    // A run that is better in one measure and equal in the other is recommended, however small the gain.
    assert!(said(300, 799).contains("run arc behind reject-x: it serves"), "{}", said(300, 799));
    for (hits, writes) in [(296, 400), (299, 721)] {
        assert!(said(hits, writes).contains("run arc: it serves"), "{}", said(hits, writes));
    }
    let curve = "14.3% as much a byte as the step before";
    for (hits, writes, told) in [
        (
            296,
            400,
            "; an admission rule would trade hits for flash writes: reject-x would serve 29.6% with 50% of the flash \
             writes",
        ),
        (299, 721, "; an admission rule saves little: reject-x would serve 29.9% with 90.1% of the flash writes"),
        // Without a gain there is no sentence: 760 of 800 writes are 5 % fewer.
        (296, 761, ""),
        (200, 900, ""),
    ] {
        assert!(said(hits, writes).ends_with(&format!("{curve}{told}.")), "{}", said(hits, writes));
    }
}

/// Two policies write equally much behind the rule. The one with more hits is recommended, even if the other leads
/// without a rule.
#[test]
fn the_rule_is_recommended_before_the_policy_that_it_serves_best() {
    let again = checks(20, 297, 400);
    let lru = ResultRow { admission: Some("reject-x".into()), ..row(&("lru", 512, 299, 400)) };
    let recommended = [&again.recommended[..], &[lru]].concat();
    let answer = answer_of(info(400), ROWS.iter().map(row).collect(), Some(Checks { recommended, ..again }));
    assert!(answer.sentences[1].contains("run lru behind reject-x: it serves 29.9%"), "{}", answer.sentences[1]);
    assert_eq!(answer.recommended.unwrap().policy, "lru");
}

/// Tables mark runs behind a rule; other columns are of the policy without a rule.
#[test]
fn tables_mark_runs_behind_a_rule() {
    let answer = answer_of(info(400), ROWS.iter().map(row).collect(), Some(checks(20, 297, 400)));
    let (steps, drives) = (answer.steps.unwrap(), answer.drives.unwrap());
    assert_eq!(steps.columns[3], "arc only\nserves");
    assert_eq!(steps.columns.last().unwrap(), "Flash writes\na day,\narc only");
    assert_eq!(drives.columns[3], "arc behind\nreject-x:\nwrites a day");
    let answer = answer_of(info(400), ROWS.iter().map(row).collect(), None);
    assert_eq!(answer.steps.unwrap().columns[3], "arc\nserves");
    assert_eq!(answer.drives.unwrap().columns[3], "arc:\nwrites a day");
}

/// 760 of 800 writes are 5 % fewer.
#[test]
fn lru_stands_beside_the_answer_only_where_that_is_a_trade() {
    let told = |hits, writes| {
        let rows = [("arc", 512, 300, 800), ("lru", 512, hits, writes)];
        say(400, &rows)[3].contains(". With lru: ")
    };
    assert_eq!([told(285, 720), told(290, 761), told(250, 900)], [true, false, false]);
}

/// The answer for a row of blocks of 1 GiB, of a trace that touches so many bytes.
fn large(reaccesses: u64, row: ResultRow, touched: u64) -> Answer {
    let touched = Info { working_set_bytes: touched, block_size_bytes: 1 << 30, ..info(reaccesses) };
    let flash_bytes_written = row.flash_writes_blocks << 30;
    answer_of(touched, vec![ResultRow { block_size_bytes: 1 << 30, flash_bytes_written, ..row }], None)
}

/// 15 GiB of RAM cost 75 USD, and 480 GB of flash, 447.03 GiB, 76.8 USD.
#[test]
fn ram_or_a_drive_that_holds_everything_is_bought_where_it_costs_no_more() {
    let said = |blocks: u64, gib: u64| large(400, row(&("arc", blocks, 300, 800)), gib << 30).sentences;
    let buys = |blocks, gib, what: &str| {
        let first = &said(blocks, gib)[0];
        assert!(first.starts_with(&format!("Buy {what}")), "{blocks} {gib}: {first}");
    };
    buys(3, 15, "15 GiB of RAM for 75 USD: it holds all 15 GiB that the trace touches, and 40% of the reads hit.");
    let all = "and 40% of the accesses hit with lru.";
    buys(3, 16, &format!("read-intensive 480 GB for 76.8 USD: it holds all 16 GiB that the trace touches, {all}"));
    buys(3, 447, "read-intensive 480 GB for 76.8 USD: it holds all 447 GiB");
    let part = "read-intensive 480 GB for 76.8 USD. Use 3 GiB (3 blocks) and run arc: it serves 30% of the accesses.";
    buys(3, 448, part);
    assert_eq!((said(3, 447).len(), said(3, 448).len()), (4, 3));
    buys(448, 2000, "read-intensive 960 GB for 154 USD. Use 448 GiB (448 blocks) and run arc");
    // A trace of writes has no use for RAM in front of the disks.
    let writes = Info { reads: 0, writes: 1000, read_reaccess_ratio: 0.0, ..info(400) };
    let first = &answer_of(writes, vec![row(&("arc", 3, 300, 800))], None).sentences[0];
    assert!(first.starts_with("Buy read-intensive 480 GB for 76.8 USD: it holds all 2.34 MiB"), "{first}");
    let both = Info { writes: 500, ..info(400) };
    let first = &answer_of(both, vec![row(&("arc", 3, 300, 800))], None).sentences[0];
    let also =
        "Writes go to the disks at once; flash for all, read-intensive 480 GB, also takes them and costs 76.8 USD.";
    assert!(first.ends_with(also), "{first}");
}

/// 800 GiB a day are written to 876 TB: 1,019.8 days. With everything on flash, 1,000 reads of 1 GiB write only their
/// first accesses.
#[test]
fn a_purchase_lasts_until_its_rated_writes() {
    let lasts = |touched: u64| large(400, row(&("arc", 300, 300, 800)), touched << 30).facts[3].value.clone();
    assert_eq!((lasts(1000), lasts(400)), ("2.79 years".to_owned(), "unlimited".to_owned()));
    let timeless = Info { duration_us: 0, read_reaccess_ratio: 0.0, ..info(400) };
    assert_eq!(answer_of(timeless, vec![row(&("arc", 300, 300, 800))], None).facts[3].value, "unknown");
}

/// The whole cache reserves part of the flash and stores metadata there. The purchase is the whole flash.
#[test]
fn the_purchase_of_the_whole_cache_is_its_flash() {
    let flash = CacheFigures { flash_bytes: 64 << 20, ..CacheFigures::default() };
    let rows = vec![ResultRow { cache: Some(flash), ..row(&("arc", 11_385, 300, 800)) }];
    let what = &answer_of(info(400), rows, None).sentences[1];
    assert!(what.starts_with("Of less flash, take 64 MiB (holds 11,385 blocks) and run arc: "), "{what}");
}

/// A trace of one request, which is run again.
#[test]
fn a_trace_of_one_access_has_no_parts_and_fills_no_cache() {
    let one = Info { accesses: 1, unique_blocks: 1, working_set_bytes: 4096, duration_us: 0, ..info(0) };
    let own = ResultRow { accesses: 1, reads: 1, epochs: vec![Epoch::default()], ..row(&("larc", 1, 0, 1)) };
    let lru = ResultRow { policy: "lru".into(), ..own.clone() };
    let again = Checks { recommended: vec![own.clone()], lru, days: None };
    let answer = answer_of(one, vec![own], Some(again));
    assert_eq!(answer.sentences, ["Buy no cache: no block is accessed twice, so that none can hit."]);
    let reasons = [
        ("Trace", "1 access, without times: there are no figures per day or in years".to_owned()),
        ("Warm-up", "none: the cache starts empty, and the trace ends before it is full".to_owned()),
    ];
    assert_eq!(answer.certainty.reasons, reasons);
}

#[test]
fn certainty_follows_from_the_days_and_from_the_parts_of_the_trace() {
    let week = || Info { duration_us: 8 * 86_400_000_000, ..info(400) };
    let of = |info, ahead| answer_of(info, ROWS.iter().map(row).collect(), Some(checks(ahead, 100, 100))).certainty;
    assert_eq!([20, 15, 14].map(|ahead| of(week(), ahead).verdict), ["good", "good", "fair"]);
    let phases = &of(week(), 14).reasons[2];
    assert_eq!(phases.1, "over 20 equal parts of the trace arc serves 30% to 30%; lru is ahead in 6");
    let alone =
        |duration_us| answer_of(Info { duration_us, ..info(400) }, ROWS.iter().map(row).collect(), None).certainty;
    let verdicts = [86_399_000_000, 86_400_000_000, 7 * 86_400_000_000].map(|us| alone(us).verdict);
    assert_eq!(verdicts, ["low", "fair", "good"]);
    assert!(
        alone(204_000_000).reasons[0]
            .1
            .starts_with("1,000 accesses in 3.4 min: figures per day and in years are extrapolated")
    );
}

/// The answer from a sample gives the error of the hits, and names the online policies within that error of the
/// recommended one. Of 1,000 accesses, arc hits 300, larc 250 and lru 200.
#[test]
fn certainty_of_a_sample_names_indistinguishable_policies() {
    let of = |margin: f64, caveat: Option<&str>| {
        let sampled = |of: &(&str, u64, u64, u64)| {
            let row = row(of);
            let (hit_ratio_low, hit_ratio_high) = (row.hit_ratio - margin, row.hit_ratio + margin);
            let sample_caveat = caveat.map(str::to_owned);
            let sample = SampleFigures {
                sample_rate: 0.01,
                hit_ratio_low,
                hit_ratio_high,
                sample_caveat,
                ..SampleFigures::default()
            };
            ResultRow { sample: Some(sample), ..row }
        };
        let certainty = answer_of(info(400), ROWS.iter().map(sampled).collect(), None).certainty;
        let told = certainty.reasons.into_iter().find(|(name, _)| *name == "Sample").unwrap().1;
        (certainty.verdict, told)
    };
    let begins = "1% of the blocks: in 95 of 100 such samples, arc serves";
    assert_eq!(
        of(0.02, None),
        ("fair", format!("{begins} 28% to 32% of the whole trace, and no other policy of that size as much"))
    );
    let told = format!("{begins} 27% to 33% of the whole trace; the sample cannot distinguish it from larc");
    assert_eq!(of(0.03, None), ("low", told));
    assert_eq!(of(0.02, Some("it is small")), ("low", format!("{begins} 28% to 32% of the whole trace; it is small")));
    let alone = answer_of(info(400), ROWS.iter().map(row).collect(), None).certainty;
    assert!(alone.reasons.iter().all(|(name, _)| *name != "Sample"));
}

/// The points of all policies at the recommended size have names, and the recommended one is bold.
#[test]
fn the_picture_names_every_policy_at_the_recommended_size() {
    let of = |checks| answer_of(info(400), ROWS.iter().map(row).collect(), checks).picture.unwrap();
    let picture = of(None);
    assert!(picture.legend.is_empty() && picture.caption.ends_with("arc is recommended."), "{}", picture.caption);
    for drawing in [&picture.wide, &picture.narrow] {
        for name in ["lru", "larc", "arc", "min"] {
            assert_eq!(drawing.matches(&format!(">{name}</text>")).count(), 1, "{name}");
        }
        assert!(drawing.contains("font-weight=\"bold\">arc</text>"));
        assert!(!drawing.contains("class=\"paper\""));
    }
    let behind = of(Some(checks(20, 297, 400)));
    assert!(behind.wide.contains("font-weight=\"bold\">arc behind reject-x</text>"), "{}", behind.wide);
}
