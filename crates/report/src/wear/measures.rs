//! Measures of wear, each defined once: name, meaning and format.
//!
//! Source: Cheng et al., Erasing Belady's limitations (USENIX ATC 2016), section 3.1.

use crate::numbers::{number, signed};
use crate::rows::with_caveat;
use flashwise_sim::columns::{About, Column, about};
use flashwise_sim::results::{EnduranceFigures, ResultRow, TierFigures};

/// A measure of wear.
pub struct Measure {
    /// Id of its charts.
    pub id: &'static str,
    /// Name.
    pub name: &'static str,
    /// Meaning.
    meaning: Meaning,
    /// Suffix of its numbers.
    pub suffix: &'static str,
    /// True if its values on different traces differ by orders of magnitude.
    pub logarithmic: bool,
    value: Value,
}

/// Meaning of a measure: a column of the rows, or words for a computed one.
enum Meaning {
    Column(About),
    Words(&'static str),
}

type Value = fn(&Measure, &ResultRow) -> Option<f64>;

/// Returns the value of a column; shares in percent.
fn of_column(measure: &Measure, row: &ResultRow) -> Option<f64> {
    let Meaning::Column(about) = &measure.meaning else { return None };
    row.endurance.as_ref()?;
    Some(row.figure(about.name)? * if measure.suffix == "%" { 100.0 } else { 1.0 })
}

const fn column(id: &'static str, about: About, suffix: &'static str, logarithmic: bool) -> Measure {
    Measure { id, name: about.title(), meaning: Meaning::Column(about), suffix, logarithmic, value: of_column }
}

/// A computed measure, described in words.
pub const fn worded(id: &'static str, name: &'static str, words: &'static str, suffix: &'static str) -> Measure {
    Measure { id, name, meaning: Meaning::Words(words), suffix, logarithmic: false, value: |_, _| None }
}

const WEAR: &[Column<EnduranceFigures>] = EnduranceFigures::COLUMNS;

/// Read hit ratio.
pub const RHR: Measure = column("rhr", about(WEAR, "rhr"), "%", false);
/// Erasures per unit and day.
pub const EPBPD: Measure = column("epbpd", about(WEAR, "epbpd"), "", true);
/// Erasures.
pub const ERASURES: Measure = column("erasures", about(TierFigures::COLUMNS, "erasures"), "", true);
/// Flash usage effectiveness.
pub const FUE: Measure = column("fue", about(WEAR, "fue"), "", false);
/// Weighted flash usage effectiveness, with the given weight.
pub const WFUE: Measure = column("wfue", about(WEAR, "wfue"), "", false);
/// Erasures relative to M+, which are comparable between traces of any length.
pub const OF_M_PLUS: Measure = column("of-m-plus", about(WEAR, "erasures_of_m_plus"), "%", false);

/// Weighted flash usage effectiveness with more weight on erasures: Figure 9(c). The paper's weights are unknown.
pub const WFUE_OF_ERASURES: Measure = Measure {
    id: "wfue-erasures",
    name: "WFUE, hits weigh 10%",
    meaning: Meaning::Words(
        "weighted flash usage effectiveness where hits have 10% of the weight and saved erasures 90%, against m+",
    ),
    suffix: "",
    logarithmic: false,
    value: |_, row| weighted(row.endurance.as_ref()?, 0.1),
};
/// Weighted flash usage effectiveness with more weight on hits: Figure 9(d).
pub const WFUE_OF_HITS: Measure = Measure {
    id: "wfue-hits",
    name: "WFUE, hits weigh 90%",
    meaning: Meaning::Words(
        "weighted flash usage effectiveness where hits have 90% of the weight and saved erasures 10%, against m+",
    ),
    suffix: "",
    logarithmic: false,
    value: |_, row| weighted(row.endurance.as_ref()?, 0.9),
};

/// Returns WFUE with another weight than the row's.
fn weighted(wear: &EnduranceFigures, alpha: f64) -> Option<f64> {
    Some(alpha * wear.rhr_of_m_plus? + (1.0 - alpha) * (1.0 - wear.erasures_of_m_plus?))
}

impl Measure {
    /// Returns its value in a row, if any.
    pub fn of(&self, row: &ResultRow) -> Option<f64> {
        (self.value)(self, row)
    }

    /// Formats a value for tables.
    pub fn written(&self, value: f64) -> String {
        let number = match value {
            value if value < 0.0 => signed(value),
            value => number(value),
        };
        format!("{number}{}", self.suffix)
    }

    /// Returns the caption of its figures, with the caveat of `rows`.
    pub fn caption<'a>(&self, rows: impl IntoIterator<Item = &'a ResultRow>) -> String {
        let caption = match &self.meaning {
            Meaning::Column(about) => about.meaning(),
            Meaning::Words(words) => format!("{}: {words}.", self.name),
        };
        if self.id == EPBPD.id { with_caveat(caption, rows) } else { caption }
    }
}

/// Returns the measures of rows: erasures per day only if all traces have times.
pub fn measures<'a>(mut rows: impl Iterator<Item = &'a ResultRow>) -> [&'static Measure; 4] {
    let timed = rows.all(|row| row.endurance.as_ref().is_some_and(|wear| wear.days.is_some()));
    [&RHR, if timed { &EPBPD } else { &ERASURES }, &FUE, &WFUE]
}

/// Returns the mean of values; 0 without any.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns a quantile of sorted values, interpolated between neighbours.
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
