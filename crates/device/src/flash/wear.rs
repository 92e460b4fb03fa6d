//! Erasures of each erase unit.

/// A summary of the erasures of all units over some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wear {
    /// Erase units of the device, spare ones included.
    pub units: u32,
    /// Erasures of the unit that was erased least.
    pub erasures_min: u32,
    /// Erasures of a unit, on average.
    pub erasures_mean: f64,
    /// Erasures of the unit that was erased most.
    pub erasures_max: u32,
    /// Standard deviation of the erasures of a unit, over all units.
    pub erasures_deviation: f64,
}

impl Wear {
    /// Summarises the erasures of each unit, for at least one unit.
    pub fn of(erasures: &[u32]) -> Wear {
        let units = erasures.len() as f64;
        let mean = erasures.iter().map(|erasures| u64::from(*erasures)).sum::<u64>() as f64 / units;
        let squares: f64 = erasures.iter().map(|erasures| (f64::from(*erasures) - mean).powi(2)).sum();
        Wear {
            units: erasures.len() as u32,
            erasures_min: erasures.iter().copied().min().expect("a device has erase units"),
            erasures_mean: mean,
            erasures_max: erasures.iter().copied().max().expect("a device has erase units"),
            erasures_deviation: (squares / units).sqrt(),
        }
    }

    /// Summarises the erasures between two counts.
    pub fn between(before: &[u32], after: &[u32]) -> Wear {
        assert_eq!(before.len(), after.len(), "a device keeps its erase units");
        let erasures: Vec<u32> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        Wear::of(&erasures)
    }
}

/// Erasures by unit.
#[derive(Clone, Debug)]
pub(super) struct Erasures {
    of_unit: Vec<u32>,
    least: u32,
    /// Units with `least` erasures.
    at_least: u32,
}

impl Erasures {
    pub fn new(units: u32) -> Erasures {
        assert!(units > 0, "a device has erase units");
        Erasures { of_unit: vec![0; units as usize], least: 0, at_least: units }
    }

    pub fn count(&mut self, unit: u32) {
        let erasures = &mut self.of_unit[unit as usize];
        *erasures += 1;
        if *erasures == self.least + 1 {
            self.at_least -= 1;
            if self.at_least == 0 {
                // All units were erased once more since the last scan, so the cost is constant per erasure.
                self.least += 1;
                let least = self.least;
                self.at_least = self.of_unit.iter().filter(|erasures| **erasures == least).count() as u32;
            }
        }
    }

    pub fn of(&self, unit: u32) -> u32 {
        self.of_unit[unit as usize]
    }

    pub fn least(&self) -> u32 {
        self.least
    }

    pub fn by_unit(&self) -> Vec<u32> {
        self.of_unit.clone()
    }

    /// Asserts that the erasures sum up to `total`.
    pub fn check(&self, total: u64) {
        assert_eq!(
            self.of_unit.iter().map(|erasures| u64::from(*erasures)).sum::<u64>(),
            total,
            "each erasure wears on a unit"
        );
        assert_eq!(self.of_unit.iter().min(), Some(&self.least), "the least erasures are known");
        let at_least = self.of_unit.iter().filter(|erasures| **erasures == self.least).count();
        assert_eq!(at_least, self.at_least as usize, "so is how many units have them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_the_least_mean_most_and_deviation_of_the_erasures() {
        let mut erasures = Erasures::new(4);
        for unit in [0, 0, 0, 1, 1, 2, 2, 3] {
            erasures.count(unit);
        }
        erasures.check(8);
        // Counts 3, 2, 2, 1: the mean is 2, the mean square of the distances to it (1 + 0 + 0 + 1) / 4.
        let expected =
            Wear { units: 4, erasures_min: 1, erasures_mean: 2.0, erasures_max: 3, erasures_deviation: 0.5_f64.sqrt() };
        let before = erasures.by_unit();
        assert_eq!(Wear::of(&before), expected);
        // Then units 1 and 2 are erased once more; the earlier wear does not count.
        erasures.count(1);
        erasures.count(2);
        let expected = Wear { units: 4, erasures_min: 0, erasures_mean: 0.5, erasures_max: 1, erasures_deviation: 0.5 };
        assert_eq!(Wear::between(&before, &erasures.by_unit()), expected);
        assert_eq!(erasures.least(), 1);
    }
}
