//! Modelled flash devices compared with a slow medium that holds contents; and the steps that they reject.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use flashwise_core::step::FlashStep;
use flashwise_device::flash::{Device, DeviceCounters, DeviceError, Ftl, FtlConfig, GcPlacement, Meter};
use flashwise_device::flash::{StepError, Victim, Zoned};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const VICTIMS: [Victim; 5] =
    [Victim::Greedy, Victim::Choices(1), Victim::Choices(4), Victim::Fifo, Victim::CostBenefit];
const PLACEMENTS: [GcPlacement; 2] = [GcPlacement::Own, GcPlacement::Mixed];

/// Flash with contents that enforces the rules of flash.
#[derive(Default)]
struct Medium {
    unit_pages: u32,
    /// The content of each page since its unit was erased.
    contents: HashMap<u32, u64>,
    /// Pages programmed since it was erased, by unit.
    programmed: HashMap<u32, u32>,
    /// Contents to program: the host's page below, a copied page above.
    in_hand: Vec<u64>,
    programs: u64,
    erasures: u64,
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Medium>>);

impl Meter for Shared {
    fn read(&mut self, page: u32) {
        let mut medium = self.0.borrow_mut();
        let content = *medium.contents.get(&page).expect("what is read was programmed");
        medium.in_hand.push(content);
        assert!(medium.in_hand.len() <= 2, "a page is copied before the next one is read");
    }

    fn program(&mut self, page: u32) {
        let mut medium = self.0.borrow_mut();
        let unit = page / medium.unit_pages;
        let at = medium.programmed.get(&unit).copied().unwrap_or(0);
        assert_eq!(page, unit * medium.unit_pages + at, "the pages of a unit are programmed in order, each once");
        medium.programmed.insert(unit, at + 1);
        let content = medium.in_hand.pop().expect("something is programmed");
        medium.contents.insert(page, content);
        medium.programs += 1;
    }

    fn erase(&mut self, unit: u32) {
        let mut medium = self.0.borrow_mut();
        for page in unit * medium.unit_pages..(unit + 1) * medium.unit_pages {
            medium.contents.remove(&page);
        }
        medium.programmed.remove(&unit);
        medium.erasures += 1;
    }
}

/// Runs random steps on a small device and compares its contents with a map.
fn compare_with_a_map(config: FtlConfig, steps: u64) -> DeviceCounters {
    let (pages, unit_pages) = (config.logical_pages, config.unit_pages);
    let medium = Shared::default();
    medium.0.borrow_mut().unit_pages = unit_pages;
    let mut ftl = Ftl::metered(config.clone(), medium.clone()).expect("the device is large enough");
    let mut expected: HashMap<u32, u64> = HashMap::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for step in 0..steps {
        // Half of the pages are rarely touched.
        let pages_likely = if random.random_bool(0.9) { pages / 2 } else { pages };
        let page = random.random_range(0..pages_likely);
        match random.random_range(0..100) {
            0..75 => {
                medium.0.borrow_mut().in_hand.push(step);
                ftl.step(FlashStep::Write { page });
                expected.insert(page, step);
            }
            75..85 => {
                ftl.step(FlashStep::Read { page });
                let read = medium.0.borrow_mut().in_hand.pop();
                assert_eq!(read, expected.get(&page).copied(), "{config:?}: page {page} reads as it was written");
            }
            85..99 => {
                ftl.step(FlashStep::Discard { page });
                expected.remove(&page);
            }
            _ => {
                let unit = page / unit_pages;
                ftl.step(FlashStep::Reset { unit });
                expected.retain(|page, _| page / unit_pages != unit);
            }
        }
        assert!(medium.0.borrow().in_hand.is_empty(), "everything in hand was programmed or answered");
        if step % 50 == 0 {
            ftl.check();
        }
    }
    ftl.check();
    let held: HashMap<u32, u64> =
        (0..pages).filter_map(|page| Some((page, medium.0.borrow().contents[&ftl.physical_page(page)?]))).collect();
    assert_eq!(held, expected, "{config:?}: what was written last is held, and that alone");
    let (counters, medium) = (*ftl.counters(), medium.0.borrow());
    assert_eq!((counters.programs(), counters.erasures), (medium.programs, medium.erasures));
    counters
}

#[test]
fn an_ssd_holds_the_last_writes_with_every_collector() {
    for victim in VICTIMS {
        for gc_placement in PLACEMENTS {
            for (reserve_units, wear_levelling) in [(1, None), (3, None), (1, Some(1)), (2, Some(2))] {
                // 101 pages need 13 units of 8; spare flash of 60 % makes that 21.
                let config =
                    FtlConfig { victim, gc_placement, reserve_units, wear_levelling, ..FtlConfig::new(101, 8, 0.6) };
                let counters = compare_with_a_map(config.clone(), 6_000);
                assert!(counters.programs_collection > 0, "{config:?}: garbage is collected");
                // FIFO erases all units in turn, so there is nothing to level.
                let levels = wear_levelling.is_some() && victim != Victim::Fifo;
                assert!(counters.programs_levelling > 0 || !levels, "{config:?}: wear is levelled");
                assert!(counters.programs_levelling == 0 || wear_levelling.is_some(), "{config:?}: wear is left alone");
            }
        }
    }
}

#[test]
fn an_ssd_with_minimal_space_holds_the_last_writes() {
    for victim in VICTIMS {
        for gc_placement in PLACEMENTS {
            for (unit_pages, wear_levelling) in [(1, None), (1, Some(1)), (8, None), (8, Some(1))] {
                let config = FtlConfig { victim, gc_placement, wear_levelling, ..FtlConfig::new(64, unit_pages, 0.0) };
                let spare = 2.0 * f64::from(unit_pages) / 64.0;
                let config = FtlConfig { spare, ..config };
                assert_eq!(config.units().expect("there is space"), 64 / unit_pages + 2);
                compare_with_a_map(config, 3_000);
            }
        }
    }
}

/// Writes `times` the number of pages; `page` chooses each.
fn write(ftl: &mut Ftl, times: u32, mut page: impl FnMut(&mut Xoshiro256PlusPlus) -> u32) -> DeviceCounters {
    let before = *ftl.counters();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(before.host_writes);
    for _ in 0..times * ftl.config().logical_pages {
        ftl.step(FlashStep::Write { page: page(&mut random) });
    }
    ftl.check();
    *ftl.counters() - before
}

fn ftl(config: FtlConfig) -> Ftl {
    Ftl::new(config).expect("the device is large enough")
}

#[test]
fn sequential_writes_are_not_amplified() {
    for victim in VICTIMS {
        for gc_placement in PLACEMENTS {
            let mut ftl = ftl(FtlConfig { victim, gc_placement, ..FtlConfig::new(4096, 16, 0.1) });
            let mut next = 0;
            let counters = write(&mut ftl, 5, |_| {
                next += 1;
                (next - 1) % 4096
            });
            let amplification = counters.write_amplification().expect("pages were written");
            match victim {
                // A random unit is not always the empty one.
                Victim::Choices(_) => assert!(amplification > 1.0),
                _ => assert_eq!(amplification, 1.0, "{victim} {gc_placement:?}"),
            }
            assert_eq!(counters.programs_host, counters.host_writes);
        }
    }
}

#[test]
fn discards_lower_write_amplification() {
    for victim in VICTIMS {
        let amplification = |discards: bool| {
            let mut ftl = ftl(FtlConfig { victim, ..FtlConfig::new(1 << 14, 64, 0.1) });
            let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
            let mut written: Vec<u32> = (0..1 << 14).collect();
            written.iter().for_each(|page| ftl.step(FlashStep::Write { page: *page }));
            // A cache of this size that evicts a random block for each admitted one; half of its data is always live.
            let before = *ftl.counters();
            for _ in 0..8 << 14 {
                let at = random.random_range(0..written.len() / 2);
                let other = random.random_range(written.len() / 2..written.len());
                if discards {
                    ftl.step(FlashStep::Discard { page: written[at] });
                }
                written.swap(at, other);
                ftl.step(FlashStep::Write { page: written[at] });
            }
            ftl.check();
            let counters = *ftl.counters() - before;
            assert_eq!(counters.host_discards, if discards { 8 << 14 } else { 0 });
            counters.write_amplification().expect("pages were written")
        };
        let (without, with) = (amplification(false), amplification(true));
        assert!(with < 0.5 * without, "{victim}: {with} with discards, {without} without");
    }
}

#[test]
fn a_device_that_was_reset_is_collected_without_a_copy() {
    let mut ftl = ftl(FtlConfig::new(1024, 32, 0.1));
    write(&mut ftl, 4, |random| random.random_range(0..1024));
    (0..32).for_each(|unit| ftl.step(FlashStep::Reset { unit }));
    assert!((0..1024).all(|page| ftl.physical_page(page).is_none()), "nothing is held");
    let mut next = 0;
    let counters = write(&mut ftl, 1, |_| {
        next += 1;
        next - 1
    });
    assert_eq!(counters.programs(), 1024, "all units that are collected are empty");
    assert_eq!((ftl.counters().host_resets, ftl.counters().host_discards), (32, 1024));
}

#[test]
fn a_reserve_takes_space_from_garbage() {
    let amplification = |reserve_units| {
        let mut ftl = ftl(FtlConfig { reserve_units, ..FtlConfig::new(1 << 14, 64, 0.28) });
        (0..1 << 14).for_each(|page| ftl.step(FlashStep::Write { page }));
        write(&mut ftl, 2, |random| random.random_range(0..1 << 14));
        let counters = write(&mut ftl, 4, |random| random.random_range(0..1 << 14));
        counters.write_amplification().expect("pages were written")
    };
    // 72 of 328 units are spare. With 36 of them in reserve, as many are left for garbage as with 14 % instead of 28 %.
    let (one, half) = (amplification(1), amplification(37));
    assert!((2.3..2.6).contains(&one), "{one}");
    assert!((3.8..4.4).contains(&half), "{half}");
}

#[test]
fn wear_levelling_narrows_the_spread_of_erasures_and_pays_with_copies() {
    let wear = |wear_levelling| {
        let mut ftl = ftl(FtlConfig { wear_levelling, ..FtlConfig::new(1 << 13, 32, 0.1) });
        let mut next = 0;
        write(&mut ftl, 1, |_| {
            next += 1;
            next - 1
        });
        // Nine tenths of the pages are never rewritten.
        write(&mut ftl, 20, |random| random.random_range(0..(1 << 13) / 10));
        ftl.figures()
    };
    let (without, with) = (wear(None), wear(Some(10)));
    let spread = |wear: &flashwise_device::flash::Wear| wear.erasures_max - wear.erasures_min;
    assert_eq!(without.wear.erasures_min, 0, "cold data lies where it was written");
    assert!(spread(&without.wear) > 50, "{:?}", without.wear);
    assert!(spread(&with.wear) <= 12, "{:?}", with.wear);
    assert!(with.wear.erasures_deviation < 0.2 * without.wear.erasures_deviation, "{with:?}");
    let (without, with) = (without.counters, with.counters);
    assert_eq!(without.programs_levelling, 0);
    assert!(with.programs_levelling > 0);
    assert_eq!(with.programs(), with.host_writes + with.programs_collection + with.programs_levelling);
}

#[test]
fn an_ssd_that_cannot_be_is_refused() {
    let refused = |config: FtlConfig| Ftl::new(config).map(|_| ()).expect_err("the device is impossible").to_string();
    let config = FtlConfig::new(100_000, 512, 0.07);
    assert_eq!(
        refused(FtlConfig { spare: 0.005, ..config.clone() }),
        "spare flash of 0.5 % of 100000 pages is 1 erase units of 512 pages, expected at least 2: 1 in \
         reserve and an open one. To fit, raise it to 0.87 %, or make the device larger or its units smaller"
    );
    Ftl::new(FtlConfig { spare: 0.0087, ..config.clone() }).expect("what the message says is enough");
    assert_eq!(
        refused(FtlConfig { reserve_units: 20, ..config.clone() }),
        "spare flash of 7 % of 100000 pages is 13 erase units of 512 pages, expected at least 21: 20 \
         in reserve and an open one. To fit, raise it to 10.6 %, or make the device larger or its units smaller"
    );
    Ftl::new(FtlConfig { reserve_units: 20, spare: 0.106, ..config.clone() }).expect("so it is here");
    // An option accepts at most 100 %.
    let large = refused(FtlConfig::new(512, 512, 0.5));
    assert!(large.ends_with("and an open one. To fit, make the device larger or its units smaller"), "{large}");
    assert_eq!(refused(FtlConfig::new(0, 512, 0.07)), "logical pages: found 0, expected at least 1");
    assert_eq!(refused(FtlConfig::new(512, 0, 0.07)), "pages of an erase unit: found 0, expected at least 1");
    assert_eq!(
        refused(FtlConfig { reserve_units: 0, ..config.clone() }),
        "erase units in reserve: found 0, expected at least 1"
    );
    assert_eq!(
        refused(FtlConfig { victim: Victim::Choices(0), ..config.clone() }),
        "choices of a victim: found 0, expected at least 1"
    );
    assert_eq!(
        refused(FtlConfig { wear_levelling: Some(0), ..config.clone() }),
        "erasures that wear levelling allows between units: found 0, expected at least 1"
    );
    for spare in [-0.1, f64::NAN, f64::INFINITY, 101.0] {
        assert_eq!(
            refused(FtlConfig { spare, ..config.clone() }),
            format!(
                "spare flash: found {spare}, expected a share of the logical capacity from 0 to 100 \
                 (10,000 %)"
            )
        );
    }
    assert_eq!(
        refused(FtlConfig::new(u32::MAX - 1000, 512, 0.07)),
        "physical pages: found 4595614208, expected at most 4294967294"
    );
}

#[test]
fn the_share_of_over_provisioning_is_rounded_up_to_whole_units_and_no_further() {
    let units = |logical_pages, unit_pages, spare| {
        FtlConfig::new(logical_pages, unit_pages, spare).units().expect("the device is large enough")
    };
    // 7 % of 100 is 7.000000000000001 in binary.
    assert_eq!(units(100, 1, 0.07), 107);
    assert_eq!(units(100, 1, 0.071), 108);
    assert_eq!(units(1 << 20, 64, 0.25), 20_480);
    assert_eq!(units((1 << 20) + 1, 64, 0.25), 20_481);
}

#[test]
fn an_ssd_refuses_pages_and_units_that_it_does_not_have() {
    let mut ftl = ftl(FtlConfig::new(100, 8, 0.5));
    for step in [FlashStep::Read { page: 100 }, FlashStep::Write { page: 100 }, FlashStep::Discard { page: u32::MAX }] {
        let (FlashStep::Read { page } | FlashStep::Write { page } | FlashStep::Discard { page }) = step else {
            continue;
        };
        assert_eq!(ftl.try_step(step), Err(StepError::Page { page, pages: 100 }));
    }
    assert_eq!(ftl.try_step(FlashStep::Reset { unit: 13 }), Err(StepError::Unit { unit: 13, units: 13 }));
    assert_eq!(*ftl.counters(), DeviceCounters::default(), "nothing was done");
    // The last unit is short: 100 pages are 12 units of 8 and one of 4.
    ftl.step(FlashStep::Reset { unit: 12 });
    assert_eq!(ftl.counters().host_discards, 4);
}

#[test]
fn host_managed_flash_is_written_in_order_and_reset_whole() {
    let mut zoned = Zoned::new(4, 4).expect("the device is possible");
    let write = |zoned: &mut Zoned, page| zoned.try_step(FlashStep::Write { page });
    assert_eq!(write(&mut zoned, 5), Err(StepError::NotAtWritePointer { page: 5, unit: 1, expected: 4 }));
    for page in [4, 5, 6] {
        write(&mut zoned, page).expect("it is at the write pointer");
    }
    assert_eq!(zoned.write_pointer(1), 3);
    assert_eq!(write(&mut zoned, 4), Err(StepError::NotAtWritePointer { page: 4, unit: 1, expected: 7 }));
    assert_eq!(zoned.try_step(FlashStep::Read { page: 7 }), Err(StepError::Unwritten { page: 7, unit: 1 }));
    write(&mut zoned, 7).expect("it is at the write pointer");
    zoned.try_step(FlashStep::Read { page: 7 }).expect("it was written");
    assert_eq!(write(&mut zoned, 7), Err(StepError::Full { page: 7, unit: 1 }));
    zoned.try_step(FlashStep::Discard { page: 5 }).expect("a hint is taken");
    zoned.try_step(FlashStep::Read { page: 5 }).expect("and changes nothing");
    zoned.check();

    for unit in [1, 1, 2] {
        zoned.step(FlashStep::Reset { unit });
    }
    assert_eq!(zoned.try_step(FlashStep::Read { page: 5 }), Err(StepError::Unwritten { page: 5, unit: 1 }));
    write(&mut zoned, 4).expect("the unit is empty again");
    assert_eq!(zoned.try_step(FlashStep::Reset { unit: 4 }), Err(StepError::Unit { unit: 4, units: 4 }));
    assert_eq!(write(&mut zoned, 16), Err(StepError::Page { page: 16, pages: 16 }));
    zoned.check();

    let figures = zoned.figures();
    let expected = DeviceCounters {
        host_reads: 2,
        host_writes: 5,
        host_discards: 1 + 3 * 4,
        host_resets: 3,
        programs_host: 5,
        programs_collection: 0,
        programs_levelling: 0,
        // Empty units are not erased again.
        erasures: 1,
    };
    assert_eq!(figures.counters, expected);
    assert_eq!(figures.write_amplification(), Some(1.0));
    assert_eq!((figures.wear.erasures_max, figures.wear.erasures_mean), (1, 0.25));
}

#[test]
fn host_managed_flash_keeps_no_more_units_open_than_it_can() {
    let zoned = Zoned::new(4, 2).expect("the device is possible");
    let mut zoned = zoned.with_open_units_max(2).expect("two are possible");
    let mut write = |page| {
        let result = zoned.try_step(FlashStep::Write { page });
        zoned.check();
        result
    };
    write(0).expect("one unit is open");
    write(4).expect("two units are open");
    assert_eq!(write(6), Err(StepError::OpenUnits { page: 6, unit: 3, most: 2 }));
    write(1).expect("a full unit is not open any more");
    write(6).expect("so that there is room for another one");
    assert_eq!(write(2), Err(StepError::OpenUnits { page: 2, unit: 1, most: 2 }));
    zoned.step(FlashStep::Reset { unit: 2 });
    zoned.step(FlashStep::Write { page: 2 });
    zoned.check();
}

#[test]
fn host_managed_flash_that_cannot_be_is_refused() {
    let refused = |device: Result<Zoned, DeviceError>| device.map(|_| ()).expect_err("it is impossible").to_string();
    assert_eq!(refused(Zoned::new(0, 4)), "erase units: found 0, expected at least 1");
    assert_eq!(refused(Zoned::new(4, 0)), "pages of an erase unit: found 0, expected at least 1");
    assert_eq!(refused(Zoned::new(1 << 20, 1 << 20)), "pages: found 1099511627776, expected at most 4294967294");
    let none_open = Zoned::new(4, 4).and_then(|zoned| zoned.with_open_units_max(0));
    assert_eq!(refused(none_open), "open erase units: found 0, expected at least 1");
}

#[test]
#[should_panic(
    expected = "a layout asked for what its device refuses: write to page 5: erase unit 1 is written up to page 4"
)]
fn a_layout_that_writes_elsewhere_is_found_out() {
    Zoned::new(4, 4).expect("the device is possible").step(FlashStep::Write { page: 5 });
}
