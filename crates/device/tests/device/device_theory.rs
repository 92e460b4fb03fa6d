//! Write amplification of the modelled SSD compared with theory, for uniform random writes in the steady state.
//!
//! Source: Desnoyers: Analytic Modeling of SSD Write Performance. SYSTOR 2012, for greedy and FIFO collection; Van
//! Houdt: A Mean Field Model for a Class of Garbage Collection Algorithms in Flash-based Solid State Drives. SIGMETRICS
//! 2013, for d-choices. Computed here from their equations, independently of the model.
//!
//! T, the physical pages of the theory, are those that hold data when a unit is collected. In the model the pages of
//! the reserve do not count: it is empty then. Neither do the units that copies are written to; they are half empty on
//! average if copies have a unit of their own. All other writes go to other units than the collected one, so there is
//! no other difference.

use flashwise_core::step::FlashStep;
use flashwise_device::flash::{Device, Ftl, FtlConfig, GcPlacement, Victim};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The shares of over-provisioning, (T - U) / U, with known figures.
const OVER_PROVISIONS: [f64; 4] = [0.07, 0.15, 0.28, 0.5];

/// The root of `w e^w = x` that is above -1, for x from -1/e to 0, by Newton's method.
fn lambert_w(x: f64) -> f64 {
    assert!((-1.0 / std::f64::consts::E..=0.0).contains(&x), "the branch is real for {x}");
    // From the right, w e^w - x is convex and above 0 on (-1, 0): each step stays to the right of the root.
    let mut w: f64 = 0.0;
    for _ in 0..200 {
        w -= (w * w.exp() - x) / (w.exp() * (w + 1.0));
    }
    assert!((w * w.exp() - x).abs() < 1e-12, "Newton's method found the root for {x}");
    w
}

/// FIFO with any units, and greedy with infinitely large ones. A written page survives until its unit is collected with
/// probability `e^(-alpha / A)`, which is `1 - 1 / A`.
fn fifo(spare: f64) -> f64 {
    let alpha = 1.0 + spare;
    alpha / (alpha + lambert_w(-alpha * (-alpha).exp()))
}

/// Greedy with units of n pages.
fn greedy(spare: f64, unit_pages: u32) -> f64 {
    let (alpha, n) = (1.0 + spare, f64::from(unit_pages));
    let k = 1.0 + 1.0 / (2.0 * n);
    let x_0 = 0.5 - n / alpha * lambert_w(-k * alpha * (-k * alpha).exp());
    n / (n - (x_0 - 1.0))
}

/// The fixed point of the d-choices model. Let `g_i` be the share of units with more than i of n pages valid.
///
/// Between two collections, units move from i + 1 to i valid pages at the rate `r (i + 1) (g_i - g_(i+1))`. Here `r =
/// (n - E) / (n U / T)` host writes are spread over valid pages, and E is the number of valid pages of a victim. The
/// units that move below i are collected: with probability `1 - g_i^d`, one of d units has at most i valid pages.
///
/// For each r this gives all g from `g_n = 0` down; r is right if the valid pages add up to n U / T.
fn choices(spare: f64, unit_pages: u32, choices: i32) -> f64 {
    let utilisation = 1.0 / (1.0 + spare);
    let valid_mean = |r: f64| -> f64 {
        let mut above = 0.0;
        let shares = (0..unit_pages).rev().map(|i| {
            let rate = r * f64::from(i + 1);
            above = bisect(above, 1.0, |g: f64| rate * (g - above) + g.powi(choices) - 1.0);
            above
        });
        shares.sum()
    };
    // With more host writes between two collections, fewer pages stay valid.
    let r = bisect(1e-6, 1e3, |r| f64::from(unit_pages) * utilisation - valid_mean(r));
    1.0 / (r * utilisation)
}

/// Returns the root of an increasing function.
fn bisect(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if function(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Returns the write amplification of the model in the steady state of uniform random writes.
fn simulated(spare: f64, victim: Victim, unit_pages: u32, units: u32, gc_placement: GcPlacement) -> f64 {
    let reserve_units = 1;
    let empty_units = f64::from(reserve_units) + if gc_placement == GcPlacement::Own { 0.5 } else { 0.0 };
    let logical_pages = units * unit_pages;
    let spare = spare + empty_units / f64::from(units);
    let config = FtlConfig { victim, gc_placement, reserve_units, ..FtlConfig::new(logical_pages, unit_pages, spare) };
    let mut ftl = Ftl::new(config).expect("the device is large enough");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..logical_pages).for_each(|page| ftl.step(FlashStep::Write { page }));
    let mut rewrite = |times: u32| {
        let before = *ftl.counters();
        for _ in 0..times * logical_pages {
            ftl.step(FlashStep::Write { page: random.random_range(0..logical_pages) });
        }
        ftl.check();
        (*ftl.counters() - before).write_amplification().expect("pages were written")
    };
    // After two rewrites per page on average, the rate is stable.
    rewrite(2);
    rewrite(4)
}

fn assert_within_a_percent(what: &str, theory: f64, simulated: f64) {
    let off_percent = 100.0 * (simulated / theory - 1.0);
    println!("| {what} | {theory:.3} | {simulated:.3} | {off_percent:+.2} % |");
    assert!(off_percent.abs() < 1.0, "{what}: theory says {theory:.3}, found {simulated:.3}, {off_percent:+.2} %");
}

#[test]
fn theory_gives_the_published_figures() {
    let rounded = |theory: &dyn Fn(f64) -> f64| OVER_PROVISIONS.map(|share| format!("{:.2}", theory(share)));
    assert_eq!(rounded(&|share| greedy(share, 256)), ["7.60", "3.96", "2.46", "1.71"]);
    assert_eq!(rounded(&|share| greedy(share, 64)), ["7.00", "3.80", "2.40", "1.68"]);
    assert_eq!(rounded(&|share| choices(share, 64, 10)), ["7.32", "3.93", "2.47", "1.72"]);
    for share in OVER_PROVISIONS {
        let random = 1.0 / (1.0 - 1.0 / (1.0 + share));
        assert!((choices(share, 64, 1) / random - 1.0).abs() < 1e-9, "one choice is a random unit");
        assert!((greedy(share, 1 << 20) / fifo(share) - 1.0).abs() < 1e-4, "large units tend to the limit");
        assert!((choices(share, 64, 10_000) / greedy(share, 64) - 1.0).abs() < 0.002, "many choices tend to greedy");
    }
}

#[test]
fn greedy_collection_amplifies_as_theory_says() {
    for share in OVER_PROVISIONS {
        for (unit_pages, units) in [(64, 4096), (256, 2048)] {
            for placement in [GcPlacement::Mixed, GcPlacement::Own] {
                let found = simulated(share, Victim::Greedy, unit_pages, units, placement);
                let what = format!("greedy, n = {unit_pages}, {:.0} %, {placement:?}", 100.0 * share);
                assert_within_a_percent(&what, greedy(share, unit_pages), found);
            }
        }
    }
}

#[test]
fn greedy_collection_of_large_units_amplifies_as_its_limit_says() {
    for share in OVER_PROVISIONS {
        let found = simulated(share, Victim::Greedy, 2048, 1024, GcPlacement::Mixed);
        assert_within_a_percent(&format!("greedy, n = 2048, {:.0} %, limit", 100.0 * share), fifo(share), found);
    }
}

#[test]
fn fifo_collection_amplifies_as_theory_says() {
    for share in OVER_PROVISIONS {
        for (unit_pages, units) in [(64, 4096), (256, 2048)] {
            for placement in [GcPlacement::Mixed, GcPlacement::Own] {
                let found = simulated(share, Victim::Fifo, unit_pages, units, placement);
                let what = format!("fifo, n = {unit_pages}, {:.0} %, {placement:?}", 100.0 * share);
                assert_within_a_percent(&what, fifo(share), found);
            }
        }
    }
}

#[test]
fn collection_of_the_best_of_d_units_amplifies_as_theory_says() {
    for share in OVER_PROVISIONS {
        for d in [1, 2, 10] {
            for placement in [GcPlacement::Mixed, GcPlacement::Own] {
                let found = simulated(share, Victim::Choices(d), 64, 4096, placement);
                let what = format!("d = {d}, n = 64, {:.0} %, {placement:?}", 100.0 * share);
                assert_within_a_percent(&what, choices(share, 64, d as i32), found);
            }
        }
    }
}
