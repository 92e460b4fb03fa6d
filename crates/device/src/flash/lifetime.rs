//! Lifetime of flash, and the used share of a write budget.
//!
//! A year has 365 days, as in the vendors' conversion of drive writes per day (DWPD): TBW = capacity * DWPD * 365 *
//! years. A figure is `None` if it has no meaning: no time has passed, or there is no wear.

use flashwise_core::tiers::YEAR_DAYS;

const DAY_US: f64 = 86_400e6;

fn days(duration_us: u64) -> Option<f64> {
    (duration_us > 0).then(|| duration_us as f64 / DAY_US)
}

/// Returns the years until flash with `pe_cycles` wears out at the rate of `duration_us`. `erasures_per_unit` is the
/// mean if wear is levelled, the maximum if the flash fails with its first unit.
pub fn lifetime_years(erasures_per_unit: f64, pe_cycles: u32, duration_us: u64) -> Option<f64> {
    let erasures_per_day = erasures_per_unit / days(duration_us)?;
    (erasures_per_day > 0.0).then(|| f64::from(pe_cycles) / erasures_per_day / YEAR_DAYS)
}

/// Returns bytes per day.
pub fn bytes_per_day(bytes: u64, duration_us: u64) -> Option<f64> {
    Some(bytes as f64 / days(duration_us)?)
}

/// Returns how often per day the host wrote the whole capacity.
pub fn drive_writes_per_day(host_bytes: u64, capacity_bytes: u64, duration_us: u64) -> Option<f64> {
    let capacity = (capacity_bytes > 0).then_some(capacity_bytes as f64)?;
    Some(bytes_per_day(host_bytes, duration_us)? / capacity)
}

/// Returns the used share of a budget of `budget_dwpd` drive writes per day; above 1, flash wears out early.
pub fn budget_used(host_bytes: u64, capacity_bytes: u64, duration_us: u64, budget_dwpd: f64) -> Option<f64> {
    let used = drive_writes_per_day(host_bytes, capacity_bytes, duration_us)?;
    (budget_dwpd > 0.0).then(|| used / budget_dwpd)
}

/// Returns the drive writes per day that flash sustains for `years`. Each cycle writes `physical_bytes`; the host's
/// share of them is 1 / `write_amplification`.
pub fn budget_dwpd(
    pe_cycles: u32,
    physical_bytes: u64,
    capacity_bytes: u64,
    write_amplification: f64,
    years: f64,
) -> Option<f64> {
    let days = years * YEAR_DAYS;
    let bytes = f64::from(pe_cycles) * physical_bytes as f64 / write_amplification;
    (capacity_bytes > 0 && days > 0.0 && write_amplification > 0.0).then(|| bytes / capacity_bytes as f64 / days)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000;

    #[test]
    fn lifetime_is_the_cycles_that_are_there_over_those_used_a_year() {
        // 10,000 cycles at 5 erasures a unit and day: 2,000 days.
        assert_eq!(lifetime_years(5.0, 10_000, DAY), Some(2000.0 / 365.0));
        assert_eq!(lifetime_years(35.0, 10_000, 7 * DAY), Some(2000.0 / 365.0));
        assert_eq!(lifetime_years(5.0, 10_000, 0), None);
        assert_eq!(lifetime_years(0.0, 10_000, DAY), None);
    }

    #[test]
    fn lifetimes_are_those_of_the_study_of_mixed_arrays() {
        // Moon and Reddy, equations 7 and 8: 2.16e-3 writes a cell and second with 100,000 cycles, 4.98e-5 with 10,000.
        let years = |rate: f64, cycles| lifetime_years(rate * 86_400.0, cycles, DAY).unwrap();
        assert_eq!(format!("{:.2}", years(2.16e-3, 100_000)), "1.47");
        assert_eq!(format!("{:.2}", years(4.98e-5, 10_000)), "6.37");
    }

    #[test]
    fn drive_writes_per_day_are_compared_with_a_budget() {
        let (gigabyte, capacity) = (1_000_000_000, 100_000_000_000);
        assert_eq!(bytes_per_day(600 * gigabyte, 2 * DAY), Some(300e9));
        assert_eq!(drive_writes_per_day(600 * gigabyte, capacity, 2 * DAY), Some(3.0));
        assert_eq!(budget_used(600 * gigabyte, capacity, 2 * DAY, 1.5), Some(2.0));
        assert_eq!(budget_used(600 * gigabyte, capacity, 0, 1.5), None);
        assert_eq!(budget_used(600 * gigabyte, 0, DAY, 1.5), None);
        assert_eq!(budget_used(600 * gigabyte, capacity, DAY, 0.0), None);
    }

    #[test]
    fn allowed_writes_are_the_cycles_spread_over_the_years() {
        // 3,650 cycles over 5 years are 2 per day. Half of the bytes are the host's, and a quarter of the flash is
        // spare.
        assert_eq!(budget_dwpd(3650, 125, 100, 2.0, 5.0), Some(1.25));
        assert_eq!(budget_dwpd(3650, 125, 0, 2.0, 5.0), None);
        assert_eq!(budget_dwpd(3650, 125, 100, 0.0, 5.0), None);
        assert_eq!(budget_dwpd(3650, 125, 100, 2.0, 0.0), None);
    }
}
