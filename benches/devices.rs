//! Page writes per second of processor time of the modelled SSD: one core, uniform random writes at steady state, 1 Mi
//! pages, 28 % over-provisioning.

use flashwise_benches::processor_seconds;
use flashwise_core::step::FlashStep;
use flashwise_device::flash::{Device, Ftl, FtlConfig, GcPlacement, Meter, Profile, Timing, Victim};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const RUNS: usize = 5;
const PAGES: u32 = 1 << 20;
/// Ten times the pages, because the resolution of processor time is 10 ms.
const WRITES: u32 = 10 * PAGES;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!(
        "{PAGES} pages, over-provisioning 28 %; millions per second of processor time: the most and the median of \
         {RUNS} runs"
    );
    println!(
        "{:14} {:>10} {:6} {:>11} {:>8} {:>14} {:>8} {:>14}",
        "victim", "unit pages", "copies", "page writes", "median", "programs, most", "median", "amplification"
    );
    for victim in [Victim::Greedy, Victim::Choices(10), Victim::Fifo, Victim::CostBenefit] {
        if !only.is_empty() && !only.iter().any(|name| victim.to_string().starts_with(name.as_str())) {
            continue;
        }
        for (unit_pages, gc_placement) in
            [(64, GcPlacement::Own), (256, GcPlacement::Own), (512, GcPlacement::Own), (512, GcPlacement::Mixed)]
        {
            let config = FtlConfig { victim, gc_placement, ..FtlConfig::new(PAGES, unit_pages, 0.28) };
            run(&format!("{victim}"), Ftl::new(config).expect("the device is large enough"));
        }
    }
    if only.is_empty() {
        let profile = Profile::find("femu", "femu").expect("it is a known profile");
        let timing = Timing::new(&profile, 512).expect("two blocks are a unit");
        let config = FtlConfig::new(PAGES, 512, 0.28);
        run("greedy, timed", Ftl::metered(config, timing).expect("the device is large enough"));
    }
}

fn run<M: Meter>(name: &str, mut ftl: Ftl<M>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut write_at_random = |ftl: &mut Ftl<M>, writes: u32| {
        for _ in 0..writes {
            ftl.step(FlashStep::Write { page: random.random_range(0..PAGES) });
        }
    };
    (0..PAGES).for_each(|page| ftl.step(FlashStep::Write { page }));
    write_at_random(&mut ftl, 2 * PAGES);
    let before = *ftl.counters();
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = processor_seconds();
            write_at_random(&mut ftl, WRITES);
            processor_seconds() - start
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (least, median) = (times[0], times[RUNS / 2]);
    let amplification = (*ftl.counters() - before).write_amplification().expect("pages were written");
    let millions = |seconds: f64| f64::from(WRITES) / seconds / 1e6;
    println!(
        "{name:14} {:10} {:6} {:11.1} {:8.1} {:14.1} {:8.1} {:14.3}",
        ftl.config().unit_pages,
        format!("{:?}", ftl.config().gc_placement).to_lowercase(),
        millions(least),
        millions(median),
        millions(least) * amplification,
        millions(median) * amplification,
        amplification
    );
}
