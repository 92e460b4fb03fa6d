//! What is measured of wear, each measure once: its name, its meaning, and how it is drawn and written.
//!
//! Source: Cheng et al., Erasing Belady's limitations (USENIX ATC 2016), section 3.1.

use super::numbers::{count, shortest, signed};
use super::rows::{erasures, with_caveat};
use flashwise_sim::results::{EnduranceFigures, ResultRow};

/// A figure of wear: what it is called, how it is written and where the paper has it by cache size.
pub struct Measure {
    /// Names its charts.
    pub id: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    meaning: &'static str,
    /// What follows its numbers.
    pub suffix: &'static str,
    /// Whether its values on different traces are orders of magnitude apart.
    pub logarithmic: bool,
    value: fn(&ResultRow) -> Option<f64>,
}

/// Read hit ratio.
pub const RHR: Measure = Measure {
    id: "rhr",
    name: "Read hit ratio",
    meaning: "the share of the reads that RAM or flash has",
    suffix: "%",
    logarithmic: false,
    value: |row| Some(row.endurance.as_ref()?.rhr * 100.0),
};
/// Erasures per unit and day.
pub const EPBPD: Measure = Measure {
    id: "epbpd",
    name: "Erasures per unit and day",
    meaning: "how often each erase unit is erased in a day",
    suffix: "",
    logarithmic: true,
    value: |row| row.endurance.as_ref()?.epbpd,
};
/// Erasures.
pub const ERASURES: Measure = Measure {
    id: "erasures",
    name: "Erasures",
    meaning: "erase units that were erased",
    suffix: "",
    logarithmic: true,
    value: |row| Some(erasures(row)? as f64),
};
/// Flash usage effectiveness.
pub const FUE: Measure = Measure {
    id: "fue",
    name: "Flash usage effectiveness",
    meaning: "blocks read from flash for each page that was programmed",
    suffix: "",
    logarithmic: false,
    value: |row| row.endurance.as_ref()?.fue,
};
/// Weighted flash usage effectiveness, with the weight that was asked for.
pub const WFUE: Measure = Measure {
    id: "wfue",
    name: "Weighted flash usage effectiveness",
    meaning: "hits and saved erasures, weighted, against m+",
    suffix: "",
    logarithmic: false,
    value: |row| row.endurance.as_ref()?.wfue,
};

/// Erasures beside those of M+: the same for traces of any length.
pub const OF_M_PLUS: Measure = Measure {
    id: "of-m-plus",
    name: "Erasures, of those of m+",
    meaning: "erase units that were erased for each that m+ erases at the same size",
    suffix: "%",
    logarithmic: false,
    value: |row| Some(row.endurance.as_ref()?.erasures_of_m_plus? * 100.0),
};
/// Weighted flash usage effectiveness where erasures count most: Figure 9(c). The paper's weights are not known.
pub const WFUE_OF_ERASURES: Measure = Measure {
    id: "wfue-erasures",
    name: "WFUE, hits weigh 10%",
    meaning: "weighted flash usage effectiveness where hits have 10% of the weight and saved erasures 90%, against m+",
    suffix: "",
    logarithmic: false,
    value: |row| weighted(row.endurance.as_ref()?, 0.1),
};
/// The same where hits count most: Figure 9(d).
pub const WFUE_OF_HITS: Measure = Measure {
    id: "wfue-hits",
    name: "WFUE, hits weigh 90%",
    meaning: "weighted flash usage effectiveness where hits have 90% of the weight and saved erasures 10%, against m+",
    suffix: "",
    logarithmic: false,
    value: |row| weighted(row.endurance.as_ref()?, 0.9),
};

/// WFUE with another weight than the row's.
fn weighted(wear: &EnduranceFigures, alpha: f64) -> Option<f64> {
    Some(alpha * wear.rhr_of_m_plus? + (1.0 - alpha) * (1.0 - wear.erasures_of_m_plus?))
}

impl Measure {
    /// Its value of a row, if there is one.
    pub fn of(&self, row: &ResultRow) -> Option<f64> {
        (self.value)(row)
    }

    /// A value as tables have it.
    pub fn written(&self, value: f64) -> String {
        let number = match value {
            value if value < 0.0 => signed(value),
            value if value >= 1000.0 => count(value.round() as u64),
            value => shortest(value, 3),
        };
        format!("{number}{}", self.suffix)
    }

    /// What stands above its figures, with what limits it on `rows`.
    pub fn caption<'a>(&self, rows: impl IntoIterator<Item = &'a ResultRow>) -> String {
        let caption = format!("{}: {}.", self.name, self.meaning);
        if self.id == EPBPD.id { with_caveat(caption, rows) } else { caption }
    }
}

/// What is measured of rows: erasures per day where all traces have times.
pub fn measures<'a>(mut rows: impl Iterator<Item = &'a ResultRow>) -> [&'static Measure; 4] {
    let timed = rows.all(|row| row.endurance.as_ref().is_some_and(|wear| wear.days.is_some()));
    [&RHR, if timed { &EPBPD } else { &ERASURES }, &FUE, &WFUE]
}

/// The mean of some values; 0 of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The value below which this share of sorted values lies, between neighbours in proportion.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|share| quantile(&[1.0, 2.0, 4.0, 8.0], share)), [1.0, 1.75, 3.0, 8.0]);
        assert_eq!(quantile(&[5.0], 0.9), 5.0);
    }
}
