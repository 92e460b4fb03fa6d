//! The throttle of Pannier: credit for flash writes, and the omissions when it runs short.
//!
//! Source: Li, Shilane, Douglis, Wallace: Pannier: a container-based flash cache for compound objects. Middleware 2015
//! (multi-step, credit-based throttling, so that the flash reaches its intended lifetime).
//!
//! Credit grows with time, up to a maximum, at the rate of the allowed erasures per day. Each block on its way to flash
//! costs one. Clients' writes are always cached and may make the credit negative; other writes may not. So the pages
//! written in any period are at most the initial credit plus its growth, or the clients' writes if those are more.
//!
//! Departures from the paper: it publishes a feedback controller over periods; the steps here are shares of the credit,
//! our own choice.

use super::Flash;

const MICROSECONDS_PER_DAY: f64 = 86_400_000_000.0;

/// The omissions at a level of credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Factor of the hits that a block needs to be copied forward; `None` copies none.
    pub hits_factor: Option<u8>,
    /// One of this many read misses is admitted; `None` admits none.
    pub admit_every: Option<u32>,
}

impl Step {
    const FREE: Step = Step { hits_factor: Some(1), admit_every: Some(1) };

    /// By quarters of the maximum credit, from negative to full.
    const STEPS: [Step; 5] = [
        Step { hits_factor: None, admit_every: None },
        Step { hits_factor: None, admit_every: Some(4) },
        Step { hits_factor: Some(4), admit_every: Some(2) },
        Step { hits_factor: Some(2), admit_every: Some(1) },
        Step::FREE,
    ];
}

/// Credit for writes, which grows with time.
#[derive(Clone, Debug)]
pub struct Throttle {
    limit: Option<Limit>,
    misses: u32,
}

#[derive(Clone, Debug)]
struct Limit {
    blocks_per_us: f64,
    credit_max: f64,
    credit: f64,
    /// The time of the last growth; `None` before the first access.
    grown_us: Option<u64>,
}

impl Throttle {
    /// Creates a throttle without limits.
    pub fn off() -> Throttle {
        Throttle { limit: None, misses: 0 }
    }

    /// Creates a throttle that allows each unit `erasures_per_day` on average. The maximum credit is `burst` of the
    /// flash's pages, but at least two units. It starts full.
    pub fn new(flash: Flash, erasures_per_day: f64, burst: f64) -> Throttle {
        let pages = f64::from(flash.units) * f64::from(flash.unit_pages);
        let credit_max = (burst * pages).max(2.0 * f64::from(flash.unit_pages));
        let blocks_per_us = erasures_per_day * pages / MICROSECONDS_PER_DAY;
        Throttle { limit: Some(Limit { blocks_per_us, credit_max, credit: credit_max, grown_us: None }), misses: 0 }
    }

    /// Increases the credit up to `time_us`.
    #[inline]
    pub fn set_time(&mut self, time_us: u64) {
        if let Some(limit) = &mut self.limit {
            let elapsed_us = time_us.saturating_sub(limit.grown_us.unwrap_or(time_us));
            limit.credit = (limit.credit + elapsed_us as f64 * limit.blocks_per_us).min(limit.credit_max);
            limit.grown_us = Some(limit.grown_us.map_or(time_us, |before| before.max(time_us)));
        }
    }

    fn step(&self) -> Step {
        match &self.limit {
            Some(limit) if limit.credit >= 1.0 => Step::STEPS[(4.0 * limit.credit / limit.credit_max).ceil() as usize],
            Some(_) => Step::STEPS[0],
            None => Step::FREE,
        }
    }

    /// True if a read miss is admitted.
    #[inline]
    pub fn admits(&mut self) -> bool {
        self.misses = self.misses.wrapping_add(1);
        self.step().admit_every.is_some_and(|every| self.misses.is_multiple_of(every))
    }

    /// True if a block with `hits` hits is copied forward. With plenty of credit `hits_needed` are enough.
    #[inline]
    pub fn copies(&self, hits: u8, hits_needed: u8) -> bool {
        self.step().hits_factor.is_some_and(|factor| hits >= hits_needed.saturating_mul(factor))
    }

    /// Charges the credit for one block.
    #[inline]
    pub fn charge(&mut self) {
        if let Some(limit) = &mut self.limit {
            limit.credit -= 1.0;
        }
    }

    #[cfg(test)]
    pub(super) fn credit(&self) -> f64 {
        self.limit.as_ref().expect("the throttle has a limit").credit
    }

    /// Refunds the credit for a block that will not be written after all.
    pub fn refund(&mut self) {
        if let Some(limit) = &mut self.limit {
            limit.credit = (limit.credit + 1.0).min(limit.credit_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 units of 40 pages, 1.5 erasures a day: 600 blocks a day; the credit is 100 blocks.
    fn throttle() -> Throttle {
        Throttle::new(Flash { units: 10, unit_pages: 40, reserve_units: 0 }, 1.5, 0.25)
    }

    #[test]
    fn credit_grows_with_time_up_to_its_most() {
        let mut throttle = throttle();
        let hour_us = 3_600_000_000;
        throttle.set_time(50 * hour_us);
        assert_eq!(throttle.credit(), 100.0, "it is full to begin with, whenever that is");
        (0..90).for_each(|_| throttle.charge());
        throttle.set_time(51 * hour_us);
        assert!((throttle.credit() - 35.0).abs() < 1e-9, "10 are left and an hour brings 25");
        throttle.set_time(50 * hour_us);
        assert!((throttle.credit() - 35.0).abs() < 1e-9, "a time that goes back brings nothing");
        throttle.set_time(90 * hour_us);
        assert_eq!(throttle.credit(), 100.0);
    }

    #[test]
    fn less_is_copied_and_admitted_with_each_quarter_of_the_credit() {
        let mut throttle = throttle();
        throttle.set_time(0);
        let mut seen = vec![];
        for _ in 0..102 {
            let needed = (1..=8).find(|&hits| throttle.copies(hits, 1));
            let admitted = (0..8).filter(|_| throttle.admits()).count();
            if seen.last().is_none_or(|&(_, last)| last != (needed, admitted)) {
                seen.push((throttle.credit(), (needed, admitted)));
            }
            throttle.charge();
        }
        let steps =
            [(100.0, (Some(1), 8)), (75.0, (Some(2), 8)), (50.0, (Some(4), 4)), (25.0, (None, 2)), (0.0, (None, 0))];
        assert_eq!(seen, steps);
        throttle.refund();
        throttle.refund();
        throttle.refund();
        assert_eq!(throttle.credit(), 1.0);
        assert!((0..4).any(|_| throttle.admits()));
    }

    #[test]
    fn a_throttle_that_is_off_leaves_nothing_out() {
        let mut throttle = Throttle::off();
        (0..1_000).for_each(|_| throttle.charge());
        assert!(throttle.admits() && throttle.copies(1, 1));
    }
}
