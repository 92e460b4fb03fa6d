//! How often each erase unit was erased.

/// The erasures of all units, in short.
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

/// Erasures by unit.
#[derive(Clone, Debug)]
pub(super) struct Erasures {
    of_unit: Vec<u32>,
    least: u32,
    /// Units that were erased `least` times.
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
                // Every unit was erased once more since the last time, so that this takes constant time for each erasure.
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

    pub fn wear(&self) -> Wear {
        let units = self.of_unit.len() as f64;
        let mean = self.of_unit.iter().map(|erasures| u64::from(*erasures)).sum::<u64>() as f64 / units;
        let squares: f64 = self.of_unit.iter().map(|erasures| (f64::from(*erasures) - mean).powi(2)).sum();
        Wear {
            units: self.of_unit.len() as u32,
            erasures_min: self.of_unit.iter().copied().min().expect("a device has erase units"),
            erasures_mean: mean,
            erasures_max: self.of_unit.iter().copied().max().expect("a device has erase units"),
            erasures_deviation: (squares / units).sqrt(),
        }
    }

    /// Asserts that the units were erased `total` times in all.
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
        assert_eq!(erasures.wear(), expected);
        assert_eq!(erasures.least(), 1);
    }
}
