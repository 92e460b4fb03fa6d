//! Values of a row for figures.

use std::sync::LazyLock;

use flashwise_sim::results::{ResultRow, SpecText};

/// The rule of a row; empty if there is none.
pub fn rule(row: &ResultRow) -> &SpecText {
    static NONE: LazyLock<SpecText> = LazyLock::new(SpecText::default);
    row.admission.as_ref().unwrap_or(&NONE)
}

/// Returns the erasures of a row with simulated wear.
pub fn erasures(row: &ResultRow) -> Option<u64> {
    row.endurance.as_ref()?;
    Some(row.tiers.as_ref()?.erasures)
}

/// Returns the caveat about rates and lifetimes of rows as a sentence, if there is one.
pub fn caveat<'a>(rows: impl IntoIterator<Item = &'a ResultRow>) -> Option<String> {
    let (mut traces, mut limited, mut caveats) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if !traces.contains(&&row.trace) {
            traces.push(&row.trace);
        }
        let Some(caveat) = &row.caveat else { continue };
        if !limited.contains(&&row.trace) {
            limited.push(&row.trace);
        }
        if !caveats.contains(&caveat) {
            caveats.push(caveat);
        }
    }
    match caveats[..] {
        [] => None,
        [only] => {
            let (first, rest) = only.split_at(1);
            Some(format!("{}{rest}.", first.to_uppercase()))
        }
        _ => Some(format!(
            "Rates per day and lifetimes are extrapolated from less than a day on {} of {} traces.",
            limited.len(),
            traces.len()
        )),
    }
}

/// Adds the caveat to a caption of rates or lifetimes.
pub fn with_caveat<'a>(caption: String, rows: impl IntoIterator<Item = &'a ResultRow>) -> String {
    match caveat(rows) {
        Some(caveat) => format!("{caption} {caveat}"),
        None => caption,
    }
}

/// Returns the file name of a trace, without folders.
pub fn file_name(trace: &str) -> String {
    trace.rsplit('/').next().unwrap_or(trace).to_owned()
}
