//! Properties of every container policy. A read returns the latest write, and live data stays or is copied. The flash
//! is written as erase units require, and every write is counted by its cause.

mod segmented_lru;
mod zoned;

use crate::workloads::{BLOCKS, WORKLOADS, random, workload};
use flashwise_core::access::{Access, Op};
use flashwise_core::container_policy::{
    CONTAINER_POLICIES, ContainerOutcome, ContainerPolicy, Counts, Flash, Spec, Visitor,
};
use flashwise_core::index::{Dense, Hashed};
use flashwise_core::policy::{self, Policy};
use flashwise_core::step::{Cause, FlashStep};
use segmented_lru::SegmentedLru;
use zoned::Zoned;

/// Container policies with options, beside the defaults of each.
const VARIANTS: &[&str] = &[
    "bcache:replacement=fifo",
    "bcache:replacement=random,seed=3",
    "ripq+:sections=1",
    "ripq+:sections=3",
    "pannier:copy=3,upper=0,moved=0,survival=0",
    "pannier:upper=100%,moved=50%,divergent=100%",
    // One access per second: a flash of 200 pages gets a write for every fifth.
    "pannier:epbpd=100,burst=20%",
];

/// Units, pages of each, units in reserve.
const FLASHES: [(u32, u32, u32); 9] =
    [(1, 1, 0), (1, 7, 0), (2, 3, 1), (8, 1, 0), (9, 4, 1), (30, 5, 8), (12, 16, 0), (12, 16, 9), (40, 10, 2)];

const MICROSECONDS_PER_ACCESS: u64 = 1_000_000;

/// The location of a block.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Nowhere,
    Ram,
    Page(u32),
}

fn places(policy: &impl ContainerPolicy<Key = u32>) -> Vec<Place> {
    let place = |block| match (policy.contains(block), policy.page_of(block)) {
        (false, None) => Place::Nowhere,
        (true, None) => Place::Ram,
        (true, Some(page)) => Place::Page(page),
        (false, Some(page)) => panic!("{block} is not in the cache and on page {page}"),
    };
    (0..BLOCKS).map(place).collect()
}

/// Drives a policy and checks its properties after each access.
struct Drive<'a> {
    what: String,
    accesses: &'a [Access<u32>],
    flash: Flash,
    /// Interval in accesses between removals of a block; 0 for none.
    remove_every: usize,
    zoned: Zoned,
    /// The number of writes of each block.
    versions: Vec<u32>,
    /// The cause for writing each block that is or was in RAM.
    causes: Vec<Cause>,
    /// The expected counts, known while no unit was both written and reset for one access.
    counts: Option<Counts>,
}

impl Drive<'_> {
    fn unit_of(&self, page: u32) -> u32 {
        page / self.flash.unit_pages
    }

    /// Checks the outcome, and that a read returned the latest version.
    fn check_outcome(
        &self,
        access: Access<u32>,
        outcome: ContainerOutcome,
        steps: &[FlashStep],
        was: Place,
        is: Place,
    ) {
        let what = || format!("{}: {access:?}, {outcome:?} of {was:?}, then {is:?}", self.what);
        let is_possible = match (was, outcome) {
            (Place::Nowhere, outcome) => !matches!(outcome, ContainerOutcome::Hit { .. }),
            (_, ContainerOutcome::Bypass) => access.op == Op::Write,
            (was, outcome) => outcome == ContainerOutcome::Hit { in_ram: was == Place::Ram },
        };
        let is_held = is != Place::Nowhere;
        assert!(
            is_possible && (is_held == (outcome != ContainerOutcome::Bypass) || self.resets_written_zones(steps)),
            "{}",
            what()
        );
        if let Place::Page(page) = was
            && access.op == Op::Read
        {
            assert_eq!(steps[0], FlashStep::Read { page }, "{}", what());
            let latest = (access.block, self.versions[access.block as usize]);
            assert_eq!(self.zoned.content[page as usize], Some(latest), "{}: the latest version is read", what());
        }
    }

    /// True if a unit was both written and reset, as in a cache so small that copies displace new blocks.
    fn resets_written_zones(&self, steps: &[FlashStep]) -> bool {
        let writes =
            |step: &FlashStep| if let FlashStep::Write { page } = step { Some(self.unit_of(*page)) } else { None };
        steps.iter().filter_map(writes).any(|unit| steps.contains(&FlashStep::Reset { unit }))
    }

    /// Checks that no other block enters, leaves or moves, unless its unit was reset, or its RAM container was sealed.
    fn check_others(&mut self, access: Access<u32>, steps: &[FlashStep], before: &[Place], after: &[Place]) {
        let is_reset = |unit: u32| steps.contains(&FlashStep::Reset { unit });
        let writes =
            |step: &FlashStep| if let FlashStep::Write { page } = step { Some(self.unit_of(*page)) } else { None };
        let was_written_too = steps.iter().filter_map(writes).any(is_reset);
        let mut live_at_reset = 0;
        for (block, (&was, &is)) in (0..).zip(before.iter().zip(after)) {
            let what = || format!("{}: {access:?}: {block} was {was:?} and is {is:?}", self.what);
            let on_reset_unit = matches!(was, Place::Page(page) if is_reset(self.unit_of(page)));
            let overwritten = block == access.block && access.op == Op::Write;
            live_at_reset += u64::from(on_reset_unit && !overwritten);
            if block == access.block || is == was && !on_reset_unit {
                continue;
            }
            match (was, is) {
                (Place::Nowhere, _) => panic!("{}", what()),
                (Place::Ram, Place::Nowhere) => assert!(was_written_too, "{}", what()),
                (Place::Ram, Place::Page(page)) => assert!(steps.contains(&FlashStep::Write { page }), "{}", what()),
                (Place::Ram, Place::Ram) => unreachable!("that was left out"),
                (Place::Page(_), Place::Nowhere) => assert!(on_reset_unit, "{}", what()),
                (Place::Page(page), _) => {
                    assert!(on_reset_unit && steps.contains(&FlashStep::Read { page }), "{}", what());
                    self.causes[block as usize] = Cause::CopyForward;
                }
            }
        }
        self.counts = self.counts.filter(|_| !was_written_too);
        if let Some(counts) = &mut self.counts {
            counts.live_at_reset_blocks += live_at_reset;
        }
    }

    fn perform(&mut self, access: Access<u32>, steps: &[FlashStep], outcome: ContainerOutcome, after: &[Place]) {
        self.versions[access.block as usize] += u32::from(access.op == Op::Write);
        match (access.op, outcome) {
            (Op::Write, _) => self.causes[access.block as usize] = Cause::Client,
            (Op::Read, ContainerOutcome::Admit) => self.causes[access.block as usize] = Cause::Admission,
            (Op::Read, _) => {}
        }
        steps.iter().for_each(|&step| self.zoned.perform(step));
        for step in steps {
            let FlashStep::Write { page } = *step else { continue };
            let block = after.iter().position(|&place| place == Place::Page(page));
            if let (Some(counts), Some(block)) = (&mut self.counts, block) {
                counts.flash_writes.count(self.causes[block]);
            }
            self.zoned.content[page as usize] = block.map(|block| (block as u32, self.versions[block]));
        }
    }

    fn remove_one<P: ContainerPolicy<Key = u32>>(&self, policy: &mut P, position: usize) {
        let mut state = position as u64;
        let recent = self.accesses[position - (random(&mut state) as usize % position.min(50))].block;
        let (held, len) = (policy.contains(recent), policy.len());
        assert_eq!(policy.remove(recent), held);
        assert_eq!(policy.len(), len - usize::from(held));
        assert!(!policy.contains(recent) && !policy.remove(recent));
        policy.check();
    }

    fn check_counts<P: ContainerPolicy<Key = u32>>(&self, policy: &P) {
        let counts = policy.counts();
        assert_eq!(counts.flash_writes.total_blocks(), self.zoned.writes, "{}", self.what);
        assert_eq!(counts.units_reset, self.zoned.resets, "{}", self.what);
        if let Some(expected) = self.counts {
            assert_eq!(counts, Counts { units_reset: self.zoned.resets, ..expected }, "{}", self.what);
        }
        assert!(counts.flash_writes.copy_forward_blocks <= counts.live_at_reset_blocks, "{}", self.what);
    }
}

impl Visitor<u32> for Drive<'_> {
    type Output = Vec<(ContainerOutcome, Vec<FlashStep>)>;

    fn visit<P: ContainerPolicy<Key = u32> + Send + 'static>(mut self, mut policy: P) -> Self::Output {
        let mut outcomes = vec![];
        let mut after = places(&policy);
        for (position, &access) in self.accesses.iter().enumerate() {
            if self.remove_every > 0 && position % self.remove_every == 1 {
                self.remove_one(&mut policy, position);
                after = places(&policy);
            }
            let before = after;
            let mut steps = vec![];
            let outcome = policy.access(access, position as u64 * MICROSECONDS_PER_ACCESS, &mut steps);
            policy.check();
            after = places(&policy);
            let block = access.block as usize;
            self.check_outcome(access, outcome, &steps, before[block], after[block]);
            self.check_others(access, &steps, &before, &after);
            self.perform(access, &steps, outcome, &after);
            self.check_counts(&policy);
            let held = after.iter().filter(|&&place| place != Place::Nowhere).count();
            let in_ram = after.iter().filter(|&&place| place == Place::Ram).count();
            assert_eq!(policy.len(), held, "{}", self.what);
            assert!(in_ram <= policy.ram_blocks_max(), "{}", self.what);
            assert!(held - in_ram <= self.flash.data_blocks() as usize, "{}", self.what);
            outcomes.push((outcome, steps));
        }
        outcomes
    }
}

/// Records the behaviour of a policy.
struct Record<'a>(&'a [Access<u32>]);

impl Visitor<u32> for Record<'_> {
    type Output = Vec<(ContainerOutcome, Vec<FlashStep>)>;

    fn visit<P: ContainerPolicy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
        let mut record = |(position, &access): (usize, &Access<u32>)| {
            let mut steps = vec![];
            (policy.access(access, position as u64 * MICROSECONDS_PER_ACCESS, &mut steps), steps)
        };
        self.0.iter().enumerate().map(&mut record).collect()
    }
}

fn drive_all(remove_every: usize) {
    let defaults = CONTAINER_POLICIES.iter().map(|info| info.name);
    for text in defaults.chain(VARIANTS.iter().copied()) {
        let spec = Spec::parse(text).expect("the test names a container policy");
        for kind in WORKLOADS {
            let accesses = &workload(kind)[..1_500];
            for (units, unit_pages, reserve_units) in FLASHES {
                let flash = Flash { units, unit_pages, reserve_units };
                let drive = || Drive {
                    what: format!("{text}, {kind}, {flash:?}"),
                    accesses,
                    flash,
                    remove_every,
                    zoned: Zoned::new(units, unit_pages),
                    versions: vec![0; BLOCKS as usize],
                    causes: vec![Cause::Admission; BLOCKS as usize],
                    counts: Some(Counts::default()),
                };
                let dense = spec.build(Dense::new(BLOCKS as usize), flash, drive());
                if remove_every == 0 {
                    let hashed = spec.build(Hashed::new(), flash, Record(accesses));
                    assert!(hashed == dense, "{text}, {kind}, {flash:?}: the index matters");
                }
            }
        }
    }
}

#[test]
fn every_container_policy_keeps_its_promises_after_each_access() {
    drive_all(0);
}

#[test]
fn every_container_policy_keeps_its_promises_while_blocks_are_removed() {
    drive_all(20);
}

/// Returns reads of `blocks` blocks: skewed roughly as 1/n, with occasional scans of other blocks, and another order of
/// popularity in the second half.
fn reads(blocks: u32, accesses: usize) -> Vec<u32> {
    let mut state = 11;
    let mut scanned = blocks;
    let read = |position: usize| {
        if position % 20_000 < 2_000 {
            scanned += 1;
            return scanned;
        }
        let share = random(&mut state) as f64 / u64::MAX as f64;
        let rank = ((share * f64::from(blocks).ln()).exp() as u32 - 1).min(blocks - 1);
        if position < accesses / 2 { rank } else { (rank + blocks / 20) % blocks }
    };
    (0..accesses).map(read).collect()
}

/// Counts hits of reads.
struct CountHits<'a>(&'a [Access<u32>]);

impl Visitor<u32> for CountHits<'_> {
    type Output = usize;

    fn visit<P: ContainerPolicy<Key = u32> + Send + 'static>(self, mut policy: P) -> usize {
        let mut steps = vec![];
        let is_hit = |access: &&Access<u32>| {
            steps.clear();
            matches!(policy.access(**access, 0, &mut steps), ContainerOutcome::Hit { .. }) && access.op == Op::Read
        };
        self.0.iter().filter(is_hit).count()
    }
}

impl policy::Visitor<u32> for CountHits<'_> {
    type Output = usize;

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> usize {
        let is_hit = |access: &&Access<u32>| policy.access(**access) == policy::Outcome::Hit && access.op == Op::Read;
        self.0.iter().filter(is_hit).count()
    }
}

fn hit_ratio(text: &str, flash: Flash, accesses: &[Access<u32>]) -> f64 {
    let hits = match Spec::parse(text) {
        Ok(spec) => spec.build(Hashed::new(), flash, CountHits(accesses)),
        Err(_) => {
            let spec = policy::Spec::parse(text).expect("the test names a policy");
            spec.build(Hashed::new(), flash.data_blocks() as usize, CountHits(accesses))
        }
    };
    hits as f64 / accesses.iter().filter(|access| access.op == Op::Read).count() as f64
}

/// With 8 sections and 128 containers RIPQ+ hits 64.3 % and exact segmented LRU 64.0 %; with 3, 65.0 % and 64.9 %; as
/// plain LRU, 61.4 % and 60.3 %. A copied block gets ahead of its named position. The paper finds differences of 1 to 2
/// %.
#[test]
fn ripq_hits_as_often_as_exact_segmented_lru() {
    let reads = reads(40_000, 300_000);
    let accesses: Vec<_> = reads.iter().copied().map(Access::read).collect();
    for sections in [8, 3, 1] {
        let flash = Flash { units: 128, unit_pages: 32, reserve_units: 0 };
        let mut exact = SegmentedLru::new(flash.data_blocks() as usize, sections);
        let hits = reads.iter().filter(|&&block| exact.access(block)).count();
        let exact = hits as f64 / reads.len() as f64;
        let ripq = hit_ratio(&format!("ripq+:sections={sections}"), flash, &accesses);
        assert!((ripq - exact).abs() < 0.015, "{sections} sections: {ripq} of the reads are hit, {exact} exactly");
    }
}

/// Without writes, Pannier hits 64.4 % of the reads and LRU 60.3 %. If a fifth of the accesses are writes, these are
/// 63.1 % and 60.3 %, and with half 61.6 % and 60.3 %.
#[test]
fn pannier_hits_more_often_than_lru_though_overwritten_copies_cost_it_room() {
    let flash = Flash { units: 128, unit_pages: 32, reserve_units: 0 };
    let reads = reads(40_000, 300_000);
    for (write_every, margin) in [(usize::MAX, 0.035), (5, 0.022), (2, 0.007)] {
        let access = |(position, &block)| {
            if position % write_every == write_every - 1 { Access::write(block) } else { Access::read(block) }
        };
        let accesses: Vec<_> = reads.iter().enumerate().map(access).collect();
        let (pannier, lru) = (hit_ratio("pannier", flash, &accesses), hit_ratio("lru", flash, &accesses));
        assert!(pannier > lru + margin, "one write in {write_every}: {pannier} of the reads are hit, {lru} with LRU");
    }
}
